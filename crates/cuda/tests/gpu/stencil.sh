#!/bin/bash
# Stencils in compressed memory on a GPU: `stencil.sh FOLDER`, with the folder that `buddy gpu headers FOLDER`
# wrote. Builds the programs of examples/stencil there with nvcc, unless they are there, and runs them: on a
# grid that fits, with every cell alive, and at 1.5 times the GPU's memory. Every value is compared; exits
# with 1 if one differs.
set -u
folder=$(realpath "$1") root=$(cd "$(dirname "$0")/../../../.." && pwd)
for name in gray_scott wave; do
    [ -x "$folder/$name" ] || nvcc -std=c++17 -O3 -arch=sm_90 -fmad=false -I"$root/crates/cuda/kernels" -I"$folder" \
        "$root/examples/stencil/$name.cu" -o "$folder/$name" &
done
wait
failed=0
try() {
    echo "== $*"
    SECONDS=0
    "$folder/$1" "${@:2}" || failed=1
    echo "-- $SECONDS s"
}
try gray_scott --cells 1024,1024,512 --steps 60 --everywhere
try gray_scott --cells 1024,1024,512 --steps 60 --everywhere --windows
try gray_scott --steps 300 --card-times 1.5
try wave --cells 1024,1024,768 --steps 60 --everywhere
# Denser: bricks become windows, and pages move units to the host.
try gray_scott --steps 300 --thick 80 --card-times 1.5 --host-gb 20
exit $failed
