#!/bin/bash
# Watches the test programs on a GPU: `run.sh BUDDY [FOLDER]`. Each runs plain and watched; output
# and exit code must be the same, and live histograms those of the full snapshots of the same
# moments. Needs nvcc and g++, or the programs in FOLDER.
buddy=$(realpath "${1:-buddy}")
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath "${2:-$(mktemp -d)}")
codecs=bpc,planes64,zeros16,zeros32,bf16,fp16,fp32,table32,table64,scaled64,prefix32,prefix64,rank32,rank64,near64,bpc-best
failed=0
say() { printf '%-8s %-16s %s\n' "$1" "$2" "$3"; [ "$1" != FAILED ] || failed=1; }

cd "$work" || exit 1
if [ ! -x static ]; then
    include="-I$here -I$here/../../../../include"
    nvcc -O2 -g -arch=native $include -cudart static "$here/watched.cu" -o static &
    nvcc -O2 -g -arch=native $include -cudart shared "$here/watched.cu" -o shared &
    g++ -O1 -g -I"$(dirname "$(command -v nvcc)")/../include" "$here/driver.cpp" -o driver -ldl
    wait
fi

# Runs a program plain and watched, and compares what it prints and returns: NAME OPTIONS -- PROGRAM
# ARGUMENTS.
same() {
    local name=$1 options=() expected
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    "$@" > plain.out 2> plain.err; expected=$?
    "$buddy" watch --out "$name.json" "${options[@]}" -- "$@" > watched.out 2> "$name.err"; local code=$?
    if [ $code = $expected ] && cmp -s plain.out watched.out; then
        say ok "$name" "exit $code, $(grep -o '[0-9]* snapshots of [0-9]* allocations' "$name.err" | tr '\n' ' ')"
    else
        say FAILED "$name" "exit $code, not $expected, or other output"; tail -5 "$name.err"
    fi
}

# Live histograms against full snapshots: NAME.
equal() {
    "$buddy" profile "$1.dump" --codecs $codecs --json dumped.json > /dev/null
    if text=$(python3 "$here/compare.py" "$1.json" dumped.json); then say ok "$1" "$text"; else say FAILED "$1" "$text"; fi
    "$buddy" profile "$1.json" --policy page > /dev/null || say FAILED "$1" "no targets by page"
    rm -rf "$1.dump"
}

for mode in plain bf16 pieces pitched async pool managed mapped graph threads fork crash abort; do
    same "$mode" --dump "$mode.dump" -- ./static $mode
    case $mode in plain | bf16 | pitched | managed | mapped | graph) equal $mode ;; esac
done
[ "$(grep -o '"name": *"[^"]*"' pieces.json | sort | tr -d ' \n')" = '"name":"left""name":"right"' ] &&
    say ok pieces "a pool is cut at its pieces" || say FAILED pieces "$(grep -o '"name": *"[^"]*"' pieces.json | sort -u | tr '\n' ' ')"
same shared -- ./shared plain
same driver --accesses -- ./driver
same asked --asked -- ./static ask
same accesses --accesses -- ./static plain
same kernel --kernel fill --every 2 -- ./static plain
same time --every-ms 1 -- ./static async
grep -q '"after three steps"' asked.json && say ok label "a snapshot has the program's label" || say FAILED label ""
grep -q 'watched.cu:' plain.json && say ok site "$(grep -o 'watched.cu:[0-9]*' plain.json | sort -u | tr '\n' ' ')" || say FAILED site ""
ls fork.*.json > /dev/null && say ok fork "$(ls fork.*.json | wc -l) records" || say FAILED fork ""

# Two processes of a launcher, each with its rank.
for rank in 0 1; do OMPI_COMM_WORLD_RANK=$rank "$buddy" watch --out mpi.json -- ./static plain > mpi$rank.out 2> mpi$rank.err & done
wait
[ -e mpi.rank0.json ] && [ -e mpi.rank1.json ] && cmp -s mpi0.out mpi1.out && say ok ranks "a record each" || say FAILED ranks ""

# The same under one watcher that watches the launcher.
"$buddy" watch --out both.json -- sh -c 'for rank in 0 1; do PMI_RANK=$rank ./static plain & done; wait' > both.out 2> both.err
[ -e both.rank0.json ] && [ -e both.rank1.json ] && say ok launcher "a record each" || say FAILED launcher "$(tail -3 both.err)"

# A signal reaches the program, and what was seen is kept.
"$buddy" watch --out killed.json -- ./static wait > /dev/null 2> killed.err & pid=$!
sleep 2; kill -TERM $pid; wait $pid; code=$?
[ $code = 143 ] && [ -e killed.json ] && say ok signal "exit $code, a record" || say FAILED signal "exit $code"

# Without CUPTI the program runs as it is, and one line says why.
BUDDY_CUPTI=/nowhere "$buddy" watch --out none.json -- ./static pitched > none.out 2> none.err
./static pitched | cmp -s - none.out && [ "$(grep -c 'runs on unwatched' none.err)" = 1 ] && say ok none "$(grep 'runs on unwatched' none.err)" ||
    say FAILED none ""
exit $failed
