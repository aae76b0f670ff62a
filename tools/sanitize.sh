#!/usr/bin/env bash
# Runs compute-sanitizer over small problems: every kernel of linear layers (frozen, written and
# gated; few tokens, many, split-K and clusters) and attention (short, paged, split). Each run has a
# timeout; a failed run does not stop the others.
#
#   tools/sanitize.sh LAB [TOOL...]     LAB: test program `lab` of crates/gpu-lab
#
# Tools: memcheck racecheck initcheck; default all.
#
# SANITIZE_SECONDS: timeout of a run, 40 by default. Logs go to $OUT, or to out/.
set -uo pipefail
lab=${1:?the test program lab of crates/gpu-lab}
shift
out=${OUT:-$PWD/out}
limit=${SANITIZE_SECONDS:-40}
mkdir -p "$out"
export BUDDY_REQUIRE_GPU=1
tests=(every_kernel_of_linear_layers every_kernel_of_attention)
failed=0
for tool in ${*:-memcheck racecheck initcheck}; do
    for test in "${tests[@]}"; do
        log=$out/sanitize-$tool-${test#every_kernel_of_}.log start=$SECONDS
        timeout -k 2 "$limit" compute-sanitizer --tool "$tool" --error-exitcode 9 "$lab" --nocapture --test-threads 1 "$test" > "$log" 2>&1
        result=$?
        # A run that executed no test is a failure.
        grep -q "1 passed" "$log" || [ $result != 0 ] || result=8
        [ $result = 0 ] || failed=1
        printf -- '-- %s %s: exit %s in %d s: %s\n' "$tool" "$test" "$result" $((SECONDS - start)) "$(grep -o 'ERROR SUMMARY.*\|RACECHECK SUMMARY.*' "$log" | tail -1)"
    done
done
exit $failed
