#!/usr/bin/env bash
# Runs ThreadSanitizer on the C interface: eight threads allocate, write, read, count and free on
# the stand-in driver of crates/capi/tests/stub. Needs a Rust toolchain for Linux on x86-64 and a C
# compiler; no GPU.
#
# The sanitiser's runtime is part of the toolchain, but its flag is unstable: RUSTC_BOOTSTRAP
# enables it in a stable compiler. The standard library must be instrumented too, or every lock
# looks like a race; its sources are installed by `rustup component add rust-src`. Exit 77 without
# them.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTC_BOOTSTRAP=1
platform=$(rustc -vV | sed -n 's/^host: //p')
runtime=$(ls "$(rustc --print sysroot)/lib/rustlib/$platform/lib/"librustc-*_rt.tsan.a)
where=target/tsan
[[ -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ]] || { echo "NOT RUN: needs rustup component add rust-src"; exit 77; }
RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" cargo build --quiet -Zbuild-std -p buddy-c --target "$platform" \
    --target-dir "$where"

cc=${CC:-cc} built=$where/$platform/debug
flags=(-std=gnu11 -g -O1 -fsanitize=thread -fPIC -Iinclude)
"$cc" "${flags[@]}" -c crates/capi/tests/stub/driver.c -o "$where/driver.o"
"$cc" "${flags[@]}" -c crates/capi/tests/stub/refusals.c -o "$where/refusals.o"
# The program provides the runtime for the libraries.
"$cc" -shared -o "$where/libcuda.so" "$where/driver.o"
ln -sf libcuda.so "$where/libnvrtc.so"
"$cc" -rdynamic -o "$where/threads" "$where/refusals.o" -Wl,--whole-archive "$runtime" -Wl,--no-whole-archive \
    -L"$built" -L"$where" -lbuddy -lcuda -lpthread -ldl -lm -lrt -lstdc++
for mode in threads destroyed; do
    LD_LIBRARY_PATH=$where:$built BUDDY_CACHE_DIR=/dev/null/none TSAN_OPTIONS=halt_on_error=1:exitcode=66 "$where/threads" "$mode"
done
echo "ThreadSanitizer found no race"
