"""Layers whose bf16 weights stay packed: they take three quarters of the memory, and not one bit changes.

``state_dict`` gives the weights as they were, under the names that they had; ``load_state_dict`` takes plain weights, and packed ones
as ``buddy pack`` writes them.
"""

from __future__ import annotations

import torch
from torch import nn

from . import rows as _rows  # registers the operator
from .ops import linear_now
from .packed import PackedTensor, pack_weight
from .product import Product, is_watched


class PackedWeight(nn.Module):
    """A packed matrix; modules that are tied share one. Their names are the ones that a ``state_dict`` has."""

    def __init__(self, shape: tuple[int, int]):
        super().__init__()
        self.shape, self.codec, self._product = tuple(shape), "bf16:112", None
        self.register_buffer("data", torch.empty(0, dtype=torch.uint8))
        # On a GPU, zeros that the layer's products leave as zeros: what captured graphs of a compiled model need not clear.
        self.register_buffer("counts", None, persistent=False)

    def pack(self, weight: torch.Tensor) -> None:
        """Takes a plain matrix, or the bytes of a packed one."""
        if weight.dtype == torch.uint8 and weight.dim() == 1:
            packed = PackedTensor.read(weight, self.shape, torch.bfloat16)
        elif tuple(weight.shape) == self.shape:
            packed = pack_weight(weight.detach())
        else:
            raise ValueError(f"a weight of {tuple(weight.shape)} where {self.shape} belongs")
        self.data, self.codec, self._product = packed.data, packed.codec, None
        self._count()

    @property
    def product(self) -> Product:
        """The weights where they are now, ready to be multiplied by."""
        data, product = self._buffers["data"], self._product
        if product is None or product.address != data.data_ptr():
            product = self._product = Product(data, self.shape, self.codec)
        return product

    def _count(self):
        if type(self.data) is torch.Tensor and self.data.is_cuda and (self.counts is None or self.counts.device != self.data.device):
            self.counts = torch.zeros(self.product.count_bytes, dtype=torch.uint8, device=self.data.device)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self._count()
        return self

    def __getstate__(self):
        return self.__dict__ | {"_product": None}

    def packed(self) -> PackedTensor:
        if not self.data.numel():
            raise ValueError("this layer has no weights yet: load them first")
        return PackedTensor(self.data, self.shape, torch.bfloat16, self.codec, "4/3x", self.shape[1] // 64)

    def unpack(self) -> torch.Tensor:
        return self.packed().unpack()

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        pass  # the layer does

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        pass


class PackedLayer(nn.Module):
    """What layers with a packed weight have in common."""

    store: PackedWeight

    @property
    def weight(self) -> torch.Tensor:
        """The weight, unpacked: a new tensor each time."""
        return self.store.unpack()

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.weight

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        key = prefix + "weight"
        if key in state_dict:
            try:
                self.store.pack(state_dict[key])
            except ValueError as error:
                errors.append(f"{key}: {error}")
        elif strict:
            missing.append(key)
        others = {name: one for name, one in state_dict.items() if name.startswith(prefix) and name != key}
        super()._load_from_state_dict(others, prefix, metadata, strict, missing, unexpected, errors)


class PackedLinear(PackedLayer):
    """``nn.Linear`` from a packed weight.

    On a GPU the weight is read packed: sums are taken in another order than PyTorch's, in fp32, and rounded once. ``exact`` unpacks
    and multiplies as PyTorch does: equal to plain to the bit, and slower.
    """

    def __init__(self, in_features: int, out_features: int, bias: torch.Tensor | None = None, exact: bool = False,
                 store: PackedWeight | None = None):
        super().__init__()
        self.in_features, self.out_features, self.exact = in_features, out_features, exact
        self.store = store if store is not None else PackedWeight((out_features, in_features))
        self.bias = bias if bias is None or isinstance(bias, nn.Parameter) else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Past `nn.Module`'s own look-up of attributes, which takes as long as a launch.
        store = self._modules["store"]
        if torch.compiler.is_compiling():
            return torch.ops.buddy.linear(x, store.data, self.bias, store.counts, store.codec, self.out_features, self.exact)
        bias = self._parameters.get("bias")
        y = None if self.exact or type(x) is not torch.Tensor else store.product(x, bias)
        if y is not None:
            return y
        if x.is_cuda and not is_watched(x, bias):
            return linear_now(x, store.data, bias, store.codec, self.out_features, self.exact)
        return torch.ops.buddy.linear(x, store.data, bias, None, store.codec, self.out_features, self.exact)

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
                f"{self.store.data.numel()} bytes")


class PackedEmbedding(PackedLayer):
    """``nn.Embedding`` from a packed weight: rows bit for bit."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 store: PackedWeight | None = None):
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.store = store if store is not None else PackedWeight((num_embeddings, embedding_dim))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.ops.buddy.rows(ids, self.store.data, self.store.codec, self.num_embeddings, self.embedding_dim)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, {self.store.data.numel()} bytes"
