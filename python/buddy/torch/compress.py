"""``compress_`` packs the linear layers, embeddings and experts of a model in place."""

from __future__ import annotations

from typing import Callable

import torch
from torch import nn

from .derived import Derived, base_of, pack_derived, unpack_derived
from .experts import PackedExperts, expert_weights, pack_experts_, unpack_experts_
from .layers import PackedEmbedding, PackedLayer, PackedLinear, PackedMatrix
from .layout import TILE_ROWS


def can_pack(module: nn.Module) -> bool:
    """Returns whether a module computes the same with a packed weight, and has one that can be
    packed now."""
    return has_packed_form(module) and is_packable(module.weight)


def has_packed_form(module: nn.Module) -> bool:
    """Returns whether a packed layer can replace a module; its weight may be on the meta device."""
    if isinstance(module, nn.Embedding) and (module.max_norm is not None or module.sparse):
        return False
    return type(module) in (nn.Linear, nn.Embedding) or base_of(type(module)) is not None


def is_packable(weight: torch.Tensor) -> bool:
    """Returns whether a plain weight can be packed as a matrix now."""
    return weight.dtype == torch.bfloat16 and weight.dim() == 2 and fills_tiles(weight) and not weight.is_meta


def fills_tiles(weight: torch.Tensor) -> bool:
    """Returns whether a matrix has rows of whole entries, and enough of them: fewer than sixteen are
    padded to as many, so one row would take twelve times its bytes."""
    return weight.shape[-1] % 64 == 0 and weight.numel() // max(weight.shape[-1], 1) >= TILE_ROWS


def packed_like(module: nn.Module, matrix: PackedMatrix | None = None, exact: bool = False) -> PackedLayer:
    """Returns the packed layer that replaces a module. Without a matrix its weight must be loaded
    later."""
    if base_of(type(module)) is not None:
        return pack_derived(module, matrix)
    if isinstance(module, nn.Embedding):
        return PackedEmbedding(module.num_embeddings, module.embedding_dim, module.padding_idx, matrix)
    # Older versions of Transformers leave the features of a resized head as they were.
    outputs, inputs = matrix.shape if matrix is not None else (module.out_features, module.in_features)
    return PackedLinear(inputs, outputs, module.bias, exact, matrix)


def compress_(model: nn.Module, *, device: torch.device | str | None = None, exact: bool = False,
              only: Callable[[str, nn.Module], bool] | None = None) -> nn.Module:
    """Packs the bf16 weights of a model's linear layers, embeddings and experts in place, and
    returns the model.

    Experts are the three-dimensional weights of a mixture: a call reads those that the router
    chose.

    With ``device``, weights are moved there and packed one at a time, so the plain model never has
    to fit; everything else is moved last. Tied weights stay tied, and stay plain if one of their
    layers cannot be packed. ``only(name, module)`` selects the modules to pack. ``state_dict()``
    returns the original bits. Packed weights do not train; adapters (PEFT) stay plain and train.
    Hooks are kept.

    By default, results on a GPU differ from PyTorch's in the order of summation (fp32, rounded once
    to bf16). ``exact`` unpacks the weight for each call: bit-equal, and slower.
    """
    tied: dict[int, list[tuple[str, nn.Module]]] = {}
    plain = set()
    for name, module in model.named_modules(remove_duplicate=False):
        if can_pack(module) and not _is_adapter(model, name) and (only is None or only(name, module)):
            tied.setdefault(id(module.weight), []).append((name, module))
        else:
            plain.update(id(one) for one in module.parameters(recurse=False))
    for layers in tied.values():
        if id(layers[0][1].weight) in plain:
            continue  # a packed copy next to the plain weight would take more memory
        weight = layers[0][1].weight
        matrix = PackedMatrix(tuple(weight.shape))
        matrix.pack(weight.to(device) if device is not None else weight)
        for name, module in layers:
            replace(model, name, packed_like(module, matrix, exact).train(module.training))
        del weight, module
        layers.clear()  # releases the plain weight
    _compress_experts(model, device, exact, only)
    return model.to(device) if device is not None else model


def _compress_experts(model: nn.Module, device, exact, only) -> None:
    """Packs the experts of a model in place."""
    for name, module in list(model.named_modules()):
        if _is_adapter(model, name) or (only is not None and not only(name, module)):
            continue
        weights = {one: getattr(module, one) for one in expert_weights(module) if not getattr(module, one).is_meta}
        if weights:
            shapes = {one: tuple(weight.shape) for one, weight in weights.items()}
            pack_experts_(module, {one: weight.to(device) if device is not None else weight for one, weight in weights.items()}, shapes, exact)


def decompress_(model: nn.Module, *, only: Callable[[str, nn.Module], bool] | None = None) -> nn.Module:
    """Replaces the packed layers of a model by plain ones in place, and returns the model. Tied
    weights stay tied if all their layers are replaced. ``only(name, module)`` selects the modules."""
    weights: dict[int, nn.Parameter] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if only is not None and not only(name, module):
            continue
        if isinstance(module, PackedExperts):
            unpack_experts_(module)
        if not isinstance(module, PackedLayer):
            continue
        key = id(module.matrix)
        if key not in weights:
            weights[key] = nn.Parameter(module.matrix.unpack(), requires_grad=False)
        if isinstance(module, Derived):
            new = unpack_derived(module)
        elif isinstance(module, PackedEmbedding):
            new = nn.Embedding(module.num_embeddings, module.embedding_dim, module.padding_idx, _weight=weights[key], device="meta")
        else:
            new = nn.Linear(module.in_features, module.out_features, bias=False, device="meta")
            new.bias = module.bias
        new.weight = weights[key]
        replace(model, name, new.train(module.training))
    return model


def _is_adapter(model: nn.Module, name: str) -> bool:
    """Returns whether a module belongs to an adapter: to a layer that wraps another as its
    ``base_layer``."""
    while name:
        name, _, last = name.rpartition(".")
        if last != "base_layer" and isinstance(getattr(model.get_submodule(name), "base_layer", None), nn.Module):
            return True
    return False


def _move_hooks(old: nn.Module, new: nn.Module) -> None:
    """Gives a module the forward and backward hooks of another, and those of accelerate."""
    for key, hooks in vars(old).items():
        if key.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")) and "state_dict" not in key and hooks:
            getattr(new, key).update(hooks)
    if (hook := getattr(old, "_hf_hook", None)) is not None:
        from accelerate.hooks import add_hook_to_module

        add_hook_to_module(new, hook)


def replace(model: nn.Module, name: str, new: nn.Module) -> None:
    """Replaces the submodule of a name; its hooks move to the new one."""
    parent, _, last = name.rpartition(".")
    if not last:
        raise ValueError("the model itself is a layer: pass the module that holds it, or use PackedLinear")
    parent = model.get_submodule(parent)
    old = getattr(parent, last)
    if old is not new and vars(old) is not vars(new):
        _move_hooks(old, new)
    setattr(parent, last, new)
