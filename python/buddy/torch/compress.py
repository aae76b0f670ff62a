"""``compress_``: the linear layers and embeddings of a model, packed in place."""

from __future__ import annotations

from typing import Callable

import torch
from torch import nn

from .layers import PackedEmbedding, PackedLinear, PackedWeight


def can_pack(module: nn.Module) -> bool:
    """Whether a module is one that stays the same when its weight is packed."""
    if type(module) is nn.Embedding:
        return _suits(module.weight) and module.max_norm is None and not module.sparse
    return type(module) is nn.Linear and _suits(module.weight)


def _suits(weight: torch.Tensor) -> bool:
    return weight.dtype == torch.bfloat16 and weight.dim() == 2 and weight.shape[1] % 64 == 0


def packed_like(module: nn.Module, store: PackedWeight | None = None, exact: bool = False) -> PackedLinear | PackedEmbedding:
    """The packed layer in a module's place, over a weight that is there or will be loaded."""
    if isinstance(module, nn.Embedding):
        return PackedEmbedding(module.num_embeddings, module.embedding_dim, module.padding_idx, store)
    return PackedLinear(module.in_features, module.out_features, module.bias, exact, store)


def compress_(model: nn.Module, *, device: torch.device | str | None = None, exact: bool = False,
              only: Callable[[str, nn.Module], bool] | None = None) -> nn.Module:
    """Packs the bf16 weights of a model's linear layers and embeddings in place, and returns the model.

    One weight at a time: with ``device`` each is brought there, packed there and replaced, so that the plain model never has to
    fit; what is not packed goes there last. Weights that are tied stay tied, and plain if one of them must. ``only`` says of a module, by name, whether it is
    packed. ``state_dict()`` gives the original bits. Packed weights do not train.

    By default products on a GPU differ from PyTorch's in the order of summation (fp32, rounded once to bf16); with ``exact`` they
    are equal to the bit, unpacked for each product, which is slower.
    """
    tied: dict[int, list[tuple[str, nn.Module]]] = {}
    plain = set()
    for name, module in model.named_modules(remove_duplicate=False):
        if can_pack(module) and (only is None or only(name, module)):
            tied.setdefault(id(module.weight), []).append((name, module))
        else:
            plain.update(id(one) for one in module.parameters(recurse=False))
    for layers in tied.values():
        if id(layers[0][1].weight) in plain:
            continue  # tied to what stays plain: packed beside it, it would take more memory, not less
        weight = layers[0][1].weight
        store = PackedWeight(tuple(weight.shape))
        store.pack(weight.to(device) if device is not None else weight)
        for name, module in layers:
            replace(model, name, packed_like(module, store, exact).train(module.training))
        del weight, module
        layers.clear()  # nothing holds the plain weight any more
    return model.to(device) if device is not None else model


def replace(model: nn.Module, name: str, new: nn.Module) -> None:
    """Puts a module in the place of the one of this name."""
    parent, _, last = name.rpartition(".")
    if not last:
        raise ValueError("the model itself is a layer: give the module that holds it, or use PackedLinear")
    setattr(model.get_submodule(parent), last, new)
