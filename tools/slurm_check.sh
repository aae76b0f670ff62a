#!/usr/bin/env bash
# A sweep on a real Slurm cluster of this machine, with things going wrong in the middle, against the same sweep run here.
#
#   tools/slurm_check.sh [BUDDY]            the check: exit 0 passed, 1 failed, 77 there is no Slurm here
#   tools/slurm_check.sh [BUDDY] overhead N  times N points of about two seconds here and on the cluster
set -euo pipefail
cd "$(dirname "$0")/.."
buddy=$(realpath "${1:-target/release/buddy}")
work=$(mktemp -d)
trap 'tools/slurm_cluster.sh stop "$work/cluster" 2>/dev/null; rm -rf "$work"' EXIT
tools/slurm_cluster.sh start "$work/cluster" 4 || exit $?
export SLURM_CONF=$work/cluster/slurm.conf

fail() { echo "FAILED: $*"; exit 1; }

# Waits until a store has so many points.
points() { find "$1/points" -name 'point-*.json' 2>/dev/null | wc -l; }
wait_for() { for _ in $(seq 600); do [ "$(points "$1")" -ge "$2" ] && return; sleep 0.1; done; fail "no $2 points after a minute"; }

# Every point once, and each the same as here.
compare() {
    diff -r "$1/points" "$2/points" || fail "points differ"
    [ -z "$(ls "$2/tries")" ] || fail "tries are left: $(ls "$2/tries")"
    [ -z "$(find "$2" -name '*.part')" ] || fail "half a file is left"
}

disturbed() {
    cat >"$work/plan.toml" <<'PLAN'
[axes]
program = ["cg", "ilbdc"]
scale = "2MB"
mode = ["ideal", "bandwidth", "buddy"]
link = "50..200 step 50"
threshold = [0.2, 0.4]
PLAN
    "$buddy" sweep run "$work/plan.toml" --store "$work/here" 2>/dev/null
    local there=$work/there all
    all=$(points "$work/here")
    "$buddy" sweep run "$work/plan.toml" --store "$there" --on slurm --jobs 12 --detach
    "$buddy" sweep collect "$work/plan.toml" --store "$there" --jobs 12 2>"$work/first" & local first=$!
    "$buddy" sweep collect "$work/plan.toml" --store "$there" --jobs 12 2>"$work/second" & local second=$!
    wait_for "$there" 4
    local job
    job=$(pgrep -f -- "--store $there .*--shard" | head -1) && kill -9 "$job" && echo "killed a job"
    scontrol update nodename=n2 state=drain reason=check && echo "drained a node"
    tools/slurm_cluster.sh controller "$work/cluster" && echo "restarted the controller"
    wait_for "$there" $((all / 2))
    job=$(pgrep -f -- "--store $there .*--shard" | head -1) && kill -9 "$job" && echo "killed a second job"
    scontrol update nodename=n2 state=resume || true
    wait "$first" || fail "the first collector: $(tail -3 "$work/first")"
    wait "$second" || fail "the second collector: $(tail -3 "$work/second")"
    # A killed try stays behind as one that failed, and its point was done by another.
    rm -f "$there"/tries/*
    compare "$work/here" "$there"
    "$buddy" sweep status "$work/plan.toml" --store "$there"
    echo "$all points, each once, equal to those made here"
}

# A point that fails always is reported, and the rest goes on.
broken() {
    mkdir "$work/trace"
    printf 'kernel-1.traceg\n' >"$work/trace/kernelslist.g"
    printf 'no trace\n' >"$work/trace/kernel-1.traceg"
    printf '[axes]\nprogram = ["stream", "%s"]\nsize = 1\nlink = [50, 100]\n' "$work/trace" >"$work/broken.toml"
    local said
    said=$("$buddy" sweep run "$work/broken.toml" --store "$work/broken" --on slurm --jobs 4 --attempts 2 2>&1) && fail "it should fail"
    grep -q "failed: $work/trace" <<<"$said" && grep -q '2 of 4 points are done' <<<"$said" || fail "$said"
    echo "two points that always fail were reported, and two were done"
}

cancelled() {
    "$buddy" sweep run "$work/plan.toml" --store "$work/cancelled" --on slurm --jobs 12 --detach
    "$buddy" sweep cancel "$work/plan.toml" --store "$work/cancelled"
    for _ in $(seq 100); do [ -z "$(squeue --noheader)" ] && break; sleep 0.1; done
    [ -z "$(squeue --noheader)" ] || fail "jobs are left: $(squeue)"
    echo "cancelled jobs are gone"
}

# One processor for each node and two nodes, against two threads.
overhead() {
    printf '[axes]\nprogram = "cg"\nscale = "6MB"\nmode = "ideal"\ncore.launch_cycles = "1001..%d"\n' $((1000 + $1)) >"$work/many.toml"
    scontrol update nodename=n[3-4] state=drain reason=overhead
    local begin=$EPOCHREALTIME
    "$buddy" sweep run "$work/many.toml" --store "$work/many-here" --threads 2 2>/dev/null
    local middle=$EPOCHREALTIME
    "$buddy" sweep run "$work/many.toml" --store "$work/many-there" --on slurm --jobs 8 2>/dev/null
    local end=$EPOCHREALTIME
    diff -r "$work/many-here/points" "$work/many-there/points" || fail "points differ"
    python3 -c "
here, there = $middle - $begin, $end - $middle
print(f'$1 points: {here:.1f} s with two threads here, {there:.1f} s on two nodes: {100 * (there / here - 1):.1f}% more')"
}

if [ "${2:-}" = overhead ]; then overhead "${3:-100}"; else disturbed; broken; cancelled; fi
