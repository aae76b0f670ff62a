#!/usr/bin/env bash
# Builds the programs of examples/c against an unpacked archive, with pkg-config and with CMake.
#
#   tools/c_check.sh [ARCHIVE]      the archive of tools/package.sh (the newest in target/package)
#
# Needs a C compiler, pkg-config, and cmake or an index of Python packages to take it from; exits with
# 77 without them. The programs are run if they find a GPU; otherwise they must say that there is none.
set -euo pipefail
cd "$(dirname "$0")/.."

archive=$(realpath "${1:-$(ls -t target/package/buddy-*.tar.gz | head -1)}")
type pkg-config >/dev/null 2>&1 || { echo "NOT RUN: there is no pkg-config"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake=cmake
if ! type cmake >/dev/null 2>&1; then
    [ -x target/cmake/bin/cmake ] ||
        python3 -m pip install --quiet --timeout 30 --retries 4 --target target/cmake cmake==4.1.2 ||
        { echo "NOT RUN: cmake cannot be installed"; exit 77; }
    export PYTHONPATH=$PWD/target/cmake
    cmake=$PWD/target/cmake/bin/cmake
fi
# A folder with a space, which paths in the files must survive.
root="$work/opt buddy"
mkdir -p "$root" "$work/source"
tar --extract --gzip --file "$archive" --directory "$root" --strip-components=1
cp examples/c/round_trip.c "$work/source"

# A program that cannot find a GPU says so; one that finds it restores its data.
check() {
    local said
    if said=$(LD_LIBRARY_PATH="$root/lib" "$1" 2>&1); then
        echo "$2: $said" | head -1
    else
        grep -qi "cuda\|driver\|gpu" <<<"$said" || { echo "$2: $said"; exit 1; }
        echo "$2: builds and starts; $said" | head -1
    fi
}

export PKG_CONFIG_PATH="$root/lib/pkgconfig"
version=$(basename "$archive" | cut -d- -f2)
[ "$(pkg-config --modversion buddy)" = "$version" ] || { echo "buddy.pc has another version"; exit 1; }
eval "flags=($(pkg-config --cflags --libs buddy))"
cc -std=c11 "$work/source/round_trip.c" "${flags[@]}" -ldl -o "$work/with-pkg-config"
check "$work/with-pkg-config" pkg-config

cat >"$work/source/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.16)
project(round_trip C)
find_package(buddy $version REQUIRED)
add_executable(round_trip round_trip.c)
target_link_libraries(round_trip PRIVATE buddy::buddy \${CMAKE_DL_LIBS})
CMAKE
"$cmake" -S "$work/source" -B "$work/build" -DCMAKE_PREFIX_PATH="$root" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$cmake" --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
check "$work/build/round_trip" CMake
