"""Packed memory in pieces that the allocator likes: a step's packed buffers lie one after the other in slabs.

One by one they would leave holes: each is three quarters or half of the plain memory that goes when it has come. Their sizes are those of
the step before, so slabs are cut to measure and nothing of them is left over. A slab goes when the last buffer in it does; what is packed
last is wanted first.
"""

import torch

from .ops import raw_stream

# Bytes of a slab, at least.
SLAB = 512 << 20
# Bytes of the zeros that packing adds up in.
SUMS = 1024


class Room:
    """So many bytes of a slab, and the zeros with which it is packed, by address and size."""

    __slots__ = ("slab", "at", "bytes", "sums")

    def __init__(self, slab, at, size, sums=(0, 0)):
        self.slab, self.at, self.bytes, self.sums = slab, at, size, sums

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
        # Zeros by stream, and whether they are a graph's: packing leaves them as it found them.
        self.sums = {}

    def begin(self):
        """Cuts the slabs of a new step."""
        # Graphs may run at the same time, so each has its own.
        self.sums = {key: sums for key, sums in self.sums.items() if not key[1]}
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
        number, sums = len(self.sizes), self.zeros(device)
        self.sizes.append(size)
        slab, at, planned = self.plan[number] if number < len(self.plan) else (None, 0, 0)
        if size != planned:
            # This step is another: what is still to come would leave gaps in slabs.
            self.plan = []
        if size != planned or self.totals[slab] == planned:
            return Room(torch.empty(size, dtype=torch.uint8, device=device), 0, size, sums)
        if self.number != slab:
            self.slab, self.number = torch.empty(self.totals[slab], dtype=torch.uint8, device=device), slab
        return Room(self.slab, at, size, sums)

    def zeros(self, device):
        """What packing on the current stream adds up in; the CPU needs none."""
        if device.type == "cpu":
            return 0, 0
        key = raw_stream(device), torch.cuda.is_current_stream_capturing()
        sums = self.sums.get(key)
        if sums is None:
            sums = self.sums[key] = torch.zeros(SUMS, dtype=torch.uint8, device=device)
        return sums.data_ptr(), SUMS
