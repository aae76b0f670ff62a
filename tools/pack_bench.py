#!/usr/bin/env python3
"""Times the kernels that pack and read saved activations, and a copy, in CUDA graphs.

    pip install target/wheels/buddy_memory-*.whl
    tools/pack_bench.py --out packing.json

Needs PyTorch and a GPU. Dense bf16 at 4/3x, and a ReLU's at 2x; each is read back and compared.
Results: docs/notes/decisions.md.
"""

import argparse
import json
import pathlib

import torch

from buddy import _native
from buddy.torch.arena import COUNTER_BYTES
from buddy.torch.layout import packed_bytes
from buddy.torch.ops import device_and_stream, span

GPU = torch.device("cuda")
# In an exponent window, as training has one; nearly all entries fit, one in 160 has another layout.
DENSE, RELU = ("bf16:112", "4/3x", 0), ("bf16:112", "2x", 0)


def timed(run, times=10, replays=5):
    """Returns the microseconds of a call, in a graph of several calls: the median of some
    replays."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            run()
    found = []
    for _ in range(replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(1e3 * start.elapsed_time(end) / times)
    return round(sorted(found)[replays // 2], 1)


class Packed:
    """A tensor's packed form, and the calls that make and use it on the current stream."""

    def __init__(self, x, format, share):
        self.x, self.format = x, format
        self.memory = torch.zeros(packed_bytes(format[1], 0, x.nbytes, int(share * x.nbytes // 128)), dtype=torch.uint8, device=GPU)
        self.counters = torch.zeros(COUNTER_BYTES, dtype=torch.uint8, device=GPU)

    def pack(self):
        _native.pack(device_and_stream(self.x), self.format, span(self.x), span(self.memory), 0, None, span(self.counters))

    def read(self, to):
        _native.unpack(device_and_stream(to), self.format, span(self.memory), span(to))

    def forward(self, y):
        _native.activation_forward(device_and_stream(y), self.format, "relu", span(self.x), span(y), span(self.memory), 0, None, span(self.counters))

    def recompute(self, y):
        _native.activation_output(device_and_stream(y), self.format, "relu", span(self.memory), span(y))

    def back(self, gradients, to):
        _native.activation_backward(device_and_stream(to), self.format, "relu", span(self.memory), span(gradients), span(to))


def of_size(size):
    """Times everything for a tensor of `size` bytes."""
    x = (torch.randn(size // 2, device=GPU) * 0.25).bfloat16()
    y, z = torch.empty_like(x), torch.empty_like(x)
    found = {"bytes": size, "copy": timed(lambda: y.copy_(x))}
    dense = Packed(x, DENSE, 0.05)
    found["pack"], found["read"] = timed(dense.pack), timed(lambda: dense.read(y))
    assert torch.equal(y, x), "the tensor read back differs from the packed one"
    # Between a kernel that writes the memory and one that reads it, as in a training step.
    source, dense.x = x.clone(), x
    alone = timed(lambda: (torch.mul(source, 1, out=x), torch.add(x, 1, out=z)))
    found["pack in between"] = round(timed(lambda: (torch.mul(source, 1, out=x), dense.pack(), torch.add(x, 1, out=z))) - alone, 1)
    found["read and use"] = timed(lambda: (dense.read(y), torch.add(y, 1, out=z)))
    relu = Packed(x, RELU, 0.5)
    found["relu forward"], found["relu again"] = timed(lambda: relu.forward(y)), timed(lambda: relu.recompute(z))
    assert torch.equal(z, x.relu()) and torch.equal(y, z), "not PyTorch's ReLU"
    found["relu backward"] = timed(lambda: relu.back(source, z))
    assert torch.equal(z, torch.where(x > 0, source, 0)), "not PyTorch's gradients"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mib", type=int, nargs="+", default=[16, 64, 192, 256], help="sizes of the plain tensor")
    parser.add_argument("--out", type=pathlib.Path, help="file for the record")
    options = parser.parse_args()
    torch.manual_seed(1)
    found = [of_size(size << 20) for size in options.mib]
    for row in found:
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    if options.out:
        record = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda, "microseconds": found}
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
