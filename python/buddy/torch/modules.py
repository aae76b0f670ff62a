"""Activations as modules whose steps ``compress_saved`` sees, so that it keeps one tensor of each where PyTorch keeps two or three."""

import torch
from torch import nn


class Square(nn.Module):
    """The square of each value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.square()


class Product(nn.Module):
    """The product, value by value."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left * right


class SquaredReLU(nn.Sequential):
    """``relu(x) ** 2``. What is kept is ``relu(x)``, half zeros; its square is computed again."""

    def __init__(self) -> None:
        super().__init__(nn.ReLU(), Square())


class SwiGLU(nn.Module):
    """``silu(gate) * up``. What is kept is ``gate`` and ``up``; the rest is computed again."""

    def __init__(self) -> None:
        super().__init__()
        self.silu, self.product = nn.SiLU(), Product()

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return self.product(self.silu(gate), up)
