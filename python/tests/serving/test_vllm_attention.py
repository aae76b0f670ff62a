"""Attention over packed pages in vLLM, on the CPU: vLLM's own layers, specs and allocation, random
schedules of prompts, chunks, decoding, shared prefixes, preemption and reuse of blocks."""

import inspect
import pathlib
import random
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import block
import torch
from buddy import _native
from buddy.vllm import attention, register
from buddy.vllm.pages import LayerPages, attend_plain, token_bytes
from vllm.config import set_current_vllm_config
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.attention.attention import Attention
from vllm.platforms.interface import DeviceCapability
from vllm.v1 import kv_cache_interface as kv
from vllm.v1.attention.backend import AttentionBackend, CommonAttentionMetadata
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.worker import utils

register()
HOPPER, LONGEST = DeviceCapability(9, 0), 96
IS_NEW = hasattr(AttentionBackend, "customize_spec")


@pytest.fixture(scope="session", autouse=True)
def group():
    block.join_group()


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


def configuration(block_size=16, **more):
    config = block.vllm_config()
    config.model_config = SimpleNamespace(max_model_len=LONGEST, dtype=torch.bfloat16, is_mm_prefix_lm=False, is_hybrid=False)
    config.cache_config.block_size = block_size
    if IS_NEW:
        config.cache_config.kv_cache_layout = "LBNHC"
    for name, value in more.items():
        setattr(config, name, value)
    return config


def make_layers(config, count, heads, kv_heads, head, **more):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with set_current_vllm_config(config):
            return [Attention(heads, head, head**-0.5, kv_heads, prefix=f"model.layers.{i}.attn", attn_backend=attention.BuddyAttentionBackend,
                              cache_config=config.cache_config, **more) for i in range(count)]
    finally:
        torch.set_default_dtype(before)


def spec_of(layer, config):
    spec = layer.get_kv_cache_spec(config)
    return utils.customize_attention_spec(layer.get_attn_backend(), spec) if IS_NEW else spec


def allocate(layers, config, blocks):
    """Allocates and binds the layers' caches as vLLM's workers do; returns the number of blocks."""
    specs = [spec_of(layer, config) for layer in layers]
    names = [layer.layer_name for layer in layers]
    groups = [kv.KVCacheGroupSpec(names, type(specs[0]).merge(specs))]
    memory = blocks * len(layers) * groups[0].kv_cache_spec.page_size_bytes
    if IS_NEW:
        from vllm.v1.core.kv_cache_planning import get_kv_cache_config_from_groups

        made = get_kv_cache_config_from_groups(config, groups, memory)
        caches = utils.allocate_kv_cache(made, torch.device("cpu"), config.cache_config.get_resolved_kv_cache_layout(), [config.cache_config.block_size])
    else:
        from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups
        from vllm.v1.worker.gpu import attn_utils

        made = get_kv_cache_config_from_groups(config, groups, memory)
        raw = attn_utils._allocate_kv_cache(made, {}, torch.device("cpu"))
        attn = [utils.AttentionGroup(attention.BuddyAttentionBackend, names, groups[0].kv_cache_spec, 0)]
        caches = attn_utils._reshape_kv_cache(attn, raw, "auto", [config.cache_config.block_size], {})
    for layer in layers:
        layer.kv_cache = caches[layer.layer_name]
    return made.num_blocks, groups[0].kv_cache_spec


class Sequence:
    """Plain keys and values of all layers: (layers, 2, tokens, heads, head dimension). ``done``
    tokens are in the cache."""

    def __init__(self, plain):
        self.plain, self.done, self.blocks = plain, 0, []


class Engine:
    """Does what vLLM's scheduler and runner do with a backend: batches with decoding first, full
    blocks shared between sequences with the same prefix, sequences that lose their blocks."""

    LAYERS, TOKENS = 2, 256

    def __init__(self, head, kv_heads, group, block_size, seed):
        self.draw, self.size, self.config = random.Random(seed), block_size, configuration(block_size)
        self.kv_heads, self.head, self.heads = kv_heads, head, kv_heads * group
        self.layers = make_layers(self.config, self.LAYERS, self.heads, kv_heads, head)
        blocks, spec = allocate(self.layers, self.config, self.TOKENS // block_size)
        self.users = [0] * blocks
        names = [layer.layer_name for layer in self.layers]
        self.builder = attention.BuddyMetadataBuilder(spec, names, self.config, torch.device("cpu"))
        self.sequences, self.counts = [], {"decode": 0, "fresh": 0, "history": 0, "shared": 0, "preempted": 0}

    def random_plain(self, tokens):
        plain = torch.randn(self.LAYERS, 2, tokens, self.kv_heads, self.head)
        plain[:, 0, :, :, self.draw.randrange(self.head)] += self.draw.choice([0, 20.0])
        plain *= 2.0 ** self.draw.randrange(-3, 3)
        plain[self.draw.randrange(self.LAYERS), 1, :: self.draw.randrange(2, 9)] = 0
        return plain.bfloat16()

    def add(self):
        found = Sequence(self.random_plain(self.draw.randrange(2, LONGEST)))
        owner = max(self.sequences, key=lambda one: one.done, default=None)
        shared = min(owner.done, found.plain.shape[2] - 1) // self.size if owner and self.draw.random() < 0.6 else 0
        if shared:
            found.done, found.blocks = shared * self.size, owner.blocks[:shared]
            found.plain[:, :, : found.done] = owner.plain[:, :, : found.done]
            for one in found.blocks:
                self.users[one] += 1
            self.counts["shared"] += 1
        self.sequences.append(found)

    def release(self, sequence):
        for one in sequence.blocks:
            self.users[one] -= 1
        sequence.blocks, sequence.done = [], 0

    def grow(self, sequence, tokens):
        """Gives a sequence blocks for more tokens, at the cost of those outside the batch; returns
        whether there were enough."""
        while len(sequence.blocks) * self.size < sequence.done + tokens:
            free = [i for i, users in enumerate(self.users) if users == 0 and i > 0]
            if not free:
                victims = [one for one in self.sequences if one.blocks and one not in self.batch]
                if not victims:
                    return False
                self.release(self.draw.choice(victims))
                self.counts["preempted"] += 1
                continue
            sequence.blocks.append(self.draw.choice(free))
            self.users[sequence.blocks[-1]] += 1
        return True

    def step(self):
        """Serves one batch and compares every output and every page."""
        self.batch = []
        for sequence in self.draw.sample(self.sequences, min(len(self.sequences), self.draw.randrange(1, 4))):
            left = sequence.plain.shape[2] - sequence.done
            if left == 0:
                continue
            tokens = 1 if sequence.done and self.draw.random() < 0.6 else self.draw.randrange(1, left + 1)
            self.batch.append(sequence)
            sequence.tokens = tokens
            if not self.grow(sequence, tokens):
                self.batch.remove(sequence)
        self.batch.sort(key=lambda one: one.tokens > 1)
        if self.batch:
            self.serve()

    def serve(self):
        tokens = [one.tokens for one in self.batch]
        starts = torch.tensor([0, *tokens]).cumsum(0).int()
        lengths = torch.tensor([one.done + one.tokens for one in self.batch], dtype=torch.int32)
        table = torch.randint(0, len(self.users), (len(self.batch), -(-LONGEST // self.size)), dtype=torch.int32)
        for row, one in zip(table, self.batch):
            row[: len(one.blocks)] = torch.tensor(one.blocks)
        slots = [one.blocks[at // self.size] * self.size + at % self.size for one in self.batch for at in range(one.done, one.done + one.tokens)]
        # vLLM pads batches: these rows have no slot, and their output is not read.
        pad = self.draw.randrange(3)
        slots = torch.tensor(slots + [-1] * pad)
        common = CommonAttentionMetadata(
            query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=lengths, num_reqs=len(tokens), num_actual_tokens=sum(tokens),
            max_query_len=max(tokens), max_seq_len=int(lengths.max()), block_table_tensor=table, slot_mapping=slots, seq_lens_cpu_upper_bound=lengths)
        metadata = self.builder.build(0, common)
        self.counts["decode"] += metadata.decodes
        for prefill in metadata.prefills:
            self.counts["fresh" if prefill.sequence is None else "history"] += 1
        names = [layer.layer_name for layer in self.layers]
        with set_forward_context(dict.fromkeys(names, metadata), self.config, slot_mapping=dict.fromkeys(names, slots)):
            for number, layer in enumerate(self.layers):
                # As a fused QKV layer writes them: rows with all heads of queries, keys and values.
                rows = torch.randn(sum(tokens) + pad, (self.heads + 2 * self.kv_heads) * self.head).bfloat16()
                query, key, value = rows.split([self.heads * self.head, *[self.kv_heads * self.head] * 2], 1)
                plain = torch.cat([one.plain[number, :, one.done : one.done + one.tokens] for one in self.batch], 1)
                key[: sum(tokens)], value[: sum(tokens)] = plain.flatten(2)
                out = layer(query, key, value)[: sum(tokens)].view(-1, self.heads, self.head)
                self.compare(number, query.view(-1, self.heads, self.head), out, starts.tolist())
        for one in self.batch:
            one.done += one.tokens
        for one in self.sequences:
            self.check_pages(one)

    def compare(self, number, query, out, starts):
        for i, one in enumerate(self.batch):
            at, end = starts[i : i + 2]
            keys, values = (half[: one.done + one.tokens].double().repeat_interleave(self.heads // self.kv_heads, 1).transpose(0, 1)
                            for half in one.plain[number])
            mask = torch.ones(end - at, one.done + one.tokens, dtype=torch.bool).tril(one.done)
            wanted = torch.nn.functional.scaled_dot_product_attention(query[at:end].double().transpose(0, 1), keys, values, mask).transpose(0, 1)
            error = (out[at:end].double() - wanted).abs().max()
            assert error <= 2**-8 * wanted.abs().max() + 1e-6, f"layer {number}, {one.done} and {one.tokens} tokens: {error}"

    def check_pages(self, one):
        if not one.done:
            return
        for number, layer in enumerate(self.layers):
            found = torch.stack(layer.impl.pages.read_new(torch.tensor(one.blocks, dtype=torch.int32), one.done))
            assert torch.equal(found.view(torch.int16), one.plain[number, :, : one.done].view(torch.int16))


@pytest.mark.parametrize("head, kv_heads, group, block_size", [(128, 2, 4, 16), (64, 1, 7, 32)])
def test_every_page_and_every_output_survives_random_schedules(head, kv_heads, group, block_size):
    engine = Engine(head, kv_heads, group, block_size, seed=head)
    for number in range(300):
        if len(engine.sequences) < 8 and (number < 4 or engine.draw.random() < 0.3):
            engine.add()
        engine.step()
        if len(engine.sequences) > 2 and engine.draw.random() < 0.15:
            done = engine.draw.choice(engine.sequences)
            engine.release(done)
            engine.sequences.remove(done)
        if number >= 60 and min(engine.counts.values()) >= 3:
            break
    assert min(engine.counts.values()) >= 3, engine.counts
    # A prompt of 64 tokens or more chose the windows, after others were stored without.
    assert all((layer.impl.pages.windows[: 2 * kv_heads] <= 240).all() for layer in engine.layers)


@pytest.mark.parametrize("head, least", [(128, 1.326), (64, 1.319)])
def test_the_same_memory_holds_more_blocks(head, least):
    config = configuration()
    layers = make_layers(config, 2, 8, 2, head)
    plain = kv.FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=head, dtype=torch.bfloat16).page_size_bytes
    blocks, spec = allocate(layers, config, 10)
    assert blocks == 10 and plain / spec.page_size_bytes > least and spec.page_size_bytes == 16 * 2 * token_bytes(head)
    # The last page's nibbles end with the region.
    impl = layers[1].impl
    impl.open(layers[1].kv_cache)
    entries, _, nibbles, _ = impl.pages.native[1:]
    assert entries.nbytes + nibbles.nbytes <= layers[1].kv_cache.numel() * 2 and nibbles.address == entries.address + entries.nbytes


def test_all_bit_patterns_survive():
    pages = LayerPages(torch.zeros(4, 2, 16, token_bytes(128) // 2, dtype=torch.bfloat16), 128)
    keys, values = (torch.randint(-(1 << 15), 1 << 15, (40, 2, 128), dtype=torch.int16).view(torch.bfloat16) for _ in range(2))
    pages.append(keys, values, torch.arange(40) + 16)
    found = pages.read_new(torch.tensor([1, 2, 3], dtype=torch.int32), 40)
    assert all(torch.equal(one.view(torch.int16), two.view(torch.int16)) for one, two in zip(found, (keys, values)))


def test_the_first_prompt_chooses_windows_and_shifts():
    torch.manual_seed(3)
    keys, values = (torch.randn(160, 2, 128).bfloat16() for _ in range(2))
    keys[:, :, 7] *= 500
    values[..., 64:] /= 64
    overflows = []
    for trains in (True, False):
        pages = LayerPages(torch.zeros(12, 2, 16, token_bytes(128) // 2, dtype=torch.bfloat16), 128)
        # A short prompt before, and slots of padding.
        pages.append(keys[:9], values[:9], torch.arange(9))
        if trains:
            pages.train(keys[9:], values[9:], torch.cat([torch.full((30,), -1), torch.arange(30, 151)]))
        pages.append(keys[9:], values[9:], torch.arange(9, 160))
        found = pages.read_new(torch.arange(12, dtype=torch.int32), 160)
        assert all(torch.equal(one, two) for one, two in zip(found, (keys, values)))
        assert (pages.windows[:4] <= 240).all() if trains else (pages.windows[:4] == 254).all()
        entries = _native.kv_parts(pages.shape)[0]
        nibbles = pages.region.view(torch.uint8).flatten()[entries:]
        overflows.append(int(((nibbles & 15) == 5).sum() + ((nibbles >> 4) == 5).sum()))
    # Tokens were stored before, so that the large column has no shift: only the windows help.
    assert overflows[0] < overflows[1]
    pages = LayerPages(torch.zeros(12, 2, 16, token_bytes(128) // 2, dtype=torch.bfloat16), 128)
    pages.train(keys[:9], values[:9], torch.arange(9))
    assert (pages.windows[:4] == 254).all()
    pages.append(keys[:9], values[:9], torch.arange(9))
    chosen = pages.windows[128:].clone()
    pages.train(keys[9:], values[9:], torch.arange(9, 160))
    assert torch.equal(pages.windows[128:], chosen) and (pages.windows[:4] <= 240).all()
    shifts = pages.windows[128:][: 4 * 128].view(2, 2, 128)
    assert (shifts[:, 0, 7] > 5).all() and (shifts[:, 1, :64] > 3).all() and not shifts[:, 1, 64:].any()
    pages.append(keys[9:], values[9:], torch.arange(9, 160))
    assert all(torch.equal(one, two) for one, two in zip(pages.read_new(torch.arange(12, dtype=torch.int32), 160), (keys, values)))
    nibbles = pages.region.view(torch.uint8).flatten()[entries:]
    assert ((nibbles & 15) == 6).sum() + ((nibbles >> 4) == 6).sum() > 0.9 * 160 * 2 * 4
    pages.forget()
    assert (pages.windows[:4] == 255).all() and not pages.windows[128:-128].any()


def test_the_warm_up_chooses_nothing(monkeypatch):
    """vLLM opens caches in inference mode, and its worker ends the warm-up outside it."""
    from vllm.v1.worker.gpu_worker import Worker

    config = configuration()
    layers = make_layers(config, 2, 4, 2, 64)
    allocate(layers, config, 8)
    with torch.inference_mode():
        for layer in layers:
            layer.impl.open(layer.kv_cache)
            rows = torch.randn(80, 2, 64).bfloat16()
            layer.impl.pages.train(rows, rows, torch.arange(80))
            assert (layer.impl.pages.windows[:4] <= 240).all()
    monkeypatch.setattr(attention, "worker_warm_up", lambda worker: "seconds")
    assert Worker.compile_or_warm_up_model(SimpleNamespace(vllm_config=config)) == "seconds"
    assert all((layer.impl.pages.windows[:4] == 255).all() for layer in layers)


def test_an_empty_sequence_gives_zeros():
    pages = LayerPages(torch.zeros(2, 1, 16, token_bytes(64) // 2, dtype=torch.bfloat16), 64)
    out = torch.ones(2, 4, 64).bfloat16()
    pages.append(torch.ones(1, 1, 64).bfloat16(), torch.ones(1, 1, 64).bfloat16(), torch.tensor([16]))
    pages.attend(torch.ones_like(out), out, torch.ones(2, 1, dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32), 1.0, None)
    assert (out[0] == 1).all() and (out[1] == 0).all()


def test_fresh_prompts_go_together_and_those_with_older_tokens_alone():
    found = attention.prefills_of([0, 1, 5, 5, 9, 12, 14], [7, 9, 3, 4, 3, 9], 1)
    assert [(one.rows.start, one.rows.stop, one.sequence) for one in found] == [(1, 5, 1), (5, 12, None), (12, 14, 5)]
    assert [one.query_offsets for one in found] == [[0, 4], [0, 4, 7], [0, 2]]
    assert [one.key_offsets for one in found] == [[0, 9], [0, 4, 7], [0, 9]]
    attention.copy_offsets(found, torch.device("cpu"))
    assert all([a.tolist(), b.tolist()] == [one.query_offsets, one.key_offsets] for one in found for a, b in [one.device_offsets])


def test_a_cache_is_opened_once_and_again_when_vllm_binds_another():
    """vLLM measures graphs with a small cache before it allocates the real one."""
    config = configuration()
    layers = make_layers(config, 2, 4, 2, 64)
    _, spec = allocate(layers, config, 4)
    builder = attention.BuddyMetadataBuilder(spec, [one.layer_name for one in layers], config, torch.device("cpu"))
    builder.open_layers()
    first = [one.impl.pages for one in layers]
    builder.open_layers()
    layers[0].impl.do_kv_cache_update(layers[0], *[torch.zeros(0, 2, 64).bfloat16()] * 2, layers[0].kv_cache.view(layers[0].kv_cache.shape), torch.zeros(0).long())
    assert [one.impl.pages for one in layers] == first
    allocate(layers, config, 8)
    builder.open_layers()
    assert [one.impl.pages.shape[1] for one in layers] == [8, 8]
    layers[1].kv_cache = layers[0].kv_cache
    with pytest.raises(ValueError, match="share the memory"):
        builder.bound = None
        builder.open_layers()


def test_the_scratch_of_histories_is_reserved_once_after_loading():
    config = configuration()
    layers = make_layers(config, 2, 4, 2, 128)
    history = layers[0].impl.history
    assert history is layers[1].impl.history
    history.memory = None
    layers[0].process_weights_after_loading(torch.bfloat16)
    memory = history.memory
    layers[1].process_weights_after_loading(torch.bfloat16)
    assert history.memory is memory and memory.numel() == 2 * LONGEST * 2 * 128


def test_the_profile_run_has_no_cache():
    config = configuration()
    (layer,) = make_layers(config, 1, 4, 2, 64)
    with set_forward_context(None, config, slot_mapping={}):
        assert not layer(*[torch.ones(3, heads * 64).bfloat16() for heads in (4, 2, 2)]).any()


ASKED = {"head_size": 128, "dtype": torch.bfloat16, "kv_cache_dtype": "auto", "block_size": 16, "use_mla": False, "has_sink": False,
         "use_sparse": False, "use_mm_prefix": False, "use_per_head_quant_scales": False, "device_capability": HOPPER, "attn_type": "decoder"}


@pytest.mark.parametrize("change, reason", [
    ({}, None), ({"block_size": None, "kv_cache_dtype": None, "head_size": 64}, None),
    ({"head_size": 256}, "heads of 64 or 128 values"), ({"dtype": torch.float16}, "must be bfloat16"), ({"kv_cache_dtype": "fp8"}, "auto or bfloat16"),
    ({"block_size": 8}, "multiple of 16"), ({"device_capability": DeviceCapability(8, 0)}, "compute capability 9.0"),
    ({"device_capability": DeviceCapability(10, 0)}, "compute capability 9.0"), ({"use_kv_connector": True}, "the host tier included"),
    ({"use_mla": True}, "MLA"), ({"has_sink": True}, "sinks"), ({"has_sliding_window": True}, "sliding window"), ({"use_non_causal": True}, "non-causal"),
    ({"attn_type": "encoder_only"}, "encoder_only"), ({"use_batch_invariant": True}, "batch invariance"), ({"use_sparse": True}, "sparse")])
def test_vllm_is_told_what_is_refused(change, reason):
    found = attention.BuddyAttentionBackend.validate_configuration(**{**ASKED, **change})
    assert len(found) == (reason is not None) and all(reason in one for one in found)


@pytest.mark.parametrize("change, reason", [
    ({"alibi_slopes": [1.0]}, "ALiBi"), ({"logits_soft_cap": 30.0}, "softcap"), ({"per_layer_sliding_window": 64}, "sliding window"),
    ({"heads": 34, "kv_heads": 2}, "more than 16 query heads"), ({"head": 96}, "heads of 96 values"), ({"sinks": torch.ones(8)}, "sinks"),
    ({"kv_sharing_target_layer_name": "other"}, "shared between layers")])
def test_layers_that_cannot_be_served_are_refused(change, reason):
    sizes = {"heads": 8, "kv_heads": 2, "head": 128} | {name: change[name] for name in change.keys() & {"heads", "kv_heads", "head"}}
    with pytest.raises(ValueError, match=reason):
        make_layers(configuration(), 1, **sizes, **{name: value for name, value in change.items() if name not in sizes})


def test_engines_that_cannot_be_served_are_refused():
    for change, reason in [({"speculative_config": SimpleNamespace(num_speculative_tokens=2)}, "speculative decoding")]:
        with pytest.raises(ValueError, match=reason):
            attention.refuse(configuration(**change))
    config = configuration()
    attention.refuse(config)
    config.parallel_config.enable_dbo = True
    with pytest.raises(ValueError, match="DBO"):
        attention.refuse(config)
    config = configuration()
    (layer,) = make_layers(config, 1, 4, 2, 64)
    attention.refuse(config)
    layer.attn_backend = AttentionBackend
    with pytest.raises(ValueError, match=r"another KV cache \(model.layers.0.attn\)"):
        attention.refuse(config)


@pytest.mark.parametrize("window, is_taken", [(None, True), (110, True), (241, False), ("wide", False)])
def test_the_window_is_an_option(window, is_taken):
    config = configuration(additional_config={} if window is None else {"buddy_kv_window": window})
    if not is_taken:
        with pytest.raises(ValueError, match="from 0 to 240"):
            make_layers(config, 1, 4, 2, 64)
        return
    (layer,) = make_layers(config, 1, 4, 2, 64)
    allocate([layer], config, 2)
    layer.impl.open(layer.kv_cache)
    assert layer.impl.pages.windows[:4].tolist() == [window or 255] * 4


def test_memory_with_gaps_is_refused():
    with pytest.raises(ValueError, match="without gaps"):
        LayerPages(torch.zeros(4, 2, 16, 386, dtype=torch.bfloat16)[..., :193], 128)


def test_the_argument_of_the_guide_names_the_backend():
    assert AttentionBackendEnum.CUSTOM.get_class() is attention.BuddyAttentionBackend
    assert AttentionBackendEnum[attention.BuddyAttentionBackend.get_name()] is AttentionBackendEnum.CUSTOM
    guide = (pathlib.Path(__file__).parents[3] / "docs/guide/vllm.md").read_text()
    assert 'attention_backend="CUSTOM"' in guide and "--attention-backend CUSTOM" in guide


def test_attention_of_the_cpu_is_causal_from_the_end():
    query, keys, values = (torch.randn(tokens, heads, 64).bfloat16() for tokens, heads in [(3, 4), (8, 2), (8, 2)])
    whole = attend_plain(query, keys, values, 0.125)
    torch.testing.assert_close(whole[:1], attend_plain(query[:1], keys[:6], values[:6], 0.125))


def test_flash_attention_has_every_argument_that_prompts_pass():
    """The call itself needs a GPU; its signature does not."""
    folder = pathlib.Path(inspect.getfile(AttentionBackend)).parents[2]
    source = (folder / "vllm_flash_attn/flash_attn_interface.py").read_text().split("def flash_attn_varlen_func(")[1].split("):")[0]
    for name in ["q", "k", "v", "out", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "softmax_scale", "causal", "fa_version"]:
        assert f"\n    {name}" in source, name
