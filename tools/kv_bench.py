#!/usr/bin/env python3
"""Times a host tier of packed keys and values (`buddy.kv`) beside plain pinned copies, in one run.

    tools/kv_bench.py --check                          32 K tokens of Llama 8B's shapes on a GPU
    tools/kv_bench.py --device cpu --tokens 256        tries the program without a GPU; the times mean nothing

Needs PyTorch and buddy alone. Prints JSON: GB/s are plain bytes per second, times are medians. The
KV cache on the GPU has blocks of 16 tokens with all layers, as vLLM's for its connector. Plain
copies are one per block (as vLLM's CPU tier), and one for all of it (the link's speed). `--check`
compares every block with what was stored, unpacks a page on the CPU, and damages slots. `--outliers`
makes every 32nd channel large, so that pages are packed by channel.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from buddy.kv import HostPool, PageError, PageFormat, pack_pages, unpack_pages
from buddy.kv.pages import unpack_slots

LAYERS, HEADS, HEAD, BLOCK = 32, 8, 128, 16
BLOCK_VALUES = LAYERS * BLOCK * HEADS * 2 * HEAD
REPEATS = 5


class Bench:
    """A KV cache on a device, stored blocks and free ones, and host memory: plain and packed."""

    def __init__(self, tokens, blocks_per_chunk, device, outliers):
        self.device, self.size, self.blocks = torch.device(device), blocks_per_chunk, tokens // BLOCK
        if self.blocks % blocks_per_chunk or not self.blocks:
            sys.exit(f"{tokens} tokens are not whole chunks of {blocks_per_chunk * BLOCK}")
        # Half of the blocks, in random order, hold the tokens; they are restored to the others.
        order = torch.randperm(2 * self.blocks)
        self.source, self.target = (order[half :: 2].to(device) for half in (0, 1))
        self.cache = torch.empty(2 * self.blocks, BLOCK_VALUES, dtype=torch.bfloat16, device=device)
        for one in self.cache:
            one.normal_()
            if outliers:
                one.view(-1, 2 * HEAD * HEADS)[:, ::32] += 60
        self.words = self.cache.view(torch.int64)
        self.pool = HostPool(PageFormat(2 * BLOCK_VALUES * blocks_per_chunk), self.blocks // blocks_per_chunk, orders=[(blocks_per_chunk, BLOCK, 2 * HEAD * HEADS)])
        self.pool.warm(device)
        self.plain = torch.empty(self.blocks, self.words.shape[1], dtype=torch.int64, pin_memory=self.device.type == "cuda")
        self.ids = list(range(self.pool.slots))

    def sync(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(self, call):
        """Returns the median seconds of a call until its work is done, and until it returns."""
        done, returned = [], []
        for _ in range(REPEATS + 1):
            self.sync()
            begin = time.perf_counter()
            after = call()
            returned.append(time.perf_counter() - begin)
            if after is not None:
                after()
            self.sync()
            done.append(time.perf_counter() - begin)
        return statistics.median(done[1:]), statistics.median(returned[1:])

    def store(self):
        blocks = self.source.view(-1, self.size)
        gather = lambda first, pages: pages.view(torch.int64).view(-1, self.words.shape[1]).copy_(
            self.words.index_select(0, blocks[first : first + len(pages)].reshape(-1)))
        return self.pool.mover(self.device, "store").store(self.ids, gather).wait

    def load(self):
        blocks = self.target.view(-1, self.size)
        scatter = lambda first, pages: self.words.index_copy_(0, blocks[first : first + len(pages)].reshape(-1), pages.view(torch.int64).view(-1, self.words.shape[1]))
        return self.pool.mover(self.device, "load").load(self.ids, scatter).wait

    def plain_store(self):
        for at, block in enumerate(self.source_list):
            self.plain[at].copy_(self.words[block], non_blocking=True)

    def plain_load(self):
        for at, block in enumerate(self.target_list):
            self.words[block].copy_(self.plain[at], non_blocking=True)

    def whole_store(self):
        self.plain.copy_(self.words[: self.blocks], non_blocking=True)

    def whole_load(self):
        self.words[self.blocks :].copy_(self.plain, non_blocking=True)

    def rates(self):
        """Returns GB/s of packing and unpacking on the device, checksums included."""
        count = max(1, min(self.pool.slots, (256 << 20) // self.pool.format.page_bytes))
        pages = self.cache.view(torch.uint8).view(-1, self.pool.format.page_bytes)[:count].clone()
        slots, found, rates = pack_pages(pages, self.pool.format), torch.empty_like(pages), {}
        for name, call in [("pack", lambda: pack_pages(pages, self.pool.format, slots)), ("unpack", lambda: unpack_slots(slots, self.pool.format, found))]:
            rates[name] = pages.numel() / self.timed(lambda: void(call()))[0] / 1e9
        return rates

    def measure(self):
        """Returns all times and rates."""
        self.source_list, self.target_list = self.source.tolist(), self.target.tolist()
        size, result = 8 * self.plain.numel(), {}
        for name in ["store", "load"]:
            for kind, call in [("packed", getattr(self, name)), ("plain_blocks", getattr(self, f"plain_{name}")), ("plain_whole", getattr(self, f"whole_{name}"))]:
                done, returned = self.timed(call)
                result[f"{name}_{kind}"] = {"ms": 1e3 * done, "GB/s": size / done / 1e9, "submit_ms": 1e3 * returned}
            packed = result[f"{name}_packed"]["ms"]
            result[f"{name}_speed"] = {kind: result[f"{name}_{kind}"]["ms"] / packed for kind in ("plain_blocks", "plain_whole")}
        result["kernels_GB/s"] = self.rates()
        result["capacity"] = size / self.pool.nbytes
        result["pool"] = {"pages": self.pool.slots, "page_bytes": self.pool.format.page_bytes, "slot_bytes": self.pool.format.slot_bytes,
                          "window": self.pool.format.window, "order": self.pool.format.order, "pages_with_overflow_beside": len(self.pool.overflow)}
        return result

    def check(self):
        """Raises AssertionError unless every bit is right and damage is found."""
        bits, page = self.cache.view(torch.int16), self.source[: self.size]
        random = torch.randint(-(1 << 15), 1 << 15, (self.size, BLOCK_VALUES), dtype=torch.int32, device=self.device).to(torch.int16)
        random[0, :7] = torch.tensor([0x7F80, -0x80, 0x7FC0, 0x7F81, 0, -0x8000, 1]).to(torch.int16)
        bits[page] = random
        bits[self.target] = 0
        self.store()()
        self.load()()
        for source, target in zip(self.source.tolist(), self.target.tolist()):
            assert torch.equal(bits[source], bits[target]), f"block {source} differs"
        assert list(self.pool.overflow) == [0], "the random page alone overflows"
        mine = self.cache[self.source[self.size : 2 * self.size]].view(torch.uint8).view(1, -1) if self.pool.slots > 1 else random.view(torch.uint8).view(1, -1)
        packed = pack_pages(mine, self.pool.format).cpu()
        assert torch.equal(unpack_pages(packed, self.pool.format), mine.cpu()), "the CPU reads what the GPU packed"
        damage = {slot: memory for slot, memory in [(0, self.pool.overflow[0]), (self.pool.slots - 1, self.pool.memory[-1])]}
        for slot, memory in damage.items():
            memory[5000] ^= 16
            try:
                self.pool.get([slot], self.device)
                raise AssertionError(f"damage of slot {slot} was not found")
            except PageError:
                memory[5000] ^= 16
            self.pool.get([slot], self.device)
        return {"blocks_compared": self.blocks, "damages_found": len(damage)}


def void(_):
    """Drops a result, so that `timed` does not call it."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--blocks-per-chunk", type=int, default=4, help="blocks of 16 tokens in a page")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--check", action="store_true", help="compare bits, too")
    parser.add_argument("--outliers", action="store_true", help="keys and values with large channels")
    asked = parser.parse_args()
    torch.manual_seed(1)
    begin = time.perf_counter()
    bench = Bench(asked.tokens, asked.blocks_per_chunk, asked.device, asked.outliers)
    name = torch.cuda.get_device_name() if bench.device.type == "cuda" else "CPU"
    result = {"device": name, "torch": torch.__version__, "tokens": asked.tokens, "plain_bytes": 8 * bench.plain.numel(), **bench.measure()}
    if asked.check:
        result["check"] = bench.check()
    result["seconds"] = time.perf_counter() - begin
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
