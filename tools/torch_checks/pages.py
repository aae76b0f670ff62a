"""Pages of keys and values in host memory."""

import torch
from buddy.kv import HostPool, PageError, PageFormat

from . import GPU, same

VALUES = 1 << 19


def contents(count, kind):
    """Returns pages on the GPU, with outlier channels or of random bits."""
    if kind == "random":
        return torch.randint(-(1 << 15), 1 << 15, (count, VALUES), dtype=torch.int32, device=GPU).to(torch.int16).view(torch.bfloat16)
    pages = torch.randn(count, VALUES, device=GPU)
    if kind == "outliers":
        pages.view(-1, 1024)[:, ::16] += 60
    return pages.bfloat16()


def check_pages_in_host_memory():
    """Pages that the GPU packed read the same on both devices, and those that the CPU packed on the GPU."""
    for first in ["normal", "outliers"]:
        pool, ids = HostPool(PageFormat(2 * VALUES), 40, orders=[(4, 16, 1024)]), list(range(39, 2, -1))
        pages = contents(37, first)
        pages[25], pages[20:23] = contents(1, "random")[0], contents(3, "normal" if first == "outliers" else "outliers")
        pool.put(ids, pages)
        assert (pool.format.order is None) == (first == "normal") and ids[25] in pool.overflow
        for device in [GPU, "cpu"]:
            same(pool.get(ids, device).view(torch.bfloat16).view(37, -1).to(GPU), pages)
        pool.put(ids[3:7], pages[3:7].cpu())
        same(pool.get(ids, GPU).view(torch.bfloat16).view(37, -1), pages)


def check_pages_in_flight():
    """Stores and loads that are under way together, while kernels overwrite blocks that are complete."""
    pool, cache = HostPool(PageFormat(2 * VALUES), 64), contents(64, "normal")
    store, load = pool.mover(GPU, "store"), pool.mover(GPU, "load")
    old, ids = cache.clone(), list(range(32))
    rows = cache.view(torch.uint8)
    gather = lambda blocks: lambda first, pages: pages.copy_(rows[blocks[first : first + len(pages)]])
    scatter = lambda blocks: lambda first, pages: rows.index_copy_(0, blocks[first : first + len(pages)], pages)
    blocks = torch.arange(64, device=GPU)
    store.store(ids, gather(blocks[:32])).wait()
    cache[:32] = 0
    # Half comes back while the other half leaves.
    transfers = [load.load(ids, scatter(blocks[:32])), store.store(list(range(32, 64)), gather(blocks[32:]))]
    for one in transfers:
        one.wait()
    cache[32:] = 0
    same(cache[:32], old[:32])
    load.load(list(range(32, 64)), scatter(blocks[32:])).wait()
    same(cache, old)
    assert all(one.seconds() > 0 for one in transfers)


def check_damaged_pages():
    """The GPU finds damage of entries, metadata, overflow and checksum."""
    pool = HostPool(PageFormat(2 * VALUES), 3)
    pages = contents(3, "normal")
    pages[1] = contents(1, "random")[0]
    pool.put([0, 1, 2], pages)
    for slot, memory, at in [(0, pool.memory[0], 5000), (0, pool.memory[0], pool.format.slot_bytes - 125), (1, pool.overflow[1], 999),
                             (2, pool.memory[2], 128 + 96 * pool.format.entries + 77)]:
        memory[at] ^= 6
        try:
            pool.get([0, 1, 2], GPU)
            raise AssertionError(f"byte {at} of slot {slot}")
        except PageError as error:
            assert f"slot {slot} " in str(error) and "1 of 3" in str(error)
        memory[at] ^= 6
    same(pool.get([0, 1, 2], GPU).view(torch.bfloat16).view(3, -1), pages)
