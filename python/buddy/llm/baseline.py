"""The baseline of the benchmarks: the same decode step by PyTorch on plain memory.

Matrices are merged as ours, a step is one CUDA graph, and attention reads exactly the tokens
present.
"""

from __future__ import annotations

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from .shapes import Shape, rope_table


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)).to(x.dtype)


class BaselineDecoder:
    """A model on one GPU with a fixed number of tokens. This favours it: nothing is masked."""

    def __init__(self, shape: Shape, layers: list[dict], embedding: torch.Tensor, head: torch.Tensor, norm: torch.Tensor,
                 sequences: int, tokens: int):
        self.shape, self.layers, self.embedding, self.head, self.norm = shape, layers, embedding, head, norm
        device = embedding.device
        size = (sequences, shape.kv_heads, tokens, shape.head)
        self.keys = [torch.zeros(size, dtype=torch.bfloat16, device=device) for _ in layers]
        self.values = [torch.zeros(size, dtype=torch.bfloat16, device=device) for _ in layers]
        self.tokens = torch.zeros(sequences, dtype=torch.long, device=device)
        table = rope_table(shape, tokens, device)[-1]
        self.cos, self.sin = (torch.cat([one, one]).to(torch.bfloat16) for one in table.unbind(-1))
        self.layer = self.run_layer
        self.graph = None

    def run_layer(self, x, added, weights, keys, values, cos, sin):
        shape, rows = self.shape, x.shape[0]
        x = x + added
        qkv = functional.linear(norm(x, weights["norm"], shape.epsilon), weights["qkv"])
        q, k, v = qkv.view(rows, -1, shape.head).split([shape.heads, shape.kv_heads, shape.kv_heads], 1)
        keys[:, :, -1] = rotate(k, cos, sin)
        values[:, :, -1] = v
        q = rotate(q, cos, sin).unsqueeze(2)
        out = functional.scaled_dot_product_attention(q, keys, values, enable_gqa=shape.group > 1)
        x = x + functional.linear(out.view(rows, -1), weights["o"])
        gate, up = functional.linear(norm(x, weights["inner_norm"], shape.epsilon), weights["gate_up"]).chunk(2, -1)
        return x, functional.linear(functional.silu(gate) * up, weights["down"])

    def finish(self, x, added):
        logits = functional.linear(norm(x + added, self.norm, self.shape.epsilon), self.head)
        return logits, logits.argmax(-1)

    def step(self) -> torch.Tensor:
        x = functional.embedding(self.tokens, self.embedding)
        added = torch.zeros_like(x)
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]):
            for weights, keys, values in zip(self.layers, self.keys, self.values):
                x, added = self.layer(x, added, weights, keys, values, self.cos, self.sin)
        logits, self.chosen = self.last(x, added)
        return logits

    def capture(self, compiled: bool) -> None:
        """Captures a step in a CUDA graph, eager or compiled."""
        self.layer, self.last = self.run_layer, self.finish
        if compiled:
            options = {"coordinate_descent_tuning": True}
            self.layer = torch.compile(self.run_layer, fullgraph=True, dynamic=False, options=options)
            self.last = torch.compile(self.finish, fullgraph=True, dynamic=False, options=options)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.logits = self.step()
