#!/usr/bin/env bash
# Runs everything that needs a GPU: its properties, the tests, the bit-exactness check, a memory
# checker over a small one, the benchmark with nvCOMP's rows, and kernels on compressed memory. It
# builds only a small nvcc program: the folder device-bin/ holds `buddy` (release), the test
# programs `gpu`, `given`, `change` and `lost` of crates/cuda and `lab` of crates/gpu-lab, and
# optionally `nvcomp/` with libnvcomp.so.6 of the wheel nvidia-libnvcomp-cu13. Logs go to $OUT, or
# to out/.
#
#   tools/gpu_check.sh [STEP...]   steps: info tests test sanitizer soak bench fused halve; attention stencils
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/device-bin
out=${OUT:-$PWD/out}
mkdir -p "$out"
export BUDDY_CACHE_DIR=${BUDDY_CACHE_DIR:-$out/../buddy-kernels} BUDDY_REQUIRE_GPU=1
# NVRTC and cuBLASLt are next to the toolkit or in wheels.
for dir in /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib $(python3 -c '
import glob, site
for base in site.getsitepackages():
    print(*{p.rsplit("/", 1)[0] for p in glob.glob(base + "/nvidia/*/lib/libnvrtc.so*") + glob.glob(base + "/nvidia/*/lib/libcublasLt.so*")})' 2>/dev/null); do
    [ -d "$dir" ] && LD_LIBRARY_PATH=$dir:${LD_LIBRARY_PATH:-}
done
export LD_LIBRARY_PATH

steps=${*:-info tests test sanitizer soak bench fused halve}
failed=0
step() {
    local name=$1 start=$SECONDS
    shift
    [[ " $steps " == *" $name "* ]] || return 0
    printf '\n== %s\n' "$name"
    "$@" 2>&1 | tee "$out/$name.log"
    local result=${PIPESTATUS[0]}
    [ "$result" = 0 ] || failed=1
    printf -- '-- %s: exit %s in %d s\n' "$name" "$result" $((SECONDS - start))
}

tests() { (cd "$bin" && for test in gpu given change lab lost; do "./$test" --nocapture || exit; done); }

sanitizer() {
    for tool in memcheck racecheck; do
        compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/buddy" gpu test --small | tail -5 || return
    done
}

# A short soak under both checkers on several streams; keeps all their output.
soak() {
    for tool in memcheck racecheck; do
        compute-sanitizer --tool "$tool" --error-exitcode 9 --log-file "$out/soak-$tool.log" \
            "$bin/buddy" gpu soak --gb 0.05 --streams 4 || return
    done
}

bench() { LD_LIBRARY_PATH=$bin/nvcomp:${LD_LIBRARY_PATH:-} "$bin/buddy" gpu bench --json "$out/bench.json"; }

fused() { "$bin/buddy" gpu fused --json "$out/fused.json"; }

attention() { "$bin/buddy" gpu attention --json "$out/attention.json"; }

# A program built with nvcc alone.
halve() {
    "$bin/buddy" gpu headers "$out/headers" &&
        nvcc -std=c++17 -arch=sm_90 -I "$out/headers" examples/device/halve.cu -o "$out/halve" && "$out/halve"
}

# Stencils in compressed memory, built with nvcc alone.
stencils() { "$bin/buddy" gpu headers "$out/headers" && crates/cuda/tests/gpu/stencil.sh "$out/headers"; }

step info "$bin/buddy" gpu info
step tests tests
step test "$bin/buddy" gpu test --json "$out/test.json"
step sanitizer sanitizer
step soak soak
step bench bench
step fused fused
step attention attention
step halve halve
step stencils stencils
exit $failed
