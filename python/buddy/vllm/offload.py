"""Keys and values in host memory at 4/3x, for vLLM's ``OffloadingConnector`` (docs/guide/vllm.md).

vLLM's own manager in the scheduler chooses a slot for each chunk of blocks, as for its CPU tier.
Here each worker packs chunks on the GPU on their way out and unpacks them on their way in
(``buddy.kv``). The KV cache on the GPU stays plain.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import torch
from vllm.config import get_current_vllm_config_or_none
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import CanonicalKVCaches, GPULoadStoreSpec, LoadStoreSpec, OffloadingWorker, TransferResult
from vllm.v1.kv_offload.config import OffloadingConfig
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

from ..kv import HostPool, Order, PageFormat, Transfer

# Under vLLM's logger: its name is below `vllm`, so that the line is shown.
logger = init_logger("vllm.buddy")


def refuse(config: OffloadingConfig) -> None:
    """Raises ``ValueError`` for a cache that is not plain bf16 keys and values. vLLM 0.26 names no
    dtype in the scheduler; its workers refuse."""
    dtype, engine = config.model.dtype, get_current_vllm_config_or_none()
    if engine is not None:
        if dtype == "auto":
            dtype = str(engine.model_config.dtype).removeprefix("torch.")
        if engine.model_config.use_mla:
            raise ValueError("BuddyOffloadingSpec: MLA caches are not supported; use CPUOffloadingSpec")
    if dtype not in ("auto", "bfloat16"):
        raise ValueError(f"BuddyOffloadingSpec: the KV cache must be bfloat16, not {dtype}; use CPUOffloadingSpec")
    if getattr(config, "canonical_layout", False):
        raise ValueError("BuddyOffloadingSpec: canonical_layout is not supported")


def format_of(config: OffloadingConfig) -> PageFormat:
    """Returns the format of chunks: all layers of ``blocks_per_chunk`` blocks on one worker."""
    chosen = {name: config.extra_config[name] for name in ["reserve"] if name in config.extra_config}
    return PageFormat(config.worker_kv_bytes_per_block * config.cache.blocks_per_chunk, **chosen)


def orders_of(config: OffloadingConfig) -> list[Order]:
    """Returns the orders to try for chunks: vLLM lays out a layer's block by tokens or by heads."""
    block, tokens, layers = config.worker_kv_bytes_per_block // 2, config.groups[0].tokens_per_block, len(config.groups[0].layer_names)
    rows = {block // (tokens * max(layers, 1)), 128, 256, 512}
    return [(config.cache.blocks_per_chunk, tokens, row) for row in sorted(rows) if row and block % (tokens * row) == 0]


class BuddyOffloadingSpec(CPUOffloadingSpec):
    """vLLM's CPU tier with packed chunks. ``cpu_bytes_to_use`` counts packed bytes of all workers.
    A further option is ``reserve`` of ``buddy.kv.PageFormat``."""

    # Slots are private to a worker: the layout of vLLM's shared memory does not matter.
    BLOCK_SIZE_ALIGNMENT = 1

    def __init__(self, config: OffloadingConfig):
        refuse(config)
        super().__init__(config)
        if config.worker_kv_bytes_per_block == 0:
            return
        self.format = format_of(config)
        self.kv_bytes_per_chunk = self.format.slot_bytes * config.parallel.world_size
        slots = int(self.extra_config["cpu_bytes_to_use"]) // self.kv_bytes_per_chunk
        # Its names in vLLM 0.26 and 0.33.
        self.num_blocks = self.num_chunks = slots
        if hasattr(self, "cpu_info"):
            self.cpu_info = type(self.cpu_info).from_config(config, slots, self.kv_bytes_per_chunk)

    def _uses_shared_region(self) -> bool:
        return False

    def create_worker(self, kv_caches: CanonicalKVCaches) -> BuddyOffloadingWorker:
        """Returns the worker of this rank, with its own host memory."""
        pool = HostPool(self.format, self.num_chunks, orders=orders_of(self.config))
        logger.info("buddy: host tier of %d chunks of %.2f MB in %.2f MB each, %.2f GB on this rank", pool.slots, self.format.page_bytes / 1e6,
                    self.format.slot_bytes / 1e6, pool.nbytes / 1e9)
        return BuddyOffloadingWorker(kv_caches, pool, self.blocks_per_chunk)


@dataclasses.dataclass
class Range:
    """Consecutive blocks of one group of layers, and the slots of their chunks. The first block is
    the ``skip``-th of its chunk."""

    group: int
    blocks: torch.Tensor
    slots: list[int]
    skip: int


@dataclasses.dataclass
class Job:
    """A transfer that vLLM asked for."""

    id: int
    bytes: int
    parts: list[Transfer]

    def done(self) -> bool:
        """Returns whether all parts are there."""
        return all(part.done() for part in self.parts)

    def wait(self) -> None:
        """Waits for all parts and completes them."""
        for part in self.parts:
            part.wait()

    def result(self) -> TransferResult:
        """Completes the job. Raises ``PageError`` for a damaged page."""
        self.wait()
        times = [part.seconds() for part in self.parts]
        return TransferResult(self.id, True, self.bytes, sum(times) if times and None not in times else None)


class BuddyOffloadingWorker(OffloadingWorker):
    """Moves chunks between this rank's KV cache and a pool. A chunk holds its blocks one after the
    other, a block the pages of its group's layers. vLLM may have made its cache in inference mode, so
    everything runs in it."""

    def __init__(self, kv_caches: CanonicalKVCaches, pool: HostPool, blocks_per_chunk: int):
        self.pool, self.blocks_per_chunk = pool, blocks_per_chunk
        self.row_bytes = pool.format.page_bytes // blocks_per_chunk
        rows = [one.tensor.view(torch.int8).view(-1, one.page_size_bytes) for one in kv_caches.tensors]
        self.device = rows[0].device
        # Layers of each group: the rows of their blocks, as words, and the offset in a chunk's row.
        self.groups = [list(self.layers(rows, group)) for group in kv_caches.group_data_refs]
        self.stores: deque[Job] = deque()
        self.loads: deque[Job] = deque()
        self.beside = 0
        pool.warm(self.device)

    def layers(self, rows, group) -> Iterator[tuple[torch.Tensor, int]]:
        """Yields the words of each layer's blocks, and the offset in words of a block's row."""
        at = 0
        for ref in group:
            if ref.page_size_bytes % 8 or at + ref.page_size_bytes > self.row_bytes:
                raise ValueError(f"BuddyOffloadingSpec: a layer's page of {ref.page_size_bytes} bytes at {at} of {self.row_bytes} does not fit")
            yield rows[ref.tensor_idx][:, : ref.page_size_bytes].view(torch.int64), at // 8
            at += ref.page_size_bytes

    def ranges(self, gpu: GPULoadStoreSpec, host: LoadStoreSpec) -> Iterator[Range]:
        """Yields the range of each group that has blocks."""
        blocks, slots = torch.as_tensor(gpu.block_ids).long(), [int(slot) for slot in host.block_ids]
        if self.device.type == "cuda":
            blocks = blocks.pin_memory().to(self.device, non_blocking=True)
        block = slot = 0
        for group, (size, index) in enumerate(zip(gpu.group_sizes, gpu.block_indices, strict=True)):
            skip = index % self.blocks_per_chunk if size else 0
            chunks = -(-(size + skip) // self.blocks_per_chunk)
            if size:
                yield Range(group, blocks[block : block + size], slots[slot : slot + chunks], skip)
            block, slot = block + size, slot + chunks
        if (block, slot) != (len(blocks), len(slots)):
            raise ValueError(f"{len(blocks)} blocks and {len(slots)} chunks, where the groups have {block} and {slot}")

    def pieces(self, of: Range, first: int, chunks: torch.Tensor):
        """Yields for each layer its words, the blocks in chunks from ``first`` on, and their rows in
        ``chunks``."""
        begin, end = first * self.blocks_per_chunk - of.skip, (first + len(chunks)) * self.blocks_per_chunk - of.skip
        blocks, pad = of.blocks[max(begin, 0) : end], max(-begin, 0)
        rows = chunks.view(torch.int64).view(-1, self.row_bytes // 8)[pad : pad + len(blocks)]
        for words, at in self.groups[of.group]:
            yield words, blocks, rows[:, at : at + words.shape[1]]

    def gather(self, of: Range, first: int, chunks: torch.Tensor) -> None:
        """Copies blocks of the KV cache to chunks."""
        for words, blocks, rows in self.pieces(of, first, chunks):
            rows.copy_(words.index_select(0, blocks))

    def scatter(self, of: Range, first: int, chunks: torch.Tensor) -> None:
        """Copies chunks to blocks of the KV cache."""
        for words, blocks, rows in self.pieces(of, first, chunks):
            words.index_copy_(0, blocks, rows)

    def job(self, job_id: int, gpu: GPULoadStoreSpec, host: LoadStoreSpec, start: Callable, move: Callable) -> Job:
        """Starts a job: ``start`` is a method of a mover, ``move`` is ``gather`` or ``scatter``."""
        ranges = list(self.ranges(gpu, host))
        size = sum(len(of.slots) for of in ranges) * self.pool.format.slot_bytes
        return Job(job_id, size, [start(of.slots, partial(move, of)) for of in ranges])

    @torch.inference_mode()
    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        """Packs blocks and copies them to the host, after the work of the current stream."""
        self.stores.append(self.job(job_id, src_spec, dst_spec, self.pool.mover(self.device, "store").store, self.gather))
        return True

    @torch.inference_mode()
    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec, expedited: bool = False) -> bool:
        """Copies chunks to the GPU and unpacks them. Expedited loads do not queue behind others."""
        mover = self.pool.mover(self.device, "expedited" if expedited else "load")
        self.loads.append(self.job(job_id, dst_spec, src_spec, mover.load, self.scatter))
        return True

    @torch.inference_mode()
    def get_finished(self) -> list[TransferResult]:
        """Returns the jobs that have ended. Raises ``PageError`` for a damaged page."""
        found = []
        for jobs in [self.stores, self.loads]:
            while jobs and jobs[0].done():
                found.append(jobs.popleft().result())
        self.report()
        return found

    def report(self) -> None:
        """Logs whenever the overflow beside the slots has doubled."""
        beside = self.pool.nbytes - self.pool.memory.numel()
        if beside > max(2 * self.beside, self.pool.memory.numel() // 100):
            self.beside = beside
            logger.warning("buddy: %.2f GB of overflow lie beside the slots of %.2f GB: raise `reserve` (%.4f)",
                           beside / 1e9, self.pool.memory.numel() / 1e9, self.pool.format.reserve)

    @torch.inference_mode()
    def wait(self, job_ids: set[int]) -> None:
        """Waits for jobs, so that their blocks may be written again."""
        for job in [*self.stores, *self.loads]:
            if job.id in job_ids:
                job.wait()

    @torch.inference_mode()
    def shutdown(self) -> None:
        """Waits for all jobs and frees the host memory."""
        for job in [*self.stores, *self.loads]:
            job.wait()
        self.stores.clear()
        self.loads.clear()
        self.pool.close()
