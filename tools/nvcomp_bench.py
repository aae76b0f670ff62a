#!/usr/bin/env python3
"""Measures nvCOMP on the data of `buddy gpu bench`, through its Python API, and writes rows for `--nvcomp`.

Needs a GPU, CuPy, and the wheels nvidia-nvcomp-cu13 and nvidia-libnvcomp-cu13. Times are medians by CUDA events of
calls that allocate their result, as the API does; every round trip is verified. Each measurement runs in a process
of its own: one that fails leaves the others.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys

CRATES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "crates")
KERNELS = [os.path.join(CRATES, crate, "kernels") for crate in ("gpu-lab", "cuda")]
# Numbers of `enum Fill` in fill.cuh, and the type that Bitcomp, which knows types, is told.
DATA = {"ramp": (3, "<u4"), "field64": (4, "<u8"), "weights": (5, "<u2"), "relu": (6, "<u4")}
ALGORITHMS = ["Bitcomp", "ANS", "LZ4", "Zstd"]
DEFINES = ["BUDDY_ENTRY_BYTES=128", "BUDDY_SECTOR_BYTES=32", "BUDDY_PAGE_ENTRIES=64", "BUDDY_SMALL_BYTES=8"]


def make_data(cupy, kind, size):
    """The same bytes that the Rust bench makes, by the same kernel."""
    with open(os.path.join(KERNELS[0], "lab.cu"), encoding="utf-8") as file:
        options = ("--std=c++17", *[f"-I{folder}" for folder in KERNELS], *[f"-D{define}" for define in DEFINES])
        module = cupy.RawModule(code=file.read(), options=options, backend="nvrtc")
    data = cupy.empty(size // 4, dtype=cupy.uint32)
    entries, seed, noise = cupy.uint64(size // 128), cupy.uint64(1), cupy.uint32(0)
    module.get_function("buddy_fill")((8192,), (256,), (data, entries, cupy.uint32(kind), seed, noise))
    cupy.cuda.Device().synchronize()
    return data


def measure(cupy, stream, operation, repeats):
    """Median seconds, and the last result."""
    result, times = operation(), []
    for _ in range(repeats):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        stream.synchronize()
        start.record(stream)
        result = operation()
        end.record(stream)
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
    return statistics.median(times), result


def measure_one(algorithm, name, size, repeats):
    """Prints one row a line, as JSON."""
    import cupy

    cupy.zeros(1)  # makes the context that nvCOMP then uses
    from nvidia import nvcomp

    kind, data_type = DATA[name]
    data = make_data(cupy, kind, size)
    stream = cupy.cuda.Stream()
    options = {"data_type": data_type} if algorithm == "Bitcomp" else {}
    codec = nvcomp.Codec(algorithm=algorithm, cuda_stream=stream.ptr, **options)
    plain = nvcomp.as_array(data.view(cupy.uint8), cuda_stream=stream.ptr)
    encode, packed = measure(cupy, stream, lambda: codec.encode(plain), repeats)
    decode, back = measure(cupy, stream, lambda: codec.decode(packed), repeats)
    stream.synchronize()
    if not bool((cupy.asarray(back).view(cupy.uint8) == data.view(cupy.uint8)).all()):
        raise RuntimeError(f"{algorithm} gave other bytes back")
    label = f"nvCOMP {algorithm}, ratio {data.nbytes / packed.buffer_size:.2f}, "
    for what, seconds in [("compress", encode), ("decompress", decode)]:
        row = {"what": label + what, "data": name, "gb_per_s": data.nbytes / seconds / 1e9}
        print(json.dumps(row | {"bound_gb_per_s": None, "overflow": None}), flush=True)
    os._exit(0)  # nvCOMP frees on a stream that Python has destroyed by then


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0, help="GiB of data")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls of each operation")
    parser.add_argument("--out", help="where to write the rows")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure_one(*args.one, int(args.gib * 2**30) // 8192 * 8192, args.repeats)
    rows = []
    for name, algorithm in itertools.product(DATA, ALGORITHMS):
        call = [sys.executable, __file__, "--gib", str(args.gib), "--repeats", str(args.repeats)]
        run = subprocess.run([*call, "--one", algorithm, name], capture_output=True, text=True)
        found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        for row in found:
            print(f"{row['what']:<48} {row['data']:<8} {row['gb_per_s']:8.0f}", flush=True)
        if run.returncode != 0:
            reason = (run.stderr.strip().splitlines() or ["no reason given"])[-1]
            print(f"{algorithm} on {name} ended with {run.returncode}: {reason}", file=sys.stderr)
        rows += found
    if not rows:
        print("NOT RUN: nvCOMP WAS NOT MEASURED", file=sys.stderr)
        return 1
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
