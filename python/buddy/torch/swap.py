"""``swap_``: the activations and batch normalisations of a model become those that keep less."""

from __future__ import annotations

from typing import Callable

from torch import nn

from .compress import replace
from .modules import BatchNorm1d, BatchNorm2d, BatchNorm3d, ReLU, SquaredReLU

NORMS = {nn.BatchNorm1d: BatchNorm1d, nn.BatchNorm2d: BatchNorm2d, nn.BatchNorm3d: BatchNorm3d}


def swapped(module: nn.Module) -> nn.Module | None:
    """The module in the place of an activation or a batch normalisation; None for any other."""
    if type(module) is nn.ReLU:
        return ReLU(module.inplace)
    if type(module) in NORMS:
        # Parameters, buffers, hooks and all.
        new = object.__new__(NORMS[type(module)])
        new.__dict__ = module.__dict__
        return new
    if type(module).__module__ == "transformers.activations" and type(module).__name__ == "ReLUSquaredActivation":
        # By name: it need not be installed.
        return SquaredReLU()
    return None


def swap_(model: nn.Module, *, only: Callable[[str, nn.Module], bool] | None = None) -> nn.Module:
    """Swaps the activations and batch normalisations of a model for ours, in place, and returns the model.

    ``nn.ReLU`` and transformers' squared ReLU become modules that give the same bits and train the same. Within ``compress_saved``
    they keep what backward needs packed, written by the kernel that computes them and read so by the backward pass (bf16, on a GPU).
    What ``nn.BatchNorm2d`` and its kin put out, a ReLU in place after it included, is computed again instead. GELU, SiLU and the other
    normalisations need no swap. ``only`` says of a module, by name, whether it is swapped. Functions that a model calls itself
    (``functional.relu``) are not seen. Gradients of gradients do not go through a packed activation.
    """
    made: dict[int, nn.Module | None] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if only is not None and not only(name, module):
            continue
        if id(module) not in made:
            made[id(module)] = swapped(module)
        if (new := made[id(module)]) is not None:
            replace(model, name, new.train(module.training))
    return model
