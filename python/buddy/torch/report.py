"""The report of a step's saved tensors."""

from __future__ import annotations

import dataclasses
import html
from typing import Any


@dataclasses.dataclass
class SavedReport:
    """Result of ``compress_saved`` for one step."""

    tensors: int = 0
    """Storages that were packed."""
    plain_bytes: int = 0
    """Their plain bytes."""
    packed_bytes: int = 0
    """Their packed bytes."""
    overflow_bytes: int = 0
    """Bytes that overflowed their target."""
    saved_again: int = 0
    """Saves of a storage that was packed already."""
    recomputed: int = 0
    """Storages that are recomputed instead."""
    recomputed_bytes: int = 0
    """Their plain bytes."""
    codecs: dict[str, int] = dataclasses.field(default_factory=dict)
    """Plain bytes by codec and target."""
    skipped: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Count and bytes of the tensors that were not packed, by reason."""

    @property
    def ratio(self) -> float:
        """Plain bytes over packed bytes."""
        return self.plain_bytes / self.packed_bytes if self.packed_bytes else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields and the ratio."""
        return {**dataclasses.asdict(self), "ratio": self.ratio}

    def count_packed(self, saved):
        self.tensors += 1
        self.plain_bytes += saved.size
        self.packed_bytes += saved.packed.bytes
        self.overflow_bytes += 32 * saved.sectors
        name = saved.site.name
        self.codecs[name] = self.codecs.get(name, 0) + saved.size

    def count_recomputed(self, size):
        self.recomputed += 1
        self.recomputed_bytes += size

    def count_saved_again(self, saved):
        self.saved_again += saved.uses > 0 and getattr(saved, "packed", None) is not None

    def skip(self, reason, tensor):
        count, size = self.skipped.get(reason, (0, 0))
        self.skipped[reason] = (count + 1, size + tensor.nbytes)

    def _rows(self):
        yield "packed", self.tensors, self.plain_bytes, f"to {size_text(self.packed_bytes)}, {self.ratio:.2f}x"
        for codec, size in sorted(self.codecs.items()):
            yield f"  {codec}", "", size, ""
        yield "  saved again", self.saved_again, 0, "packed once"
        yield "recomputed", self.recomputed, self.recomputed_bytes, ""
        for reason, (count, size) in sorted(self.skipped.items(), key=lambda one: -one[1][1]):
            yield f"passed: {reason}", count, size, ""

    def __str__(self) -> str:
        lines = [f"{name:<42}{count!s:>6}  {size_text(size) if size else '':>10}  {note}" for name, count, size, note in self._rows()]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        rows = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in (name, count, size_text(size) if size else "", note))
                for name, count, size, note in self._rows())
        return "<table><tr><th>saved tensors</th><th>count</th><th>bytes</th><th></th></tr>" \
            + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def size_text(size: float) -> str:
    """Formats a size in bytes with its unit."""
    for unit in ["B", "KB", "MB"]:
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
