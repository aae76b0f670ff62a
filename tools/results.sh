#!/usr/bin/env bash
# Runs every workload, profiles its snapshots and verifies the last one in the working memory.
#
#   tools/results.sh [SCALE] [DIR]
#
# SCALE is that of `buddy workload run` (64MB); DIR keeps the profiles (out/results). Snapshots take
# ten times the scale on disk, one workload at a time, and are removed after verification. The table
# of docs/explain/results.md is made by `buddy reproduce --docs docs`.
set -euo pipefail
cd "$(dirname "$0")/.."

scale=${1:-64MB}
out=${2:-out/results}

cargo build --release --quiet -p buddy-cli
mkdir -p "$out"
for name in $(target/release/buddy workload list | awk 'NR > 2 { print $1 }'); do
    run=$out/$name
    rm -rf "$run"
    target/release/buddy workload run "$name" --scale "$scale" --out "$run" >&2
    target/release/buddy profile "$run" --policy allocation-16x --codec bpc --verify --json "$run.json" --html "$run.html" >"$run.txt"
    rm -rf "$run"
    echo "$name: verified"
done
