#!/usr/bin/env bash
# A sweep on a real Slurm cluster of this machine, with things going wrong in the middle, against the same sweep run here.
#
#   tools/slurm_check.sh [BUDDY [OUT]]   exit 0 passed, 1 failed, 77 there is no Slurm here
#
# OUT is what `buddy reproduce --quick` of the same program made; it is made here unless given. tools/slurm_overhead.py measures.
set -euo pipefail
cd "$(dirname "$0")/.."
buddy=$(realpath "${1:-target/release/buddy}") out=${2:-}
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
scale = "1MB"
mode = ["ideal", "bandwidth", "buddy"]
link = "50..200 step 50"
threshold = [0.2, 0.4]
PLAN
    "$buddy" sweep run "$work/plan.toml" --store "$work/here" 2>/dev/null
    local there=$work/there all
    all=$(points "$work/here")
    "$buddy" sweep run "$work/plan.toml" --store "$there" --on slurm --jobs 12 --detach
    "$buddy" sweep collect "$work/plan.toml" --store "$there" --jobs 12 --silence 20 2>"$work/first" & local first=$!
    "$buddy" sweep collect "$work/plan.toml" --store "$there" --jobs 12 --silence 20 2>"$work/second" & local second=$!
    wait_for "$there" 4
    local job
    job=$(pgrep -f -- "--store $there .*--shard" | head -1) && kill -9 "$job" && echo "killed a job"
    scontrol update nodename=n2 state=drain reason=check && echo "drained a node"
    tools/slurm_cluster.sh controller "$work/cluster" && echo "restarted the controller"
    wait_for "$there" $((all / 3))
    job=$(pgrep -f -- "--store $there .*--shard" | head -1) && kill -STOP "$job" && echo "stopped a second job: it gives no sign of life"
    tools/slurm_cluster.sh crash "$work/cluster" && echo "killed the controller"
    scontrol update nodename=n2 state=resume 2>/dev/null || true # the dead controller may have forgotten that it was drained
    wait "$first" || fail "the first collector: $(tail -3 "$work/first")"
    wait "$second" || fail "the second collector: $(tail -3 "$work/second")"
    # A killed try stays behind as one that failed, and its point was done by another.
    rm -f "$there"/tries/*
    compare "$work/here" "$there"
    "$buddy" sweep status "$work/plan.toml" --store "$there"
    scancel --user="$(id -un)" # what the dead controller may list still
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

# A figure of the paper by jobs has the same records as here.
reproduced() {
    [ -n "$out" ] || { out=$work/drawn; "$buddy" reproduce --quick --only fig12 --out "$out" >/dev/null 2>&1 || fail "reproduce here"; }
    "$buddy" reproduce --quick --only fig12 --on slurm --jobs 4 --out "$work/drawn-there" >/dev/null 2>"$work/said" ||
        fail "$(tail -3 "$work/said")"
    local record many=0
    for record in "$work"/drawn-there/records/*.json; do
        cmp "$record" "$out/records/$(basename "$record")" || fail "a record differs"
        many=$((many + 1))
    done
    echo "a figure by jobs has the records of one made here, all $many"
}

disturbed; broken; cancelled; reproduced
