"""Packing around and inside checkpoints gives bit-equal gradients."""

import copy
import inspect

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.utils import checkpoint as checkpoints

from buddy.torch import compress_saved
from networks import ALL, Block, compare, equal, gradients

checkpoint = checkpoints.checkpoint


class Checkpointed(nn.Module):
    def __init__(self, inside, **how):
        super().__init__()
        self.blocks, self.inside, self.how = nn.ModuleList([Block(), Block()]), inside, how

    def forward(self, x):
        x = x * 1.5
        for block in self.blocks:
            def run(x, block=block):
                if self.inside:
                    with compress_saved(self, **ALL):
                        return block(x)
                return block(x)

            x = checkpoint(run, x, **self.how)
        return x


def selective():
    kept = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
    return checkpoints.create_selective_checkpoint_contexts(kept)


HOW = {"plain": {"use_reentrant": False}, "reentrant": {"use_reentrant": True},
       "selective": {"use_reentrant": False, "context_fn": selective}}
# From PyTorch 2.15 on; before, tensors saved by selective checkpointing bypass all hooks.
HOOKED = "respect_saved_tensors_hooks"
if HOOKED in inspect.signature(checkpoints._checkpoint_without_reentrant_generator).parameters:
    HOW["selective, past hooks"] = HOW["selective"] | {HOOKED: False}
    HOW["selective, hooked"] = HOW["selective"] | {HOOKED: True}


@pytest.mark.parametrize("how", HOW)
def test_around_checkpoints(how):
    report = compare(Checkpointed(False, **HOW[how]), torch.randn(2, 16, 64, requires_grad=True)).report()
    if how == "plain":
        # The inputs that a checkpoint saves are packed.
        assert report.plain_bytes >= 2 * 2 * 16 * 64 * 4
    if how == "selective, hooked":
        # So are the tensors that a selective one saves.
        past = compare(Checkpointed(False, **HOW["selective, past hooks"]), torch.randn(2, 16, 64, requires_grad=True)).report()
        assert report.plain_bytes > past.plain_bytes + 2 * 2 * 16 * 64 * 4, (report, past)


@pytest.mark.parametrize("how", HOW)
def test_inside_checkpoints(how):
    model = Checkpointed(True, **HOW[how])
    plain = copy.deepcopy(model)
    plain.inside = False
    batch = torch.randn(2, 16, 64, requires_grad=True)
    for _ in range(2):
        equal(gradients(model, batch), gradients(plain, batch))
