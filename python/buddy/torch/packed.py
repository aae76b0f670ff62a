"""A packed tensor, and the three verbs: pack, unpack, linear."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .. import _native
from .layout import DEVICE, HEADER, codecs_for, overflow, padded, room
from .ops import flat_bytes, on_device, place, row_of, span

# Entries that may overflow their target if `pack` chooses it: reading one costs a look-up more.
MOST_OVERFLOW = 0.1


@dataclasses.dataclass(frozen=True)
class PackedTensor:
    """A tensor in fewer bytes, exact to the bit. ``data`` is all there is to keep: the rest is in its first 128 bytes too
    (``PackedTensor.read``), but for shape and type."""

    data: torch.Tensor
    shape: tuple[int, ...]
    dtype: torch.dtype
    codec: str
    target: str
    row: int = 0

    @classmethod
    def read(cls, data: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> PackedTensor:
        """A packed tensor from its bytes, as a file has them; waits for the GPU if they are there."""
        head = data[:HEADER].cpu()
        codec, target, row, size, _ = _native.frozen_header(span(head))
        if size != padded(torch.Size(shape).numel() * dtype.itemsize):
            raise ValueError(f"these are {size} bytes of data, not a tensor of {tuple(shape)} {dtype}")
        return cls(data, tuple(shape), dtype, codec, target, row)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.data.numel()

    @property
    def plain_bytes(self) -> int:
        """Bytes of the tensor unpacked."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    @property
    def ratio(self) -> float:
        """Bytes unpacked over bytes packed."""
        return self.plain_bytes / max(self.nbytes, 1)

    def unpack(self) -> torch.Tensor:
        """The tensor, bit for bit."""
        return unpack(self)

    def to(self, *args: Any, **kwargs: Any) -> PackedTensor:
        """On another device."""
        return dataclasses.replace(self, data=self.data.to(*args, **kwargs))

    def fits(self) -> bool:
        """Whether there was room for all that overflows; waits for the GPU. Without, the data is not there."""
        head = self.data[:HEADER].cpu()
        return bytes(head[:8].tolist()) == b"BUDDYFZ\0"

    def __repr__(self) -> str:
        return (f"PackedTensor({'x'.join(map(str, self.shape))}, {self.dtype}, {self.codec} at {self.target}, "
                f"{self.nbytes} bytes, {self.ratio:.3f}x, {self.data.device})")


def measure(flat: torch.Tensor, dtype: torch.dtype, codec: str | None = None) -> dict[str, list[int]]:
    """Entries by size class with each codec that suits the type, trained; waits for the GPU."""
    names = [codec] if codec else codecs_for(dtype)
    with on_device(flat):
        where = place(flat)
        words = [name if ":" in name else _native.train(where, name, span(flat)) for name in names]
        found = _native.survey(where, [(span(flat), word, 0) for word in words])
        return {word: classes for word, (classes, _) in zip(words, found)}


def choose(found: dict[str, list[int]], size: int, row: int = 0, target: str | None = None,
           most_overflow: float = MOST_OVERFLOW) -> tuple[int, str, str, int]:
    """Bytes, codec, target and overflowing sectors of the smallest buffer whose overflow stays below a share."""
    choices = []
    for codec, classes in found.items():
        for one in [target] if target else DEVICE:
            entries, sectors = overflow(classes, one)
            if target or entries <= most_overflow * sum(classes):
                choices.append((room(one, row, size, sectors), codec, one, sectors))
    return min(choices)


def pack(tensor: torch.Tensor, *, codec: str | None = None, target: str | None = None, matrix: bool = False,
         sectors: int | None = None, most_overflow: float = MOST_OVERFLOW) -> PackedTensor:
    """Packs a tensor, bit for bit.

    Without ``codec`` and ``target`` those that give the fewest bytes are taken, with at most ``most_overflow`` of the entries
    beyond their target. This looks at the data first, which waits for the GPU. With codec, target and ``sectors`` (room for so
    many overflowing sectors of 32 bytes) nothing waits, and the call can be compiled and captured in a graph; if the room is not
    enough the data is not there, which ``fits()`` says. ``matrix`` lays rows as ``linear`` wants them.
    """
    row = row_of(tensor.shape[-1]) if matrix else 0
    if codec is None or target is None or sectors is None:
        flat = flat_bytes(tensor)
        _, codec, target, needed = choose(measure(flat, tensor.dtype, codec), flat.numel(), row, target, most_overflow)
        sectors = needed if sectors is None else sectors
    data = torch.ops.buddy.pack(tensor.detach(), codec, target, row, sectors)
    return PackedTensor(data, tuple(tensor.shape), tensor.dtype, codec, target, row)


def pack_weight(weight: torch.Tensor) -> PackedTensor:
    """Packs a bf16 matrix (outputs, inputs) for ``linear``."""
    if weight.dtype != torch.bfloat16 or weight.dim() != 2:
        raise ValueError(f"weights for `linear` are a matrix of bfloat16, not {tuple(weight.shape)} of {weight.dtype}")
    return pack(weight, codec="bf16", target="4/3x", matrix=True)


def unpack(packed: PackedTensor) -> torch.Tensor:
    """The tensor, bit for bit."""
    return torch.ops.buddy.unpack(packed.data, packed.codec, packed.target, packed.row, list(packed.shape), packed.dtype)


def linear(x: torch.Tensor, weight: PackedTensor, bias: torch.Tensor | None = None, *, scratch: torch.Tensor | None = None,
           exact: bool = False) -> torch.Tensor:
    """``functional.linear`` from packed weights, which ``pack_weight`` made.

    On a GPU the weights are read packed; sums are taken in another order than PyTorch's, in fp32, and rounded once to bf16.
    ``exact`` unpacks them and multiplies as PyTorch does. ``scratch`` (``linear_room``) saves clearing memory at every call;
    layers that share it must not run at the same time. Gradients go to ``x`` and ``bias``.
    """
    outputs, inputs = weight.shape
    if weight.row != row_of(inputs) or weight.target != "4/3x" or weight.dtype != torch.bfloat16:
        raise ValueError(f"{weight!r} was not packed for `linear`; use pack_weight")
    if x.shape[-1] != inputs:
        raise ValueError(f"x has {x.shape[-1]} inputs, the weights {inputs}")
    return torch.ops.buddy.linear(x, weight.data, bias, scratch, weight.codec, outputs, exact)


def linear_room(weight: PackedTensor, tokens: int) -> int:
    """Bytes of scratch memory, zeros at first, for ``linear`` of up to so many rows of x on the weights' GPU."""
    how = (weight.codec, weight.target, weight.row)
    return _native.linear_room(place(weight.data), how, weight.plain_bytes, tokens)
