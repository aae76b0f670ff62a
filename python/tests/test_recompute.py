"""The choice of saved activations that are recomputed."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from buddy.torch import SquaredReLU, SwiGLU, compress_saved
from networks import ALL, Block, compare, mlp


def test_cheap_outputs_are_recomputed():
    mem = compare(nn.Sequential(Block(), Block()), torch.randn(2, 16, 64))
    report = mem.report()
    # Two normalisations and an activation in each block.
    assert report.recomputed == 6 and report.recomputed_bytes == 2 * (64 + 64 + 256) * 32 * 4
    assert compare(Block(), torch.randn(2, 16, 64), recompute=()).report().recomputed == 0
    # Also from inputs that are not worth packing.
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
    # silu(gate) and the product are recomputed; gate, up, the batch and the output for the loss are
    # packed.
    assert report.recomputed_bytes == 2 * 32 * 128 * 4 and report.plain_bytes == 2 * 32 * (64 + 128) * 4
    squared = nn.Sequential(nn.Linear(64, 128), SquaredReLU(), nn.Linear(128, 64))
    report = compare(squared, batch).report()
    assert report.recomputed_bytes == 32 * 128 * 4 and report.plain_bytes == 32 * (64 + 128 + 64) * 4


def test_outputs_that_cannot_be_repeated_are_packed():
    class Changed(nn.Module):
        def __init__(self):
            super().__init__()
            self.gelu, self.out = nn.GELU(), nn.Linear(64, 64)

        def forward(self, x):
            return self.out(self.gelu(x * 2).add_(1))

    class Named(Changed):
        def forward(self, x):
            return self.out(self.gelu(input=x * 2))

    class Hooked(Changed):
        def __init__(self):
            super().__init__()
            self.gelu.register_forward_hook(lambda module, inputs, output: output * 2)

        def forward(self, x):
            return self.out(self.gelu(x * 2))

    batch = torch.randn(32, 64, requires_grad=True)
    for model in [Changed(), Named(), Hooked(), mlp()]:
        # Dropout draws new random numbers each time.
        assert compare(model, batch, recompute=(nn.GELU, nn.Dropout)).report().recomputed == 0


def test_a_weight_modified_before_recomputation_raises():
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64))
    with compress_saved(model, **ALL) as mem:
        loss = model(torch.randn(32, 64, requires_grad=True)).sum()
    assert mem.report().recomputed == 1
    with torch.no_grad():
        model[0].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


DENSE = {"least_bytes": 256}
CHANGED = {"a plain storage": nn.Identity(), "the input of a normalisation": nn.LayerNorm(64)}


@pytest.mark.parametrize("name", CHANGED)
def test_plain_saved_tensors_modified_in_place_raise(name):
    model, x = nn.Sequential(CHANGED[name]), torch.randn(32, 64, requires_grad=True)
    for _ in range(2):
        with compress_saved(model, **DENSE) as mem:
            middle = x * 2
            loss = (model(middle) * middle.sin()).sum()
        assert mem.report().tensors == 0
        middle.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_normalisation_bypasses_our_hooks_only_if_they_are_innermost_and_alone():
    model, x, asked = nn.Sequential(nn.LayerNorm(64)), torch.randn(32, 64, requires_grad=True), []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: asked.append(tensor) or tensor, lambda tensor: tensor)
    for _ in range(2):
        with compress_saved(model, **DENSE) as mem:
            model(x * 2).sum()
            packed = set(mem.report().skipped)
            with hooks:
                model(x * 2).sum()
        # Input, mean, deviation and weight: our hooks saw none of them, the others all.
        assert packed == {"does not reach 2x"} and len(asked) >= 4
        asked.clear()


def test_a_module_that_raises_leaves_our_hooks_in_place():
    model, x = nn.Sequential(nn.LayerNorm(64)), torch.randn(32, 64, requires_grad=True)
    wrong = nn.LayerNorm(64)
    model.append(wrong)
    wrong.forward = lambda x: 1 / 0
    for _ in range(2):
        with compress_saved(model, **ALL) as mem:
            model[0](x * 2)
            with pytest.raises(ZeroDivisionError):
                wrong(x * 2)
            # Our hooks are installed again for the next module.
            model[0](x * 2)
            y = (x * 3).exp()
        assert any(size == y.nbytes for _, size, _ in mem._sites.keys()) and mem.report().tensors >= 3
        assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None
        with pytest.raises(ZeroDivisionError), compress_saved(model, **DENSE):
            wrong(x * 2)
        assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None
        assert not model[0]._forward_hooks and not wrong._forward_pre_hooks
