"""The operators of a served model (`buddy.vllm`): equal to the library's own, in graphs too."""

import torch

from buddy.llm.decoder import interleave_gate_up, split_gate_up
from buddy.torch import linear, pack_weight
from buddy.vllm import operators

from . import GPU, same

TOKENS = [1, 2, 3, 5, 8, 13, 24, 50, 64, 100, 256, 300, 1536, 1600]


def serve(x, packed, swiglu=False, plain=None, bias=None):
    return torch.ops.buddy.serve_linear(x, packed.data, plain, bias, *packed.shape, swiglu)


def check_served_linear():
    """The result does not depend on the workspace, on prefetching or on the stream."""
    for outputs, inputs in [(512, 256), (6144, 4096), (4096, 14336)]:
        packed = pack_weight((torch.randn(outputs, inputs, device=GPU) * 0.02).bfloat16())
        bias = torch.randn(outputs, device=GPU).bfloat16()
        for tokens in TOKENS:
            x = torch.randn(tokens, inputs, device=GPU).bfloat16()
            same(serve(x, packed, bias=bias), linear(x, packed, bias))
            same(serve(x, packed), linear(x, packed))
    for _, counters in operators._WORKSPACES.values():
        assert not counters.any(), "counters are zero again"


def check_served_swiglu():
    """SwiGLU is the same in the epilogue, behind it, and from a plain copy but for the sum's
    order."""
    for inner, inputs in [(256, 256), (14336, 4096)]:
        weight = interleave_gate_up((torch.randn(2 * inner, inputs, device=GPU) * 0.02).bfloat16())
        packed = pack_weight(weight)
        for tokens in TOKENS:
            x = torch.randn(tokens, inputs, device=GPU).bfloat16()
            found = serve(x, packed, True)
            same(found, operators.join_swiglu(serve(x, packed)))
            gate, up = split_gate_up(serve(x, packed))
            wanted = torch.nn.functional.silu(gate.float()).bfloat16() * up
            assert (found.float() - wanted.float()).abs().max() <= 0.01 * wanted.float().abs().max()
            near = serve(x, packed, True, plain=weight)
            assert (found.float() - near.float()).abs().max() <= 0.02 * wanted.float().abs().max()


def check_served_graph():
    """A captured chain of a layer gives what it gives outside, replay after replay."""
    hidden, inner = 1024, 3072
    qkv, down = (pack_weight((torch.randn(*size, device=GPU) * 0.03).bfloat16()) for size in [(hidden, hidden), (hidden, inner)])
    gate_up = pack_weight(interleave_gate_up((torch.randn(2 * inner, hidden, device=GPU) * 0.03).bfloat16()))
    weight = torch.randn(hidden, device=GPU).bfloat16()

    def step(x):
        residual = x
        for _ in range(3):
            x, total = torch.ops.buddy.add_norm(serve(x, qkv), residual, weight, 1e-5)
            x, residual = torch.ops.buddy.add_norm(serve(serve(x, gate_up, True), down), total, weight, 1e-5)
        return x

    for tokens in [1, 4, 8, 16, 64, 256]:
        x = torch.randn(tokens, hidden, device=GPU).bfloat16()
        step(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = step(x)
        for _ in range(50):
            x.copy_(torch.randn(tokens, hidden, device=GPU))
            graph.replay()
            same(out, step(x))


def check_served_norm():
    """The sum is that of bf16, the norm within a rounding of the CPU's."""
    for tokens, hidden in [(1, 64), (7, 4096), (300, 8192)]:
        x, residual = (torch.randn(tokens, hidden, device=GPU).bfloat16() for _ in range(2))
        weight = torch.randn(hidden, device=GPU).bfloat16()
        for added in [None, residual]:
            out, total = torch.ops.buddy.add_norm(x, added, weight, 1e-5)
            near, wanted = torch.ops.buddy.add_norm(x.cpu(), None if added is None else added.cpu(), weight.cpu(), 1e-5)
            same(total.cpu(), wanted)
            assert (out.cpu().float() - near.float()).abs().max() <= 0.02 * near.float().abs().max()


def check_served_rows():
    weight = (torch.randn(1000, 256, device=GPU) * 0.02).bfloat16()
    packed, ids = pack_weight(weight), torch.randint(1000, (33,), device=GPU)
    entries = ids.view(-1, 1).int() * 4 + torch.arange(4, dtype=torch.int32, device=GPU)
    same(torch.ops.buddy.serve_rows(entries, packed.data, 1000), weight[ids])


def check_kernels_are_loaded_ahead():
    operators.load_kernels(torch.device("cuda", 0), [(512, 256, False), (512, 256, True)], [1, 2, 8, 16, 64, 256, 4096])
