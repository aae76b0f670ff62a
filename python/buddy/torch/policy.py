"""What is packed, and how: found by a look at each saved tensor in the first steps."""

import dataclasses
import weakref
from typing import Any

from .layout import DEVICE, ENTRY, SECTOR, most_sectors, overflow, padded, room
from .packed import choose, measure

# Steps after which a site is looked at again: what a network keeps changes as it learns.
LOOKS = (1, 10, 100, 1000)


@dataclasses.dataclass
class Site:
    """One place in a step where memory is saved: the n-th of its size and type."""

    how: tuple[str, str, int] | None = None
    """Codec, target and 0, as the native module takes them."""
    name: str = ""
    """Codec and target in words."""
    sectors: int = 0
    """How many sectors may overflow, as far as the look can tell."""
    room: int = 0
    """Bytes of the packed form."""
    beside: int = 0
    """Bytes of host memory for whatever may overflow, if it goes there."""
    pieces: list = dataclasses.field(default_factory=list)
    """Such memory that no one uses now."""
    reason: str | None = None
    """Why it is passed through."""
    sticks: str | None = None
    """The same, learnt from how it is used: no look changes it."""
    due: int = 0
    """The step of the next look."""
    maker: weakref.ref | None = None
    """The module that makes it, if it can be computed again."""
    differs: bool = False
    """Whether computing it again gave other bits."""
    soon: bool = False
    """Whether it is wanted twice in a row: then it is read once."""
    held: int = 0
    """How often the plain memory was still there when the packed one was asked for: someone else holds it."""

    def has_piece(self):
        """Whether there is such memory, enough for how it is packed now."""
        return any(piece.bytes == self.beside for piece in self.pieces)

    def piece(self):
        """Such memory, if there is any."""
        while self.pieces:
            if (piece := self.pieces.pop()).bytes == self.beside:
                return piece
        return None

    def looked(self, step):
        """A look was taken."""
        self.due = next((look for look in LOOKS if look > step), step + LOOKS[-1])


class Sites:
    """The sites of a step, by size and type in the order in which they come."""

    def __init__(self):
        self._rows: dict[Any, list] = {}
        self._dense = self._taken = 0

    def begin(self):
        """A new step."""
        for row in self._rows.values():
            row[0] = 0
        self._dense = self._taken = 0

    def has_share(self, site, size, share):
        """Whether memory that can be packed is, if only a share of what does not reach 2x shall be, spread over the step."""
        if share == 1 or DEVICE[site.how[1]] <= DEVICE["2x"]:
            return True
        self._dense += size
        if self._taken + size > share * self._dense:
            return False
        self._taken += size
        return True

    def places(self):
        """Sizes and types that there are."""
        return self._rows.keys()

    def next(self, place):
        """The next one of a size and type."""
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = [0]
        row[0] += 1
        if row[0] == len(row):
            row.append(Site())
        return row[row[0]]


@dataclasses.dataclass(frozen=True)
class Policy:
    """What pays: targets of at least ``least``, with at most ``most_overflow`` of the entries beyond them, where at least the share
    ``least_saved`` of the bytes is saved. What overflows lies on the device, in room that may not be enough, or on the host, in room for
    all that may. Of what does not reach 2x, the share ``share`` is packed."""

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
        if self.least not in DEVICE or self.least == "1x":
            raise ValueError(f"least is one of {', '.join(list(DEVICE)[1:])}, not {self.least!r}")

    def look(self, site, step, flat, dtype, least=None, codec=None):
        """Decides how a site is packed; waits for the GPU. With a codec, or a least target other than the policy's."""
        site.looked(step)
        site.held = 0
        least = least or self.least
        found = measure(flat, dtype, codec)
        wanted = [target for target in DEVICE if DEVICE[target] <= DEVICE[least]]
        size, entries = padded(flat.numel()), padded(flat.numel()) // ENTRY
        choices = [choose(found, size, target=target) for target in wanted]
        fits = [choice for choice in choices if self.overflowing(found, choice) <= self.most_overflow * entries]
        if not fits:
            site.reason = f"does not reach {least}"
            return
        _, codec, target, needed = min(fits)
        site.how, site.name, site.reason = (codec, target, 0), f"{codec.split(':')[0]} at {target}", None
        # Some room for the next step's: a quarter more, and one sector in a hundred entries.
        site.sectors = needed + needed // 4 + entries // 100 + 1
        site.beside = entries * most_sectors(target) * SECTOR if self.overflow == "host" else 0
        site.room = room(target, 0, size, 0 if site.beside else site.sectors)
        if site.room > (1 - self.least_saved) * size:
            site.reason = "too little is saved"

    @staticmethod
    def keep_on_device(site, size):
        """What overflows of a site lies on the device after all."""
        site.beside, site.room = 0, room(site.how[1], 0, padded(size), site.sectors)

    @staticmethod
    def overflowing(found, choice):
        _, codec, target, _ = choice
        return overflow(found[codec], target)[0]
