"""Models in safetensors files, packed and unpacked (docs/guide/models.md)."""

from __future__ import annotations

import dataclasses
import os

from . import _native


@dataclasses.dataclass(frozen=True)
class PackedModel:
    """What packing or unpacking a model came to."""

    plain_bytes: int
    packed_bytes: int
    files: int
    resumed: int

    @property
    def share(self) -> float:
        """Packed bytes of plain ones."""
        return self.packed_bytes / max(self.plain_bytes, 1)


def pack_model(model: str | os.PathLike, out: str | os.PathLike, *, verify: bool = False) -> PackedModel:
    """Packs a safetensors file, or a folder with all shards of a model: bf16 matrices compressed, everything else as it is.

    Files that were packed before are left alone. ``verify`` unpacks each and compares every byte with the original.
    """
    return PackedModel(*_native.pack_model(os.fspath(model), os.fspath(out), verify))


def unpack_model(packed: str | os.PathLike, out: str | os.PathLike) -> PackedModel:
    """Gives the original files back, byte for byte."""
    return PackedModel(*_native.unpack_model(os.fspath(packed), os.fspath(out)))
