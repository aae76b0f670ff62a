"""Packed folders in vLLM: every weight is unpacked on the GPU as it is read, then sharded and packed
again with its layer. Any model and any parallelism that loads plain weights loads packed ones."""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Iterable, Iterator, Sequence

import torch
from vllm.logger import init_logger
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from .. import _native
from ..models import FileCheck
from ..torch.layout import HEADER
from ..torch.ops import span
from ..torch.packed import PackedTensor, read_tight
from . import NAME

# Under vLLM's logger, as that of config.py.
logger = init_logger("vllm.buddy")
MAGIC = b"BUDDYFZ\0"
# Metadata keys of a packed file's original header, by version (docs/reference/format.md).
ORIGINAL, ORIGINAL_V1 = "buddy.original", "buddy.header"


def unpack_while_loading() -> None:
    """Lets vLLM's loader of safetensors files read packed ones."""
    loader = DefaultModelLoader
    if hasattr(loader.get_all_weights, "buddy"):
        return
    prepare, read, read_all = loader._prepare_weights, loader._get_weights_iterator, loader.get_all_weights

    @functools.wraps(prepare)
    def _prepare_weights(self, *args, **options):
        found = prepare(self, *args, **options)
        self.buddy_files = [pathlib.Path(one) for one in found[1]]
        return found

    @functools.wraps(read)
    def _get_weights_iterator(self, source) -> Iterator[tuple[str, torch.Tensor]]:
        weights = read(self, source)  # lists the files first; a Hub id is then a folder
        return unpacked_weights(weights, self.buddy_files, source.prefix) if self.buddy_unpacks else weights

    @functools.wraps(read_all)
    def get_all_weights(self, model_config, model) -> Iterator[tuple[str, torch.Tensor]]:
        self.buddy_unpacks = model_config.quantization == NAME
        return read_all(self, model_config, model)

    get_all_weights.buddy = True
    loader.buddy_unpacks = False
    loader._prepare_weights, loader._get_weights_iterator, loader.get_all_weights = _prepare_weights, _get_weights_iterator, get_all_weights


def unpacked_weights(weights: Iterator[tuple[str, torch.Tensor]], files: Sequence[pathlib.Path], prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Unpacks the packed ones of the weights in ``files``, whose names begin with ``prefix``. Raises
    ``ValueError`` if a packed file is missing or changed."""
    shapes = original_shapes(files)
    # A snapshot of the Hub has no buddy.json: its files are packed if their headers say so.
    check = FileCheck(files) if shapes or any((one.parent / "buddy.json").exists() for one in files) else None
    for name, weight in weights:
        yield name, unpacked(weight, shapes.get(name.removeprefix(prefix))) if is_packed(weight) else weight
    if check is not None and (unchecked := check.finish()):
        logger.warning("%d files were packed without checksums and are not checked: pack the original again to add them", unchecked)


def is_packed(weight: torch.Tensor) -> bool:
    """Returns whether a tensor holds the bytes of a packed one."""
    return weight.dtype == torch.uint8 and weight.dim() == 1 and weight.numel() >= HEADER and bytes(weight[:8].tolist()) == MAGIC


def unpacked(weight: torch.Tensor, shape: tuple[int, ...] | None) -> torch.Tensor:
    """Unpacks on the current GPU, or on the CPU without one. Without a ``shape`` it is a matrix."""
    plain = read_tight(weight)
    if plain is not None:
        return (plain if shape is None else plain.view(shape)).to("cuda" if torch.cuda.is_available() else "cpu")
    _, _, row, size, _ = _native.parse_header(span(weight[:HEADER].cpu().contiguous()))
    packed = PackedTensor.read(weight, shape or (size // (128 * row), 64 * row), torch.bfloat16)  # compares the checksum
    return (packed.to("cuda") if torch.cuda.is_available() else packed).unpack()


def original_shapes(files: Iterable[pathlib.Path]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that packed files say their plain ones had; nothing for plain files."""
    found = {}
    for path in files:
        if path.suffix != ".safetensors":
            continue
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, path.stat().st_size)))
        metadata = header.get("__metadata__", {})
        plain = json.loads(metadata.get(ORIGINAL) or metadata.get(ORIGINAL_V1) or "{}")
        found |= {name: tuple(one["shape"]) for name, one in plain.items() if name != "__metadata__"}
    return found
