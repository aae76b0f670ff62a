"""Chooses the saved tensors to pack, and the form of each, by a survey of each in the first steps."""

import dataclasses
import weakref
from typing import Any

from .layout import DEVICE_BYTES, ENTRY, SECTOR, count_overflow, max_overflow_sectors, packed_bytes, padded_bytes
from .packed import choose, measure

# Steps at which a site is surveyed again: activations change as a network learns.
SURVEY_STEPS = (1, 10, 100, 1000)


@dataclasses.dataclass
class Site:
    """A position in a step at which a storage is saved: the n-th of its size and dtype."""

    format: tuple[str, str, int] | None = None
    """Codec, target and 0, as native functions take them."""
    name: str = ""
    """Codec and target for the report."""
    sectors: int = 0
    """Expected limit of overflowing sectors."""
    packed_bytes: int = 0
    """Bytes of the packed form."""
    pinned_bytes: int = 0
    """Bytes of pinned memory for the worst-case overflow; 0 if overflow stays on the device."""
    free_blocks: list = dataclasses.field(default_factory=list)
    """Pinned blocks that are not in use."""
    reason: str | None = None
    """Why it is not packed, by the last survey."""
    permanent_reason: str | None = None
    """Why it is not packed, learnt from its use; surveys do not change it."""
    next_survey: int = 0
    """Step of the next survey."""
    producer: weakref.ref | None = None
    """The module that produces it, if it can be recomputed."""
    differs: bool = False
    """True if recomputation gave other bits."""
    reused_soon: bool = False
    """True if it is restored twice in a row: then it is unpacked once."""
    held_count: int = 0
    """Count of restores at which the plain memory was still alive."""

    def has_block(self):
        """Returns whether a pinned block of the current size is free."""
        return any(block.bytes == self.pinned_bytes for block in self.free_blocks)

    def take_block(self):
        """Returns a free pinned block of the current size, or None."""
        while self.free_blocks:
            if (block := self.free_blocks.pop()).bytes == self.pinned_bytes:
                return block
        return None

    def surveyed(self, step):
        """Schedules the next survey."""
        self.next_survey = next((one for one in SURVEY_STEPS if one > step), step + SURVEY_STEPS[-1])


class Sites:
    """The sites of a step by size and dtype, in order."""

    def __init__(self):
        self._rows: dict[Any, list] = {}
        self._dense = self._taken = 0

    def begin(self):
        """Begins a step."""
        for row in self._rows.values():
            row[0] = 0
        self._dense = self._taken = 0

    def in_share(self, site, size, share):
        """Returns whether a storage belongs to the share of those below 2x that is packed, spread
        over the step."""
        if share == 1 or DEVICE_BYTES[site.format[1]] <= DEVICE_BYTES["2x"]:
            return True
        self._dense += size
        if self._taken + size > share * self._dense:
            return False
        self._taken += size
        return True

    def keys(self):
        """Returns the sizes and dtypes seen."""
        return self._rows.keys()

    def next(self, key):
        """Returns the next site of a size and dtype."""
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = [0]
        row[0] += 1
        if row[0] == len(row):
            row.append(Site())
        return row[row[0]]


@dataclasses.dataclass(frozen=True)
class Policy:
    """The conditions under which a saved tensor is packed.

    Targets of at least ``least`` with at most ``most_overflow`` of the entries beyond them, where
    at least ``least_saved`` of the bytes is saved. Overflow goes to the host, with room for the
    worst case, or to the device, with room that may not suffice. Of storages that do not reach 2x,
    ``share`` is packed.
    """

    least: str = "2x"
    least_bytes: int = 1 << 20
    most_overflow: float = 0.1
    least_saved: float = 0.1
    learn: bool = True
    overflow: str = "host"
    share: float = 1.0

    def __post_init__(self):
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is between 0 and 1, not {self.share!r}")
        if self.overflow not in ("device", "host"):
            raise ValueError(f"overflow is device or host, not {self.overflow!r}")
        if self.least not in DEVICE_BYTES or self.least == "1x":
            raise ValueError(f"least is one of {', '.join(list(DEVICE_BYTES)[1:])}, not {self.least!r}")

    def survey(self, site, step, flat, dtype, least=None, codec=None):
        """Decides how a site is packed. Synchronises with the GPU. ``least`` and ``codec`` override
        the policy."""
        site.surveyed(step)
        site.held_count = 0
        least = least or self.least
        found = measure(flat, dtype, codec)
        wanted = [target for target in DEVICE_BYTES if DEVICE_BYTES[target] <= DEVICE_BYTES[least]]
        size, entries = padded_bytes(flat.numel()), padded_bytes(flat.numel()) // ENTRY
        choices = [choose(found, size, target=target) for target in wanted]
        fits = [choice for choice in choices if self.overflowing(found, choice) <= self.most_overflow * entries]
        if not fits:
            site.reason = f"does not reach {least}"
            return
        _, codec, target, needed = min(fits)
        site.format, site.name, site.reason = (codec, target, 0), f"{codec.split(':')[0]} at {target}", None
        # Head room for later steps: a quarter more, and one sector per hundred entries.
        site.sectors = needed + needed // 4 + entries // 100 + 1
        site.pinned_bytes = entries * max_overflow_sectors(target) * SECTOR if self.overflow == "host" else 0
        site.packed_bytes = packed_bytes(target, 0, size, 0 if site.pinned_bytes else site.sectors)
        if site.packed_bytes > (1 - self.least_saved) * size:
            site.reason = "too little is saved"

    @staticmethod
    def keep_on_device(site, size):
        """Moves the overflow of a site to the device."""
        site.pinned_bytes, site.packed_bytes = 0, packed_bytes(site.format[1], 0, padded_bytes(size), site.sectors)

    @staticmethod
    def overflowing(found, choice):
        _, codec, target, _ = choice
        return count_overflow(found[codec], target)[0]
