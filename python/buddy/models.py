"""Packing of models in safetensors files (docs/guide/models.md)."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
from typing import Iterable

from . import _native


@dataclasses.dataclass(frozen=True)
class PackedModel:
    """Result of packing or unpacking a model."""

    plain_bytes: int
    packed_bytes: int
    files: int
    resumed: int

    @property
    def share(self) -> float:
        """Packed bytes over plain bytes."""
        return self.packed_bytes / max(self.plain_bytes, 1)


@dataclasses.dataclass(frozen=True)
class CheckedModel:
    """Result of checking a packed model. ``unchecked`` files were packed without checksums."""

    files: int
    bytes: int
    unchecked: int


class FileCheck:
    """Compares packed files with their checksums in the background: native code without the GIL, on
    the pages that a loader reads."""

    def __init__(self, files: Iterable[str | os.PathLike]):
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.result = pool.submit(_native.verify_shards, [os.fspath(one) for one in files])
        pool.shutdown(wait=False)

    def finish(self) -> int:
        """Returns the number of files without checksums. Raises ``ValueError`` if a file is missing
        or changed."""
        return self.result.result()[2]


def pack_model(model: str | os.PathLike, out: str | os.PathLike, *, verify: bool = False) -> PackedModel:
    """Packs a safetensors file, or a folder with all shards of a model. bf16 matrices are
    compressed, the rest is copied.

    Files that are already packed and undamaged are skipped. ``verify`` unpacks each file and compares it with the
    original.
    """
    return PackedModel(*_native.pack_model(os.fspath(model), os.fspath(out), verify))


def unpack_model(packed: str | os.PathLike, out: str | os.PathLike) -> PackedModel:
    """Restores the original files, byte for byte."""
    return PackedModel(*_native.unpack_model(os.fspath(packed), os.fspath(out)))


def verify_model(packed: str | os.PathLike) -> CheckedModel:
    """Checks a packed file, or a packed folder with all its files, against its checksums.

    Raises ``ValueError`` if a file is missing or changed.
    """
    return CheckedModel(*_native.verify_model(os.fspath(packed)))
