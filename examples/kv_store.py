"""A store of keys and values by the hash of their tokens, in host memory at 4/3x: the part that a
cache server such as LMCache has, with `buddy.kv`. The least recently used chunk is evicted."""

from collections import OrderedDict

import torch
from buddy.kv import HostPool, PageFormat


class Store:
    """Chunks of bf16 keys and values, all of one shape, in `nbytes` bytes of host memory."""

    def __init__(self, shape: tuple[int, ...], nbytes: int):
        self.shape = shape
        format = PageFormat(2 * torch.Size(shape).numel())
        self.pool = HostPool(format, nbytes // format.slot_bytes)
        self.slots: OrderedDict[int, int] = OrderedDict()  # of a hash; the oldest first
        self.free = list(range(self.pool.slots))

    def put(self, chunks: dict[int, torch.Tensor]) -> None:
        """Stores chunks by hash, from a GPU or the CPU."""
        chunks = {key: chunk for key, chunk in chunks.items() if key not in self.slots}
        while len(self.free) < len(chunks):
            self.free.append(self.slots.popitem(last=False)[1])
        self.slots |= {key: self.free.pop() for key in chunks}
        self.pool.put([self.slots[key] for key in chunks], torch.stack(list(chunks.values())))

    def get(self, keys: list[int], device: str) -> torch.Tensor:
        """Returns the chunks of hashes that are in `slots`, bit for bit."""
        for key in keys:
            self.slots.move_to_end(key)
        pages = self.pool.get([self.slots[key] for key in keys], device)
        return pages.view(torch.bfloat16).view(len(keys), *self.shape)


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = (4, 2, 64, 8, 128)  # layers, keys and values, tokens, heads, head dimension
    plain = 2 * torch.Size(shape).numel()
    store, chunks = Store(shape, 6 * plain), {key: torch.randn(shape, device=device).bfloat16() for key in range(10)}
    for key, chunk in chunks.items():
        store.put({key: chunk})
    kept = list(store.slots)
    assert torch.equal(store.get(kept, device), torch.stack([chunks[key] for key in kept]))
    print(f"{len(kept)} chunks where {6 * plain // plain} fit plain: {kept}")
