"""Packing and linear layers give the bits of the CPU and of PyTorch on any stream, in graphs and
compiled."""

import torch
from torch import nn

from buddy import _native
from buddy.llm.decoder import interleave_gate_up, split_gate_up
from buddy.torch import compress_, linear, linear_scratch_bytes, pack, pack_weight, unpack
from buddy.torch.layout import packed_bytes
from buddy.torch.ops import device_and_stream, span

from . import GPU, same


def tensors():
    for dtype in [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.uint8]:
        for shape in [(1000, 64), (7,), (333, 65), (0,)]:
            yield (torch.randn(shape).relu() * 3).to(dtype)
    yield torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    # Mostly within a window of exponents; some outside, zero, unsigned or with even mantissas.
    dense = torch.randn(4000, 64).bfloat16()
    dense[::7, 3] *= 1e-9
    dense[::11], dense[5::13], dense[6::17] = 0, dense[5::13].abs(), (dense[6::17].view(torch.int16) & ~1).view(torch.bfloat16)
    yield dense


def check_the_gpu_writes_the_bits_of_the_cpu():
    for plain in tensors():
        here = pack(plain)
        there = pack(plain.to(GPU), codec=here.codec, target=here.target)
        assert here.nbytes == there.nbytes, (here, there)
        same(there.data.cpu(), here.data)
        same(here.to(GPU).unpack().cpu(), plain)
        same(unpack(there).cpu(), plain)
        same(pack(plain.to(GPU)).unpack().cpu(), plain)


def check_packing_with_counters_writes_the_same_bytes():
    """Two kernels with counters write what three without write, at every amount of overflow, and
    leave the counters zero."""
    counters = torch.zeros(1024, dtype=torch.uint8, device=GPU)
    for count in [1, 500, 40000, 1 << 20]:
        for far in [0, 1 << 30, 997, 3]:
            x = torch.randn(count, 64, device=GPU).bfloat16()
            if far:
                x[::far, ::2] *= 1e-9
            for target in ["4/3x", "2x"]:
                buffers = [torch.zeros(packed_bytes(target, 0, x.nbytes, x.nbytes // 32), dtype=torch.uint8, device=GPU) for _ in range(2)]
                for buffer, zeros in zip(buffers, [None, span(counters)]):
                    _native.pack(device_and_stream(x), ("bf16:112", target, 0), span(x), span(buffer), 0, None, zeros)
                assert torch.equal(*buffers) and not counters.any(), (count, far, target)
                back = torch.empty_like(x)
                _native.unpack(device_and_stream(x), ("bf16:112", target, 0), span(buffers[1]), span(back))
                same(back, x)
        print(f"    {x.nbytes} bytes, of which {int(buffers[1][48:52].view(torch.int32))} sectors overflow")


def check_views_and_other_streams():
    base = torch.randn(400, 96, device=GPU).bfloat16()
    side = torch.cuda.Stream()
    for view in [base.t(), base[3:, 5::2], base[0].expand(9, 96), base.flatten()[1:]]:
        same(unpack(pack(view)), view.contiguous())
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            found = unpack(pack(view))
        torch.cuda.current_stream().wait_stream(side)
        same(found, view.contiguous())


def check_linear_layers():
    for outputs, inputs in [(512, 256), (1000, 4096), (4096, 1024)]:
        weight = (torch.randn(outputs, inputs, device=GPU) * 0.02).bfloat16()
        packed, bias = pack_weight(weight), torch.randn(outputs, device=GPU).bfloat16()
        for tokens in [1, 5, 8, 13, 16, 40, 128, 300]:
            x = torch.randn(tokens, inputs, device=GPU).bfloat16().requires_grad_()
            wanted = torch.nn.functional.linear(x, weight, bias)
            same(linear(x, packed, bias, exact=True), wanted)
            scratch = torch.zeros(linear_scratch_bytes(packed, tokens), dtype=torch.uint8, device=GPU)
            for found in [linear(x, packed, bias), linear(x, packed, bias, scratch=scratch), linear(x, packed, bias, scratch=scratch)]:
                error = (found.float() - wanted.float()).abs().max() / wanted.float().abs().max()
                assert error < 0.01, (outputs, inputs, tokens, error)
            (one,) = torch.autograd.grad(linear(x, packed, bias).float().sum(), x)
            (other,) = torch.autograd.grad(wanted.float().sum(), x)
            same(one, other)


def check_packed_layers_give_the_same_bits_in_every_way():
    """Direct launch, operator, graph, and the graphs of a compiled model, which share counters and
    overlap."""
    layers = compress_(nn.Sequential(*(nn.Linear(1024, 1024, bias=number == 1) for number in range(4)), nn.Linear(1024, 300)).bfloat16().to(GPU))
    layers.requires_grad_(False).eval()
    compiled = torch.compile(layers, mode="reduce-overhead", fullgraph=True, dynamic=False)
    for tokens in [1, 8, 13, 100]:
        x = torch.randn(tokens, 1024, device=GPU).bfloat16()
        wanted = layers(x.clone().requires_grad_()).detach()
        for _ in range(3):
            same(layers(x), wanted)
            with torch.no_grad():
                same(layers(x), wanted)
                same(compiled(x).clone(), wanted)
        graph, out = torch.cuda.CUDAGraph(), None
        with torch.no_grad(), torch.cuda.graph(graph):
            out = layers(x)
        for _ in range(100):
            x.copy_(torch.randn(tokens, 1024, device=GPU))
            graph.replay()
            with torch.no_grad():
                same(out, layers(x))
                same(compiled(x).clone(), out)
    for layer in layers:
        assert not layer.matrix.counters.any(), "counters are zero again"


def check_swiglu_epilogue():
    """SwiGLU in the epilogue equals the separate kernel, bit for bit."""
    for inner, inputs in [(256, 256), (1000, 512), (2048, 4096)]:
        packed = pack_weight(interleave_gate_up((torch.randn(2 * inner, inputs, device=GPU) * 0.1).bfloat16()))
        format = (packed.codec, packed.target, packed.row)
        for tokens in [1, 3, 8, 13, 32, 50, 100, 200]:
            x = torch.randn(tokens, inputs, device=GPU).bfloat16()
            scratch = torch.zeros(linear_scratch_bytes(packed, tokens), dtype=torch.uint8, device=GPU)
            both = torch.cat(split_gate_up(linear(x, packed, scratch=scratch)), -1)
            wanted, found = (torch.full((tokens, inner), 7.0, dtype=torch.bfloat16, device=GPU) for _ in range(2))
            _native.decode_swiglu(device_and_stream(x), span(both), span(wanted), tokens)
            weights = (span(packed.data), packed.plain_bytes)
            _native.linear_prefetched(device_and_stream(x), format, weights, span(x), span(found), span(scratch), True)
            same(found, wanted)


def check_graphs():
    weight, x = (torch.randn(512, 256, device=GPU) * 0.02).bfloat16(), torch.randn(8, 256, device=GPU).bfloat16()
    packed = pack_weight(weight)

    def step():
        saved = pack(x, codec="bf16:112", target="4/3x", sectors=64)
        return linear(unpack(saved), packed), linear(x, packed)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        for output, wanted in zip(outputs, step()):
            same(output, wanted)


def check_compilation():
    weight, x = (torch.randn(512, 256, device=GPU) * 0.02).bfloat16(), torch.randn(8, 256, device=GPU).bfloat16()
    packed = pack_weight(weight)

    def step(x):
        saved = pack(x, codec="bf16:112", target="4/3x", sectors=64)
        return linear(unpack(saved), packed).relu() + 1

    for options in [{}, {"mode": "reduce-overhead"}]:
        compiled = torch.compile(step, fullgraph=True, **options)
        for _ in range(4):
            x = torch.randn_like(x)
            same(compiled(x).clone(), step(x))


def check_pytorchs_checks_of_operators():
    weight, x = (torch.randn(96, 128, device=GPU)).bfloat16(), torch.randn(5, 128, device=GPU).bfloat16()
    packed, ops = pack_weight(weight), torch.ops.buddy
    torch.library.opcheck(ops.pack.default, (weight, packed.codec, "4/3x", packed.row, 192))
    torch.library.opcheck(ops.unpack.default, (packed.data, packed.codec, "4/3x", packed.row, [96, 128], torch.bfloat16))
    torch.library.opcheck(ops.linear.default, (x.requires_grad_(), packed.data, None, None, packed.codec, 96, 128, False))
