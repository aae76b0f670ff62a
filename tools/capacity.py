#!/usr/bin/env python3
"""Measures how much of a program's memory compression saves, from runs on a CPU
(docs/notes/decisions.md).

    capacity.py record NAME SECONDS,SECONDS,... -- PROGRAM [ARGUMENTS]
    capacity.py score RUN [RUN...]

`record` runs a program of one process, stops it at the given processor times, and saves its large
arrays as a run in the folder NAME: mmapped malloc blocks and static arrays of 256 KiB and more that
live throughout. `score` profiles runs with `buddy` ($BUDDY or on the path) at several thresholds.
It prints, per run and as geometric means, the paper's design; `auto` by page with a mean overflow
of at most 1% and 0.2%; and by phase of at most 1%.
"""

import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

LEAST = 256 << 10
THRESHOLDS = [0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05]


def used(pid):
    """Returns the processor time of a process in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def regions(pid):
    """Returns its writable anonymous mappings, and the base of its own file."""
    program, base, found = os.path.realpath(f"/proc/{pid}/exe"), 0, []
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split()
        first, end = (int(text, 16) for text in fields[0].split("-"))
        if fields[-1] == program and base == 0:
            base = first
        if len(fields) == 5 and fields[1].startswith("rw"):
            found.append((first, end))
    return program, base, found


def arrays(pid, memory):
    """Returns address, bytes and name of every large array."""
    program, base, mapped = regions(pid)
    moved = open(program, "rb").read(17)[16] == 3
    for line in subprocess.run(["nm", "-S", program], capture_output=True, text=True).stdout.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[2] in "bBdD" and int(fields[1], 16) >= LEAST:
            yield int(fields[0], 16) + (base if moved else 0), int(fields[1], 16), fields[3]
    for at, end in mapped:
        while at + 16 < end:
            # mmapped malloc blocks start at a page with their length, whose second bit marks them.
            memory.seek(at)
            length = int.from_bytes(memory.read(16)[8:], "little")
            piece = length & 7 == 2 and length & ~7 <= end - at and (length & ~7) % 4096 == 0
            if piece and length >= LEAST:
                yield at + 16, (length & ~7) - 16, f"at-{at:x}"
            at += length & ~7 if piece and length > 7 else 4096


def record(name, seconds, command):
    """Saves a run of a program in the folder `name`."""
    if os.path.exists(name):
        sys.exit(f"{name} exists already: choose another name, or remove it")
    if shutil.which(command[0]) is None:
        sys.exit(f"{command[0]} is not a program")
    folder = pathlib.Path(name)
    folder.mkdir(parents=True)
    own = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=os.environ | own, stdout=subprocess.DEVNULL)
    alive = []
    for index, limit in enumerate(seconds):
        while process.poll() is None and used(process.pid) < limit:
            time.sleep(0.002)
        if process.poll() is not None:
            shutil.rmtree(folder)
            sys.exit(f"{command[0]} ended before {limit} s of processor time: give earlier times")
        os.kill(process.pid, signal.SIGSTOP)
        (folder / f"s{index}").mkdir()
        with open(f"/proc/{process.pid}/mem", "rb", 0) as memory:
            found = {label: (at, length) for at, length, label in arrays(process.pid, memory)}
            for label, (at, length) in found.items():
                memory.seek(at)
                (folder / f"s{index}" / label).write_bytes(memory.read(length))
        alive.append({label: length for label, (_, length) in found.items()})
        os.kill(process.pid, signal.SIGCONT)
    process.kill()
    process.wait()
    kept = {label: length for label, length in alive[0].items() if all(one.get(label) == length for one in alive)}
    for path in folder.glob("s*/*"):
        if path.name not in kept:
            path.unlink()
    allocations = [{"name": label, "bytes": length, "dtype": "u8"} for label, length in kept.items()]
    snapshots = [{"step": index, "file": f"s{index}"} for index in range(len(seconds))]
    run = {"version": 1, "program": folder.name, "allocations": allocations, "snapshots": snapshots}
    (folder / "run.json").write_text(json.dumps(run))
    print(f"{name}: {len(kept)} arrays, {sum(kept.values()) >> 20} MiB, {len(seconds)} snapshots")


def profile(run, *options):
    """Returns the record of a profile."""
    buddy = os.environ.get("BUDDY", "buddy")
    if shutil.which(buddy) is None:
        sys.exit(f"cannot find '{buddy}': set BUDDY to the path of buddy")
    done = subprocess.run([buddy, "profile", run, *options, "--json", "-"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)["data"]


def score(runs):
    """Prints the table."""
    print(f"{'program':20} {'paper':>7} {'1%':>7} {'0.2%':>7} {'phases':>7}")
    rows = []
    for run in runs:
        best = {"1%": 1.0, "0.2%": 1.0, "phases": 1.0}
        for threshold in THRESHOLDS:
            found = profile(run, "--policy", "page", "--codec", "auto", "--threshold", str(threshold))
            chosen = next(one for one in found["policies"] if (one["policy"], one["codec"]) == ("page", "auto"))
            offers = [("1%", 0.01, chosen, "ratio"), ("0.2%", 0.002, chosen, "ratio")]
            offers.append(("phases", 0.01, found["phases"] or chosen, "average_ratio" if found["phases"] else "ratio"))
            for name, limit, one, ratio in offers:
                if one["mean_overflow"] <= limit:
                    best[name] = max(best[name], one[ratio])
        paper = profile(run, "--policy", "allocation-16x", "--codec", "bpc")
        paper = next(one for one in paper["policies"] if (one["policy"], one["codec"]) == ("allocation-16x", "bpc"))
        rows.append([paper["ratio"], *best.values()])
        print(f"{pathlib.Path(run).name:20} " + " ".join(f"{ratio:7.3f}" for ratio in rows[-1]))
    means = [math.exp(sum(map(math.log, column)) / len(rows)) for column in zip(*rows, strict=True)]
    print(f"{'geometric mean':20} " + " ".join(f"{ratio:7.3f}" for ratio in means))


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"] and sys.argv[4:5] == ["--"]:
        record(sys.argv[2], [float(text) for text in sys.argv[3].split(",")], sys.argv[5:])
    elif sys.argv[1:2] == ["score"] and sys.argv[2:]:
        score(sys.argv[2:])
    else:
        sys.exit(__doc__)
