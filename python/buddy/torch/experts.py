"""Experts whose three-dimensional bf16 weights (experts, rows, columns) stay packed.

A packed module keeps its class's ``forward``. A call unpacks only the experts that its router chose
and passes their indices renumbered, so results are bit-equal to the plain module's. With
``BUDDY_EXPERTS=grouped`` and without ``exact``, on a GPU of compute capability 9.0, a module that
follows Transformers' interface of experts multiplies packed weights in place (grouped.py).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from . import grouped  # registers the operators
from .layers import PackedMatrix, UnpackedWeight
from .linear_plan import needs_dispatcher
from .ops import entries_per_row
from .packed import PackedTensor, pack


class PackedExpertWeight(PackedMatrix):
    """The packed weight of all experts: one matrix of (experts * rows, columns) with random access
    to each expert."""

    def pack(self, weight: torch.Tensor) -> None:
        super().pack(weight) if weight.dtype == torch.uint8 else self._pack_plain(weight)

    def _pack_plain(self, weight: torch.Tensor) -> None:
        if tuple(weight.shape) != self.shape:
            raise ValueError(f"a weight of {tuple(weight.shape)} where {self.shape} is needed")
        # Packed bytes may be used under autograd, which inference tensors cannot be.
        with torch.inference_mode(False):
            packed = pack_experts(weight)
        self.data, self.codec = packed.data.contiguous(), packed.codec

    def packed(self) -> PackedTensor:
        if not self.data.numel():
            raise ValueError("these experts have no weights yet: load them first")
        return PackedTensor(self.data, self.shape, torch.bfloat16, self.codec, "4/3x", entries_per_row(self.shape[-1]))

    def select(self, chosen: torch.Tensor) -> torch.Tensor:
        """Returns the weights of the chosen experts. Reads no others."""
        return grouped.unpack_chosen(chosen, self.data, self.codec, *self.shape)

    def multiply(self, rows: torch.Tensor, route: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Returns the products of rows that ``experts_route`` sorted."""
        return torch.ops.buddy.experts_linear(rows, route, self.data, bias, self.codec, *self.shape)

    def _allocate_counters(self):
        pass  # no kernel multiplies with it in place


class PackedExperts(nn.Module):
    """Base of modules with packed expert weights; made by ``pack_experts_``.

    ``state_dict`` returns plain weights under their usual names.
    """

    plain_class: type[nn.Module]
    matrices: nn.ModuleDict
    # Unpacks in every call: bit-equal to the plain module.
    exact = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 3 and not kwargs and self._multiplies_in_place(*args):
            return self._multiply(*args)
        index = next((one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor) and not one.is_floating_point()), None)
        if index is None or not self._selects() or torch.compiler.is_compiling():
            return self.plain_class.forward(self, *args, **kwargs)
        chosen, places = torch.unique(index, return_inverse=True)
        args = tuple(places if one is index else one for one in args)
        kwargs = {name: places if one is index else one for name, one in kwargs.items()}
        return self.plain_class.forward(self._restricted(chosen), *args, **kwargs)

    def _multiplies_in_place(self, x: Any, index: Any, weights: Any) -> bool:
        """Returns whether a call with these arguments can use the grouped kernels."""
        if grouped.MODE != "grouped":
            return False
        if not all(isinstance(one, torch.Tensor) and one.is_cuda for one in (x, index, weights)) or x.dim() != 2 or x.dtype != torch.bfloat16:
            return False
        own = self.__dict__
        if own.get("exact") or not self._selects() or own.get("is_transposed", True) or own.get("has_post_expert_norm", False):
            return False
        names = {"gate_up_proj" if own["has_gate"] else "up_proj", "down_proj"}
        if not names <= self.matrices.keys() or own.get("has_bias") and any(f"{name}_bias" not in own["_parameters"] for name in names):
            return False
        differentiable = [weights, *(bias for name in names if (bias := own["_parameters"].get(f"{name}_bias")) is not None)]
        if torch.compiler.is_compiling():
            return not torch.is_grad_enabled() or not any(one.requires_grad for one in (x, *differentiable))
        return grouped.has_kernels(x.device) and not any(needs_dispatcher(x, one) for one in differentiable)

    def _multiply(self, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        name = "gate_up_proj" if self.has_gate else "up_proj"
        first, last = self.matrices[name], self.matrices["down_proj"]
        bias, last_bias = (self._parameters.get(f"{one}_bias") for one in (name, "down_proj"))
        route, rows = torch.ops.buddy.experts_route(x, index, self.num_experts)
        rows = first.multiply(rows, route, bias)
        if self.has_gate and self._is_swiglu():
            rows = grouped.gate(rows, "silu")
        else:
            rows = self._apply_gate(rows) if self.has_gate else self.act_fn(rows)
        return torch.ops.buddy.experts_combine(last.multiply(rows, route, last_bias), route, weights)

    def _is_swiglu(self) -> bool:
        gate = getattr(self.plain_class, "_apply_gate", None)
        return not torch.compiler.is_compiling() and getattr(gate, "__name__", "") == "_default_apply_gate" and "SiLU" in type(self.act_fn).__name__

    def _selects(self) -> bool:
        """Returns whether ``forward`` follows Transformers' interface of experts, which takes their
        number from ``num_experts``. Other modules get all experts."""
        return "has_gate" in self.__dict__ and "num_experts" in self.__dict__ and not self.__dict__.get("_is_expert_parallel", False)

    def _restricted(self, chosen: torch.Tensor) -> nn.Module:
        """Returns a module of the plain class with the chosen experts alone."""
        experts, parameters = self.num_experts, {name: one.select(chosen) for name, one in self.matrices.items()}
        for name, one in self._parameters.items():
            parameters[name] = one[chosen] if one is not None and one.dim() and one.shape[0] == experts else one
        module = object.__new__(self.plain_class)
        module.__dict__ = self.__dict__ | {"_parameters": parameters, "num_experts": chosen.numel()}
        return module

    def __getattr__(self, name: str) -> Any:
        matrices = self.__dict__["_modules"].get("matrices")
        if matrices is None or name not in matrices:
            return super().__getattr__(name)
        plain = matrices[name].unpack()
        return plain if torch.compiler.is_compiling() else UnpackedWeight.over(plain, matrices[name], plain)

    def __setattr__(self, name: str, value: Any) -> None:
        matrices = self.__dict__.get("_modules", {}).get("matrices")
        if matrices is None or name not in matrices:
            return super().__setattr__(name, value)
        with torch._C.DisableTorchFunctionSubclass():
            matrices[name].pack(value.detach().as_subclass(torch.Tensor))

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, one in self.matrices.items():
            destination[prefix + name] = one.unpack()

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        for name, one in self.matrices.items():
            if prefix + name in state_dict:
                try:
                    one.pack(state_dict[prefix + name])
                except ValueError as error:
                    errors.append(f"{prefix + name}: {error}")
            elif strict:
                missing.append(prefix + name)
        others = {key: one for key, one in state_dict.items() if key.startswith(prefix) and key[len(prefix):] not in self.matrices}
        super()._load_from_state_dict(others, prefix, metadata, strict, missing, unexpected, errors)

    def __reduce_ex__(self, protocol):
        return _rebuild, (self.plain_class,), self.__dict__


def _rebuild(plain_class: type[nn.Module]) -> PackedExperts:
    return object.__new__(packed_class(plain_class))


@functools.cache
def packed_class(plain_class: type[nn.Module]) -> type[PackedExperts]:
    """Returns the class of a module's packed form."""
    return type(f"Packed{plain_class.__name__}", (PackedExperts, plain_class), {"plain_class": plain_class, "forward": PackedExperts.forward})


def pack_experts(weight: torch.Tensor) -> PackedTensor:
    """Packs bf16 weights of more than two dimensions as one matrix of their rows."""
    return pack(weight.detach(), codec="bf16", target="4/3x", matrix=True)


def expert_weights(module: nn.Module) -> list[str]:
    """Returns the names of a module's weights that ``pack_experts_`` can pack; they may be on the
    meta device."""
    if isinstance(module, PackedExperts) or type(module).__module__.startswith("torch."):
        return []
    if "expert" not in type(module).__name__.lower() and not hasattr(module, "num_experts"):
        return []
    return [name for name, one in module.named_parameters(recurse=False)
            if one.dim() == 3 and one.dtype == torch.bfloat16 and one.shape[-1] % 64 == 0 and one.numel()]


def pack_experts_(module: nn.Module, weights: dict[str, torch.Tensor], shapes: dict[str, tuple[int, ...]], exact: bool = False) -> None:
    """Packs weights of a module in place. They are plain, or the bytes of packed ones. ``exact``
    modules unpack in every call."""
    matrices = nn.ModuleDict()
    for name, weight in weights.items():
        matrices[name] = PackedExpertWeight(shapes[name])
        matrices[name].pack(weight)
        del module._parameters[name]
    module.matrices, module.exact = matrices.train(module.training), exact
    module.__class__ = packed_class(type(module))


def unpack_experts_(module: PackedExperts) -> None:
    """Restores the plain class and weights of a module in place."""
    matrices = module._modules.pop("matrices")
    module.__class__ = module.plain_class
    del module.exact
    for name, one in matrices.items():
        module.register_parameter(name, nn.Parameter(one.unpack(), requires_grad=False))
