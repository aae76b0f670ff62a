"""Packed folders in vLLM: every weight is unpacked on the GPU as it is read, then sharded and packed
again with its layer. Any model and any parallelism that loads plain weights loads packed ones."""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Iterator

import torch
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from .. import _native
from ..models import FileCheck
from ..torch.layout import HEADER
from ..torch.ops import span
from ..torch.packed import PackedTensor
from . import NAME

MAGIC = b"BUDDYFZ\0"
# Metadata keys of a packed file's original header, by version (docs/reference/format.md).
ORIGINAL, ORIGINAL_V1 = "buddy.original", "buddy.header"


def unpack_while_loading() -> None:
    """Lets vLLM's loader of safetensors files read packed ones."""
    original = DefaultModelLoader.get_all_weights
    if hasattr(original, "buddy"):
        return

    @functools.wraps(original)
    def get_all_weights(self, model_config, model) -> Iterator[tuple[str, torch.Tensor]]:
        weights = original(self, model_config, model)
        return unpacked_weights(weights, model_config.model) if model_config.quantization == NAME else weights

    get_all_weights.buddy = True
    DefaultModelLoader.get_all_weights = get_all_weights


def unpacked_weights(weights: Iterator[tuple[str, torch.Tensor]], folder: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Unpacks the packed ones of named weights. Raises ``ValueError`` if a packed folder is
    incomplete or changed."""
    shapes = functools.cache(lambda: original_shapes(pathlib.Path(folder)))
    files = sorted(pathlib.Path(folder).glob("*.safetensors"))
    check = FileCheck(files) if files and (pathlib.Path(folder) / "buddy.json").exists() else None
    for name, weight in weights:
        yield name, unpacked(weight, lambda: shapes().get(name)) if is_packed(weight) else weight
    if check is not None:
        check.finish()


def is_packed(weight: torch.Tensor) -> bool:
    """Returns whether a tensor holds the bytes of a packed one."""
    return weight.dtype == torch.uint8 and weight.dim() == 1 and weight.numel() >= HEADER and bytes(weight[:8].tolist()) == MAGIC


def unpacked(weight: torch.Tensor, shape_of) -> torch.Tensor:
    """Unpacks on the current GPU, or on the CPU without one. ``shape_of`` returns the shape of a
    tensor that is no matrix."""
    _, _, row, size, _ = _native.parse_header(span(weight[:HEADER].cpu().contiguous()))
    shape = shape_of() or (size // (128 * row), 64 * row)
    packed = PackedTensor.read(weight, tuple(shape), torch.bfloat16)  # compares the checksum
    return (packed.to("cuda") if torch.cuda.is_available() else packed).unpack()


def original_shapes(folder: pathlib.Path) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that packed files say their plain ones had."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        metadata = header.get("__metadata__", {})
        plain = json.loads(metadata.get(ORIGINAL) or metadata.get(ORIGINAL_V1) or "{}")
        found |= {name: tuple(one["shape"]) for name, one in plain.items() if name != "__metadata__"}
    return found
