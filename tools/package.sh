#!/usr/bin/env bash
# Builds the binary archive: the command, libbuddy, headers, files for pkg-config and CMake, manual
# pages, completions, licences.
#
#   tools/package.sh [DIR]      DIR/buddy-VERSION-TARGET.tar.gz and its .sha256 (target/package)
#
# Needs a C library at least as new as this machine's. The build is reproducible.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-target/package}
# Without -p, so that dependencies have the same features as with `cargo run` and nothing is built
# twice.
cargo build --release --quiet --locked --bin buddy --lib
buddy=target/release/buddy
version=$("$buddy" --version | cut -d' ' -f2)
name=buddy-$version-$(rustc -vV | sed -n 's/^host: //p')
root=$out/$name
rm -rf "$root" "$root.tar.gz"
mkdir -p "$root"/{bin,lib/pkgconfig,lib/cmake/buddy,share/doc/buddy,share/bash-completion/completions,share/zsh/site-functions,share/fish/vendor_completions.d}

strip -o "$root/bin/buddy" "$buddy"
for library in buddy buddy_targets; do
    strip --strip-unneeded -o "$root/lib/lib$library.so" "target/release/lib$library.so"
done
"$buddy" gpu headers "$root/include/buddy" >/dev/null
cp include/*.h include/*.hpp include/*.f90 "$root/include"
for library in buddy buddy_targets; do
    cat >"$root/lib/pkgconfig/$library.pc" <<PC
prefix=\${pcfiledir}/../..
Name: $library
Description: Buddy Compression on a real GPU, for C and C++
Version: $version
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -l$library
PC
done
cat >"$root/lib/cmake/buddy/buddy-config.cmake" <<'CMAKE'
# The C libraries as the imported targets buddy::buddy and buddy::targets (which holds the first and
# reads targets files), wherever the archive was unpacked.
get_filename_component(buddy_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(library buddy targets)
    string(REPLACE targets buddy_targets file ${library})
    if(NOT TARGET buddy::${library})
        add_library(buddy::${library} SHARED IMPORTED)
        set_target_properties(buddy::${library} PROPERTIES
            IMPORTED_LOCATION "${buddy_PREFIX}/lib/lib${file}.so"
            IMPORTED_NO_SONAME TRUE
            INTERFACE_INCLUDE_DIRECTORIES "${buddy_PREFIX}/include")
    endif()
endforeach()
CMAKE
cat >"$root/lib/cmake/buddy/buddy-config-version.cmake" <<CMAKE
set(PACKAGE_VERSION $version)
# Before 1.0 the minor version says what is compatible.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" ours "$version")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" asked "\${PACKAGE_FIND_VERSION}")
if(ours STREQUAL asked AND NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
endif()
CMAKE
"$buddy" man "$root/share/man/man1"
"$buddy" completions bash >"$root/share/bash-completion/completions/buddy"
"$buddy" completions zsh >"$root/share/zsh/site-functions/_buddy"
"$buddy" completions fish >"$root/share/fish/vendor_completions.d/buddy.fish"
cp LICENSE-MIT LICENSE-APACHE CHANGELOG.md "$root/share/doc/buddy"
tools/supply_check.py --notices "$root/share/doc/buddy/THIRD-PARTY-NOTICES" >/dev/null

tar --create --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+w --mtime="@$(git log -1 --format=%ct 2>/dev/null || echo 0)" \
    --directory "$out" "$name" | gzip -9 --no-name >"$root.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
rm -rf "$root"
echo "$root.tar.gz"
