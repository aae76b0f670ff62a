"""Keys and values in compressed memory on a GPU, in pages (docs/explain/attention.md)."""

from __future__ import annotations

import torch

from .. import _native
from ..torch.ops import place, span

PAGE = 64
# Bytes of an entry.
ENTRY = 128
# Share of the card's memory that overflow may take before it goes to the host.
SMALL = 1 / 2048


def pinned(size: int) -> torch.Tensor:
    """Host memory that a GPU reaches, of this size and no more: PyTorch's own rounds up to a power of two. It begins at an entry."""
    memory = torch.empty(size + ENTRY, dtype=torch.uint8)
    memory = memory[-memory.data_ptr() % ENTRY :][:size]
    error = torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), size, 0)
    if int(error) != 0:
        raise MemoryError(f"{size} bytes of host memory cannot be pinned: CUDA error {int(error)}")
    return memory


class PagedCache:
    """Keys and values of all layers for some sequences, with room for ``capacity`` tokens of each.

    Device memory holds three quarters of the plain bytes. What does not fit there lies in host memory, pinned once; where a cache is
    small beside the card's memory, it lies in device memory too, since a single read over the link takes as long as a short
    context. ``small`` is the share of the card that it may take there.
    """

    def __init__(self, layers: int, kv_heads: int, head: int, sequences: int, capacity: int, device: torch.device | str = "cuda",
                 small: float = SMALL):
        self.device, self.sequences = torch.device(device), sequences
        self.kv_heads, self.head = kv_heads, head
        pages = -(-capacity // PAGE)
        self.capacity = pages * PAGE
        self.shape = (layers, sequences * pages, kv_heads, head, PAGE)
        self.table = torch.arange(sequences * pages, dtype=torch.int32, device=device).view(sequences, pages)
        # Pages are in order, so a sequence's tokens have one place after the other.
        self.places = torch.arange(sequences * self.capacity, device=device).view(sequences, self.capacity)
        self.lengths = torch.zeros(sequences, dtype=torch.int32, device=device)
        entries, overflow, metadata, scratch = _native.kv_bytes(place(self.lengths), self.shape, sequences)
        self.entries = torch.empty(entries, dtype=torch.uint8, device=device)
        self.metadata = torch.empty(metadata, dtype=torch.uint8, device=device)
        self.scratch = torch.zeros(scratch, dtype=torch.uint8, device=device)
        is_small = overflow <= torch.cuda.get_device_properties(self.device).total_memory * small
        self.overflow = torch.empty(overflow, dtype=torch.uint8, device=device) if is_small else pinned(overflow)
        _native.kv_clear(self.place, self.native)

    def __del__(self):
        # Work on the memory may be under way still.
        if hasattr(self, "overflow") and not self.overflow.is_cuda and torch.cuda is not None:
            torch.cuda.synchronize(self.device)
            torch.cuda.cudart().cudaHostUnregister(self.overflow.data_ptr())

    @property
    def place(self):
        return place(self.lengths)

    @property
    def native(self):
        """The cache as the native module takes it."""
        return self.shape, span(self.entries), span(self.overflow), span(self.metadata)

    @property
    def device_bytes(self) -> int:
        """Device memory that it takes."""
        return sum(one.numel() for one in [self.entries, self.metadata, self.scratch, self.overflow] if one.is_cuda)

    def slots(self, first: int, count: int) -> torch.Tensor:
        """Where tokens of every sequence go, sequence by sequence."""
        return self.places[:, first : first + count].reshape(-1)

    def append(self, layer: int, keys: torch.Tensor, values: torch.Tensor, first: int) -> None:
        """Appends tokens (sequences, tokens, heads, values) of a layer from a position on; the first ones choose its windows."""
        keys, values = keys.contiguous(), values.contiguous()
        tokens, row = keys.shape[0] * keys.shape[1], self.kv_heads * self.head
        slots = self.slots(first, keys.shape[1])
        rows = (span(keys), span(values), 0, row, layer, 1, tokens)
        if first == 0:
            _native.kv_train(self.place, self.native, (*rows[:-1], min(tokens, 1024)))
        _native.kv_append(self.place, self.native, rows, span(slots))

    def attend_fresh(self, layer: int, rows: torch.Tensor, turns: torch.Tensor, out: torch.Tensor, scale: float) -> None:
        """One token of each sequence, its last, as the product of queries, keys and values leaves it: turned, appended, and attention
        of it. Lengths and older tokens must not be written by the kernel before."""
        group = out.shape[-1] // (self.kv_heads * self.head)
        spans = [span(one) for one in [rows, turns, out, self.table, self.lengths, self.scratch]]
        _native.kv_attend_fresh(self.place, self.native, (layer, self.sequences, group, scale), spans)

    def attend(self, layer: int, queries: torch.Tensor, out: torch.Tensor, scale: float, tokens: int = 1) -> None:
        """Attention of the last tokens of each sequence; queries and results are (sequences, tokens, heads * values)."""
        group = queries.shape[-1] // (self.kv_heads * self.head)
        spans = [span(one) for one in [queries, out, self.table, self.lengths, self.scratch]]
        _native.kv_attend(self.place, self.native, (layer, self.sequences, tokens, group, scale), spans)

    def read(self, layer: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first tokens of every sequence as they were appended: (sequences, tokens, heads, values)."""
        size = (self.sequences, count, self.kv_heads, self.head)
        keys, values = (torch.empty(size, dtype=torch.bfloat16, device=self.device) for _ in range(2))
        for i in range(self.sequences):
            spans = [span(one) for one in [self.table[i], keys[i], values[i]]]
            _native.kv_read(self.place, self.native, (layer, 0, count), spans)
        return keys, values
