#!/usr/bin/env python3
"""Measures the host time of a training step with `compress_saved` against plain, on tiny tensors.
Needs no GPU.

    tools/train_host.py [STEPS]

Steps are ResNet50's and those of a GPT of 24 layers, with channels and widths of 8 and 64. Minimum
CPU time of the forward and backward pass. The codec and recomputation run on the CPU here and are
counted; on a GPU they are launches.
"""

import contextlib
import gc
import os
import sys
import time
from collections import OrderedDict

# Some virtual machines report AMX and kill programs that use it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from torch import nn

from buddy.torch import compress_saved, swap_
from dl import networks

# Small tensors are packed too, and dense bf16 does not reach 2x.
SMALL = {"least_bytes": 512, "least_saved": -9.0}


def resnet(width=8):
    layers = OrderedDict(conv1=nn.Conv2d(3, width, 3, 1, 1, bias=False), bn1=nn.BatchNorm2d(width), relu=networks.relu(), maxpool=nn.MaxPool2d(3, 2, 1))
    inputs = width
    for stage, depth in enumerate([3, 4, 6, 3], 1):
        for block in range(depth):
            layers[f"{stage}{block}"] = networks.Bottleneck(inputs, width, 2 if block == 0 and stage > 1 else 1)
            inputs = 4 * width
    model = nn.Sequential(OrderedDict(**layers, avgpool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), fc=nn.Linear(inputs, 16)))
    batch = torch.randn(4, 3, 16, 16).bfloat16()
    return model.to(memory_format=torch.channels_last), batch.to(memory_format=torch.channels_last), torch.randint(0, 16, (4,))


def gpt():
    model = networks.Gpt(width=64, layers=24, length=8)
    tokens = torch.randint(0, model.vocabulary, (2, 9))
    return model, tokens[:, :-1], tokens[:, 1:].flatten()


CASES = {"resnet50": (resnet, {"plain": None, "swapped, 2x": {}, "swapped, 2x, device": {"overflow": "device"}}),
         "gpt": (gpt, {"plain": None, "2x": {}, "4/3x": {"least": "4/3x"}, "packed only": {"least": "4/3x", "recompute": ()}})}


class Run:
    """A model trained in one way."""

    def __init__(self, make, way, options):
        torch.manual_seed(1)
        self.model, self.inputs, self.labels = make()
        self.model.bfloat16().train()
        self.way, self.options, self.times = way, options, []
        if "swapped" in way:
            swap_(self.model)

    def step(self):
        around = contextlib.nullcontext() if self.options is None else compress_saved(self.model, **SMALL, **self.options)
        start = time.thread_time()
        with around:
            loss = nn.functional.cross_entropy(self.model(self.inputs), self.labels)
        middle = time.thread_time()
        loss.backward()
        self.times.append((1e3 * (middle - start), 1e3 * (time.thread_time() - middle)))
        self.model.zero_grad()

    def least(self):
        return [min(times) for times in zip(*self.times)]


def main():
    torch.set_num_threads(1)
    gc.disable()
    for name, (make, ways) in CASES.items():
        runs = [Run(make, way, options) for way, options in ways.items()]
        # Interleaved, so that all see the same machine load.
        for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 40):
            for run in runs:
                run.step()
            gc.collect()
        plain = runs[0].least()
        for run in runs:
            (forward, backward), (of_forward, of_backward) = run.least(), plain
            print(f"{name:10} {run.way:18} forward {forward:6.2f} ms (+{forward - of_forward:5.2f})  backward {backward:6.2f} ms (+{backward - of_backward:5.2f})")


if __name__ == "__main__":
    main()
