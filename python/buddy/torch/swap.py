"""``swap_`` replaces activations and batch normalisations by modules that save less."""

from __future__ import annotations

from typing import Callable

from torch import nn

from .compress import replace
from .modules import BatchNorm1d, BatchNorm2d, BatchNorm3d, ReLU, SquaredReLU

NORMS = {nn.BatchNorm1d: BatchNorm1d, nn.BatchNorm2d: BatchNorm2d, nn.BatchNorm3d: BatchNorm3d}


def swapped(module: nn.Module) -> nn.Module | None:
    """Returns the replacement of an activation or a batch normalisation; None for other modules."""
    if type(module) is nn.ReLU:
        return ReLU(module.inplace)
    if type(module) in NORMS:
        # Keeps parameters, buffers and hooks.
        new = object.__new__(NORMS[type(module)])
        new.__dict__ = module.__dict__
        return new
    if type(module).__module__ == "transformers.activations" and type(module).__name__ == "ReLUSquaredActivation":
        # By name: Transformers need not be installed.
        return SquaredReLU()
    return None


def swap_(model: nn.Module, *, only: Callable[[str, nn.Module], bool] | None = None) -> nn.Module:
    """Replaces the activations and batch normalisations of a model in place, and returns the model.

    ``nn.ReLU`` and Transformers' squared ReLU become modules that give the same bits. Within
    ``compress_saved`` their forward kernel packs what backward needs, and the backward kernel reads
    it packed (bf16, on a GPU). The output of ``nn.BatchNorm1d``, ``2d`` and ``3d``, with a
    following in-place ReLU, is recomputed. GELU, SiLU and other normalisations need no swap.

    ``only(name, module)`` selects the modules to swap. Functions that a model calls itself
    (``functional.relu``) are not swapped. Double backward does not go through a packed activation.
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
