#!/usr/bin/env bash
# Builds the programs of examples/c, and one in C++ with a targets file, against an unpacked archive,
# with pkg-config and with CMake.
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

# Reading a targets file and multiplying on the host need no GPU.
cp examples/c/sparse.c "$work/source"
cat >"$work/source/targets.toml" <<'TOML'
version = 1
program = "heat"
[[allocation]]
name = "heat"
bytes = 2304
codec = "planes64"
target = "2x"
TOML
cat >"$work/source/targets.cpp" <<'CPP'
#include <buddy.hpp>
#include <cstdio>
int main(int, char **arguments) {
    buddy::Targets targets(arguments[1]);
    buddyTargetsRow row = targets[0];
    std::printf("%zu allocation: %s, %s, %llu bytes\n", targets.size(), row.name, row.codec, (unsigned long long)row.bytes);
}
CPP
same() {
    local said
    said=$(LD_LIBRARY_PATH="$root/lib" "$1" "$work/source/targets.toml") || { echo "$2: failed"; exit 1; }
    case $said in
        "1 allocation: heat, planes64, 2304 bytes" | *"steps: yes") echo "$2: $said" ;;
        *) echo "$2: $said"; exit 1 ;;
    esac
}
cc -std=c11 "$work/source/sparse.c" "${flags[@]}" -lm -o "$work/sparse"
same "$work/sparse" "sparse, pkg-config"
eval "flags=($(pkg-config --cflags --libs buddy_targets))"
c++ -std=c++17 "$work/source/targets.cpp" "${flags[@]}" -o "$work/targets"
same "$work/targets" "C++, pkg-config"

cat >"$work/source/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.16)
project(round_trip C CXX)
find_package(buddy $version REQUIRED)
add_executable(round_trip round_trip.c)
target_link_libraries(round_trip PRIVATE buddy::buddy \${CMAKE_DL_LIBS})
add_executable(targets targets.cpp)
target_compile_features(targets PRIVATE cxx_std_17)
target_link_libraries(targets PRIVATE buddy::targets)
CMAKE
"$cmake" -S "$work/source" -B "$work/build" -DCMAKE_PREFIX_PATH="$root" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$cmake" --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
check "$work/build/round_trip" CMake
same "$work/build/targets" "C++, CMake"
