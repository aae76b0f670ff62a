#!/usr/bin/env python3
"""Measures the overhead of a sweep on the test cluster relative to the plain work of its points.

    tools/slurm_overhead.py [--buddy target/release/buddy] [--points 1000] [--nodes 4] [--jobs N] [--scale 4MB]

A point takes about two core seconds by default (see --scale). On a busy machine wall time is
meaningless, so two quantities that other processes do not change are measured and multiplied:

- processor time of everything (jobs, daemons, the command that submits and collects) over that of
  the plain work: the same points by one thread of `buddy sweep run`, a tenth of them in between so
  that both see the same machine load;
- node time, from start to end of the command, over the time with jobs on them.

With a free core per node the product is the ratio of wall times. Exit 77: no Slurm.
"""

import argparse
import ctypes
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime

TOOLS = pathlib.Path(__file__).resolve().parent
PLAN = '[axes]\nprogram = "cg"\nscale = "{}"\nmode = "buddy"\ncore.launch_cycles = "1001..{}"\n'
CLUSTER = """
"$TOOLS/slurm_cluster.sh" start "$DIR/cluster" "$NODES" || exit
export SLURM_CONF=$DIR/cluster/slurm.conf
begin=$EPOCHREALTIME
"$BUDDY" sweep run "$DIR/many.toml" --store "$DIR/there" --on slurm $MORE
rc=$?
echo "$begin $EPOCHREALTIME" >"$DIR/times"
"$TOOLS/slurm_cluster.sh" stop "$DIR/cluster"
exit $rc
"""
PR_SET_CHILD_SUBREAPER = 36
# Points of plain work run in a row.
CHUNK = 10


def used(usage):
    return usage.ru_utime + usage.ru_stime


def on_the_cluster(env, out):
    """Runs the sweep; all its processes, daemons too, end as children of this one and are
    counted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    first = subprocess.Popen(["bash", "-c", CLUSTER], env=env).pid
    code = 1
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            break
        code = os.waitstatus_to_exitcode(status) if pid == first else code
    out.write_text(json.dumps({"code": code, "cpu": used(resource.getrusage(resource.RUSAGE_CHILDREN))}))


def plain(buddy, work, more):
    """Returns the processor time of a part of the plain work."""
    before = used(resource.getrusage(resource.RUSAGE_CHILDREN))
    command = [buddy, "sweep", "run", work / "many.toml", "--store", work / "here", "--threads", "1", *more]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return used(resource.getrusage(resource.RUSAGE_CHILDREN)) - before


def points(store):
    return sum(1 for _ in store.glob("points/*/point-*.json"))


def in_jobs(log):
    """Returns the seconds that jobs were on nodes, and the number of jobs."""
    runs = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in log.read_text().splitlines()]
    began, ended = ([datetime.fromisoformat(run[name]) for run in runs] for name in ("StartTime", "EndTime"))
    return sum((b - a).total_seconds() for a, b in zip(began, ended)), len(runs)


def measure(args, work):
    (work / "many.toml").write_text(PLAN.format(args.scale, 1000 + args.points))
    env = dict(os.environ, TOOLS=str(TOOLS), DIR=str(work), BUDDY=str(args.buddy), NODES=str(args.nodes),
               MORE=f"--jobs={args.jobs}" if args.jobs else "")
    cluster = os.fork()
    if cluster == 0:
        on_the_cluster(env, work / "result.json")
        os._exit(0)
    run_of_program = plain(args.buddy, work, ["--programs"])
    chunks, cpu = max(1, args.points // CHUNK // 10), []
    for chunk in range(chunks):
        while not (work / "result.json").exists() and points(work / "there") < args.points * (chunk + 0.5) / chunks:
            time.sleep(1)
        shard = f"{chunk * 10 + 1}/{chunks * 10}"
        cpu.append(plain(args.buddy, work, ["--shard", shard]))
    os.waitpid(cluster, 0)
    result = json.loads((work / "result.json").read_text())
    if result["code"] != 0:
        sys.exit(result["code"])
    compare(work)
    report(args, work, result["cpu"], cpu, run_of_program)


def compare(work):
    """Checks that every point that was also run locally is equal."""
    for path in (work / "here").glob("points/*/point-*.json"):
        if path.read_bytes() != (work / "there" / path.relative_to(work / "here")).read_bytes():
            sys.exit(f"{path.name} differs")


def report(args, work, cpu_there, cpu_here, run_of_program):
    each = sum(cpu_here) / points(work / "here")
    work_alone = each * args.points + run_of_program
    begin, end = map(float, (work / "times").read_text().split())
    busy, jobs = in_jobs(work / "cluster" / "jobs.log")
    more_cpu, idle = cpu_there / work_alone, args.nodes * (end - begin) / busy
    print(f"{points(work / 'there')} points of {each:.2f} s, {jobs} jobs on {args.nodes} nodes, {end - begin:.0f} s")
    print(f"processor time {cpu_there:.0f} s, plain work {work_alone:.0f} s: {100 * (more_cpu - 1):+.1f}%")
    print(f"time of nodes {args.nodes * (end - begin):.0f} s, with jobs on them {busy:.0f} s: {100 * (idle - 1):+.1f}%")
    print(f"overhead {100 * (more_cpu * idle - 1):.1f}%")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buddy", type=lambda path: pathlib.Path(path).resolve(), default="target/release/buddy")
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--jobs", type=int, help="number of jobs [default: chosen by `buddy sweep`]")
    parser.add_argument("--scale", default="4MB", help="footprint of the program: about half a second per MB and point")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        measure(args, pathlib.Path(work))


if __name__ == "__main__":
    main()
