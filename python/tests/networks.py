"""Small networks, and the comparison of training with and without packing."""

import copy

import torch
from torch import nn
from torch.nn import functional

from buddy.torch import compress_saved

SMALL = {"least_bytes": 256}
# Packs everything, even if it saves nothing.
ALL = {"least": "4/3x", "most_overflow": 1.0, "least_saved": -9.0, "learn": False, **SMALL}


class Block(nn.Module):
    """A transformer's block: queries, keys and values are views of one tensor."""

    def __init__(self, width=64, activation=nn.GELU()):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow, self.activation = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), activation

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(self.activation(self.wide(self.second(x))))


class Convolutions(nn.Module):
    """Residual convolutions with in-place ReLUs."""

    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(4))

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = functional.relu_(norm(layer(x)) + x)
        return x.mean((2, 3))


class SquaredRelu(nn.Module):
    def forward(self, x):
        return functional.relu(x).square()


def mlp():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 8))


def gradients(model, batch, backward=lambda loss: loss.backward()):
    """Returns the gradients and the loss of one step, with the same random numbers each time."""
    model.zero_grad()
    torch.manual_seed(7)
    output = model(batch)
    output = output[0] if isinstance(output, tuple) else output
    loss = output.float().square().mean()
    backward(loss)
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()] + [loss.detach()]


def compare(model, batch, steps=2, **options):
    """Asserts bit-equal gradients with and without packing; returns the memory."""
    plain = copy.deepcopy(model)
    mem = compress_saved(model, **{**ALL, **options})

    def backward(loss):
        # Left before the backward pass.
        mem.__exit__(None, None, None)
        loss.backward()

    for _ in range(steps):
        wanted = gradients(plain, batch)
        mem.__enter__()
        found = gradients(model, batch, backward)
        equal(found, wanted)
    return mem


def equal(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num())
