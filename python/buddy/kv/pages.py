"""Packs pages of keys and values into slots and unpacks them. The CPU and the GPU write the same bits."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import torch

from .. import _native
from ..torch.layout import DEVICE_BYTES, ENTRY, HEADER, SECTOR, count_overflow, packed_bytes, round_up
from ..torch.ops import call_native, span

TARGET = "4/3x"
MAGIC = int.from_bytes(b"BUDDYFZ\0", "little")
# Position of the number of overflowing sectors in the header.
SECTORS_AT = 48
# Bytes behind the frozen buffer; the first 8 are the checksum.
TRAILER = 128
# Zeros that save packing a launch (`_native.pack`).
COUNTER_BYTES = 1024


class PageError(ValueError):
    """A page in a slot is not the one that was stored."""


# Matrices in a page: blocks, and of each block some matrices of `tokens` rows of `row` values.
Order = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class PageFormat:
    """The size of pages and of their slots, and how pages are packed.

    ``page_bytes``: bytes of a page, a multiple of 128. Each page is a launch, so 1 MiB or more is
    best. ``reserve``: share of the entries of a page that may overflow within its slot.
    ``window``: the first of 16 exponents that entries hold without escapes
    (docs/reference/format.md). ``order``: blocks, tokens and values of a token, if the values of a
    channel are packed together: an entry then holds up to 64 tokens of a channel. Keys whose
    channels differ in size overflow less. ``trained`` chooses window and order.
    """

    page_bytes: int
    reserve: float = 1 / 128
    window: int = 117
    order: Order | None = None

    def __post_init__(self):
        if self.page_bytes <= 0 or self.page_bytes % ENTRY:
            raise ValueError(f"pages of {self.page_bytes} bytes; a multiple of {ENTRY} is needed")
        if not 0 <= self.window <= 240 or not 0 <= self.reserve <= 1:
            raise ValueError(f"a window from 0 to 240 and a reserve from 0 to 1 are needed, not {self.window} and {self.reserve}")
        if self.order is not None and (min(self.order) < 1 or self.page_bytes % (2 * math.prod(self.order))):
            raise ValueError(f"whole matrices in a page of {self.page_bytes} bytes are needed, not {self.order}")

    @property
    def entries(self) -> int:
        """Entries of a page."""
        return self.page_bytes // ENTRY

    @property
    def sectors(self) -> int:
        """Overflowing entries that a slot has room for."""
        return round_up(math.ceil(self.entries * self.reserve), HEADER // SECTOR)

    @property
    def frozen_bytes(self) -> int:
        """Bytes of the frozen buffer of a slot."""
        return packed_bytes(TARGET, 0, self.page_bytes, self.sectors)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot."""
        return self.frozen_bytes + TRAILER

    @property
    def overflow_bytes(self) -> int:
        """Bytes of the overflow of a page whose entries all overflow."""
        return self.entries * (ENTRY - DEVICE_BYTES[TARGET])

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sizes as native functions take them."""
        return self.page_bytes, self.slot_bytes, self.frozen_bytes

    @property
    def native(self) -> tuple[str, str, int]:
        """The format as native functions take it."""
        return f"bf16:{self.window}", TARGET, 0

    def ordered(self, pages: torch.Tensor) -> torch.Tensor:
        """Returns the bytes of pages in the order in which they are packed."""
        if self.order is None:
            return pages
        blocks, tokens, row = self.order
        values = pages.view(torch.int16).view(len(pages), blocks, -1, tokens, row)
        return values.permute(0, 2, 4, 1, 3).contiguous().view(len(pages), -1).view(torch.uint8)

    def restore(self, ordered: torch.Tensor, pages: torch.Tensor) -> None:
        """Writes pages from their bytes in the order of ``ordered``."""
        blocks, tokens, row = self.order
        values = ordered.view(torch.int16).view(len(pages), -1, row, blocks, tokens).permute(0, 3, 1, 4, 2)
        pages.view(torch.int16).view(values.shape).copy_(values)

    def trained(self, pages: torch.Tensor, orders: Iterable[Order] = ()) -> PageFormat:
        """Returns the format with the best window for these pages, and with the best of ``orders``
        if more than half of the reserve overflows without. Synchronises with a GPU."""
        pages = as_pages(pages, self)
        found = [dataclasses.replace(self, order=None).with_window(pages)]
        if 2 * found[0][0] > self.sectors * len(pages):
            found += [dataclasses.replace(self, order=order).with_window(pages) for order in orders]
        return min(found, key=lambda one: one[0])[1]

    def with_window(self, pages: torch.Tensor) -> tuple[int, PageFormat]:
        """Returns the overflowing entries of pages with the best window, and the format with it."""
        flat = span(self.ordered(pages).contiguous())
        codec = call_native(pages.device, _native.train, "bf16", flat)
        ((classes, _),) = call_native(pages.device, _native.survey, [(flat, codec, None)])
        return count_overflow(classes, TARGET)[0], dataclasses.replace(self, window=int(codec.split(":")[1]))


@functools.cache
def checksum_weights(words: int, device: torch.device) -> torch.Tensor:
    """Returns odd 64-bit weights, the same on every machine."""
    at = torch.arange(words, dtype=torch.int64, device=device) * -7046029254386353131
    at = (at ^ (at >> 29)) * -4658895280553007687
    return (at ^ (at >> 32)) | 1


def checksums(pages: torch.Tensor) -> torch.Tensor:
    """Returns a 64-bit checksum of each page: its 32-bit words times odd weights, modulo 2^64."""
    words = pages.view(torch.int32)
    return (words * checksum_weights(words.shape[1], words.device)).sum(1)


def stored_checksums(slots: torch.Tensor) -> torch.Tensor:
    """Returns the checksums that slots hold."""
    return slots[:, -TRAILER : 8 - TRAILER].contiguous().view(torch.int64)[:, 0]


def fits(slots: torch.Tensor) -> torch.Tensor:
    """Returns for each slot whether its overflow had room."""
    return slots[:, :8].contiguous().view(torch.int64)[:, 0] == MAGIC


def as_pages(pages: torch.Tensor, format: PageFormat) -> torch.Tensor:
    """Returns the bytes of pages, one per row: ``pages`` has any dtype and shape behind its first
    dimension."""
    rows = pages.detach().contiguous().reshape(pages.shape[0], -1).view(torch.uint8)
    if rows.shape[1] != format.page_bytes:
        raise ValueError(f"pages of {rows.shape[1]} bytes, where the format says {format.page_bytes}")
    return rows


def pack_pages(pages: torch.Tensor, format: PageFormat, out: torch.Tensor | None = None, counters: torch.Tensor | None = None) -> torch.Tensor:
    """Packs each page into a slot on the same device and returns the slots.

    Never blocks on a GPU. ``fits`` says which slots hold their page; others need
    ``pack_apart``.
    """
    pages = as_pages(pages, format)
    slots = pages.new_zeros((len(pages), format.slot_bytes)) if out is None else out
    counters = span(counters) if counters is not None else None
    call_native(pages.device, _native.pack_pages, format.native, span(format.ordered(pages)), span(slots), format.sizes, counters)
    slots[:, -TRAILER : 8 - TRAILER] = checksums(pages).view(torch.uint8).view(-1, 8)
    return slots


def pack_apart(page: torch.Tensor, format: PageFormat) -> tuple[torch.Tensor, torch.Tensor]:
    """Packs one page of any content: its slot and its overflow, both on the CPU. Synchronises with
    a GPU."""
    page = as_pages(page[None], format)
    slot, overflow = page.new_zeros(format.slot_bytes), page.new_zeros(format.overflow_bytes)
    call_native(page.device, _native.pack, format.native, span(format.ordered(page)), span(slot[: format.frozen_bytes]), 0, span(overflow))
    slot[-TRAILER : 8 - TRAILER] = checksums(page).view(torch.uint8)
    slot = slot.cpu()
    sectors = int(slot[SECTORS_AT : SECTORS_AT + 4].view(torch.int32))
    return slot, overflow[: SECTOR * sectors].cpu().clone()


def unpack_slots(slots: torch.Tensor, format: PageFormat, pages: torch.Tensor) -> torch.Tensor:
    """Unpacks each slot to the page of the same index, in stream order. Returns for each page
    whether it differs from its checksum."""
    ordered = pages if format.order is None else torch.empty_like(pages)
    broken = call_native(slots.device, _native.unpack_pages, format.native, span(slots), span(ordered), format.sizes)
    if format.order is not None:
        format.restore(ordered, pages)
    damaged = checksums(pages) != stored_checksums(slots)
    if broken:
        damaged[broken] = True
    return damaged


def unpack_apart(slot: torch.Tensor, overflow: torch.Tensor, format: PageFormat, page: torch.Tensor) -> torch.Tensor:
    """Unpacks what ``pack_apart`` gave, like ``unpack_slots``, with slot and overflow on the page's
    device."""
    ordered = page if format.order is None else torch.empty_like(page)
    try:
        call_native(slot.device, _native.unpack, format.native, span(slot[: format.frozen_bytes]), span(ordered), span(overflow))
    except ValueError:
        # On the CPU alone: a GPU does not look.
        return torch.ones(1, dtype=torch.bool, device=slot.device)
    if format.order is not None:
        format.restore(ordered[None], page[None])
    return checksums(page[None]) != stored_checksums(slot[None])


def unpack_pages(slots: torch.Tensor, format: PageFormat) -> torch.Tensor:
    """Unpacks slots whose pages fit (``fits``) to rows of bytes. Raises ``PageError`` unless all
    equal their checksums, so it synchronises with a GPU."""
    pages = slots.new_empty((len(slots), format.page_bytes))
    slots = slots.contiguous()
    damaged = (unpack_slots(slots, format, pages) | ~fits(slots)).cpu()
    check(range(len(slots)), damaged)
    return pages


def check(ids: Sequence[int], damaged: torch.Tensor) -> None:
    """Raises ``PageError`` if the page of a slot is damaged."""
    if found := damaged.nonzero()[:, 0].tolist():
        raise PageError(f"the page in slot {ids[found[0]]} differs from its checksum ({len(found)} of {len(ids)} pages)")
