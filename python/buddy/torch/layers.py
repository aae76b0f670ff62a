"""Layers whose bf16 weights stay packed: three quarters of the memory, bit for bit.

``state_dict`` returns plain weights under their usual names. ``load_state_dict`` takes plain
weights and the packed bytes that ``buddy pack`` writes.
"""

from __future__ import annotations

import warnings

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from . import embedding as _embedding  # registers the operator
from .linear_plan import LinearPlan, needs_dispatcher
from .ops import entries_per_row, linear_eager
from .packed import PackedTensor, pack_weight


class PackedMatrix(nn.Module):
    """A packed matrix. Tied layers share one; they save it under their own names."""

    def __init__(self, shape: tuple[int, int]):
        super().__init__()
        self.shape, self.codec, self._plan = tuple(shape), "bf16:112", None
        self.register_buffer("data", torch.empty(0, dtype=torch.uint8))
        # Zeros on a GPU, left zero by every call: captured graphs of a compiled model need not
        # clear them.
        self.register_buffer("counters", None, persistent=False)

    def pack(self, weight: torch.Tensor) -> None:
        """Takes a plain matrix, or the bytes of a packed one. Raises ``ValueError`` if either does
        not fit."""
        if weight.dtype == torch.uint8 and weight.dim() == 1:
            packed = PackedTensor.read(weight, self.shape, torch.bfloat16)
            found = packed.codec.partition(":")[0], packed.target, packed.row
            if found != (wanted := ("bf16", "4/3x", entries_per_row(self.shape[-1]))):
                raise ValueError(f"a matrix packed as {found} (codec, target, entries per row), where {wanted} is needed")
        elif tuple(weight.shape) == self.shape:
            # Packed bytes are saved for backward, which inference tensors cannot be.
            with torch.inference_mode(False):
                packed = pack_weight(weight.detach())
        else:
            raise ValueError(f"a weight of {tuple(weight.shape)} where {self.shape} is needed")
        self.data, self.codec, self._plan = packed.data.contiguous(), packed.codec, None
        self._allocate_counters()

    @property
    def plan(self) -> LinearPlan:
        """The plan for the matrix at its current address."""
        data, plan = self._buffers["data"], self._plan
        if plan is None or plan.address != data.data_ptr():
            plan = self._plan = LinearPlan(data, self.shape, self.codec)
        return plan

    def _allocate_counters(self):
        if type(self.data) is torch.Tensor and self.data.is_cuda and (self.counters is None or self.counters.device != self.data.device):
            self.counters = torch.zeros(self.plan.counter_bytes, dtype=torch.uint8, device=self.data.device)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self._allocate_counters()
        return self

    def __getstate__(self):
        return self.__dict__ | {"_plan": None}

    def packed(self) -> PackedTensor:
        """Returns the matrix as a packed tensor."""
        if not self.data.numel():
            raise ValueError("this layer has no weights yet: load them first")
        return PackedTensor(self.data, self.shape, torch.bfloat16, self.codec, "4/3x", self.shape[1] // 64)

    def unpack(self) -> torch.Tensor:
        """Returns the plain matrix."""
        return self.packed().unpack()

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        pass  # the layer saves it

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        pass


class UnpackedWeight(torch.Tensor):
    """The weight of a packed layer as a plain tensor. In-place writes to it, or to a view of it,
    are packed into the layer.

    Results that do not share its memory are ordinary tensors.
    """

    @classmethod
    def over(cls, plain: torch.Tensor, matrix: PackedMatrix, whole: torch.Tensor) -> UnpackedWeight:
        """Wraps a view of ``whole``, the unpacked matrix."""
        weight = plain.as_subclass(cls)
        weight._matrix, weight._whole = matrix, whole
        return weight

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        options = options or {}
        if function == torch.Tensor.data.__set__:
            weight, value = arguments
            with torch._C.DisableTorchFunctionSubclass():
                weight._matrix.pack(value.as_subclass(torch.Tensor))
                weight._whole.copy_(weight._matrix.unpack())
            return None
        found: list[tuple[UnpackedWeight, torch.Tensor, int | None]] = []

        def plain(weight):
            with torch._C.DisableTorchFunctionSubclass():
                alias = weight.as_subclass(torch.Tensor)
                found.append((weight, alias, None if alias.is_inference() else alias._version))
            return alias

        arguments, options = tree_map_only(cls, plain, (tuple(arguments), dict(options)))
        result = function(*arguments, **options)
        for weight, alias, version in found:
            if _writes(function, options) if version is None else alias._version != version:
                weight._matrix.pack(weight._whole)
            if result is alias:
                return weight
        if type(result) is torch.Tensor and found and result.layout is torch.strided:
            weight, alias, _ = found[0]
            if result.numel() and result.untyped_storage()._cdata == alias.untyped_storage()._cdata:
                return cls.over(result, weight._matrix, weight._whole)
        return result


def _writes(function, options) -> bool:
    """Returns whether a call writes in place, by its name: inference tensors have no version
    counter."""
    name = getattr(function, "__name__", "")
    return options.get("out") is not None or name == "__setitem__" or (name.startswith("__i") and name.endswith("__")) or (name.endswith("_") and not name.endswith("__"))


class PackedLayer(nn.Module):
    """Base of layers with a packed weight."""

    matrix: PackedMatrix

    @property
    def weight(self) -> torch.Tensor:
        """The weight, unpacked anew at every access. In-place writes and assignments are packed
        into the layer."""
        plain = self.matrix.unpack()
        if torch.compiler.is_compiling() or type(plain) is not torch.Tensor:
            return plain
        return UnpackedWeight.over(plain, self.matrix, plain)

    def __setattr__(self, name, value):
        if name == "weight":
            with torch._C.DisableTorchFunctionSubclass():
                self.matrix.pack(value.detach().as_subclass(torch.Tensor))
        else:
            super().__setattr__(name, value)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.matrix.unpack()

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        key = prefix + "weight"
        if key in state_dict:
            try:
                self.matrix.pack(state_dict[key])
            except ValueError as error:
                errors.append(f"{key}: {error}")
        elif strict:
            missing.append(key)
        others = {name: one for name, one in state_dict.items() if name.startswith(prefix) and name != key}
        super()._load_from_state_dict(others, prefix, metadata, strict, missing, unexpected, errors)


class PackedLinear(PackedLayer, nn.Linear):
    """``nn.Linear`` with a packed weight.

    On a GPU the kernel reads the weight packed: it sums in another order than PyTorch, in fp32, and
    rounds once. ``exact`` unpacks and multiplies with PyTorch's kernel: bit-equal to the plain
    layer, and slower.
    """

    def __init__(self, in_features: int, out_features: int, bias: torch.Tensor | None = None, exact: bool = False,
                 matrix: PackedMatrix | None = None):
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.exact = in_features, out_features, exact
        self.matrix = matrix if matrix is not None else PackedMatrix((out_features, in_features))
        self.bias = bias if bias is None or isinstance(bias, nn.Parameter) else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Without `nn.Module.__getattr__`, which takes as long as a launch.
        matrix = self._modules["matrix"]
        shape = self.out_features, self.in_features
        if torch.compiler.is_compiling():
            return torch.ops.buddy.linear(x, matrix.data, self.bias, matrix.counters, matrix.codec, *shape, self.exact)
        bias = self._parameters.get("bias")
        y = None if self.exact or type(x) is not torch.Tensor else matrix.plan(x, bias)
        if y is not None:
            return y
        if x.is_cuda and not needs_dispatcher(x, bias):
            return linear_eager(x, matrix.data, bias, matrix.codec, *shape, self.exact)
        return torch.ops.buddy.linear(x, matrix.data, bias, None, matrix.codec, *shape, self.exact)

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
                f"{self.matrix.data.numel()} bytes")


class PackedEmbedding(PackedLayer, nn.Embedding):
    """``nn.Embedding`` with a packed weight, bit for bit."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 matrix: PackedMatrix | None = None):
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = None, 2.0, False, False
        self.matrix = matrix if matrix is not None else PackedMatrix((num_embeddings, embedding_dim))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.ops.buddy.embedding(ids, self.matrix.data, self.matrix.codec, self.num_embeddings, self.embedding_dim)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, {self.matrix.data.numel()} bytes"


def __getattr__(name):
    if name == "PackedWeight":
        warnings.warn("PackedWeight is now PackedMatrix; the old name goes in the next version", DeprecationWarning, stacklevel=2)
        return PackedMatrix
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
