"""Pinned host memory for overflow.

Each block has room for the worst case, so packing never fails, the host never waits, and a CUDA
graph can hold the block. Few entries overflow, so the link carries little. A block belongs to one
buffer at a time.
"""

import torch

from .. import _native
from .layout import ENTRY
from .ops import raw_stream, stream_of

# Bytes that are pinned at once.
CHUNK = 256 << 20
# Most bytes that the driver is asked to pin in one call.
MOST = 32 << 30


def pin(memory: torch.Tensor) -> None:
    """Pins host memory that exists. PyTorch's allocator of pinned memory rounds up to a power of
    two."""
    for at in range(0, memory.numel(), MOST):
        size = min(MOST, memory.numel() - at)
        if (error := int(torch.cuda.cudart().cudaHostRegister(memory.data_ptr() + at, size, 0))) != 0:
            raise MemoryError(f"{size} bytes of host memory cannot be pinned: CUDA error {error}")


def pinned(size: int) -> torch.Tensor:
    """Returns pinned host memory aligned to an entry, of exactly this size."""
    memory = torch.empty(size + ENTRY, dtype=torch.uint8)
    memory = memory[-memory.data_ptr() % ENTRY :][:size]
    pin(memory)
    return memory


def unpin(memory: torch.Tensor) -> None:
    """Undoes ``pin``. No kernel or copy may use the memory any more."""
    for at in range(0, memory.numel(), MOST):
        torch.cuda.cudart().cudaHostUnregister(memory.data_ptr() + at)


class PinnedBlock:
    """Pinned memory for the overflow of one buffer, the stream that used it last, and whether a
    CUDA graph owns it."""

    __slots__ = ("memory", "address", "bytes", "stream", "in_graph")

    def __init__(self, memory, offset, size):
        self.memory, self.address, self.bytes, self.stream, self.in_graph = memory, memory.data_ptr() + offset, size, None, False

    def span(self):
        return _native.Span(self.memory, self.address, self.bytes)

    def wait(self, device):
        """Makes the current stream wait for the stream that used the block last."""
        stream = raw_stream(device)
        if self.stream is not None and self.stream != stream:
            torch.cuda.current_stream(device).wait_stream(stream_of(self.stream, device))
        self.stream = stream


class PinnedPool:
    """Allocates blocks of pinned memory."""

    def __init__(self):
        self.memory, self.used = None, 0

    def take(self, size):
        """Returns a new block. Must not be called while a graph is captured."""
        if self.memory is None or self.used + size > self.memory.numel():
            self.memory, self.used = torch.empty(max(size, CHUNK), dtype=torch.uint8, pin_memory=torch.cuda.is_available()), 0
        self.used += size
        return PinnedBlock(self.memory, self.used - size, size)
