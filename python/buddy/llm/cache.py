"""A paged KV cache in compressed GPU memory (docs/explain/attention.md)."""

from __future__ import annotations

import torch

from .. import _native
from ..torch.ops import device_and_stream, span
from ..torch.pinned import pinned, unpin

PAGE = 64
# Share of the GPU's memory that overflow may take before it goes to the host.
SMALL = 1 / 2048


class PagedCache:
    """Keys and values of all layers for ``sequences`` sequences of up to ``capacity`` tokens.

    Device memory holds three quarters of the plain bytes. Overflow is in pinned host memory, or in
    device memory if it takes at most the share ``small`` of the GPU: one read over the link takes
    as long as a short context.
    """

    def __init__(self, layers: int, kv_heads: int, head: int, sequences: int, capacity: int, device: torch.device | str = "cuda",
                 small: float = SMALL):
        self.device, self.sequences = torch.device(device), sequences
        self.kv_heads, self.head = kv_heads, head
        pages = -(-capacity // PAGE)
        self.capacity = pages * PAGE
        self.shape = (layers, sequences * pages, kv_heads, head, PAGE)
        self.table = torch.arange(sequences * pages, dtype=torch.int32, device=device).view(sequences, pages)
        # Pages are in order, so the slots of a sequence are consecutive.
        self.slot_table = torch.arange(sequences * self.capacity, device=device).view(sequences, self.capacity)
        self.lengths = torch.zeros(sequences, dtype=torch.int32, device=device)
        entries, overflow, metadata, scratch = _native.kv_bytes(device_and_stream(self.lengths), self.shape, sequences)
        self.entries = torch.empty(entries, dtype=torch.uint8, device=device)
        self.metadata = torch.empty(metadata, dtype=torch.uint8, device=device)
        self.scratch = torch.zeros(scratch, dtype=torch.uint8, device=device)
        is_small = overflow <= torch.cuda.get_device_properties(self.device).total_memory * small
        self.overflow = torch.empty(overflow, dtype=torch.uint8, device=device) if is_small else pinned(overflow)
        _native.kv_clear(self.where, self.native)

    def __del__(self):
        # Kernels may still use the memory.
        if hasattr(self, "overflow") and not self.overflow.is_cuda and torch.cuda is not None:
            torch.cuda.synchronize(self.device)
            unpin(self.overflow)

    @property
    def where(self):
        """GPU index and current stream."""
        return device_and_stream(self.lengths)

    @property
    def native(self):
        """The cache as native functions take it."""
        return self.shape, span(self.entries), span(self.overflow), span(self.metadata), None

    @property
    def device_bytes(self) -> int:
        """Device bytes."""
        return sum(one.numel() for one in [self.entries, self.metadata, self.scratch, self.overflow] if one.is_cuda)

    def slots(self, first: int, count: int) -> torch.Tensor:
        """Returns the slots of ``count`` tokens from ``first`` on, sequence by sequence."""
        return self.slot_table[:, first : first + count].reshape(-1)

    def clear(self) -> None:
        """Removes every token; windows may be trained again."""
        _native.kv_clear(self.where, self.native)
        self.lengths.zero_()

    def append(self, layer: int, keys: torch.Tensor, values: torch.Tensor, first: int, sequence: int | None = None) -> None:
        """Appends tokens (sequences, tokens, heads, head dimension) to a layer at position
        ``first``, or to one ``sequence`` alone. Position 0, of all or of sequence 0, trains the
        layer's windows: call it first."""
        keys, values = keys.contiguous(), values.contiguous()
        tokens, row = keys.shape[0] * keys.shape[1], self.kv_heads * self.head
        slots = self.slots(first, keys.shape[1]) if sequence is None else self.slot_table[sequence, first : first + tokens]
        rows = (span(keys), span(values), 0, row, layer, 1, tokens)
        if first == 0 and not sequence:
            _native.kv_train(self.where, self.native, (*rows[:-1], min(tokens, 1024)), None)
        _native.kv_append(self.where, self.native, rows, span(slots))

    def append_attend(self, layer: int, rows: torch.Tensor, rope: torch.Tensor, out: torch.Tensor, scale: float) -> None:
        """Applies RoPE to the last token of each sequence, appends it and computes its attention.
        ``rows`` is the output of the QKV layer. The preceding kernel must not write lengths or
        older tokens."""
        group = out.shape[-1] // (self.kv_heads * self.head)
        spans = [span(one) for one in [rows, rope, out, self.table, self.lengths, self.scratch]]
        _native.kv_append_attend(self.where, self.native, (layer, self.sequences, group, scale), spans)

    def attend(self, layer: int, queries: torch.Tensor, out: torch.Tensor, scale: float, tokens: int = 1) -> None:
        """Computes attention of the last ``tokens`` tokens of each sequence; queries and out are
        (sequences, tokens, heads * head dimension)."""
        group = queries.shape[-1] // (self.kv_heads * self.head)
        spans = [span(one) for one in [queries, out, self.table, self.lengths, self.scratch]]
        _native.kv_attend(self.where, self.native, (layer, self.sequences, tokens, group, scale), spans)

    def read(self, layer: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Unpacks the first ``count`` tokens of every sequence: (sequences, tokens, heads, head
        dimension)."""
        size = (self.sequences, count, self.kv_heads, self.head)
        keys, values = (torch.empty(size, dtype=torch.bfloat16, device=self.device) for _ in range(2))
        for i in range(self.sequences):
            spans = [span(one) for one in [self.table[i], keys[i], values[i]]]
            _native.kv_read(self.where, self.native, (layer, 0, count), spans)
        return keys, values
