"""``BuddyExpertsMethod``: the packed experts of a vLLM layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import Parameter
from vllm.model_executor.layers.fused_moe import FusedMoEMethodBase
from vllm.model_executor.model_loader.reload.layerwise import initialize_online_processing
from vllm.model_executor.utils import set_weight_attrs

from ..torch import grouped  # registers the operators
from ..torch.experts import pack_experts

if TYPE_CHECKING:
    from .config import BuddyConfig


def activation_of(layer) -> str:
    """Returns the name of a layer's activation."""
    return getattr(layer.moe_config.activation, "value", layer.moe_config.activation)


def why_plain(layer) -> str | None:
    """Returns why the experts of a layer stay plain; None if they can be packed."""
    of = layer.moe_config
    activation = activation_of(layer)
    if activation not in grouped.ACTIVATIONS or not of.is_act_and_mul:
        return f"experts with the activation {activation}"
    if any(getattr(layer, name, None) is not None for name in ("swiglu_limit", "swiglu_alpha", "swiglu_beta")):
        return "experts with a clamped activation"
    if layer.apply_router_weight_on_input:
        return "experts whose inputs are weighted"
    if layer.params_dtype != torch.bfloat16 or of.hidden_dim % 64 or of.intermediate_size_per_partition % 64:
        return "experts of other sizes or types than whole entries of bfloat16"
    return None


class BuddyExpertsMethod(FusedMoEMethodBase):
    """Packs the weights of a layer's experts once all of them are loaded, after sharding.

    ``torch.ops.buddy.experts`` multiplies the chosen ones in place on compute capability 9.0, and
    unpacks them elsewhere.
    """

    uses_meta_device = True

    def __init__(self, config: BuddyConfig, name: str, moe):
        super().__init__(moe)
        self.config, self.name = config, name

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, params_dtype, **extra_weight_attrs):
        shapes = {"w13_weight": (num_experts, 2 * intermediate_size_per_partition, hidden_size),
                  "w2_weight": (num_experts, hidden_size, intermediate_size_per_partition)}
        if self.moe.has_bias:
            shapes |= {"w13_bias": shapes["w13_weight"][:2], "w2_bias": shapes["w2_weight"][:2]}
        for name, shape in shapes.items():
            one = Parameter(torch.empty(shape, dtype=params_dtype, device="meta"), requires_grad=False)
            layer.register_parameter(name, one)
            set_weight_attrs(one, extra_weight_attrs)
        layer.buddy_sizes = num_experts, intermediate_size_per_partition
        initialize_online_processing(layer)
        self.config.progress.layers[id(layer)] = (self, None)

    def process_weights_after_loading(self, layer) -> None:
        if getattr(layer, "_already_called_process_weights_after_loading", False):
            return
        layer._already_called_process_weights_after_loading = True
        if hasattr(layer, "buddy_codecs"):
            raise ValueError(f"{self.name}: new weights cannot be loaded into packed experts; leave out the option experts of buddy")
        layer.buddy_codecs, before, after = {}, 0, 0
        for name in ("w13_weight", "w2_weight"):
            plain = getattr(layer, name).data
            packed = pack_experts(grouped.interleave(plain) if name == "w13_weight" and self.joins(layer) else plain)
            setattr(layer, name, Parameter(packed.data, requires_grad=False))
            layer.buddy_codecs[name] = packed.codec
            before, after = before + plain.nbytes, after + packed.nbytes
        self.config.count(before, after)

    def joins(self, layer) -> bool:
        """Returns whether the kernel of w13 applies SwiGLU."""
        return self.config.options.fused and activation_of(layer) == "silu" and not self.moe.has_bias

    def get_fused_moe_quant_config(self, layer):
        return None

    def maybe_make_prepare_finalize(self, routing_tables=None):
        return None  # tokens are dispatched by vLLM's own runner

    def apply(self, layer, x, topk_weights, topk_ids, shared_experts=None, shared_experts_input=None):
        experts, intermediate = layer.buddy_sizes
        # Experts of other ranks become -1, which the operator skips.
        ids = topk_ids if layer.expert_map is None else layer.expert_map[topk_ids.long()]
        codecs = layer.buddy_codecs
        return torch.ops.buddy.experts(x, topk_weights, ids, layer.w13_weight, getattr(layer, "w13_bias", None), codecs["w13_weight"],
                                       layer.w2_weight, getattr(layer, "w2_bias", None), codecs["w2_weight"], experts, intermediate,
                                       "swiglu" if self.joins(layer) else activation_of(layer))
