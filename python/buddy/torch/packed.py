"""Packed tensors: ``pack``, ``unpack`` and ``linear``."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import torch

from .. import _native
from .layout import HEADER, codecs_for, packed_bytes, padded_bytes
from .ops import device_and_stream, entries_per_row, flat_bytes, on_device, span

# Default share of entries that may exceed the target that `pack` chooses; reading one costs another
# look-up.
MAX_OVERFLOW = 0.1


def read_tight(data: torch.Tensor) -> torch.Tensor | None:
    """Returns the rows of a tight matrix (``buddy pack --tight``) on the CPU, from all its bytes; None
    for bytes of another layout. Raises ``ValueError`` if they do not match their checksum."""
    if data.numel() < HEADER or (found := _native.parse_tight(span(data[:HEADER].cpu().contiguous()))) is None:
        return None
    row, size, length = found
    if data.numel() != length:
        raise ValueError(f"{data.numel()} bytes of a tight matrix, where the header says {length}")
    plain = torch.empty(size // (128 * row), 64 * row, dtype=torch.bfloat16)
    _native.read_tight(span(data.cpu().contiguous()), span(plain))
    return plain


@dataclasses.dataclass(frozen=True)
class PackedTensor:
    """A tensor in fewer bytes, bit for bit.

    ``data`` holds everything but shape and dtype: its first 128 bytes are a header
    (``PackedTensor.read``).
    """

    data: torch.Tensor
    shape: tuple[int, ...]
    dtype: torch.dtype
    codec: str
    target: str
    row: int = 0

    @classmethod
    def read(cls, data: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> PackedTensor:
        """Returns a packed tensor from its bytes, as a file holds them. Synchronises with a GPU if
        they are there.

        Raises ``ValueError`` if header, shape, dtype and length do not agree, or if bytes on the
        CPU do not match their checksum. Bytes on a GPU are not compared: ``verify_model`` checks
        the file. A tight matrix is unpacked on the CPU and packed again on its device.
        """
        if data.dtype != torch.uint8 or data.dim() != 1:
            raise ValueError(f"packed data is one dimension of uint8, not {tuple(data.shape)} of {data.dtype}")
        plain = read_tight(data)
        if plain is not None:
            if plain.numel() != torch.Size(shape).numel() or dtype != torch.bfloat16:
                raise ValueError(f"a tight matrix of {plain.numel()} bfloat16 values, not a tensor of {tuple(shape)} {dtype}")
            with torch.inference_mode(False):
                return dataclasses.replace(pack_weight(plain.to(data.device)), shape=tuple(shape))
        codec, target, row, size, sectors = _native.parse_header(span(data[:HEADER].cpu().contiguous()))
        if size != padded_bytes(torch.Size(shape).numel() * dtype.itemsize):
            raise ValueError(f"these are {size} bytes of data, not a tensor of {tuple(shape)} {dtype}")
        if data.numel() != (length := packed_bytes(target, row, size, sectors)):
            raise ValueError(f"{data.numel()} packed bytes, where the header says {length}")
        if data.device.type == "cpu":
            _native.check_packed(span(data.contiguous()))
        return cls(data, tuple(shape), dtype, codec, target, row)

    @property
    def nbytes(self) -> int:
        """Packed bytes."""
        return self.data.numel()

    @property
    def plain_bytes(self) -> int:
        """Bytes of the unpacked tensor."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    @property
    def ratio(self) -> float:
        """Unpacked bytes over packed bytes."""
        return self.plain_bytes / max(self.nbytes, 1)

    def unpack(self) -> torch.Tensor:
        """Returns the tensor, bit for bit."""
        return unpack(self)

    def to(self, *args: Any, **kwargs: Any) -> PackedTensor:
        """Returns a copy on another device."""
        return dataclasses.replace(self, data=self.data.to(*args, **kwargs))

    def fits(self) -> bool:
        """Returns whether the overflow had room; if not, the data is lost. Synchronises with the
        GPU."""
        head = self.data[:HEADER].cpu()
        return bytes(head[:8].tolist()) == b"BUDDYFZ\0"

    def __repr__(self) -> str:
        return (f"PackedTensor({'x'.join(map(str, self.shape))}, {self.dtype}, {self.codec} at {self.target}, "
                f"{self.nbytes} bytes, {self.ratio:.3f}x, {self.data.device})")


def measure(flat: torch.Tensor, dtype: torch.dtype, codec: str | None = None) -> dict[str, list[int]]:
    """Counts entries by size class for each trained codec of a dtype. Synchronises with the GPU."""
    names = [codec] if codec else codecs_for(dtype)
    with on_device(flat):
        where = device_and_stream(flat)
        trained = [name if ":" in name else _native.train(where, name, span(flat)) for name in names]
        found = _native.survey(where, [(span(flat), codec, None) for codec in trained])
        return {codec: classes for codec, (classes, _) in zip(trained, found)}


def choose(found: dict[str, list[int]], size: int, row: int = 0, target: str | None = None,
           most_overflow: float = MAX_OVERFLOW) -> tuple[int, str, str, int]:
    """Returns bytes, codec, target and overflowing sectors of the smallest buffer within a share of
    overflowing entries."""
    return _native.choose(list(found.items()), size, row, target, most_overflow)


def pack(tensor: torch.Tensor, *, codec: str | None = None, target: str | None = None, matrix: bool = False,
         sectors: int | None = None, most_overflow: float = MAX_OVERFLOW) -> PackedTensor:
    """Packs a tensor, bit for bit.

    Without ``codec`` and ``target``, surveys the data and takes those with the fewest bytes, with
    at most ``most_overflow`` of the entries beyond their target. The survey synchronises with the
    GPU. With codec, target and ``sectors`` (room for overflowing sectors of 32 bytes) the call
    never blocks and can be compiled and captured in a graph; ``fits()`` tells whether the room was
    enough. ``matrix`` lays out rows for ``linear``.
    """
    if matrix and not tensor.dim():
        raise ValueError("a tensor without dimensions is no matrix")
    row = entries_per_row(tensor.shape[-1]) if matrix else 0
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
    """Returns the tensor, bit for bit."""
    return torch.ops.buddy.unpack(packed.data, packed.codec, packed.target, packed.row, list(packed.shape), packed.dtype)


def linear(x: torch.Tensor, weight: PackedTensor, bias: torch.Tensor | None = None, *, scratch: torch.Tensor | None = None,
           exact: bool = False) -> torch.Tensor:
    """Returns ``functional.linear`` of packed weights, made by ``pack_weight``.

    On a GPU the kernel reads the weights packed. It sums in another order than PyTorch, in fp32,
    and rounds once to bf16; ``exact`` unpacks and multiplies with PyTorch's kernel. ``scratch``
    (``linear_scratch_bytes`` zeros) saves clearing memory at every call; layers that share it must
    not run concurrently. Gradients flow to ``x`` and ``bias``.
    """
    outputs, inputs = weight.shape
    if weight.row != entries_per_row(inputs) or weight.target != "4/3x" or weight.dtype != torch.bfloat16:
        raise ValueError(f"{weight!r} was not packed for `linear`; use pack_weight")
    return torch.ops.buddy.linear(x, weight.data, bias, scratch, weight.codec, outputs, inputs, exact)


def linear_scratch_bytes(weight: PackedTensor, tokens: int) -> int:
    """Returns the bytes of scratch memory, zero at first, for ``linear`` of up to ``tokens`` rows
    on the weights' GPU."""
    format = (weight.codec, weight.target, weight.row)
    return _native.linear_scratch_bytes(device_and_stream(weight.data), format, weight.plain_bytes, tokens)


def linear_room(weight: PackedTensor, tokens: int) -> int:
    """Deprecated name of ``linear_scratch_bytes``."""
    warnings.warn("linear_room is now linear_scratch_bytes; the old name goes in the next version", DeprecationWarning, stacklevel=2)
    return linear_scratch_bytes(weight, tokens)
