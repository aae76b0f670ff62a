#!/bin/bash
# C, C++ and Fortran programs with targets files on a GPU: `run.sh BUDDY LIBRARIES RUN [FOLDER]`, with the
# command, the folder of libbuddy.so and libbuddy_targets.so, and a run of one snapshot. Every byte must come
# back, and overflow must be what the profile says. Needs nvcc; builds in FOLDER.
buddy=$(realpath "$1") libraries=$(realpath "$2") run=$(realpath "$3")
here=$(cd "$(dirname "$0")" && pwd) root=$(cd "$(dirname "$0")/../../../.." && pwd)
work=${4:-$(mktemp -d)}
failed=0
say() { printf '%-8s %s\n' "$1" "$2"; [ "$1" != FAILED ] || failed=1; }
# Runs a command; its output is shown only if it fails.
try() {
    local name=$1
    shift
    if "$@" > "$name.log" 2>&1; then say ok "$name"; else say FAILED "$name"; tail -20 "$name.log"; return 1; fi
}
cd "$work" || exit 1
export LD_LIBRARY_PATH=$libraries:$LD_LIBRARY_PATH
nvcc="nvcc -O2 -g -std=c++17 -arch=native -I$root/include -L$libraries"
try c_build cc -std=c11 -D_POSIX_C_SOURCE=200809L -I"$root/include" "$root/examples/c/round_trip.c" -L"$libraries" -lbuddy -ldl -o round_trip &
try cpp_build $nvcc "$here/same.cpp" -lbuddy_targets -o same &
try plain_build $nvcc "$root/examples/cpp/jacobi_plain.cpp" "$root/examples/cpp/plate.cu" -o jacobi_plain &
try jacobi_build $nvcc "$root/examples/cpp/jacobi.cpp" "$root/examples/cpp/plate.cu" -lbuddy_targets -o jacobi &
wait
try round_trip ./round_trip
try profile "$buddy" profile "$run" --targets same.toml --json same.json
./same same.toml "$run" > same.out 2> same.err || { say FAILED same; tail -5 same.err; }
python3 "$here/same.py" same.json same.out || failed=1
try jacobi_profile "$buddy" profile --targets targets.toml -- ./jacobi_plain
grep -E '^(name|codec|target|ranges)' targets.toml
time ./jacobi_plain > plain.out
time ./jacobi > jacobi.out
if [ -s plain.out ] && cmp plain.out jacobi.out; then say ok "jacobi: every value is the same"; else say FAILED jacobi; fi
if command -v gfortran > /dev/null; then
    try fortran_build gfortran -std=f2008 -J. "$root/include/buddy.f90" "$here/same.f90" -L"$libraries" -lbuddy_targets \
        -L"$(dirname "$(command -v nvcc)")/../lib64" -lcudart -o same_fortran \
        && try fortran ./same_fortran same.toml "$(head -1 same.out | cut -d' ' -f1)" && cat fortran.log
else
    say SKIPPED "there is no gfortran"
fi
exit $failed
