#!/usr/bin/env bash
# compute-sanitizer over small problems: every kernel of linear layers (frozen, written and gated; for few tokens, for more, in slices and in
# clusters) and attention (short, paged, split). Each run has so many seconds; one that fails or takes longer stops no other.
#
#   tools/sanitize.sh LAB [TOOL...]     LAB is the test program `lab` of crates/gpu-lab; tools: memcheck racecheck initcheck, all if none is named
#
# SANITIZE_SECONDS: the limit of a run, 40 if it is not set. Logs go to $OUT, or to out/.
set -uo pipefail
lab=${1:?the test program lab of crates/gpu-lab}
shift
out=${OUT:-$PWD/out}
limit=${SANITIZE_SECONDS:-40}
mkdir -p "$out"
export BUDDY_REQUIRE_GPU=1
tests=(every_kernel_of_linear_layers attention_gives_what_plain_memory_gives)
failed=0
for tool in ${*:-memcheck racecheck initcheck}; do
    for test in "${tests[@]}"; do
        log=$out/sanitize-$tool-${test%%_of_*}.log start=$SECONDS
        timeout -k 2 "$limit" compute-sanitizer --tool "$tool" --error-exitcode 9 "$lab" --nocapture --test-threads 1 "$test" > "$log" 2>&1
        result=$?
        # A program that tests nothing has nothing to find.
        grep -q "1 passed" "$log" || [ $result != 0 ] || result=8
        [ $result = 0 ] || failed=1
        printf -- '-- %s %s: exit %s in %d s: %s\n' "$tool" "$test" "$result" $((SECONDS - start)) "$(grep -o 'ERROR SUMMARY.*\|RACECHECK SUMMARY.*' "$log" | tail -1)"
    done
done
exit $failed
