#!/usr/bin/env bash
# Runs every workload, profiles its snapshots and prints the table of docs/results.md.
#
#   tools/results.sh [SCALE] [DIR]
#
# SCALE is that of `buddy workload run` (64MB); DIR keeps the records (out/results). Snapshots take ten times the scale on
# disk, one workload at a time, and are removed once they are profiled and verified.
set -euo pipefail
cd "$(dirname "$0")/.."

scale=${1:-64MB}
out=${2:-out/results}
workloads=(palm ep cg seismic sp csp ilbdc bt hpgmg lulesh)

cargo build --release --quiet -p buddy
mkdir -p "$out"
records=()
for name in "${workloads[@]}"; do
    run=$out/$name
    if [ ! -f "$run.json" ]; then
        rm -rf "$run"
        target/release/buddy workload run "$name" --scale "$scale" --out "$run" >&2
        target/release/buddy profile "$run" --verify --json "$run.json" --html "$run.html" >"$run.txt"
        rm -rf "$run"
    fi
    records+=("$run.json")
done
cargo run --release --quiet -p buddy-profile --example results -- "${records[@]}"
