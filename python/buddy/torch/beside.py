"""Host memory for what overflows, as much as may: then nothing is ever lost, no one has to ask, and a CUDA graph can hold it.

Entries that overflow are few, one in thousands of most tensors, so the link carries little; what is reserved on the host is a quarter to
three quarters of what is packed. A piece belongs to one buffer at a time.
"""

import torch

from .ops import raw_stream, stream_of

# Bytes that are pinned at once.
CHUNK = 256 << 20


class Piece:
    """Pinned memory for what overflows of one buffer, the stream that used it last, and whether it is a graph's for good."""

    __slots__ = ("memory", "address", "bytes", "stream", "is_graphs")

    def __init__(self, memory, at, size):
        self.memory, self.address, self.bytes, self.stream, self.is_graphs = memory, memory.data_ptr() + at, size, None, False

    def span(self):
        return self.address, self.bytes

    def ready(self, device):
        """Waits, on the current stream, for what was done with it on another."""
        stream = raw_stream(device)
        if self.stream is not None and self.stream != stream:
            torch.cuda.current_stream(device).wait_stream(stream_of(self.stream, device))
        self.stream = stream


class Beside:
    """Pieces of pinned memory."""

    def __init__(self):
        self.memory, self.used = None, 0

    def take(self, size):
        """A new piece. Not while a graph is captured."""
        if self.memory is None or self.used + size > self.memory.numel():
            self.memory, self.used = torch.empty(max(size, CHUNK), dtype=torch.uint8, pin_memory=torch.cuda.is_available()), 0
        self.used += size
        return Piece(self.memory, self.used - size, size)
