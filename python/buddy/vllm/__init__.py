"""vLLM: models whose bf16 weights stay packed, bit for bit.

    llm = LLM("folder", quantization="buddy")

The folder is plain and is packed layer by layer while it is loaded, or it was written by ``buddy
pack`` and needs no argument. vLLM calls ``register`` in each of its processes, by the entry point
``vllm.general_plugins``. Tested with vLLM 0.26 and 0.33 (docs/guide/vllm.md).
"""

from __future__ import annotations

NAME = "buddy"


def register() -> None:
    """Registers the quantization method ``buddy``. Further calls change nothing."""
    from vllm.model_executor.layers import quantization

    if NAME in quantization.QUANTIZATION_METHODS:
        return
    from .config import BuddyConfig
    from .loading import unpack_while_loading

    quantization.register_quantization_config(NAME)(BuddyConfig)
    unpack_while_loading()
