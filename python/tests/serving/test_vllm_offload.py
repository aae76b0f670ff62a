"""The host tier of vLLM's OffloadingConnector with packed chunks, on CPU tensors: vLLM's manager, our
spec and worker, random loads of blocks, and every block compared."""

import dataclasses
import inspect
import json
import pathlib
import random
import re
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")

import torch
from buddy.kv import PageError
from buddy.vllm import offload
from buddy.vllm.offload import BuddyOffloadingSpec
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.v1 import kv_cache_interface as kv
from vllm.v1.kv_offload import config as kv_config
from vllm.v1.kv_offload.base import (
    CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor, GPULoadStoreSpec, LookupResult, OffloadingWorker, ReqContext,
    make_offload_key,
)
from vllm.v1.kv_offload.factory import OffloadingSpecFactory

LAYERS, BLOCK = 3, 2 * 16 * 2 * 64
PAGE = 2 * BLOCK


def made(cls, **fields):
    """Makes a dataclass of vLLM; the fields differ between its versions."""
    known = {one.name for one in dataclasses.fields(cls)}
    rest = {one.name: 0 for one in dataclasses.fields(cls) if one.default is dataclasses.MISSING}
    return cls(**{**rest, **{name: value for name, value in fields.items() if name in known}})


def config(blocks_per_chunk=1, dtype="bfloat16", chunks=8, groups=1, world=1, **extra):
    """Returns the configuration of a spec whose host memory holds `chunks` chunks."""
    asked = made(
        kv_config.OffloadingConfig, groups=tuple(made(kv_config.OffloadingGroupConfig, tokens_per_block=16, layer_names=("a",)) for _ in range(groups)),
        worker_kv_bytes_per_block=LAYERS * PAGE, enable_kv_cache_events=False, engine_id="one",
        extra_config={"spec_name": "BuddyOffloadingSpec", "spec_module_path": "buddy.vllm.offload", "cpu_bytes_to_use": 1 << 30, **extra},
        model=made(kv_config.OffloadingModelConfig, name="model", dtype=dtype, max_model_len=64), replicated_layout=False, canonical_layout=False,
        cache=made(kv_config.OffloadingCacheConfig, tokens_per_hash=16, blocks_per_chunk=blocks_per_chunk),
        parallel=made(kv_config.OffloadingParallelConfig, world_size=world))
    slot = offload.format_of(asked).slot_bytes
    return dataclasses.replace(asked, extra_config={**asked.extra_config, "cpu_bytes_to_use": world * (chunks * slot + slot // 2)})


def spec(**options):
    return OffloadingSpecFactory.create_spec(config(**options))


def layer(values):
    return values.view(torch.int8).view(len(values), PAGE)


def separate(blocks):
    """A tensor for each layer."""
    values = [torch.randn(blocks, BLOCK).bfloat16() for _ in range(LAYERS)]
    tensors = [CanonicalKVCacheTensor(layer(one), PAGE) for one in values]
    return values, CanonicalKVCaches(tensors, [[CanonicalKVCacheRef(i, PAGE) for i in range(LAYERS)]])


def joined(blocks):
    """One tensor that holds all layers of a block, as vLLM 0.26 allocates for the connector."""
    whole = torch.randn(blocks, LAYERS, BLOCK).bfloat16()
    tensor = CanonicalKVCacheTensor(whole.view(torch.int8).view(blocks, LAYERS * PAGE), LAYERS * PAGE)
    return list(whole.unbind(1)), CanonicalKVCaches([tensor], [[CanonicalKVCacheRef(0, LAYERS * PAGE)]])


def strided(blocks):
    """Layers interleaved in each block, and padding behind each layer's page."""
    whole = torch.randn(blocks, LAYERS, BLOCK + 64).bfloat16()
    raw = whole.view(torch.int8)
    tensors = [CanonicalKVCacheTensor(raw[:, i], PAGE + 128) for i in range(LAYERS)]
    return list(whole[:, :, :BLOCK].unbind(1)), CanonicalKVCaches(tensors, [[CanonicalKVCacheRef(i, PAGE) for i in range(LAYERS)]])


class Engine:
    """Does what vLLM's scheduler does with a spec: stores chunks of known content by key, loads
    them to random blocks, and overwrites blocks as soon as their transfers are complete."""

    BLOCKS = 40

    def __init__(self, spec, make):
        self.manager, self.size = spec.get_manager(), spec.blocks_per_chunk
        self.layers, caches = make(self.BLOCKS)
        self.worker = spec.create_worker(caches)
        self.jobs, self.request = 0, ReqContext("request")

    def random_content(self, draw, blocks):
        for values in self.layers:
            for block in blocks:
                values[block] = torch.randn(BLOCK).bfloat16() * 2.0 ** draw.randrange(-20, 20)
                if draw.random() < 0.1:
                    values[block] = torch.randint(-(1 << 15), 1 << 15, (BLOCK,), dtype=torch.int16).view(torch.bfloat16)

    def content(self, blocks):
        return torch.stack([values[blocks].view(torch.int16) for values in self.layers])

    def finish(self):
        """Takes the results of all jobs; returns how many there were."""
        found = self.worker.get_finished()
        assert all(one.success and one.transfer_size > 0 for one in found)
        return [one.job_id for one in found]

    def store(self, keys, blocks):
        prepared = self.manager.prepare_store(keys, self.request)
        if prepared is None:
            return []
        chunks = [blocks[keys.index(key) * self.size :][: self.size] for key in prepared.keys_to_store]
        self.jobs += 1
        flat = [block for chunk in chunks for block in chunk]
        if flat:
            self.worker.submit_store(self.jobs, GPULoadStoreSpec(flat, [len(flat)], [0]), prepared.store_spec)
            self.worker.wait({self.jobs})
            assert self.finish() == [self.jobs]
        self.manager.complete_store(prepared.keys_to_store, self.request)
        return prepared.keys_to_store

    def load(self, keys, blocks, skip=0):
        source = self.manager.prepare_load(keys, self.request)
        self.jobs += 1
        self.worker.submit_load(self.jobs, source, GPULoadStoreSpec(blocks, [len(blocks)], [skip]))
        self.worker.wait({self.jobs})
        assert self.finish() == [self.jobs]
        self.manager.complete_load(keys, self.request)


@pytest.mark.parametrize("make", [separate, joined, strided])
@pytest.mark.parametrize("blocks_per_chunk", [1, 3])
def test_every_block_survives_eviction_preemption_and_reuse(make, blocks_per_chunk):
    """Keys that the manager still has give the blocks that were stored, whatever was evicted."""
    draw, stored, evicted = random.Random(blocks_per_chunk), {}, 0
    engine = Engine(spec(blocks_per_chunk=blocks_per_chunk), make)
    for turn in range(60):
        count = draw.randrange(1, 4)
        blocks = draw.sample(range(engine.BLOCKS), count * blocks_per_chunk)
        engine.random_content(draw, blocks)
        keys = [make_offload_key(f"{turn} {i}".encode(), 0) for i in range(count)]
        before = engine.content(blocks).view(LAYERS, count, -1)
        for key in engine.store(keys, blocks):
            stored[key] = before[:, keys.index(key)]
        engine.random_content(draw, range(engine.BLOCKS))
        found = [key for key in stored if engine.manager.lookup(key, engine.request) == LookupResult.HIT]
        evicted += len(stored) - len(found)
        stored = {key: stored[key] for key in found}
        wanted = draw.sample(found, draw.randrange(1, min(6, len(found)) + 1))
        into = draw.sample(range(engine.BLOCKS), len(wanted) * blocks_per_chunk)
        others = [block for block in range(engine.BLOCKS) if block not in into]
        rest = engine.content(others)
        engine.load(wanted, into)
        assert torch.equal(engine.content(into).view(LAYERS, len(wanted), -1), torch.stack([stored[key] for key in wanted], 1))
        assert torch.equal(engine.content(others), rest), "no other block is written"
    assert evicted > 20 and len(stored) <= 8 and engine.worker.pool.overflow


def test_parts_of_chunks_are_loaded():
    engine = Engine(spec(blocks_per_chunk=4), joined)
    keys, blocks = [make_offload_key(bytes([i]), 0) for i in range(3)], list(range(12))
    before = engine.content(blocks)
    engine.store(keys, blocks)
    for skip, count in [(0, 12), (1, 11), (3, 2), (2, 7), (0, 1), (3, 1)]:
        engine.random_content(random.Random(1), blocks)
        into, chunks = list(range(20, 20 + count)), keys[: -(-(skip + count) // 4)]
        rest = engine.content([*range(20), *range(20 + count, 40)])
        engine.load(chunks, into, skip)
        assert torch.equal(engine.content(into), before[:, skip : skip + count]), (skip, count)
        assert torch.equal(engine.content([*range(20), *range(20 + count, 40)]), rest)


def test_groups_of_layers_have_their_own_chunks():
    values, caches = separate(8)
    caches.group_data_refs = [caches.group_data_refs[0], caches.group_data_refs[0][:2]]
    worker = spec(groups=2).create_worker(caches)
    before = [one.clone() for one in values]
    host = type("Slots", (), {})()
    host.block_ids = [0, 1, 2]
    worker.submit_store(1, GPULoadStoreSpec([1, 2, 5], [2, 1], [0, 0]), host)
    worker.get_finished()
    for one in values:
        one.zero_()
    worker.submit_load(2, host, GPULoadStoreSpec([3, 4, 0], [2, 1], [0, 0]))
    assert [one.job_id for one in worker.get_finished()] == [2]
    for i, one in enumerate(values):
        assert torch.equal(one[[3, 4]], before[i][[1, 2]]) and torch.equal(one[0], before[i][5] * (i < 2))
    with pytest.raises(ValueError, match="3 blocks and 2 chunks"):
        host.block_ids = [0, 1]
        worker.submit_load(3, host, GPULoadStoreSpec([3, 4, 0], [2, 1], [0, 0]))


def engine_config(**extra):
    """Returns the parts of vLLM's configuration that its connector reads."""
    one = {name: 1 for name in ["decode_context_parallel_size", "tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size",
                                "world_size", "data_parallel_size", "nnodes_within_dp", "cp_kv_cache_interleave_size"]}
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(kv_connector_extra_config=extra, engine_id="one"), kv_events_config=None, use_v2_model_runner=False,
        parallel_config=SimpleNamespace(rank=0, data_parallel_index=0, data_parallel_rank_local=None, distributed_executor_backend=None, **one),
        cache_config=SimpleNamespace(block_size=16, prefix_match_unit=None, enable_prefix_caching=True, cache_dtype="auto", kv_cache_layout="LBNHC"),
        model_config=SimpleNamespace(model="model", dtype=torch.bfloat16, use_mla=False, max_model_len=640, get_total_num_kv_heads=lambda: 2))


def cache_config(blocks):
    """Returns vLLM's description of a cache of three layers of full attention."""
    names, whole = ["a", "b", "c"], LAYERS * PAGE * blocks
    if "layers" in inspect.signature(kv.KVCacheTensor).parameters:
        tensors = [kv.KVCacheTensor(size=whole, layers=names, layer_stride=PAGE * blocks, block_stride=PAGE)]
    else:
        tensors = [kv.KVCacheTensor(size=PAGE * blocks, shared_by=[name]) for name in names]
    group = kv.KVCacheGroupSpec(names, kv.FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.bfloat16))
    return kv.KVCacheConfig(num_blocks=blocks, kv_cache_tensors=tensors, kv_cache_groups=[group])


def test_the_connector_of_vllm_registers_its_caches(monkeypatch):
    """Sizes that vLLM's connector computes and the tensors that it makes fit together."""
    blocks, engine = 10, engine_config(spec_name="BuddyOffloadingSpec", spec_module_path="buddy.vllm.offload", cpu_bytes_to_use=1 << 20, block_size=32)
    caches = cache_config(blocks)
    made = OffloadingSpecFactory.create_spec(build_offloading_config(engine, caches))
    assert made.format.page_bytes == 2 * LAYERS * PAGE and made.blocks_per_chunk == 2
    # vLLM offers its CPU tier beside GPUs alone.
    monkeypatch.setattr(made, "get_worker", made.create_worker)
    parts = {"spec": made, "vllm_config": engine, "kv_cache_config": caches}
    worker = OffloadingConnectorWorker(*[parts[name] for name in inspect.signature(OffloadingConnectorWorker).parameters])
    with torch.inference_mode():
        whole = torch.randn(LAYERS, blocks, 2, 16, 128).bfloat16()
        worker.register_kv_caches(dict(zip("abc", whole.view(LAYERS, blocks, 16, 2, 128))))
    before, host = whole.view(torch.int16).clone(), SimpleNamespace(block_ids=[3, 1])
    worker.worker.submit_store(1, GPULoadStoreSpec([4, 2, 9, 7], [4], [0]), host)
    assert [one.job_id for one in worker.worker.get_finished()] == [1]
    worker.worker.submit_load(2, host, GPULoadStoreSpec([0, 1, 3, 5], [4], [0]))
    assert [one.job_id for one in worker.worker.get_finished()] == [2]
    assert torch.equal(whole.view(torch.int16)[:, [0, 1, 3, 5]], before[:, [4, 2, 9, 7]])
    if "expedited" in inspect.signature(OffloadingWorker.submit_load).parameters:
        worker.worker.submit_load(3, SimpleNamespace(block_ids=[3]), GPULoadStoreSpec([8], [1], [1]), expedited=True)
        worker.worker.wait({3})
        assert torch.equal(whole.view(torch.int16)[:, 8], before[:, 2]) and len(worker.worker.pool.movers) == 3
    worker.shutdown()


def test_a_damaged_page_is_an_error_that_names_its_slot():
    engine = Engine(spec(), joined)
    engine.store([make_offload_key(b"key", 0)], [7])
    engine.worker.pool.memory[0, 200] ^= 4
    with pytest.raises(PageError, match="slot 0"):
        engine.load([make_offload_key(b"key", 0)], [7])


def test_host_memory_holds_a_third_more_chunks():
    world, memory, asked = 2, 1 << 30, config(world=2, blocks_per_chunk=64)
    assert OffloadingSpecFactory.create_spec(asked).num_blocks == 8
    packed = OffloadingSpecFactory.create_spec(dataclasses.replace(asked, extra_config={**asked.extra_config, "cpu_bytes_to_use": memory}))
    assert packed.num_blocks == packed.num_chunks > 1.32 * (memory // (64 * LAYERS * PAGE * world))
    assert packed.num_blocks * packed.format.slot_bytes * world <= memory


def test_overflow_beside_the_slots_is_logged_once_until_it_doubles(monkeypatch):
    said = []
    monkeypatch.setattr(offload.logger, "warning", lambda text, *values: said.append(text % values))
    engine = Engine(spec(), joined)
    engine.store([make_offload_key(b"fits", 0)], [0])
    assert not said
    for values in engine.layers:
        values[:] = torch.randint(-(1 << 15), 1 << 15, values.shape, dtype=torch.int16).view(torch.bfloat16)
    for key in range(4):
        engine.store([make_offload_key(bytes([key]), 0)], [key])
    assert len(said) == 2 and "`reserve` (0.0078)" in said[0]


@pytest.mark.parametrize("options, reason", [({"dtype": "float16"}, "must be bfloat16, not float16"), ({"dtype": "fp8_e4m3"}, "not fp8_e4m3"),
                                             ({"reserve": 2}, "reserve from 0 to 1")])
def test_other_dtypes_and_bad_options_are_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        spec(**options)


@pytest.mark.parametrize("dtype, mla, reason", [(torch.float16, False, "not float16"), (torch.bfloat16, True, "MLA"), (torch.bfloat16, False, None)])
def test_workers_refuse_what_the_scheduler_cannot_see(monkeypatch, dtype, mla, reason):
    model = type("Model", (), {"dtype": dtype, "use_mla": mla})
    monkeypatch.setattr(offload, "get_current_vllm_config_or_none", lambda: type("Config", (), {"model_config": model}))
    if reason is None:
        assert spec(dtype="auto").num_chunks == 8
        return
    with pytest.raises(ValueError, match=reason):
        spec(dtype="auto")


def test_the_line_of_the_guide_names_the_spec():
    guide = (pathlib.Path(__file__).parents[3] / "docs/guide/vllm.md").read_text()
    (line,) = re.findall(r"--kv-transfer-config '(.*?)'", guide, re.DOTALL)
    extra = json.loads(line)["kv_connector_extra_config"]
    assert OffloadingSpecFactory.get_spec_cls(extra) is BuddyOffloadingSpec and extra["cpu_bytes_to_use"] > 0
