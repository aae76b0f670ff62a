"""``HostPool``: slots for packed pages in host memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..torch.pinned import pin, unpin
from .pages import ENTRY, Order, PageFormat, as_pages, pack_pages, unpack_slots
from .transfer import Mover


class HostPool:
    """``slots`` slots of a fixed size in host memory, pinned where there is a GPU.

    The caller chooses the slot of each page, and which page to evict: ``put`` into a slot replaces
    its page. Window and order are trained on the first pages that are stored, among ``orders`` and
    none, unless ``train`` is off. One thread at a time may call it.
    """

    def __init__(self, format: PageFormat, slots: int, *, orders: Sequence[Order] = (), train: bool = True, pinned: bool | None = None):
        self.format, self.slots, self.orders, self.untrained = format, slots, orders, train
        memory = torch.empty(slots * format.slot_bytes + ENTRY, dtype=torch.uint8)
        memory = memory[-memory.data_ptr() % ENTRY :][: slots * format.slot_bytes]
        self.pinned = torch.cuda.is_available() if pinned is None else pinned
        if self.pinned:
            pin(memory)
        self.memory = memory.view(slots, format.slot_bytes)
        # Slots that hold a page, and the overflow of those pages that have too much for their slot.
        self.held: set[int] = set()
        self.overflow: dict[int, torch.Tensor] = {}
        self.movers: dict[tuple[torch.device, str], Mover] = {}

    def close(self) -> None:
        """Waits for the GPU and frees the memory; the pool cannot be used afterwards."""
        if self.pinned and self.memory.numel():
            torch.cuda.synchronize()
            unpin(self.memory)
        self.memory = self.memory[:0]
        self.movers.clear()
        self.drop(list(self.held))

    def __del__(self):
        # PyTorch may be gone when the process ends.
        if hasattr(self, "movers") and torch.cuda is not None:
            self.close()

    @property
    def nbytes(self) -> int:
        """Host bytes: all slots, and overflow beside them."""
        return self.memory.numel() + sum(one.numel() for one in self.overflow.values())

    def mover(self, device: torch.device | str, name: str) -> Mover:
        """Returns the mover of a name to or from a device. Each has its own streams and staging
        memory; ``put`` uses "store", ``get`` uses "load"."""
        device = torch.empty(0, device=device).device
        if (device, name) not in self.movers:
            self.movers[device, name] = Mover(self, device)
        return self.movers[device, name]

    def warm(self, device: torch.device | str) -> None:
        """Compiles kernels and allocates staging memory on a device, which the first transfer does
        otherwise."""
        for name in ("store", "load"):
            self.mover(device, name)
        pages = torch.zeros((1, self.format.page_bytes), dtype=torch.uint8, device=device)
        format = self.format.trained(pages, self.orders[:1])
        unpack_slots(pack_pages(pages, format), format, torch.empty_like(pages))

    def train(self, pages: torch.Tensor) -> None:
        """Chooses window and order by pages, before any page is stored. Synchronises with a GPU."""
        self.format, self.untrained = self.format.trained(pages, self.orders), False

    def put(self, ids: Sequence[int], pages: torch.Tensor) -> None:
        """Stores page i of ``pages`` (any dtype and shape behind the first dimension) in slot
        ``ids[i]``. Synchronises with a GPU."""
        rows = as_pages(pages, self.format)
        if len(rows) != len(ids):
            raise ValueError(f"{len(rows)} pages for {len(ids)} slots")
        self.mover(rows.device, "store").store(ids, lambda first, to: to.copy_(rows[first : first + len(to)])).wait()

    def get(self, ids: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
        """Returns the pages of slots as rows of bytes on a device. Synchronises with a GPU.

        Raises ``KeyError`` for a slot without a page and ``PageError`` for a damaged one.
        """
        rows = torch.empty((len(ids), self.format.page_bytes), dtype=torch.uint8, device=device)
        self.mover(rows.device, "load").load(ids, lambda first, pages: rows[first : first + len(pages)].copy_(pages)).wait()
        return rows

    def drop(self, ids: Sequence[int]) -> None:
        """Empties slots."""
        for slot in ids:
            if not 0 <= slot < self.slots:
                raise IndexError(f"slot {slot} of {self.slots}")
            self.held.discard(slot)
            self.overflow.pop(slot, None)
