#!/usr/bin/env bash
# Fuzzes all readers, or the named ones, for SECONDS each: tools/fuzz.sh SECONDS [TARGET...]
#
# Needs a stable Rust toolchain and a C++ compiler. Starts from the tree's files of every format,
# fuzz/seeds and the corpus of earlier runs (fuzz/corpus). Prints the number of inputs and covered
# edges of each target; libFuzzer's output is in fuzz/logs. Runs one target per core, or
# $BUDDY_FUZZ_JOBS. `tools/fuzz.sh keep` minimises fuzz/corpus and packs it as fuzz/kept.tar.gz,
# which is in the tree.
#
# BUDDY_FUZZ_BUILD=release builds as users do, asan with AddressSanitizer, for the unsafe code of
# dependencies. BUDDY_FUZZ_LENGTH=4000000 allows inputs of megabytes.
set -euo pipefail
cd "$(dirname "$0")/.."
export seconds=${1:?tools/fuzz.sh SECONDS [TARGET...]}
shift

# The flags of cargo-fuzz without a sanitiser: counters of edges and comparisons for libFuzzer.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1 --cfg=fuzzing"
# A named target keeps the flags from build scripts.
platform=$(rustc -vV | sed -n 's/^host: //p')
case ${BUDDY_FUZZ_BUILD:-checked} in
    checked) build=fuzz/target/$platform/debug profile=dev ;;
    release) build=fuzz/target/release/$platform/release profile=release ;;
    # Stable compilers have the runtime of AddressSanitizer, but not its flag.
    asan) build=fuzz/target/asan/$platform/debug profile=dev flags+=" -Zsanitizer=address" ;;
    *) echo "BUDDY_FUZZ_BUILD is checked, release or asan"; exit 2 ;;
esac
[[ $flags != *-Zsanitizer* ]] || export RUSTC_BOOTSTRAP=1
RUSTFLAGS=$flags CARGO_TARGET_DIR=${build%/"$platform"/*} cargo build --quiet --locked --profile "$profile" \
    --manifest-path fuzz/Cargo.toml --target "$platform"
export program=$build/buddy-fuzz length=${BUDDY_FUZZ_LENGTH:-65536}

[[ -d fuzz/corpus ]] || { mkdir -p fuzz/corpus && tar -xzf fuzz/kept.tar.gz -C fuzz/corpus; }
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(sed -n 's|^    ("\([a-z0-9_]*\)", .*|\1|p' fuzz/src/main.rs)

# Packs the minimised corpus reproducibly.
if [[ $seconds == keep ]]; then
    rm -rf fuzz/corpus.small
    for target in "${targets[@]}"; do
        mkdir -p "fuzz/corpus.small/$target" "fuzz/corpus/$target"
        BUDDY_FUZZ=$target "$program" -merge=1 -max_len=2048 "fuzz/corpus.small/$target" "fuzz/corpus/$target" 2>/dev/null
    done
    tar -C fuzz/corpus.small --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -czf fuzz/kept.tar.gz .
    rm -rf fuzz/corpus.small
    exit
fi

# Fuzzes one target and prints a summary.
fuzz() {
    local target=$1 log=fuzz/logs/$1.txt
    mkdir -p "fuzz/corpus/$target" "fuzz/seeds/$target" "fuzz/artifacts/$target" fuzz/logs
    if ! BUDDY_FUZZ=$target "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len="$length" \
        -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$target/" "fuzz/corpus/$target" "fuzz/seeds/$target" \
        data/versions specs crates/trace/tests/vectoradd crates/snapshot/tests/data >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "BROKEN: $target"
        return 1
    fi
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s," \
        "$(grep -ao 'cov: [0-9]*' "$log" | tail -n 1 | tr -dc 0-9) edges covered, no crash"
    rmdir --ignore-fail-on-non-empty "fuzz/seeds/$target"
}
export -f fuzz
printf '%s\n' "${targets[@]}" | xargs -P "${BUDDY_FUZZ_JOBS:-$(nproc)}" -I TARGET bash -c 'fuzz TARGET'
