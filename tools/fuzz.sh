#!/usr/bin/env bash
# Fuzzes every reader, or those that are named, for so many seconds each: tools/fuzz.sh SECONDS [TARGET...]
#
# Needs a stable Rust toolchain and a C++ compiler. Begins with the files of every format that are in the tree, with fuzz/seeds and
# with what earlier runs found (fuzz/corpus).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?tools/fuzz.sh SECONDS [TARGET...]}
shift

# What cargo-fuzz passes, without a sanitiser: counters of edges and comparisons, for libFuzzer to follow.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1 --cfg=fuzzing"
# Naming the platform keeps the flags from build scripts.
platform=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS=$flags cargo build --quiet --locked --manifest-path fuzz/Cargo.toml --target "$platform"

targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"|\1|p' fuzz/Cargo.toml)
failed=()
for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target" "fuzz/seeds/$target" "fuzz/artifacts/$target"
    log=$(mktemp)
    if "fuzz/target/$platform/debug/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 \
        -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$target/" "fuzz/corpus/$target" "fuzz/seeds/$target" \
        data/versions specs crates/trace/tests/vectoradd >"$log" 2>&1; then
        echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, none broke it"
    else
        tail -n 40 "$log"
        failed+=("$target")
    fi
    rm -f "$log"
done
[[ ${#failed[@]} -eq 0 ]] || { echo "broken: ${failed[*]}"; exit 1; }
