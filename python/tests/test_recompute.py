"""Saved activations that are cheap to compute again: which are, and that nothing else is."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from buddy.torch import SquaredReLU, SwiGLU, compress_saved
from networks import ALL, Block, compare, mlp


def test_what_is_cheap_is_computed_again():
    mem = compare(nn.Sequential(Block(), Block()), torch.randn(2, 16, 64))
    report = mem.report()
    # Two normalisations and an activation in each block.
    assert report.recomputed == 6 and report.recomputed_bytes == 2 * (64 + 64 + 256) * 32 * 4
    assert compare(Block(), torch.randn(2, 16, 64), recompute=()).report().recomputed == 0
    # Also from what does not pay to be packed.
    assert compare(Block(), torch.randn(2, 16, 64), least_saved=0.9).report().recomputed == 3


def test_swiglu_keeps_two_tensors_and_squared_relu_one():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up, self.down, self.act = nn.Linear(64, 128), nn.Linear(64, 128), nn.Linear(128, 64), SwiGLU()

        def forward(self, x):
            return self.down(self.act(self.gate(x), self.up(x)))

    batch = torch.randn(32, 64)
    report = compare(Gated(), batch).report()
    # silu(gate) and the product are computed again; gate, up, the batch and the output for the loss are packed.
    assert report.recomputed_bytes == 2 * 32 * 128 * 4 and report.plain_bytes == 2 * 32 * (64 + 128) * 4
    squared = nn.Sequential(nn.Linear(64, 128), SquaredReLU(), nn.Linear(128, 64))
    report = compare(squared, batch).report()
    assert report.recomputed_bytes == 32 * 128 * 4 and report.plain_bytes == 32 * (64 + 128 + 64) * 4


def test_what_cannot_be_computed_again_is_packed():
    class Changed(nn.Module):
        def __init__(self):
            super().__init__()
            self.gelu, self.out = nn.GELU(), nn.Linear(64, 64)

        def forward(self, x):
            return self.out(self.gelu(x * 2).add_(1))

    class Hooked(Changed):
        def __init__(self):
            super().__init__()
            self.gelu.register_forward_hook(lambda module, inputs, output: output * 2)

        def forward(self, x):
            return self.out(self.gelu(x * 2))

    batch = torch.randn(32, 64, requires_grad=True)
    for model in [Changed(), Hooked(), mlp()]:
        # Dropout draws anew each time.
        assert compare(model, batch, recompute=(nn.GELU, nn.Dropout)).report().recomputed == 0


def test_a_weight_changed_before_its_output_is_computed_again_raises():
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64))
    with compress_saved(model, **ALL) as mem:
        loss = model(torch.randn(32, 64, requires_grad=True)).sum()
    assert mem.report().recomputed == 1
    with torch.no_grad():
        model[0].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
