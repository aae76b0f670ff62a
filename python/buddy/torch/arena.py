"""An arena for the packed buffers of a training step.

Separate allocations would fragment PyTorch's allocator, as each is half or three quarters of the
plain memory that it replaces. The arena cuts slabs to the sizes of the previous step, so nothing is
left over. A slab is freed with its last buffer.
"""

import torch

from .. import _native
from .ops import raw_stream, span

# Least bytes of a slab.
SLAB = 512 << 20
# Bytes of the zeroed counters that packing kernels use.
COUNTER_BYTES = 1024


class ArenaBlock:
    """A range of a slab, and the counters with which it is packed."""

    __slots__ = ("slab", "offset", "bytes", "counters")

    def __init__(self, slab, offset, size, counters=None):
        self.slab, self.offset, self.bytes, self.counters = slab, offset, size, counters

    def span(self):
        # Not of `tensor()`, which would take the host as long as everything else that is done for a
        # buffer.
        return _native.Span(self.slab, self.slab.data_ptr() + self.offset, self.bytes)

    def tensor(self):
        return self.slab[self.offset: self.offset + self.bytes]


class Arena:
    """The slabs of one device."""

    def __init__(self):
        # Sizes taken in this step; slab, offset and size of the previous step's; bytes of its
        # slabs.
        self.sizes, self.plan, self.totals = [], [], []
        self.slab, self.index = None, None
        # Counters by stream and by whether a graph owns them; kernels leave them zero.
        self.counters = {}

    def begin(self):
        """Plans the slabs of a new step."""
        # Graphs may run concurrently, so each has its own counters.
        self.counters = {key: counters for key, counters in self.counters.items() if not key[1]}
        self.plan, self.totals, offset = [], [], 0
        for size in self.sizes:
            if not self.totals or offset >= SLAB:
                self.totals.append(0)
                offset = 0
            self.plan.append((len(self.totals) - 1, offset, size))
            offset += size
            self.totals[-1] = offset
        self.sizes = []
        self.end()

    def end(self):
        """Ends the step's allocations."""
        self.slab = self.index = None

    def take(self, size, device):
        """Returns a block of ``size`` bytes."""
        number, counters = len(self.sizes), self.zero_counters(device)
        self.sizes.append(size)
        slab, offset, planned = self.plan[number] if number < len(self.plan) else (None, 0, 0)
        if size != planned:
            # The step differs from the previous one: the rest of the plan would leave gaps.
            self.plan = []
        if size != planned or self.totals[slab] == planned:
            return ArenaBlock(torch.empty(size, dtype=torch.uint8, device=device), 0, size, counters)
        if self.index != slab:
            self.slab, self.index = torch.empty(self.totals[slab], dtype=torch.uint8, device=device), slab
        return ArenaBlock(self.slab, offset, size, counters)

    def zero_counters(self, device):
        """Returns the counters of the current stream; None for the CPU."""
        if device.type == "cpu":
            return None
        key = raw_stream(device), torch.cuda.is_current_stream_capturing()
        counters = self.counters.get(key)
        if counters is None:
            counters = self.counters[key] = span(torch.zeros(COUNTER_BYTES, dtype=torch.uint8, device=device))
        return counters
