"""Packed forms of Transformers' own layers: scaled embeddings, ``Conv1D`` (GPT-2), whose weight is
the transposed one of a linear layer, and ``FalconLinear``.

A packed form keeps the class of its layer as a base, so ``isinstance`` and PEFT see that class.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch import nn

from .layers import PackedEmbedding, PackedLayer, PackedMatrix

# Classes whose `forward` multiplies with `self.weight` and uses it for nothing else.
PRODUCTS = {("transformers.pytorch_utils", "Conv1D"), ("transformers.models.falcon.modeling_falcon", "FalconLinear")}
# Bodies of `forward` that `PackedScaledEmbedding` computes.
SCALED = {"return super().forward(input_ids) * self.embed_scale",
          "return super().forward(input_ids) * self.embed_scale.to(self.weight.dtype)"}


class Derived(PackedLayer):
    """Base of packed forms; made by ``pack_derived``."""

    plain_class: type[nn.Module]

    def __reduce_ex__(self, protocol):
        return _rebuild, (self.plain_class,), self.__dict__


class PackedScaledEmbedding(Derived, PackedEmbedding):
    """An embedding whose rows are multiplied with ``embed_scale``, a number or a tensor."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scale = self.embed_scale
        return PackedEmbedding.forward(self, ids) * (scale.to(torch.bfloat16) if isinstance(scale, torch.Tensor) else scale)


class PackedProduct(Derived):
    """A layer whose own ``forward`` unpacks the weight for each product."""


@functools.cache
def base_of(plain_class: type[nn.Module]) -> type[Derived] | None:
    """Returns the base of a class's packed form, or None if it has none."""
    if (plain_class.__module__, plain_class.__name__) in PRODUCTS:
        return PackedProduct
    if not issubclass(plain_class, nn.Embedding) or plain_class is nn.Embedding or issubclass(plain_class, PackedLayer):
        return None
    try:
        lines = [line.strip() for line in inspect.getsource(plain_class.forward).splitlines() if line.strip()]
    except (OSError, TypeError):
        return None
    return PackedScaledEmbedding if len(lines) == 2 and lines[1] in SCALED else None


@functools.cache
def packed_class(plain_class: type[nn.Module]) -> type[Derived]:
    """Returns the packed form of a class that ``base_of`` knows."""
    return type(f"Packed{plain_class.__name__}", (base_of(plain_class), plain_class), {"plain_class": plain_class})


def _rebuild(plain_class: type[nn.Module]) -> Derived:
    return object.__new__(packed_class(plain_class))


def _copied(module: nn.Module, new: nn.Module) -> nn.Module:
    """Copies a module's attributes, parameters and buffers, but not its hooks nor its weight."""
    nn.Module.__init__(new)
    # Accelerate keeps its own `forward` there.
    new.__dict__.update({name: one for name, one in module.__dict__.items() if not name.startswith("_") and name not in ("training", "forward")})
    new._parameters.update({name: one for name, one in module._parameters.items() if name != "weight"})
    new._buffers.update(module._buffers)
    new._non_persistent_buffers_set.update(module._non_persistent_buffers_set)
    return new


def pack_derived(module: nn.Module, matrix: PackedMatrix | None) -> Derived:
    """Returns the packed form of a layer. Without a matrix its weight must be loaded later."""
    new: Any = _copied(module, _rebuild(type(module)))
    new.matrix = matrix if matrix is not None else PackedMatrix(tuple(module.weight.shape))
    return new


def unpack_derived(module: Derived) -> nn.Module:
    """Returns the plain layer of a packed form, still without its weight."""
    return _copied(module, object.__new__(module.plain_class))
