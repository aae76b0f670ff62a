"""Packing activations and recomputed normalisations equal PyTorch's, alone and in a model."""

import copy

import torch
from torch import nn

from buddy import _native
from buddy.torch import activations, compress_saved, swap_
from buddy.torch.layout import packed_bytes
from buddy.torch.ops import device_and_stream, span
from networks import Block, equal, gradients

from . import GPU


def check_activations_are_pytorchs_to_the_bit():
    """All bf16 values and normal ones; random gradients; enough room and too little."""
    every = torch.arange(-32768, 32768, device=GPU, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    for kind in [activations.RELU, activations.SQUARED_RELU]:
        for x in [every.repeat(3), torch.randn(1 << 20, device=GPU).bfloat16(), torch.randn(4, 64, 9, 8, device=GPU).bfloat16()
                  .contiguous(memory_format=torch.channels_last), torch.randn(64 * 37, device=GPU).bfloat16()]:
            kept, g = kind.saved(x), torch.randn(x.shape, device=GPU).bfloat16()
            wanted = [kind.forward(kept), kind.forward(kept), kind.backward(kept, g)]
            for target in ["4/3x", "2x"]:
                format = ("bf16:112", target, 0)
                for in_place in [False, True] if kind is activations.RELU else [False]:
                    source = x.clone()
                    y, recomputed, of_x = source if in_place else torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
                    packed = torch.empty(packed_bytes(target, 0, x.nbytes, x.nbytes // 32), dtype=torch.uint8, device=GPU)
                    where, g = device_and_stream(x), torch.empty_like(x).copy_(g)
                    _native.activation_forward(where, format, kind.name, span(source), span(y), span(packed), 0)
                    _native.activation_output(where, format, kind.name, span(packed), span(recomputed))
                    _native.activation_backward(where, format, kind.name, span(packed), span(g), span(of_x))
                    for one, other in zip([y, recomputed, of_x], wanted):
                        # Any NaN for a NaN.
                        same_bits = (one.view(torch.int16) == other.view(torch.int16)) | (one.isnan() & other.isnan())
                        assert same_bits.all(), (kind.name, target, in_place, x.shape, x[~same_bits][:4], one[~same_bits][:4], other[~same_bits][:4])
                    # The packed bytes are those of `pack`, with one NaN for all.
                    plain = torch.zeros_like(packed)
                    _native.pack(where, format, span(torch.where(kept.isnan(), every[0x7fff - 0x8000], kept)), span(plain), 0)
                    used = packed_bytes(target, 0, x.nbytes, int(plain[48:52].view(torch.int32)))
                    values = torch.empty_like(x)
                    _native.unpack(where, format, span(packed), span(values))
                    assert ((values.view(torch.int16) == kept.view(torch.int16)) | (values.isnan() & kept.isnan())).all()
                    assert torch.equal(packed[:128], plain[:128]) and used <= packed.numel()


def check_batch_normalisation_with_its_relu_is_pytorchs():
    """The fused kernel against PyTorch's two, with all bf16 values in every channel."""
    every = torch.arange(-32768, 32768, device=GPU, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    for channels in [8, 64, 256, 2048]:
        norm = swap_(nn.Sequential(nn.BatchNorm2d(channels)))[0].to(GPU, torch.bfloat16)
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
        x = torch.cat([every.view(1, 1, -1, 256).expand(1, channels, -1, -1), torch.randn(1, channels, 64, 256, device=GPU).bfloat16()], 2)
        x = x.contiguous(memory_format=torch.channels_last)
        mean, deviation = torch.randn(channels, device=GPU), torch.rand(channels, device=GPU) + 0.1
        found, wanted = norm._recompute(x, mean, deviation, True), norm._recompute(x, mean, deviation, False).relu_()
        assert ((found.view(torch.int16) == wanted.view(torch.int16)) | (found.isnan() & wanted.isnan())).all(), channels


def check_swapped_models():
    cases = [(nn.Sequential(Block(), Block(activation=nn.ReLU())), (8, 128, 64)),
             (nn.Sequential(nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.Conv2d(32, 16, 3)), (8, 16, 34, 34))]
    for model, shape in cases:
        for options in [{}, {"least": "4/3x"}, {"overflow": "device", "in_flight_bytes": 0}, {"overflow": "device"}]:
            plain, swapped = copy.deepcopy(model).to(GPU, torch.bfloat16), swap_(copy.deepcopy(model)).to(GPU, torch.bfloat16)
            if len(shape) == 4:
                plain, swapped = plain.to(memory_format=torch.channels_last), swapped.to(memory_format=torch.channels_last)
            batch = torch.randn(shape, device=GPU, dtype=torch.bfloat16)
            for _ in range(3):
                wanted = gradients(plain, batch)
                with compress_saved(swapped, **{"least_bytes": 256, **options}) as mem:
                    found = gradients(swapped, batch)
                equal(found, wanted)
            report = mem.report()
            assert report.recomputed > 0 and "not PyTorch's bits" not in report.skipped, report
            equal([*swapped.buffers()], [*plain.buffers()])
            print(f"    {report.tensors} packed, {report.recomputed} recomputed")
