"""Transformers models with packed weights: their methods that count and resize, and the line that
ends their loading."""

from __future__ import annotations

import sys

import torch
from torch import nn
from transformers.utils import logging

from .torch.compress import compress_, decompress_
from .torch.experts import PackedExperts
from .torch.layers import PackedEmbedding, PackedLayer, PackedMatrix
from .torch.report import size_text

logger = logging.get_logger("buddy.transformers")


def num_parameters(model, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
    """Returns the number of parameters, those of packed weights included; these are not
    trainable."""
    count = type(model).num_parameters(model, only_trainable, exclude_embeddings)
    embedded = {id(layer.matrix) for layer in model.modules() if isinstance(layer, PackedEmbedding)}
    matrices = {id(one): torch.Size(one.shape).numel() for one in model.modules() if isinstance(one, PackedMatrix)}
    return count + sum(size for key, size in matrices.items() if not only_trainable and not (exclude_embeddings and key in embedded))


def resize_token_embeddings(model, *args, **kwargs):
    """Resizes the embedding and the head as plain layers, and packs them again."""
    resized = {id(one) for one in [model.get_input_embeddings(), model.get_output_embeddings()] if isinstance(one, PackedLayer)}
    names = {name for name, one in model.named_modules(remove_duplicate=False) if id(one) in resized}
    exact = any(getattr(model.get_submodule(name), "exact", False) for name in names)
    decompress_(model, only=lambda name, module: name in names)
    found = type(model).resize_token_embeddings(model, *args, **kwargs)
    compress_(model, exact=exact, only=lambda name, module: name in names)
    return model.get_input_embeddings() if names else found


# Methods of a model with packed weights.
METHODS = {"num_parameters": num_parameters, "resize_token_embeddings": resize_token_embeddings}


def report(model, plain_bytes: int) -> None:
    """Writes one line on what was packed; warns if nothing was. A layer is a module with a weight of
    two or more dimensions; those that stay plain are named by size."""
    layers = {name: one for name, one in model.named_modules() if isinstance(one, (PackedLayer, PackedExperts)) or matrices_of(one)}
    left = {name: one for name, one in layers.items() if not isinstance(one, (PackedLayer, PackedExperts))}
    if len(left) == len(layers):
        dtypes = ", ".join(sorted({str(weight.dtype) for one in layers.values() for weight in matrices_of(one)})) or "none"
        logger.warning(f"BuddyConfig packed none of {len(layers)} layers (weights: {dtypes}): only bfloat16 matrices with a multiple of 64 "
                       "columns are packed")
        return
    after = sum(one.nbytes for one in model.parameters()) + sum(one.data.nbytes for one in model.modules() if isinstance(one, PackedMatrix))
    line = f"{len(layers) - len(left)} of {len(layers)} layers packed, {size_text(plain_bytes)} to {size_text(after)}{left_plain(left)}"
    if logging.is_progress_bar_enabled():
        print(line, file=sys.stderr)
    else:
        logger.info(line)


def matrices_of(module: nn.Module) -> list[nn.Parameter]:
    """Returns a module's own parameters of two or more dimensions."""
    return [one for one in module.parameters(recurse=False) if one.dim() > 1]


def left_plain(layers: dict[str, nn.Module]) -> str:
    """Returns the end of the report: the largest layers that stay plain, with the classes that are
    not PyTorch's, and the bytes of all."""
    if not layers:
        return ""
    sizes = {name: sum(weight.nbytes for weight in matrices_of(one)) for name, one in layers.items()}
    names = sorted(sizes, key=sizes.get, reverse=True)
    said = [name if type(layers[name]).__module__.startswith("torch.") else f"{name} ({type(layers[name]).__name__})" for name in names[:4]]
    whole = sum({id(weight): weight.nbytes for one in layers.values() for weight in matrices_of(one)}.values())
    return f"; left plain: {', '.join(said)}{' and others' if len(names) > 4 else ''}, {size_text(whole)}"
