"""``BuddyConfig``: which layers of a vLLM model are packed, and what it says at the end."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import torch
from vllm.config import get_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod, VocabParallelEmbedding

from . import NAME, operators
from .experts import BuddyExpertsMethod, why_plain
from .fusion import watch_modules
from .linear import BuddyLinearMethod

# Under vLLM's logger: its name is below `vllm`, so that the line is shown.
logger = init_logger("vllm.buddy")


@dataclasses.dataclass
class Options:
    """Options of ``quantization_config`` in config.json, or given by ``hf_overrides``.

    ``fused``: SwiGLU in the epilogue of gate and up, and norms that let the next layer load its
    weights early. ``plain_copies_gb``: gigabytes of plain copies for batches of more than 64
    tokens, kept beside packed weights in the order of loading. ``reserve``: share of the entries
    for which overflow is reserved, so that new weights can be loaded into a running engine.
    ``experts``: experts are packed too; off, since one sequence decodes more slowly with it.
    ``modules_to_not_convert``: modules that stay plain, whole or as path components.
    """

    fused: bool = True
    plain_copies_gb: float = 0.0
    reserve: float = 0.0
    experts: bool = False
    modules_to_not_convert: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Progress:
    """Layers of a model while it is loaded."""

    layers: dict[int, tuple[Any, tuple[int, int]]] = dataclasses.field(default_factory=dict)
    packed: int = 0
    before: int = 0
    after: int = 0
    copies: int = 0
    plain: dict[str, str] = dataclasses.field(default_factory=dict)
    kernels: threading.Thread | None = None


class BuddyConfig(QuantizationConfig):
    """The quantization method ``buddy``. Nothing is quantised: weights keep every bit."""

    def __init__(self, options: Options | None = None):
        super().__init__()
        self.options, self.progress = options or Options(), Progress()

    def get_name(self) -> str:
        return NAME

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    @classmethod
    def get_min_capability(cls) -> int:
        return 80

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> BuddyConfig:
        known = {field.name for field in dataclasses.fields(Options)}
        given = {name: value for name, value in config.items() if name not in ("quant_method", "exact", "compiled") and value is not None}
        if unknown := sorted(given.keys() - known):
            raise ValueError(f"quantization_config of buddy has no option {', '.join(unknown)}; those known are {', '.join(sorted(known))}")
        return cls(Options(**given))

    def get_quant_method(self, layer: torch.nn.Module, prefix: str):
        config = get_current_vllm_config()
        lora = config.lora_config is not None
        if isinstance(layer, RoutedExperts):
            why = "experts, with LoRA" if lora else why_plain(layer) if self.options.experts else "experts, without the option experts"
            if why is None:
                return BuddyExpertsMethod(self, prefix, layer.moe_config)
            self.progress.plain[prefix] = why
            return None
        if not isinstance(layer, (LinearBase, VocabParallelEmbedding)):
            return None
        if lora and isinstance(layer, VocabParallelEmbedding):
            # vLLM's LoRA slices the embedding's weight, and takes the head's dtype for the adapter's.
            self.progress.plain[prefix or "embed_tokens"] = "embedding or head, with LoRA"
            return plain_method(layer)
        if self.options.fused and operators.has_fused_kernels():
            watch_modules()
        if any(f".{one}." in f".{prefix}." for one in self.options.modules_to_not_convert):
            self.progress.plain[prefix] = "modules_to_not_convert"
            return plain_method(layer)
        if isinstance(layer, VocabParallelEmbedding) and not prefix:
            prefix = "lm_head" if isinstance(layer, ParallelLMHead) else "embed_tokens"
        return BuddyLinearMethod(self, prefix)

    def count(self, before: int, after: int) -> None:
        """Counts a packed layer by its plain and packed bytes."""
        of = self.progress
        of.packed, of.before, of.after = of.packed + 1, of.before + before, of.after + after
        if of.packed == len(of.layers):
            self.finish()

    def finish(self) -> None:
        """Waits for the kernels, once every layer is packed, and logs what was packed."""
        of = self.progress
        if of.kernels is not None:
            of.kernels.join()
            of.kernels = None
        saved = of.before - of.after - of.copies
        words = [f"buddy: {of.packed} layers packed, {of.before / 1e9:.2f} GB as {of.after / 1e9:.2f} GB"]
        words += [f"{of.copies / 1e9:.2f} GB of plain copies"] if of.copies else []
        words += [kv_gain(saved)] if kv_gain(saved) else []
        words += [f"plain: {names(of.plain)}"] if of.plain else []
        logger.info("%s", "; ".join(words))
        self.progress = Progress(plain=of.plain)


def plain_method(layer: torch.nn.Module):
    """Returns vLLM's method for plain weights."""
    return UnquantizedLinearMethod() if isinstance(layer, LinearBase) else UnquantizedEmbeddingMethod()


def names(plain: dict[str, str]) -> str:
    """Lists layers that stay plain by reason, the first of each named."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in plain.items():
        by_reason.setdefault(reason, []).append(name)
    more = lambda found: f" and {len(found) - 1} more" if len(found) > 1 else ""
    return ", ".join(f"{found[0]}{more(found)} ({reason})" for reason, found in by_reason.items())


def kv_gain(saved: int) -> str:
    """Says how many more blocks of a plain KV cache fit into the saved bytes."""
    config = get_current_vllm_config()
    model, parallel = config.model_config, config.parallel_config
    if model is None or saved <= 0:
        return ""
    try:
        token = 4 * model.get_num_layers(parallel) * model.get_num_kv_heads(parallel) * model.get_head_size()
    except (AttributeError, NotImplementedError, ValueError):
        return ""
    block = config.cache_config.block_size or 16
    return f"{saved // (token * block)} more KV blocks of {block} tokens" if token else ""
