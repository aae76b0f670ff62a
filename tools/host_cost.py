#!/usr/bin/env python3
"""Measures the host time of a linear layer, plain and packed, without a GPU: a fake driver accepts
the launches.

    PYTHONPATH=python tools/host_cost.py

Processor time in microseconds, the best of several runs. The plain layer multiplies on one CPU core
and is so small that its time is PyTorch's dispatch; on a GPU dispatch takes longer, and both add
the driver's launch.
"""

import os
import pathlib
import sys
import tempfile
import time

os.environ["BUDDY_CACHE_DIR"] = tempfile.mkdtemp()
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python" / "tests"))

import fake
import torch
from torch import nn

from buddy.torch import compress_

SIZE = 64


def microseconds(call, count=20000, runs=7):
    best = float("inf")
    for _ in range(runs):
        started = time.process_time()
        for _ in range(count):
            call()
        best = min(best, time.process_time() - started)
    return best / count * 1e6


def main():
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    driver = fake.load(pathlib.Path(os.environ["BUDDY_CACHE_DIR"]))
    plain, x = nn.Linear(SIZE, SIZE, bias=False).bfloat16(), torch.randn(1, 1, SIZE).bfloat16()
    (packed,) = compress_(nn.Sequential(nn.Linear(SIZE, SIZE, bias=False)).bfloat16())
    plan = fake.plan_of(packed.matrix)
    plan.scratch[5] = fake.scratch(1 << 20)
    y, (_, scratch, room) = packed(x), plan.scratch[5]
    addresses = (5, plan.address, x.data_ptr(), x.numel(), 0, y.data_ptr(), scratch, room)
    rows = {
        "nn.Linear": lambda: plain(x),
        "packed layer": lambda: packed(x),
        "  of it, calling a module": lambda identity=nn.Identity(): identity(x),
        "  of it, memory for y": lambda: x.new_empty([1, 1, SIZE]),
        "  of it, the native call": lambda: plan.enqueue(*addresses),
    }
    for name, call in rows.items():
        print(f"{name:28}{microseconds(call):6.2f}")
    return driver


if __name__ == "__main__":
    main()
