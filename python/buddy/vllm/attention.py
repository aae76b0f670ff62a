"""Attention over packed keys and values in vLLM: 1.33 times the blocks in the same memory.

    llm = LLM("folder", attention_backend="CUSTOM")

Decoding reads packed pages in place. Prompts go plain to FlashAttention; a prompt with older tokens
is first unpacked to scratch memory. Values come back with every bit (docs/guide/vllm.md).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm.logger import init_logger
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.platforms import current_platform
from vllm.v1.attention.backend import AttentionBackend, AttentionCGSupport, AttentionImpl, AttentionMetadata, AttentionMetadataBuilder, AttentionType
from vllm.v1.attention.backends.fa_utils import get_flash_attn_version
from vllm.v1.attention.backends.utils import split_decodes_and_prefills

from .pages import LayerPages, attend_plain, scratch_bytes, token_bytes

# Under vLLM's logger: its name is below `vllm`, so that the line is shown.
logger = init_logger("vllm.buddy")

HEADS, MOST_GROUP = [64, 128], 16
# vLLM's words for what a backend does not take, and ours.
REASONS = {
    "head_size not supported": "heads of 64 or 128 values are needed",
    "dtype not supported": "the model must be bfloat16",
    "kv_cache_dtype not supported": "kv_cache_dtype must be auto or bfloat16: values keep every bit",
    "block_size not supported": "block_size must be a multiple of 16",
    "compute capability not supported": "kernels that read packed pages need compute capability 9.0",
    "KV connector not supported": "packed pages cannot leave the GPU through a KV connector, the host tier included",
}


class BuddyAttentionBackend(AttentionBackend):
    """Attention over packed pages."""

    accept_output_buffer = True
    forward_includes_kv_cache_update = False
    supported_dtypes = [torch.bfloat16]
    supported_kv_cache_dtypes = ["auto", "bfloat16"]

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[BuddyAttention]:
        return BuddyAttention

    @staticmethod
    def get_builder_cls() -> type[BuddyMetadataBuilder]:
        return BuddyMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None) -> list[int]:
        return [16, 32, 64, 128, 256]

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return HEADS

    @classmethod
    def supports_compute_capability(cls, capability) -> bool:
        return (capability.major, capability.minor) == (9, 0)

    @classmethod
    def supports_kv_connector(cls) -> bool:
        return False

    @classmethod
    def validate_configuration(cls, **asked: Any) -> list[str]:
        return [f"buddy: {REASONS[reason]}" if reason in REASONS else reason for reason in super().validate_configuration(**asked)]

    @classmethod
    def customize_spec(cls, spec):
        """Returns a layer's cache with packed tokens; asked by vLLM 0.33."""
        return dataclasses.replace(spec, state_content_bytes=token_bytes(spec.head_size))

    @classmethod
    def supported_kv_cache_layouts(cls):
        """Layouts in which a layer's memory has no gaps; asked by vLLM 0.33."""
        from vllm.v1.kv_cache_interface import KVCacheLayout

        return (KVCacheLayout.LBNHC, KVCacheLayout.LBHNC)

    @staticmethod
    def get_kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto") -> tuple[int, ...]:
        """Returns the shape of a layer's cache in bf16; asked by vLLM 0.26."""
        return num_blocks, num_kv_heads, block_size, token_bytes(head_size) // 2


@dataclasses.dataclass
class Prefill:
    """Prompts that one call of attention serves: consecutive fresh ones, or one with older tokens.

    ``rows`` are those of the batch, ``sequence`` is the row of the page table, or None for fresh
    prompts. Offsets of queries and of keys are those of FlashAttention, and ``device_offsets`` the
    same on the device.
    """

    rows: slice
    sequence: int | None
    query_offsets: list[int]
    key_offsets: list[int]
    device_offsets: tuple[torch.Tensor, torch.Tensor] | None = None


def prefills_of(starts: list[int], lengths: list[int], first: int) -> list[Prefill]:
    """Groups the sequences from ``first`` on. ``starts`` are the offsets of their queries,
    ``lengths`` their tokens with older ones."""
    found: list[Prefill] = []
    for i in range(first, len(starts) - 1):
        begin, end = starts[i : i + 2]
        if begin == end:
            continue
        last = found[-1] if found else None
        if lengths[i] > end - begin:
            found.append(Prefill(slice(begin, end), i, [0, end - begin], [0, lengths[i]]))
        elif last is not None and last.sequence is None and last.rows.stop == begin:
            last.rows = slice(last.rows.start, end)
            last.query_offsets.append(end - last.rows.start)
        else:
            offsets = [0, end - begin]
            found.append(Prefill(slice(begin, end), None, offsets, offsets))
    return found


def copy_offsets(prefills: list[Prefill], device: torch.device) -> None:
    """Copies the offsets of all prompts to the device at once, without a wait."""
    flat = [one for prefill in prefills for one in prefill.query_offsets + prefill.key_offsets]
    all_offsets = torch.tensor(flat, dtype=torch.int32, pin_memory=device.type == "cuda").to(device, non_blocking=True)
    sizes = [len(offsets) for prefill in prefills for offsets in (prefill.query_offsets, prefill.key_offsets)]
    parts = iter(all_offsets.split(sizes))
    for prefill in prefills:
        prefill.device_offsets = next(parts), next(parts)


@dataclasses.dataclass
class BuddyMetadata(AttentionMetadata):
    """A batch: ``decodes`` sequences with one query each, then prompts."""

    decodes: int
    prefills: list[Prefill]
    table: torch.Tensor
    lengths: torch.Tensor
    scratch: torch.Tensor | None
    # Rows of the longest prompt, which may choose windows and shifts.
    trains: slice | None = None


class BuddyMetadataBuilder(AttentionMetadataBuilder[BuddyMetadata]):
    """Makes the metadata of batches, and opens the layers' caches before the first one."""

    _cudagraph_support = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def __init__(self, kv_cache_spec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        refuse(vllm_config)
        self._init_reorder_batch_threshold(1, supports_spec_as_decode=False)
        self.context = vllm_config.compilation_config.static_forward_context
        self.layers, self.bound = [self.context[name] for name in layer_names], None
        most = max([vllm_config.scheduler_config.max_num_seqs, *(vllm_config.compilation_config.cudagraph_capture_sizes or [])])
        size = scratch_bytes(torch.empty(0, device=device), kv_cache_spec.num_kv_heads, kv_cache_spec.head_size, most)
        self.scratch = torch.zeros(size, dtype=torch.uint8, device=device) if size else None

    def open_layers(self) -> None:
        """Opens the caches of all layers if vLLM has bound new ones."""
        if self.layers[0].kv_cache is self.bound:
            return
        addresses = [layer.kv_cache.data_ptr() for layer in self.context.values() if isinstance(layer, AttentionLayerBase)]
        if len(set(addresses)) != len(addresses):
            raise ValueError("buddy: layers share the memory of their KV cache, which packed pages do not allow")
        for layer in self.layers:
            layer.impl.open(layer.kv_cache)
            layer.impl.pages.load(layer.impl.num_heads // layer.impl.num_kv_heads)
        self.bound = self.layers[0].kv_cache
        pages = [layer.impl.pages for layer in self.layers]
        logger.info("buddy: packed KV cache of %d layers, %d blocks of %d tokens; %.2f GB of host memory for overflow", len(pages), pages[0].shape[1],
                    pages[0].shape[4], sum(one.overflow.numel() for one in pages) / 1e9)

    def build(self, common_prefix_len: int, common_attn_metadata, fast_build: bool = False) -> BuddyMetadata:
        of = common_attn_metadata
        self.open_layers()
        decodes, prompts, decode_tokens, _ = split_decodes_and_prefills(of, decode_threshold=1)
        prefills: list[Prefill] = []
        trains = None
        if prompts:
            # Precise for prompts, and for all sequences without speculative decoding.
            lengths = of.seq_lens_cpu_upper_bound if of.seq_lens_cpu_upper_bound is not None else of.seq_lens.cpu()
            starts = of.query_start_loc_cpu.tolist()
            prefills = prefills_of(starts, lengths.tolist(), decodes)
            copy_offsets(prefills, self.device)
            trains = max((slice(*ends) for ends in zip(starts, starts[1:])), key=lambda rows: rows.stop - rows.start)
        return BuddyMetadata(min(decodes, decode_tokens), prefills, of.block_table_tensor, of.seq_lens, self.scratch, trains)


class BuddyAttention(AttentionImpl[BuddyMetadata]):
    """Attention of one layer."""

    supports_dcp = supports_pcp = False

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int | None = None, alibi_slopes: list[float] | None = None,
                 sliding_window: int | None = None, kv_cache_dtype: str = "auto", logits_soft_cap: float | None = None,
                 attn_type: str = AttentionType.DECODER, kv_sharing_target_layer_name: str | None = None, **others: Any):
        self.num_heads, self.head_size, self.scale = num_heads, head_size, scale
        self.num_kv_heads, self.kv_cache_dtype = num_kv_heads or num_heads, kv_cache_dtype
        others |= {"ALiBi": alibi_slopes, "a sliding window": sliding_window, "a softcap of logits": logits_soft_cap or None,
                   "a KV cache shared between layers": kv_sharing_target_layer_name,
                   "attention other than a decoder's": None if attn_type == AttentionType.DECODER else attn_type,
                   f"more than {MOST_GROUP} query heads per KV head": num_heads // self.num_kv_heads > MOST_GROUP or None,
                   f"heads of {head_size} values": None if head_size in HEADS else head_size}
        if unknown := [name for name, value in others.items() if isinstance(value, torch.Tensor) or value not in (None, -1, False)]:
            raise ValueError(f"buddy: the attention backend CUSTOM does not support {', '.join(unknown)}: leave out attention_backend")
        config = get_current_vllm_config()
        self.window = window_of(config)
        # As the configuration asks, which is known here only.
        self.flash_version = get_flash_attn_version(head_size=head_size) if current_platform.is_cuda() else None
        self.history = History.of(config, self.num_kv_heads * head_size)
        self.pages: LayerPages | None = None

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        # Before vLLM measures how much memory is left for its cache.
        self.history.reserve()

    def open(self, kv_cache: torch.Tensor) -> None:
        """Takes a layer's memory, which must hold no tokens, unless it is already open."""
        if self.pages is not None and (self.pages.region.data_ptr(), self.pages.region.shape) == (kv_cache.data_ptr(), kv_cache.shape):
            return
        self.pages = None
        self.pages = LayerPages(kv_cache, self.head_size, self.window)

    def do_kv_cache_update(self, layer, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Appends the tokens of a batch."""
        if kv_cache.numel():
            self.open(kv_cache)
            if self.window is None and (rows := rows_that_train(layer)) is not None:
                self.pages.train(key[rows], value[rows], slot_mapping[rows])
            self.pages.append(key, value, slot_mapping)

    def forward(self, layer, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, attn_metadata: BuddyMetadata | None,
                output: torch.Tensor, output_scale: torch.Tensor | None = None, output_block_scale: torch.Tensor | None = None) -> torch.Tensor:
        if attn_metadata is None:
            return output.fill_(0)
        of, out = attn_metadata, output.view(-1, self.num_heads, self.head_size)
        if count := of.decodes:
            self.pages.attend(query[:count].contiguous(), out[:count], of.table[:count], of.lengths[:count], self.scale, of.scratch)
        for prefill in of.prefills:
            keys, values = key[prefill.rows], value[prefill.rows]
            if prefill.sequence is not None:
                keys, values = self.history.take(prefill.key_offsets[-1], keys)
                self.pages.read(of.table[prefill.sequence], keys, values)
            self.attend_prompts(prefill, query[prefill.rows], keys, values, out[prefill.rows])
        return output

    def attend_prompts(self, prefill: Prefill, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor) -> None:
        """Attention of prompts to plain keys and values."""
        longest = [max(b - a for a, b in zip(offsets, offsets[1:])) for offsets in (prefill.query_offsets, prefill.key_offsets)]
        if query.is_cuda:
            from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func

            query_offsets, key_offsets = prefill.device_offsets
            flash_attn_varlen_func(q=query, k=keys, v=values, out=out, cu_seqlens_q=query_offsets, cu_seqlens_k=key_offsets, max_seqlen_q=longest[0],
                                   max_seqlen_k=longest[1], softmax_scale=self.scale, causal=True, fa_version=self.flash_version)
            return
        for a, b, c, d in zip(prefill.query_offsets, prefill.query_offsets[1:], prefill.key_offsets, prefill.key_offsets[1:]):
            out[a:b] = attend_plain(query[a:b], keys[c:d], values[c:d], self.scale)


def rows_that_train(layer: Any) -> slice | None:
    """Returns the rows of the current batch that can choose a layer's windows and shifts."""
    batch = get_forward_context().attn_metadata if is_forward_context_available() else None
    metadata = batch.get(layer.layer_name) if isinstance(batch, dict) else None
    return None if metadata is None else metadata.trains


class History:
    """Scratch memory for the plain keys and values of one sequence, shared by all layers."""

    SHARED: dict[tuple[str, int], History] = {}

    def __init__(self, device: torch.device, values: int):
        self.device, self.values, self.memory = device, values, None

    @classmethod
    def of(cls, config: VllmConfig, row: int) -> History:
        """Returns the memory for sequences of the longest length, with ``row`` values of keys a token."""
        device, values = config.device_config.device, 2 * config.model_config.max_model_len * row
        return cls.SHARED.setdefault((str(device), values), cls(torch.device(device), values))

    def reserve(self) -> None:
        """Allocates the memory once."""
        if self.memory is None:
            self.memory = torch.empty(self.values, dtype=torch.bfloat16, device=self.device)

    def take(self, tokens: int, like: torch.Tensor) -> list[torch.Tensor]:
        """Returns room for the keys and values of a number of tokens."""
        self.reserve()
        size = (tokens, *like.shape[1:])
        return [half[: tokens * like[0].numel()].view(size) for half in self.memory.chunk(2)]


def window_of(config: VllmConfig) -> int | None:
    """Returns the window that ``additional_config={"buddy_kv_window": ...}`` asks for; None to choose it
    from the first tokens."""
    options = config.additional_config if isinstance(config.additional_config, dict) else {}
    window = options.get("buddy_kv_window")
    if window is None:
        return None
    if not isinstance(window, int) or not 0 <= window <= 240:
        raise ValueError(f"buddy_kv_window is a number from 0 to 240, not {window!r}")
    return window


def refuse(config: VllmConfig) -> None:
    """Raises ``ValueError`` for an engine that packed pages do not serve."""
    parallel, context = config.parallel_config, config.compilation_config.static_forward_context
    others = [name for name, layer in context.items() if isinstance(layer, AttentionLayerBase) and not uses_packed_pages(layer)]
    reasons = {"speculative decoding": config.speculative_config is not None, "micro-batches that overlap (DBO)": parallel.use_ubatching,
               "context parallelism": parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1,
               f"layers with another KV cache ({', '.join(others[:3])})": bool(others)}
    if found := [reason for reason, holds in reasons.items() if holds]:
        raise ValueError(f"buddy: the attention backend CUSTOM does not support {', '.join(found)}: leave out attention_backend")


def uses_packed_pages(layer: Any) -> bool:
    """Returns whether an attention layer has this backend."""
    return issubclass(layer.get_attn_backend(), BuddyAttentionBackend)


def ask_for_packed_pages() -> None:
    """Lets layers of this backend ask vLLM 0.26 for packed pages. Later versions ask
    ``customize_spec``."""
    from vllm.model_executor.layers.attention.attention import Attention
    from vllm.v1.kv_cache_interface import TQFullAttentionSpec

    plain = Attention.get_kv_cache_spec

    def get_kv_cache_spec(layer, vllm_config: VllmConfig):
        spec = plain(layer, vllm_config)
        if spec is None or not uses_packed_pages(layer):
            return spec
        # vLLM's own type with a size of its own: its managers know only their types.
        fields = {one.name: getattr(spec, one.name) for one in dataclasses.fields(spec)}
        return TQFullAttentionSpec(**fields, tq_slot_size=token_bytes(spec.head_size))

    Attention.get_kv_cache_spec = get_kv_cache_spec


def forget_warm_up() -> None:
    """Lets the first request choose windows and shifts, not the tokens of vLLM's warm-up."""
    from vllm.v1.worker.gpu_worker import Worker

    global worker_warm_up
    worker_warm_up = Worker.compile_or_warm_up_model

    @functools.wraps(worker_warm_up)
    def compile_or_warm_up_model(worker):
        result = worker_warm_up(worker)
        for layer in worker.vllm_config.compilation_config.static_forward_context.values():
            if isinstance(getattr(layer, "impl", None), BuddyAttention) and layer.impl.pages is not None:
                layer.impl.pages.forget()
        return result

    Worker.compile_or_warm_up_model = compile_or_warm_up_model


if not hasattr(AttentionBackend, "customize_spec"):
    ask_for_packed_pages()
forget_warm_up()
