"""Modules of a vLLM model that work together with packed layers: SwiGLU and norms.

vLLM builds a model from its own modules, one after another. A hook of PyTorch sees each as it is
assigned to its parent, so no model's code has to be known or changed.
"""

from __future__ import annotations

import dis
import types

import torch
from torch.nn.modules.module import register_module_module_registration_hook
from vllm.config import get_current_vllm_config_or_none
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import MergedColumnParallelLinear

from ..llm.decoder import GROUP, interleave_gate_up as interleave
from .operators import has_fused_kernels

__all__ = ["GROUP", "interleave", "watch_modules"]

# Norms of a whole row of the residual stream; norms of single heads keep vLLM's kernel.
NORMS = {"input_layernorm", "post_attention_layernorm", "norm", "final_layernorm"}
# Names in the forward of an MLP that is gate and up, activation, down and nothing else.
MLP = ["gate_up_proj", "act_fn", "down_proj"]
_hooks: list[torch.utils.hooks.RemovableHandle] = []


def watch_modules() -> None:
    """Installs the hook, once in a process. It acts on models with ``quantization="buddy"``."""
    if not _hooks:
        _hooks.append(register_module_module_registration_hook(_on_module))


def _on_module(parent: torch.nn.Module, name: str, module: torch.nn.Module | None) -> None:
    if not isinstance(module, (SiluAndMul, MergedColumnParallelLinear, RMSNorm)):
        return
    from .config import BuddyConfig

    config = get_current_vllm_config_or_none()
    found = config.quant_config if config is not None else None
    # LoRA adds to what gate and up give, before the activation.
    if not isinstance(found, BuddyConfig) or not found.options.fused or not has_fused_kernels() or config.lora_config is not None:
        return
    if type(module) is RMSNorm:
        if name in NORMS:
            fuse_norm(module)
    elif joins_plainly(type(parent).forward):
        siblings = {**parent._modules, name: module}
        fuse_swiglu(siblings.get("gate_up_proj"), siblings.get("act_fn"))


def joins_plainly(forward) -> bool:
    """Returns whether a forward does nothing but pass gate and up through the activation to the
    down projection."""
    code = getattr(forward, "__code__", None)
    if code is None or [name for name in code.co_names if name != "maybe_fused_act_quant"] != MLP:
        return False
    return not any(one.opname.startswith(("BINARY", "POP_JUMP")) for one in dis.get_instructions(code))


def fuse_swiglu(gate_up: torch.nn.Module | None, activation: torch.nn.Module | None) -> None:
    """Lets a packed gate and up projection apply the activation in its epilogue."""
    from .linear import BuddyLinearMethod

    if type(gate_up) is not MergedColumnParallelLinear or type(activation) is not SiluAndMul:
        return
    if isinstance(gate_up.quant_method, BuddyLinearMethod) and len(gate_up.buddy_parts) == 2 and gate_up.bias is None and not gate_up.gather_output:
        gate_up.quant_method.activation = activation


def skip(activation: torch.nn.Module) -> None:
    """Makes an activation return what the layer before it has joined already."""
    activation._forward_method = joined


def joined(x: torch.Tensor) -> torch.Tensor:
    return x


def fuse_norm(module: RMSNorm) -> None:
    """Gives a norm the kernel that lets the next layer load its weights meanwhile."""
    weight = module.weight
    fits = module.has_weight and module.variance_size_override is None and weight.dtype == torch.bfloat16
    if fits and weight.numel() % 8 == 0 and weight.numel() <= 1 << 15:
        module._forward_method = types.MethodType(norm, module)


def norm(module: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None = None):
    out, total = torch.ops.buddy.add_norm(x, residual, module.weight, module.variance_epsilon)
    return out if residual is None else (out, total)
