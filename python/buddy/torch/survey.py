"""A survey of the tensors of a model or an optimizer in place: what packing each would save."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .. import _native
from .layout import ENTRY, codecs_for, count_overflow
from .ops import device_and_stream, flat_bytes, on_device, span
from .packed import MAX_OVERFLOW, choose
from .report import size_text


@dataclasses.dataclass(frozen=True)
class TensorLook:
    """Result of packing one tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    codec: str
    target: str
    packed_bytes: int
    """Packed bytes with metadata and overflow."""
    overflow_share: float
    """Share of entries that exceed the target, 0 to 1."""
    histogram: tuple[int, ...]
    """Entries by size class: zero, b8, s1, s2, s3, raw."""

    @property
    def ratio(self) -> float:
        """Plain bytes over packed bytes; 1 if packing does not pay."""
        return max(self.bytes / self.packed_bytes, 1.0) if self.packed_bytes else 1.0

    @property
    def saved_bytes(self) -> int:
        """Bytes that packing saves; 0 if it does not pay."""
        return max(self.bytes - self.packed_bytes, 0)


class Look:
    """Result of ``look``, one row per tensor."""

    def __init__(self, tensors: list[TensorLook]):
        self.tensors = tensors

    @property
    def bytes(self) -> int:
        """Plain bytes of all tensors."""
        return sum(one.bytes for one in self.tensors)

    @property
    def saved_bytes(self) -> int:
        """Bytes that packing every tensor that pays would save."""
        return sum(one.saved_bytes for one in self.tensors)

    @property
    def ratio(self) -> float:
        """Plain bytes over bytes left after packing, of all tensors."""
        return self.bytes / max(self.bytes - self.saved_bytes, 1) if self.tensors else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Returns the totals and a dictionary per tensor."""
        rows = [{**dataclasses.asdict(one), "ratio": one.ratio} for one in self.tensors]
        return {"bytes": self.bytes, "saved_bytes": self.saved_bytes, "ratio": self.ratio, "tensors": rows}

    def _rows(self) -> Iterator[tuple[str, ...]]:
        yield "tensor", "type", "size", "codec", "target", "ratio", "overflow", "saved"
        for one in self.tensors:
            yield (one.name, one.dtype, size_text(one.bytes), one.codec, one.target, f"{one.ratio:.2f}x",
                   f"{100 * one.overflow_share:.1f}%", size_text(one.saved_bytes))
        yield f"all {len(self.tensors)}", "", size_text(self.bytes), "", "", f"{self.ratio:.2f}x", "", size_text(self.saved_bytes)

    def __str__(self) -> str:
        rows = list(self._rows())
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ("  ".join(cell.ljust(width) if column in (0, 1, 3, 4) else cell.rjust(width)
                           for column, (cell, width) in enumerate(zip(row, widths))) for row in rows)
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._rows())
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def look(*things: Any, most_overflow: float = MAX_OVERFLOW, least_bytes: int = 4096) -> Look:
    """Surveys tensors, or the tensors of models, optimizers and mappings, in place: nothing is
    copied off a GPU.

    Returns for each the codec and target that ``pack`` would choose, the bytes saved, and the share
    of entries that overflow. Synchronises once with each GPU. Tensors below ``least_bytes`` are
    omitted.
    """
    rows = [(name, tensor.detach()) for thing in things for name, tensor in _named(thing)
            if tensor.numel() * tensor.element_size() >= least_bytes]
    return Look(_look_at(rows, most_overflow))


def _named(thing: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(thing, torch.Tensor):
        yield "tensor", thing
    elif isinstance(thing, torch.nn.Module):
        for name, tensor in [*thing.named_parameters(), *thing.named_buffers()]:
            yield name, tensor
            if tensor.grad is not None:
                yield f"{name}.grad", tensor.grad
    elif isinstance(thing, torch.optim.Optimizer):
        for number, state in enumerate(thing.state.values()):
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.dim() > 0:
                    yield f"state{number}.{key}", value
    elif isinstance(thing, Mapping):
        yield from ((name, tensor) for name, tensor in thing.items() if isinstance(tensor, torch.Tensor))
    else:
        raise TypeError(f"look takes models, optimizers, tensors and mappings of them, not {type(thing).__name__}")


def _look_at(rows: list[tuple[str, torch.Tensor]], most_overflow: float) -> list[TensorLook]:
    found: dict[int, TensorLook] = {}
    for device in {tensor.device for _, tensor in rows}:
        asked = []
        for index, (_, tensor) in enumerate(rows):
            if tensor.device == device:
                flat = flat_bytes(tensor)
                with on_device(flat):
                    asked += [(index, flat, _native.train(device_and_stream(flat), codec, span(flat))) for codec in codecs_for(tensor.dtype)]
        first = asked[0][1]
        with on_device(first):
            classes = _native.survey(device_and_stream(first), [(span(flat), codec, None) for _, flat, codec in asked])
        by_tensor: dict[int, dict[str, list[int]]] = {}
        for (index, _, codec), (counts, _) in zip(asked, classes):
            by_tensor.setdefault(index, {})[codec] = counts
        for index, codecs in by_tensor.items():
            found[index] = _chosen(*rows[index], codecs, most_overflow)
    return [found[index] for index in range(len(rows))]


def _chosen(name: str, tensor: torch.Tensor, codecs: dict[str, list[int]], most_overflow: float) -> TensorLook:
    entries = sum(next(iter(codecs.values())))
    packed, codec, target, _ = choose(codecs, entries * ENTRY, most_overflow=most_overflow)
    over, _ = count_overflow(codecs[codec], target)
    dtype, size = str(tensor.dtype).removeprefix("torch."), tensor.numel() * tensor.element_size()
    return TensorLook(name, tuple(tensor.shape), dtype, size, codec, target, packed, over / max(entries, 1), tuple(codecs[codec]))
