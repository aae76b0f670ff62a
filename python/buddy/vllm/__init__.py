"""vLLM: models whose bf16 weights stay packed, bit for bit.

    llm = LLM("folder", quantization="buddy")

The folder is plain and is packed layer by layer while it is loaded, or it was written by ``buddy
pack`` and needs no argument. ``attention_backend="CUSTOM"`` packs keys and values, with either. vLLM
calls ``register`` in each of its processes, by the entry point ``vllm.general_plugins``. Tested with
vLLM 0.26 and 0.33 (docs/guide/vllm.md).
"""

from __future__ import annotations

NAME = "buddy"
BACKEND = "buddy.vllm.attention.BuddyAttentionBackend"


def register() -> None:
    """Registers the quantization method ``buddy`` and the attention backend ``CUSTOM``. Further calls
    change nothing."""
    from vllm.model_executor.layers import quantization
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    if NAME in quantization.QUANTIZATION_METHODS:
        return
    from .config import BuddyConfig
    from .loading import unpack_while_loading

    quantization.register_quantization_config(NAME)(BuddyConfig)
    unpack_while_loading()
    # Another plug-in's backend stays.
    if not AttentionBackendEnum.CUSTOM.is_overridden():
        register_backend(AttentionBackendEnum.CUSTOM, BACKEND)
