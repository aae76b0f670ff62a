"""Activations and normalisations whose steps ``compress_saved`` sees: it saves one tensor where
PyTorch saves two or three."""

import functools

import torch
from torch import nn

from .. import _native
from . import activations
from .activations import activate, memory_of
from .ops import call_native, span

_supports = functools.cache(_native.norm_relu_supports)


class Square(nn.Module):
    """Squares each value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.square()


class Multiply(nn.Module):
    """Multiplies two tensors element by element."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left * right


class ReLU(nn.ReLU):
    """``nn.ReLU`` that packs its output in the forward kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.inplace and (memory := memory_of(x)) is not None and memory.add_relu_(x):
            # Recomputed together with x.
            return super().forward(x)
        return activate(activations.RELU, x, super().forward, self.inplace)


class _BatchNorm(nn.Module):
    """Batch normalisation whose output ``compress_saved`` can recompute, with a following in-place
    ReLU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory = memory_of(x)
        if memory is None or not self._is_plain_training(x) or not memory.agrees(self, x, self._native):
            return super().forward(x)
        buffers = self._buffers
        buffers["num_batches_tracked"].add_(1)
        saved, is_plain = memory.save_input(x)
        if is_plain:
            memory.pause()
        try:
            y, mean, deviation = self._native(x, buffers["running_mean"], buffers["running_var"])
        finally:
            memory.resume()
        memory.record_producer(self, x, y, saved, self._recompute, (mean.detach(), deviation.detach()))
        return y

    def _native(self, x, mean=None, variance=None):
        """Returns output, mean and inverse deviation by PyTorch's kernels, and updates the running
        statistics if given."""
        weights = self._parameters
        return torch.native_batch_norm(x, weights["weight"], weights["bias"], mean, variance, True, self.momentum, self.eps)

    def _recompute(self, x, mean, deviation, relu):
        """Recomputes the output, with a ReLU if ``relu``. One kernel does both for channels-last
        memory."""
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        if (relu and x.is_cuda and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and x.data_ptr() % 16 == 0
                and weight.dtype == bias.dtype == torch.bfloat16 and _supports(x.shape[1])):
            y = torch.empty_like(x)
            call_native(x.device, _native.norm_relu, span(x), span(y), [span(one) for one in (mean, deviation, weight, bias)])
            return y
        # The CPU has no kernel for the last step alone.
        y = torch.batch_norm_elemt(x, weight, bias, mean, deviation, self.eps) if x.is_cuda else self._native(x)[0]
        return y.relu_() if relu else y

    def _is_plain_training(self, x):
        return (self.training and x.dtype == torch.bfloat16 and self.track_running_stats and self.momentum is not None and self.affine)


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """``nn.BatchNorm1d`` whose output is recomputed."""


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """``nn.BatchNorm2d`` whose output is recomputed."""


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """``nn.BatchNorm3d`` whose output is recomputed."""


class SquaredReLU(nn.Sequential):
    """``relu(x) ** 2``. Saves ``relu(x)``, half zeros, and recomputes its square."""

    def __init__(self) -> None:
        super().__init__(nn.ReLU(), Square())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return activate(activations.SQUARED_RELU, x, super().forward)


class SwiGLU(nn.Module):
    """``silu(gate) * up``. Saves ``gate`` and ``up``, and recomputes the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.silu, self.product = nn.SiLU(), Multiply()

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return self.product(self.silu(gate), up)
