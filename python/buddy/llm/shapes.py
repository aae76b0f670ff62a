"""Shapes of models of the Llama family, and random weights that resemble trained ones."""

from __future__ import annotations

import dataclasses
from typing import Iterator

import torch

# Spread of the row scales in powers of two, about that of a trained model.
ROW_SPREAD = 0.3


@dataclasses.dataclass(frozen=True)
class Shape:
    """Dimensions of a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int
    epsilon: float = 1e-5
    theta: float = 500000.0

    @property
    def group(self) -> int:
        """Query heads per KV head (GQA)."""
        return self.heads // self.kv_heads

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of a layer's matrices; QKV are one, and so are gate and up."""
        return {
            "qkv": ((self.heads + 2 * self.kv_heads) * self.head, self.hidden),
            "o": (self.hidden, self.heads * self.head),
            "gate_up": (2 * self.inner, self.hidden),
            "down": (self.hidden, self.inner),
        }

    @property
    def weight_bytes(self) -> int:
        """Plain bytes of the weights that a decode step reads: layers and head, not the
        embedding."""
        layer = sum(rows * columns for rows, columns in self.matrices.values()) + 2 * self.hidden
        return 2 * (self.layers * layer + self.hidden * (self.vocabulary + 1))

    def kv_bytes(self, tokens: int) -> int:
        """Returns the plain bytes of the KV cache for ``tokens`` tokens."""
        return 4 * self.layers * self.kv_heads * self.head * tokens


SHAPES = {
    "tiny": Shape(2, 256, 4, 2, 64, 512, 1024),
    "llama-1b": Shape(16, 2048, 32, 8, 64, 8192, 128256),
    "llama-8b": Shape(32, 4096, 32, 8, 128, 14336, 128256),
    "qwen-32b": Shape(64, 5120, 40, 8, 128, 27648, 151936, 1e-6, 1e6),
    "llama-70b": Shape(80, 8192, 64, 8, 128, 28672, 128256),
}


def matrix(rows: int, columns: int, generator: torch.Generator) -> torch.Tensor:
    """Returns normal bf16 weights of unit gain, with a scale per row."""
    device = generator.device
    scale = torch.exp2(ROW_SPREAD * torch.randn(rows, 1, generator=generator, device=device)) / columns**0.5
    weights = torch.empty(rows, columns, dtype=torch.bfloat16, device=device)
    # In pieces: single precision takes twice the memory.
    for first in range(0, rows, 8192):
        part = weights[first : first + 8192]
        part.copy_(torch.randn(part.shape, generator=generator, device=device) * scale[first : first + 8192])
    return weights


def random_layers(shape: Shape, generator: torch.Generator) -> Iterator[dict[str, torch.Tensor]]:
    """Yields the weights of one layer after another."""
    for _ in range(shape.layers):
        layer = {name: matrix(*size, generator) for name, size in shape.matrices.items()}
        for name in ["norm", "inner_norm"]:
            noise = torch.randn(shape.hidden, generator=generator, device=generator.device)
            layer[name] = (1 + 0.1 * noise).to(torch.bfloat16)
        yield layer


def rope_table(shape: Shape, positions: int, device: torch.device | str) -> torch.Tensor:
    """Returns the RoPE cosines and sines (positions, head dimension / 2, 2) in single precision."""
    pairs = torch.arange(0, shape.head, 2, dtype=torch.float64, device=device)
    angles = torch.arange(positions, dtype=torch.float64, device=device)[:, None] * shape.theta ** (-pairs / shape.head)
    return torch.stack([angles.cos(), angles.sin()], -1).float().contiguous()
