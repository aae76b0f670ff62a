"""Packed keys and values of one attention layer, in memory that vLLM gives (docs/notes/vllm.md).

A region holds the 96 bytes of every entry of its pages, then their nibbles. Overflow has a slot of
32 bytes for each entry in pinned host memory: it is never full, and a value is never lost. Windows,
shifts and fault have memory of their own.
"""

from __future__ import annotations

import math

import torch

from .. import _native
from ..torch.layout import ENTRY
from ..torch.ops import device_and_stream, is_dense, span
from ..torch.pinned import pinned, unpin

# A window that is not chosen yet (`kv.cuh`), and the most rows that choose windows and shifts.
UNUSED, TRAINED_ON = 255, 1024
# Shifts begin at a multiple of this, behind the windows; the fault takes as much at the end.
SHIFTS_AT = 128


def token_bytes(head: int) -> int:
    """Returns the bytes of a token's key and value for one KV head. Even, since vLLM views its cache
    as bf16."""
    entries, _, nibbles, _ = _native.kv_parts((1, 1, 1, head, 16))
    size = (entries + nibbles) // 16
    return size + size % 2


def attend_plain(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention of the last tokens of one sequence to all of its tokens, in fp32: (tokens, heads,
    head dimension)."""
    group = queries.shape[1] // keys.shape[1]
    queries, keys, values = (one.float().transpose(0, 1) for one in (queries, keys, values))
    scores = queries @ keys.repeat_interleave(group, 0).transpose(1, 2) * scale
    tokens, all_tokens = scores.shape[1:]
    hidden = torch.ones(tokens, all_tokens, dtype=torch.bool, device=scores.device).triu(all_tokens - tokens + 1)
    return (scores.masked_fill(hidden, -math.inf).softmax(2) @ values.repeat_interleave(group, 0)).transpose(0, 1)


def scratch_bytes(tensor: torch.Tensor, heads: int, head: int, sequences: int) -> int:
    """Returns the bytes of scratch memory of attention on a tensor's device; none on the CPU."""
    where = device_and_stream(tensor)
    return _native.kv_bytes(where, (1, 1, heads, head, 16), sequences)[3] if where[0] >= 0 else 0


class LayerPages:
    """The packed pages of a layer. ``region`` is its part of vLLM's KV cache: (pages, heads, tokens
    of a page, values), of which only the bytes count."""

    def __init__(self, region: torch.Tensor, head: int, window: int | None = None):
        pages, heads, page_tokens, _ = region.shape
        self.region, self.shape = region, (1, pages, heads, head, page_tokens)
        entries, overflow, nibbles, windows = _native.kv_parts(self.shape)
        size = region.numel() * region.element_size()
        if not is_dense(region) or size < entries + nibbles:
            raise ValueError(f"packed keys and values need {entries + nibbles} bytes without gaps, not {size} with strides {region.stride()}: "
                             "another backend or another layout shares the KV cache")
        self.is_on_gpu = self.where[0] >= 0
        address = region.data_ptr()
        if self.is_on_gpu and address % ENTRY:
            raise ValueError(f"the KV cache of a layer begins at {address:#x}, which is no multiple of {ENTRY}: use block_size=64")
        self.overflow = pinned(overflow) if self.is_on_gpu else torch.zeros(overflow, dtype=torch.uint8)
        self.windows = torch.zeros(windows, dtype=torch.uint8, device=region.device)
        self.native = (self.shape, _native.Span(region, address, entries), span(self.overflow), _native.Span(region, address + entries, nibbles),
                       span(self.windows))
        _native.kv_clear(self.where, self.native)
        self.window = UNUSED if window is None else window
        self.forget()

    def __del__(self):
        # Kernels may still use the memory.
        if getattr(self, "is_on_gpu", False) and hasattr(self, "overflow") and torch.cuda is not None:
            torch.cuda.synchronize(self.region.device)
            unpin(self.overflow)

    @property
    def where(self):
        """GPU index and current stream."""
        return device_and_stream(self.region)

    def forget(self) -> None:
        """Makes the next tokens choose windows and shifts. No token may be read any more."""
        with torch.inference_mode():
            self.windows[: 2 * self.shape[2]] = self.window
            self.windows[SHIFTS_AT * -(-2 * self.shape[2] // SHIFTS_AT) : -SHIFTS_AT] = 0

    def load(self, group: int) -> None:
        """Loads the kernels of ``attend``, which a graph that is captured must not do."""
        if self.is_on_gpu:
            _native.kv_load(self.where, self.native, group)

    def append(self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        """Appends tokens (tokens, heads, head dimension) at their slots; negative slots are skipped."""
        if rows := self.rows(keys, values, slots, min(len(slots), len(keys))):
            _native.kv_append(self.where, self.native, rows, span(slots))

    def train(self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        """Chooses windows and shifts from tokens that are appended next, if none are chosen yet, without
        a wait. A window needs 64 tokens."""
        tokens = min(len(slots), len(keys), TRAINED_ON)
        if (rows := self.rows(keys, values, slots, tokens)):
            _native.kv_train(self.where, self.native, rows, span(slots))

    def rows(self, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, tokens: int):
        """Returns the first tokens as native functions take them; nothing for none."""
        row = self.shape[2] * self.shape[3]
        if tokens == 0:
            return None
        if not self.can_read(keys) or not self.can_read(values) or keys.stride(0) != values.stride(0):
            keys, values = keys.contiguous(), values.contiguous()
        stride = max(keys.stride(0), row)
        spans = [_native.Span(one, one.data_ptr(), 2 * ((tokens - 1) * stride + row)) for one in (keys, values)]
        return *spans, 0, stride, 0, 1, tokens

    def can_read(self, rows: torch.Tensor) -> bool:
        """Returns whether ``kv_append`` takes the strides and the address of rows."""
        return rows[0].is_contiguous() and rows.stride(0) % 8 == 0 and rows.data_ptr() % 16 == 0

    def read(self, pages: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Unpacks the first tokens of the sequence with these pages."""
        _native.kv_read(self.where, self.native, (0, 0, len(keys)), [span(pages), span(keys), span(values)])

    def read_new(self, pages: torch.Tensor, tokens: int) -> list[torch.Tensor]:
        """Returns the first tokens of a sequence, keys and values."""
        _, _, heads, head, _ = self.shape
        found = [torch.empty(tokens, heads, head, dtype=torch.bfloat16, device=self.region.device) for _ in range(2)]
        self.read(pages, *found)
        return found

    def attend(self, queries: torch.Tensor, out: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, scale: float,
               scratch: torch.Tensor | None) -> None:
        """Attention of the last token of each sequence: (sequences, heads, head dimension). A length
        of 0 gives zeros."""
        sequences, heads, _ = queries.shape
        if not self.is_on_gpu:
            for query, to, pages, length in zip(queries, out, table, lengths.tolist()):
                to.copy_(attend_plain(query[None], *self.read_new(pages, length), scale)[0]) if length else to.zero_()
            return
        spans = [span(queries), span(out), _native.Span(table, table.data_ptr(), 4 * sequences * table.stride(0)), span(lengths), span(scratch)]
        _native.kv_attend(self.where, self.native, (0, sequences, 1, heads // self.shape[2], scale), spans)
