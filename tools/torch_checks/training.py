"""Packed saved tensors: equal gradients, in captured steps and on several streams, and memory that
is released."""

import copy
import gc

import torch
from torch import nn

from buddy.torch import compress_saved, swap_
from networks import ALL, Block, Convolutions, SquaredRelu, compare, equal, gradients, mlp

from . import GPU


def check_saved_activations():
    cases = [(mlp(), (32, 64)), (Block(), (2, 128, 64)), (Block(activation=SquaredRelu()), (2, 128, 64)),
             (Convolutions(), (2, 16, 24, 24)), (nn.LSTM(32, 32, batch_first=True), (4, 9, 32))]
    for model, shape in cases:
        for dtype in [torch.float32, torch.bfloat16]:
            for options in [{}, {"overflow": "device", "in_flight_bytes": 0}, {"overflow": "device"}, {"most_overflow": 0.1}]:
                mem = compare(copy.deepcopy(model).to(GPU, dtype), torch.randn(shape, device=GPU, dtype=dtype), steps=3, **options)
                assert mem.report().tensors > 0 or "most_overflow" in options
                assert not mem._in_flight.pending


def captured_step(model, batch, **options):
    """Captures a step, forward and backward; returns the graph and its report."""
    def step():
        model.zero_grad(set_to_none=True)
        with compress_saved(model, least_bytes=256, **options) as mem:
            loss = model(batch).float().square().mean()
        loss.backward()
        return mem

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        # The first steps survey and learn.
        for _ in range(5):
            before = step().report()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mem = step()
    report = mem.report()
    assert (report.tensors, report.recomputed) == (before.tensors, before.recomputed) and report.tensors > 0, f"{before}\n{report}"
    return graph, report


def check_captured_steps():
    """Gradients of a captured step on data that fits its targets and data that does not, with eager
    steps in between."""
    cases = [(nn.Sequential(Block(), Block(activation=nn.ReLU())), (8, 128, 64)),
             (nn.Sequential(nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.Conv2d(32, 16, 3), nn.ReLU(),
                            nn.Conv2d(16, 16, 3)), (8, 16, 34, 34))]
    for model, shape in cases:
        for options in [{}, {"least": "4/3x"}]:
            swapped = swap_(copy.deepcopy(model)).to(GPU, torch.bfloat16)
            batch = torch.randn(shape, device=GPU, dtype=torch.bfloat16)
            if len(shape) == 4:
                swapped, batch = swapped.to(memory_format=torch.channels_last), batch.contiguous(memory_format=torch.channels_last)
            plain = copy.deepcopy(swapped)
            graph, report = captured_step(swapped, batch, **options)
            grads = [p.grad for p in swapped.parameters()]
            for number in range(6):
                data = torch.randn(shape, device=GPU) * 10.0 ** (number - 3)
                if number % 2:
                    data *= torch.exp(4 * torch.randn(shape, device=GPU))  # wide range of exponents
                batch.copy_(data)
                graph.replay()
                found = [one.clone() for one in grads]
                equal(found, gradients(plain, batch)[:-1])
                with compress_saved(plain, **ALL):
                    equal(gradients(plain, batch)[:-1], found)
            print(f"    {report.tensors} packed, {report.recomputed} recomputed, in a graph")


def check_saved_on_other_streams():
    model = nn.Sequential(Block(), Block(activation=nn.ReLU())).to(GPU, torch.bfloat16)
    plain, side = copy.deepcopy(model), torch.cuda.Stream()
    batch = torch.randn(8, 256, 64, device=GPU, dtype=torch.bfloat16)
    for number in range(6):
        wanted = gradients(plain, batch)
        side.wait_stream(torch.cuda.current_stream())
        model.zero_grad()
        with compress_saved(model, **ALL, overflow="host" if number % 2 else "device"):
            middle = model[0](batch)
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.default_stream())
                # Saved on one stream, then on another.
                output = model[1](middle) + 0 * middle.square()
                del middle
                loss = output.float().square().mean()
            junk = [torch.randn(8, 256, 256, device=GPU) for _ in range(20)]
        torch.cuda.current_stream().wait_stream(side)
        loss.backward()
        torch.cuda.synchronize()
        equal([p.grad for p in model.parameters()], wanted[:-1])
        del junk


def check_plain_memory_goes():
    model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.ReLU())]).to(GPU, torch.bfloat16)
    batch, used = torch.randn(16384, 2048, device=GPU, dtype=torch.bfloat16), {}
    for name in ["plain", "packed", "packed"]:
        gc.collect()
        start = torch.cuda.memory_allocated()
        with compress_saved(model) if name == "packed" else torch.enable_grad():
            loss = model(batch).float().square().mean()
        torch.cuda.synchronize()
        if name == "packed":
            print("   ", str(compress_saved(model).report()).replace("\n", "\n    "))
        used[name] = torch.cuda.memory_allocated() - start
        loss.backward()
        model.zero_grad(set_to_none=True)
        del loss
        gc.collect()
        torch.cuda.synchronize()
        compress_saved(model).report()
        print(f"    {name}: {used[name] / 1e6:.0f} MB after the forward pass, {torch.cuda.memory_allocated() - start} bytes left")
    assert used["packed"] < 0.7 * used["plain"], used
