"""Two hundred steps of a GPT, a ViT and a ResNet: the weights with and without packing are equal to
the bit."""

import pathlib
import sys
from collections import OrderedDict

import pytest

torch = pytest.importorskip("torch")

from torch import nn

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools"))

from buddy.torch import compress_saved
from dl import networks

SAMPLES, WIDTH = 16, 64


class Gpt(networks.Gpt):
    vocabulary = 256


def gpt():
    tokens = torch.randint(0, Gpt.vocabulary, (SAMPLES, 33))
    return Gpt(width=WIDTH, layers=2, length=32), tokens[:, :-1], tokens[:, 1:]


def vit():
    layers = [("patch", networks.Patches(WIDTH, 4)), *((f"block{i}", networks.Block(WIDTH, 4, causal=False)) for i in range(2)),
              ("ln", nn.LayerNorm(WIDTH)), ("first", networks.First()), ("head", nn.Linear(WIDTH, 10))]
    return nn.Sequential(OrderedDict(layers)), torch.randn(SAMPLES, 3, 32, 32).bfloat16(), torch.randint(0, 10, (SAMPLES, 1))


def resnet():
    layers = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), networks.relu(), networks.Bottleneck(16, 8, 1),
              networks.Bottleneck(32, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*layers), torch.randn(SAMPLES, 3, 16, 16).bfloat16(), torch.randint(0, 10, (SAMPLES, 1))


def train(make, packed, steps=200):
    torch.manual_seed(1)
    model, inputs, labels = make()
    model = networks.initialise(model).bfloat16().train()
    optimizer, generator = torch.optim.AdamW(model.parameters(), lr=3e-3), torch.Generator().manual_seed(2)
    losses, report = [], None
    for _ in range(steps):
        batch = torch.randperm(SAMPLES, generator=generator)[:4]
        with compress_saved(model, least="4/3x", least_bytes=2048) if packed else torch.enable_grad() as mem:
            loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        report = mem.report() if packed else None
    assert losses[-1] < losses[0] / 2, "it learns"
    return [*model.state_dict().values()], report


@pytest.mark.parametrize("make", [gpt, vit, resnet])
def test_weights_are_equal_after_two_hundred_steps(make):
    plain, _ = train(make, False)
    packed, report = train(make, True)
    assert report.tensors + report.recomputed > 0
    for one, other in zip(plain, packed):
        assert torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
