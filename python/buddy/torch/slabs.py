"""Packed memory in pieces that the allocator likes: a step's packed buffers lie one after the other in slabs.

One by one they would leave holes: each is three quarters or half of the plain memory that goes when it has come. Their sizes are those of
the step before, so slabs are cut to measure and nothing of them is left over. A slab goes when the last buffer in it does; what is packed
last is wanted first.
"""

import torch

# Bytes of a slab, at least.
SLAB = 512 << 20


class Room:
    """So many bytes of a slab."""

    __slots__ = ("slab", "at", "bytes")

    def __init__(self, slab, at, size):
        self.slab, self.at, self.bytes = slab, at, size

    def span(self):
        """Its address and its bytes. Not a tensor, which would take the host as long as all else that is done for a buffer."""
        return self.slab.data_ptr() + self.at, self.bytes

    def tensor(self):
        return self.slab[self.at: self.at + self.bytes]


class Slabs:
    """The slabs of one device."""

    def __init__(self):
        # What was taken in this step, and of the step before: the slab of each, where in it, and how much; and how large slabs are.
        self.sizes, self.plan, self.totals = [], [], []
        self.slab, self.number = None, None

    def begin(self):
        """Cuts the slabs of a new step."""
        self.plan, self.totals, at = [], [], 0
        for size in self.sizes:
            if not self.totals or at >= SLAB:
                self.totals.append(0)
                at = 0
            self.plan.append((len(self.totals) - 1, at, size))
            at += size
            self.totals[-1] = at
        self.sizes = []
        self.end()

    def end(self):
        """Nothing more is taken in this step."""
        self.slab = self.number = None

    def take(self, size, device):
        """So many bytes."""
        number = len(self.sizes)
        self.sizes.append(size)
        slab, at, planned = self.plan[number] if number < len(self.plan) else (None, 0, 0)
        if size > planned or self.totals[slab] == planned:
            return Room(torch.empty(size, dtype=torch.uint8, device=device), 0, size)
        if self.number != slab:
            self.slab, self.number = torch.empty(self.totals[slab], dtype=torch.uint8, device=device), slab
        return Room(self.slab, at, size)
