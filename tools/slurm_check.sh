#!/usr/bin/env bash
# Runs a sweep with injected failures on a real Slurm cluster on this machine, and compares it with
# a local run.
#
#   tools/slurm_check.sh [BUDDY [OUT]]   exit 0 passed, 1 failed, 77 no Slurm
#
# OUT is the output of `buddy reproduce --quick` of the same program; made here unless given. See
# also tools/slurm_overhead.py.
set -euo pipefail
cd "$(dirname "$0")/.."
buddy=$(realpath "${1:-target/release/buddy}") out=${2:-}
work=$(mktemp -d)
there=$work/there administrator=
export SLURM_CONF=$work/cluster/slurm.conf
trap 'fail "terminated from outside"' TERM INT
trap clean EXIT

# Ends all started processes: collectors, and jobs unknown to any controller.
clean() {
    [ -z "$administrator" ] || kill "$administrator" 2>/dev/null || true
    pgrep -f -- "--store $work/" | xargs --no-run-if-empty kill -9 2>/dev/null || true
    tools/slurm_cluster.sh stop "$work/cluster" 2>/dev/null || true
    rm -rf "$work"
}

# Lists the job processes of a store.
jobs_of() { pgrep -f -- "--store $1 .*--shard" || true; }

# Sends a signal to a job, if there is one.
strike() {
    local job
    job=$(jobs_of "$there" | head -n 1)
    [ -n "$job" ] && kill "-$1" "$job" 2>/dev/null && echo "$2" || echo "no job for $1"
}

# Reports a failure with all available diagnostics.
fail() {
    trap - TERM INT
    echo "FAILED: $*"
    limited squeue --array || true
    limited sinfo --long --Node || true
    tail -n 15 "$work"/{first,second,said} "$work"/cluster/{slurmctld,n*}.log 2>/dev/null || true
    exit 1
}

# Timeouts: a minute for Slurm commands, five minutes for buddy.
limited() { timeout --foreground --kill-after=5 60 "$@"; }
works() { timeout --foreground --kill-after=5 300 "$@"; }

# Waits up to a number of seconds until a command succeeds.
await() {
    local end=$((SECONDS + $1))
    until "${@:3}"; do
        [ "$SECONDS" -lt "$end" ] || fail "$2 within $1 s"
        sleep 0.1
    done
}

points() { find "$1/points" -name 'point-*.json' 2>/dev/null | wc -l; }
has_points() { [ "$(points "$1")" -ge "$2" ]; }
wait_for() { await 300 "$1 has $(points "$1") points, not $2," has_points "$1" "$2"; }
no_jobs() { local listed; listed=$(limited squeue --noheader) && [ -z "$listed" ]; }

tools/slurm_cluster.sh start "$work/cluster" 4 || exit $?

# Every point exists once and equals the local one.
compare() {
    diff -r "$1/points" "$2/points" || fail "points differ"
    [ -z "$(ls "$2/tries")" ] || fail "attempts are left: $(ls "$2/tries")"
    [ -z "$(find "$2" -name '*.part')" ] || fail "a partial file is left"
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
    works "$buddy" sweep run "$work/plan.toml" --store "$work/here" 2>/dev/null
    local all
    all=$(points "$work/here")
    works "$buddy" sweep run "$work/plan.toml" --store "$there" --on slurm --jobs 12 --detach
    collect 2>"$work/first" & local first=$!
    collect 2>"$work/second" & local second=$!
    wait_for "$there" 4
    strike KILL "killed a job"
    limited scontrol update nodename=n2 state=drain reason=check && echo "drained a node"
    tools/slurm_cluster.sh controller "$work/cluster" && echo "restarted the controller"
    wait_for "$there" $((all / 3))
    strike STOP "stopped a second job: no heartbeat"
    tools/slurm_cluster.sh crash "$work/cluster" && echo "killed the controller"
    resume_nodes & administrator=$!
    wait "$first" || fail "the first collector ended with $?"
    wait "$second" || fail "the second collector ended with $?"
    settle
    compare "$work/here" "$there"
    works "$buddy" sweep status "$work/plan.toml" --store "$there"
    echo "$all points, each once, equal to the local ones"
}

collect() { works "$buddy" sweep collect "$work/plan.toml" --store "$there" --jobs 12 --silence 20; }

# A controller drains a node that still has a job from before its crash; resume it like an
# administrator.
resume_nodes() {
    local nodes
    while sleep 1; do
        nodes=$(limited sinfo --noheader --states=drain --format=%N 2>/dev/null) || continue
        [ -z "$nodes" ] || limited scontrol update nodename="$nodes" state=resume 2>/dev/null || true
    done
}

# Ends jobs that a crashed controller still lists, and those that run without one. A killed attempt
# stays as failed, with a partial file if it was writing, and its point was done by another.
settle() {
    limited scancel --user="$(id -un)"
    await 60 "jobs did not end" no_jobs
    jobs_of "$there" | xargs --no-run-if-empty kill -9 2>/dev/null || true
    local half digest
    while read -r half; do
        digest=$(basename "$half" | grep --only-matching --max-count=1 '[0-9a-f]\{32\}')
        ls "$there/tries/$digest".* >/dev/null || fail "partial file of a job that was not killed: $half"
        rm "$half"
    done < <(find "$there" -name '*.part')
    rm -f "$there"/tries/*
}

# A point that always fails is reported, and the rest continues.
broken() {
    mkdir "$work/trace"
    printf 'kernel-1.traceg\n' >"$work/trace/kernelslist.g"
    printf 'no trace\n' >"$work/trace/kernel-1.traceg"
    printf '[axes]\nprogram = ["stream", "%s"]\nsize = 1\nmode = "pinned"\nlink = [50, 100]\n' "$work/trace" >"$work/broken.toml"
    local said
    said=$(works "$buddy" sweep run "$work/broken.toml" --store "$work/broken" --on slurm --jobs 4 --attempts 2 2>&1) && fail "it should fail"
    grep -q "failed: $work/trace" <<<"$said" && grep -q '2 of 4 points are done' <<<"$said" || fail "$said"
    echo "two points that always fail were reported, and two were done"
}

cancelled() {
    works "$buddy" sweep run "$work/plan.toml" --store "$work/cancelled" --on slurm --jobs 12 --detach
    works "$buddy" sweep cancel "$work/plan.toml" --store "$work/cancelled"
    await 60 "cancelled jobs did not end" no_jobs
    echo "cancelled jobs are gone"
}

# A figure made by jobs has the same records as a local one.
reproduced() {
    [ -n "$out" ] || { out=$work/drawn; works "$buddy" reproduce --quick --only fig12 --out "$out" >/dev/null 2>&1 || fail "reproduce here"; }
    works "$buddy" reproduce --quick --only fig12 --on slurm --jobs 4 --out "$work/drawn-there" >/dev/null 2>"$work/said" ||
        fail "reproduce by jobs ended with $?"
    local record many=0
    for record in "$work"/drawn-there/records/*.json; do
        cmp "$record" "$out/records/$(basename "$record")" || fail "a record differs"
        many=$((many + 1))
    done
    echo "a figure by jobs has the records of one made here, all $many"
}

disturbed; broken; cancelled; reproduced
