"""Pages of bf16 keys and values at 4/3x in slots of a fixed size: a host tier of a KV cache.

    pool = HostPool(PageFormat(page_bytes=2 << 20), slots=1000)
    pool.put([3, 4], pages)          # two pages of any shape, on a GPU or the CPU
    pages = pool.get([3, 4], "cuda")

A slot is a frozen buffer (docs/reference/format.md) with room for the overflow of a share of its
entries, and a checksum of the page's plain bytes. A page with more overflow keeps it beside its
slot, so every page can be stored and every bit comes back. The GPU packs and unpacks; the link and
the host carry three quarters of the bytes. ``buddy.vllm.offload`` uses it for vLLM.
"""

from .pages import Order, PageError, PageFormat, checksums, fits, pack_apart, pack_pages, unpack_apart, unpack_pages
from .pool import HostPool
from .transfer import Mover, Transfer

__all__ = ["HostPool", "Mover", "Order", "PageError", "PageFormat", "Transfer", "checksums", "fits", "pack_apart", "pack_pages", "unpack_apart",
           "unpack_pages"]
