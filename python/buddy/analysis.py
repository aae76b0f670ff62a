"""Compressibility of files, arrays and tensors: ``buddy analyze`` as objects."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from . import _native
from .record import Record

# NumPy's and PyTorch's dtype names to the command's.
DTYPES = {
    "bool": "bool", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2", "float16": "f16",
    "bfloat16": "bf16", "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128",
}


@dataclasses.dataclass(frozen=True)
class Fit:
    """Compression of one array, or of all, at a target."""

    ratio: float
    """Data bytes per device byte."""
    overflow_share: float
    """Share of entries that exceed the target, 0 to 1."""
    optimistic_ratio: float | None
    """Ratio with each entry at the best of the paper's eight sizes; None if all entries are
    zero."""
    device_bytes: int
    """Device bytes."""
    histogram: dict[str, int]
    """Entries by size class: zero, b8, s1, s2, s3, raw."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Fit:
        classes = dict(zip(["zero", "b8", "s1", "s2", "s3", "raw"], data["histogram"]["classes"]))
        return cls(data["ratio"], data["overflow_share"], data["optimistic_ratio"], data["device_bytes"], classes)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of one codec on an array."""

    codec: str
    target: str
    fit: Fit

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Outcome:
        return cls(data["codec"], data["target"], Fit.of(data["fit"]))


@dataclasses.dataclass(frozen=True)
class ArrayAnalysis:
    """Results of one array with the paper's codec (``bpc``) and with the best codec (``auto``)."""

    file: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    bpc: Outcome
    auto: Outcome

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> ArrayAnalysis:
        about = (data[key] for key in ["file", "name", "dtype"])
        return cls(*about, tuple(data["shape"]), data["bytes"], Outcome.of(data["bpc"]), Outcome.of(data["auto"]))


class Analysis(Record):
    """Result of ``analyze``. Prints as the command's tables; a notebook shows the command's
    page."""

    def to_html(self) -> str:
        """Returns the command's page with tables and heat maps, one file that needs no network."""
        return _native.analysis_html(self._json)

    def __str__(self) -> str:
        return _native.analysis_text(self._json)

    @property
    def arrays(self) -> list[ArrayAnalysis]:
        """Every array, in the order given."""
        return [ArrayAnalysis.of(one) for one in self.data["arrays"]]

    @property
    def bpc(self) -> Fit:
        """All arrays with the paper's codec."""
        return Fit.of(self.data["bpc"])

    @property
    def auto(self) -> Fit:
        """All arrays, each with its best codec."""
        return Fit.of(self.data["auto"])

    @property
    def ratio(self) -> float:
        """Data bytes per device byte, each array with its best codec."""
        return self.auto.ratio


def analyze(what: Any, *, dtype: str | None = None, threshold: float = 0.3) -> Analysis:
    """Measures how compressible something is, and chooses targets.

    ``what`` is a path (.npy, .npz, .safetensors, or raw bytes), a NumPy array, a PyTorch tensor, a
    mapping from names to arrays or tensors such as a ``state_dict``, or a list of any of these.
    ``dtype`` names the elements of raw files (``"f32"``). ``threshold`` is the share of an array's
    entries that may overflow its target. Tensors of a GPU are copied to the host;
    ``buddy.torch.look`` surveys them in place.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold is from 0 to 1, not {threshold}")
    if isinstance(what, (str, os.PathLike)):
        return Analysis(_native.analyze_files([what], dtype, threshold))
    things = list(what) if isinstance(what, (list, tuple)) else [what]
    if things and all(isinstance(one, (str, os.PathLike)) for one in things):
        return Analysis(_native.analyze_files(things, dtype, threshold))
    return Analysis(_native.analyze_memory([_described(name, array) for name, array in _named(things)], threshold))


def _named(things: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    for number, thing in enumerate(things):
        if isinstance(thing, Mapping):
            yield from thing.items()
        else:
            yield f"array{number}" if number else "array", thing


def _described(name: str, array: Any) -> tuple[str, str, list[int], _native.Span]:
    """Returns name, type, shape and memory of an array."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        array = array.detach().cpu().contiguous()
        kind, span = str(array.dtype).removeprefix("torch."), _native.Span(array, array.data_ptr(), array.numel() * array.element_size())
    elif hasattr(array, "__array_interface__"):
        import numpy

        array = numpy.ascontiguousarray(array)
        kind, span = array.dtype.name, _native.Span(array, array.ctypes.data, array.nbytes)
    else:
        raise TypeError(f"'{name}' is a {type(array).__name__}; analyze takes paths, arrays and tensors")
    if kind not in DTYPES:
        raise TypeError(f"'{name}' has elements of type {kind}; those known are {', '.join(DTYPES)}")
    return name, DTYPES[kind], list(array.shape), span
