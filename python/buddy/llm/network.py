"""The forward pass of the Llama, Qwen and Gemma families by PyTorch operations: prompts everywhere,
and the steps of models or devices that ``Decoder`` does not run."""

from __future__ import annotations

from typing import Callable

import torch
from torch import nn
from torch.nn import functional

from ..torch.layers import PackedLinear
from .decoder import split_gate_up
from .weights import Layer, Weights

# Queries of a prompt that attend together where a mask or all products are in memory.
BLOCK = 512

Rope = tuple[torch.Tensor, torch.Tensor]


def product(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Multiplies by a plain or packed layer. A captured graph has counters of the layer's own, and
    loads weights before the preceding kernel has finished."""
    if isinstance(layer, PackedLinear) and x.is_cuda and torch.cuda.is_current_stream_capturing():
        matrix = layer.matrix
        return torch.ops.buddy.linear(x, matrix.data, layer.bias, matrix.counters, matrix.codec, *matrix.shape, False)
    return layer(x)


def capped(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Applies a soft cap."""
    return x if cap is None else torch.tanh(x / cap) * cap


def rotated(x: torch.Tensor, rope: Rope) -> torch.Tensor:
    """Applies RoPE to (tokens, heads, head dimension)."""
    first, second = x.chunk(2, -1)
    return x * rope[0].unsqueeze(1) + torch.cat([-second, first], -1) * rope[1].unsqueeze(1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float, cap: float | None) -> torch.Tensor:
    """Computes attention of (sequences, KV heads, queries, head dimension) where the mask is true."""
    if cap is None:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    scores = capped(q.float() @ k.float().transpose(-1, -2) * scale, cap)
    scores = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(-1) @ v.float()).to(q.dtype)


def attend_to_prompt(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: Layer, cap: float | None) -> torch.Tensor:
    """Computes causal attention of a prompt, (tokens, heads, head dimension) each."""
    tokens, group, window = q.shape[0], q.shape[1] // k.shape[1], layer.window
    q, k, v = (one.transpose(0, 1).unsqueeze(0) for one in (q, k, v))
    if cap is None and (window is None or tokens <= window):
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=layer.scale, enable_gqa=group > 1)
        return out[0].transpose(0, 1)
    k, v = (one.repeat_interleave(group, 1) for one in (k, v))
    parts, where = [], torch.arange(tokens, device=q.device)
    for first in range(0, tokens, BLOCK):
        last = min(first + BLOCK, tokens)
        begin = 0 if window is None else max(0, first - window + 1)
        apart = where[first:last, None] - where[None, begin:last]
        mask = apart >= 0 if window is None else (apart >= 0) & (apart < window)
        parts.append(attention(q[:, :, first:last], k[:, :, begin:last], v[:, :, begin:last], mask, layer.scale, cap))
    return torch.cat(parts, 2)[0].transpose(0, 1)


def run_layer(weights: Weights, layer: Layer, x: torch.Tensor, rope: Rope, attend: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Runs a layer on rows of tokens. ``attend(q, k, v)`` gets queries and keys after RoPE."""
    shape = weights.shape
    qkv = product(layer.qkv, layer.norm(x)).view(x.shape[0], -1, shape.head)
    q, k, v = qkv.split([shape.heads, shape.kv_heads, shape.kv_heads], 1)
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = layer.q_norm(q), layer.k_norm(k)
    y = product(layer.o, attend(rotated(q, rope), rotated(k, rope), v).reshape(x.shape[0], -1))
    x = x + (y if layer.after_norm is None else layer.after_norm(y))
    both = product(layer.gate_up, layer.inner_norm(x))
    gate, up = split_gate_up(both) if weights.interleaved else both.chunk(2, -1)
    y = product(layer.down, weights.activation(gate) * up)
    return x + (y if layer.after_inner_norm is None else layer.after_inner_norm(y))


def embed(weights: Weights, ids: torch.Tensor) -> torch.Tensor:
    x = weights.embedding(ids)
    return x if weights.embedding_scale is None else x * torch.full((), weights.embedding_scale, dtype=x.dtype, device=x.device)


def logits_of(weights: Weights, x: torch.Tensor) -> torch.Tensor:
    return capped(product(weights.head, weights.norm(x)), weights.logit_cap)


def run_prompt(weights: Weights, ids: torch.Tensor, ropes: dict[str | None, Rope],
               keep: Callable[[int, torch.Tensor, torch.Tensor], None]) -> torch.Tensor:
    """Runs a prompt; returns the logits (1, vocabulary) of its last token. ``keep`` gets the number
    of a layer, and its keys and values (tokens, KV heads, head dimension)."""
    x = embed(weights, ids)
    for number, layer in enumerate(weights.layers):
        def attend(q, k, v):
            keep(number, k, v)
            return attend_to_prompt(q, k, v, layer, weights.attention_cap)

        cos, sin = ropes[layer.rope]
        x = run_layer(weights, layer, x, (cos[: len(ids)], sin[: len(ids)]), attend)
    return logits_of(weights, x[-1:])
