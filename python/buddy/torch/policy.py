"""What is packed, and how: found by a look at each saved tensor in the first steps."""

import dataclasses
import weakref

from .layout import DEVICE, ENTRY, overflow, padded, room
from .packed import choose, measure

# Steps after which a site is looked at again: what a network keeps changes as it learns.
LOOKS = (1, 10, 100, 1000)


@dataclasses.dataclass
class Site:
    """One place in a step where memory is saved: the n-th of its size and type."""

    codec: str = ""
    target: str = ""
    sectors: int = 0
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

    def looked(self, step):
        """A look was taken."""
        self.due = next((look for look in LOOKS if look > step), step + LOOKS[-1])


@dataclasses.dataclass(frozen=True)
class Policy:
    """What pays: targets of at least ``least``, with at most ``most_overflow`` of the entries beyond them, where at least the share
    ``least_saved`` of the bytes is saved."""

    least: str = "2x"
    least_bytes: int = 1 << 20
    most_overflow: float = 0.1
    least_saved: float = 0.1
    learn: bool = True

    def __post_init__(self):
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
        _, site.codec, site.target, needed = min(fits)
        # Some room for the next step's: a quarter more, and one sector in a hundred entries.
        site.sectors, site.reason = needed + needed // 4 + entries // 100 + 1, None
        if room(site.target, 0, size, site.sectors) > (1 - self.least_saved) * size:
            site.reason = "too little is saved"

    @staticmethod
    def overflowing(found, choice):
        _, codec, target, _ = choice
        return overflow(found[codec], target)[0]
