#!/usr/bin/env python3
"""Measures nvCOMP on the data of `buddy gpu bench`, through its Python API, and writes rows for `--nvcomp`.

Needs a GPU, CuPy, and the wheels nvidia-nvcomp-cu13 and nvidia-libnvcomp-cu13. Times are medians by CUDA events of
calls that allocate their result, as the API does; every round trip is verified.
"""

import argparse
import json
import os
import statistics
import sys

KERNELS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "crates", "cuda", "kernels")
# Numbers of `enum Fill` in fill.cuh.
DATA = {"ramp": 3, "field64": 4, "weights": 5, "relu": 6}
# What Bitcomp, which knows types, is told of them.
TYPES = {"ramp": "<u4", "field64": "<u8", "weights": "<u2", "relu": "<u4"}
ALGORITHMS = ["Bitcomp", "ANS", "LZ4", "Zstd"]
DEFINES = ["BUDDY_ENTRY_BYTES=128", "BUDDY_SECTOR_BYTES=32", "BUDDY_PAGE_ENTRIES=64", "BUDDY_SMALL_BYTES=8"]


def make_data(cupy, kind, size):
    """The same bytes that the Rust bench makes, by the same kernel."""
    with open(os.path.join(KERNELS, "common.cu"), encoding="utf-8") as file:
        options = ("--std=c++17", f"-I{KERNELS}", *[f"-D{define}" for define in DEFINES])
        module = cupy.RawModule(code=file.read(), options=options, backend="nvrtc")
    data = cupy.empty(size // 4, dtype=cupy.uint32)
    entries, seed, noise = cupy.uint64(size // 128), cupy.uint64(1), cupy.uint32(0)
    module.get_function("buddy_fill")((8192,), (256,), (data, entries, cupy.uint32(kind), seed, noise))
    return data


def measure(cupy, operation, repeats):
    """Median seconds, and the last result."""
    result, times = operation(), []
    for _ in range(repeats):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        result = operation()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
    return statistics.median(times), result


def rows_of(cupy, nvcomp, algorithm, name, data, repeats):
    # Event times need the API's work on the stream that the events are on.
    stream = cupy.cuda.Stream()
    with stream:
        options = {"data_type": TYPES[name]} if algorithm == "Bitcomp" else {}
        codec = nvcomp.Codec(algorithm=algorithm, cuda_stream=stream.ptr, **options)
        plain = nvcomp.as_array(data, cuda_stream=stream.ptr)
        encode, packed = measure(cupy, lambda: codec.encode(plain), repeats)
        decode, back = measure(cupy, lambda: codec.decode(packed), repeats)
        stream.synchronize()
        same = cupy.asarray(back).view(cupy.uint8) == data.view(cupy.uint8)
        if not bool(same.all()):
            raise RuntimeError(f"{algorithm} gave other bytes back")
    ratio = data.nbytes / packed.buffer_size
    row = {"data": name, "bound_gb_per_s": None, "overflow": None}
    label = f"nvCOMP {algorithm}, ratio {ratio:.2f}, "
    return [
        row | {"what": label + "compress", "gb_per_s": data.nbytes / encode / 1e9},
        row | {"what": label + "decompress", "gb_per_s": data.nbytes / decode / 1e9},
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0, help="GiB of data")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls of each operation")
    parser.add_argument("--out", required=True, help="where to write the rows")
    args = parser.parse_args()
    try:
        import cupy
        from nvidia import nvcomp
    except ImportError as error:
        print(f"NOT RUN: {error}; nvCOMP WAS NOT MEASURED", file=sys.stderr)
        return 1
    rows = []
    for name, kind in DATA.items():
        data = make_data(cupy, kind, int(args.gib * 2**30) // 8192 * 8192)
        for algorithm in ALGORITHMS:
            try:
                found = rows_of(cupy, nvcomp, algorithm, name, data, args.repeats)
            except Exception as error:  # one algorithm that fails leaves the others
                print(f"{algorithm} on {name}: {error}", file=sys.stderr)
                continue
            for row in found:
                print(f"{row['what']:<48} {name:<8} {row['gb_per_s']:8.0f}", flush=True)
            rows += found
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=2)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
