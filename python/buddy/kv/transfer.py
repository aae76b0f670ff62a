"""Moves pages between a device and a pool's slots, batch by batch: kernels of one batch overlap with
the copies of the next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from .pages import COUNTER_BYTES, check, checksum_weights, fits, pack_apart, pack_pages, unpack_apart, unpack_slots

if TYPE_CHECKING:
    from .pool import HostPool

# Plain bytes of a batch. A GPU holds two batches for each direction, plain and packed.
BATCH_BYTES = 16 << 20

# Fills rows of plain pages on the device, of which the first is page `first` of a transfer.
Gather = Callable[[int, torch.Tensor], object]
# Takes unpacked rows.
Scatter = Callable[[int, torch.Tensor], object]


class Lane:
    """A CUDA stream; on the CPU work is done at once."""

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __enter__(self):
        self.context = torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext()
        self.context.__enter__()

    def __exit__(self, *error):
        self.context.__exit__(*error)

    def event(self, timed: bool = False):
        """Records an event; None on the CPU."""
        return self.stream.record_event(torch.cuda.Event(enable_timing=timed)) if self.stream else None

    def after(self, event) -> None:
        """Makes later work wait for an event."""
        if event is not None:
            self.stream.wait_event(event)

    def after_current(self) -> None:
        """Makes later work wait for the current stream."""
        if self.stream:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))


class Transfer:
    """Pages on their way. Source and destination must stay as they are until it is complete."""

    def __init__(self, begin, end, finish: Callable[[], None], held: object):
        # `held`: what kernels under way still read.
        self.begin, self.end, self.finish, self.held, self.complete = begin, end, finish, held, False

    def done(self) -> bool:
        """Returns whether ``wait`` would not block."""
        return self.end is None or self.end.query()

    def wait(self) -> None:
        """Waits for the transfer and completes it. Raises ``PageError`` if a loaded page differs
        from its checksum."""
        if self.end is not None:
            self.end.synchronize()
        if not self.complete:
            self.complete = True
            self.finish()

    def seconds(self) -> float | None:
        """Returns the time that it took on the GPU; None on the CPU."""
        return self.begin.elapsed_time(self.end) / 1000 if self.end is not None else None


class Mover:
    """Stores or loads pages of a pool; its transfers run in order. Use one for each direction."""

    def __init__(self, pool: HostPool, device: torch.device):
        self.pool, self.device = pool, device
        self.count = max(1, BATCH_BYTES // pool.format.page_bytes)
        self.kernels, self.copies = Lane(device), Lane(device)
        self.pages, self.slots = (torch.zeros((2, self.count, size), dtype=torch.uint8, device=device)
                                  for size in [pool.format.page_bytes, pool.format.slot_bytes])
        # On the current stream, not first on a lane.
        checksum_weights(pool.format.page_bytes // 4, device)
        self.counters = torch.zeros(COUNTER_BYTES, dtype=torch.uint8, device=device)
        # The last use of each of the two buffers.
        self.free = [None, None]
        self.copies.after_current()

    def batches(self, pages: int) -> Iterator[tuple[int, int, torch.Tensor, torch.Tensor]]:
        """Yields the buffer, the first page, and staging memory of each batch."""
        # Kernels read and write memory of the current stream.
        self.kernels.after_current()
        for turn, first in enumerate(range(0, pages, self.count)):
            count, buffer = min(self.count, pages - first), turn % 2
            yield buffer, first, self.pages[buffer][:count], self.slots[buffer][:count]

    def store(self, ids: Sequence[int], gather: Gather) -> Transfer:
        """Packs pages that ``gather`` writes, and copies them to slots."""
        ids = [int(slot) for slot in ids]
        self.pool.drop(ids)
        begin = self.copies.event(timed=True)
        for buffer, first, pages, slots in self.batches(len(ids)):
            self.kernels.after(self.free[buffer])
            with self.kernels:
                gather(first, pages)
                if self.pool.untrained:
                    self.pool.train(pages)
                pack_pages(pages, self.pool.format, slots, self.counters)
            self.copies.after(self.kernels.event())
            with self.copies:
                for at, count, slot in runs(ids[first : first + len(slots)]):
                    self.pool.memory[slot : slot + count].copy_(slots[at : at + count], non_blocking=True)
            self.free[buffer] = self.copies.event()
        return Transfer(begin, self.copies.event(timed=True), lambda: self.settle(ids, gather), gather)

    def settle(self, ids: list[int], gather: Gather) -> None:
        """Packs the pages again whose overflow did not fit, and notes what the slots hold."""
        for at in (~fits(self.pool.memory[:, :8][ids])).nonzero()[:, 0].tolist() if ids else []:
            with self.kernels:
                page = torch.zeros((1, self.pool.format.page_bytes), dtype=torch.uint8, device=self.device)
                gather(at, page)
                slot, overflow = pack_apart(page[0], self.pool.format)
            self.pool.memory[ids[at]] = slot
            self.pool.overflow[ids[at]] = overflow
        self.pool.held.update(ids)

    def load(self, ids: Sequence[int], scatter: Scatter) -> Transfer:
        """Copies slots to the device, unpacks them and passes the pages to ``scatter``, which gets
        them before their checksums are compared."""
        ids = [int(slot) for slot in ids]
        if missing := [slot for slot in ids if slot not in self.pool.held]:
            raise KeyError(f"no page in slot {missing[0]}")
        begin, damaged = self.kernels.event(timed=True), []
        for buffer, first, pages, slots in self.batches(len(ids)):
            mine = ids[first : first + len(slots)]
            self.copies.after(self.free[buffer])
            with self.copies:
                for at, count, slot in runs(mine):
                    slots[at : at + count].copy_(self.pool.memory[slot : slot + count], non_blocking=True)
            self.kernels.after(self.copies.event())
            with self.kernels:
                damaged.append(self.unpack(mine, slots, pages))
                scatter(first, pages)
            self.free[buffer] = self.kernels.event()
        with self.kernels:
            found = to_host(torch.cat(damaged)) if damaged else torch.zeros(0, dtype=torch.bool)
        return Transfer(begin, self.kernels.event(timed=True), lambda: check(ids, found), scatter)

    def unpack(self, ids: list[int], slots: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
        """Unpacks a batch. Returns for each page whether it differs from its checksum."""
        damaged = unpack_slots(slots, self.pool.format, pages)
        for at, slot in enumerate(ids):
            if (overflow := self.pool.overflow.get(slot)) is not None:
                damaged[at : at + 1] = unpack_apart(slots[at], overflow.to(self.device, non_blocking=True), self.pool.format, pages[at])
        return damaged


def runs(ids: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yields position, length and first slot of consecutive slots."""
    begin = 0
    for at in range(1, len(ids) + 1):
        if at == len(ids) or ids[at] != ids[at - 1] + 1:
            yield begin, at - begin, ids[begin]
            begin = at


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy on the CPU, complete in stream order."""
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
