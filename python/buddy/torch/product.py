"""Products from packed weights that start at once, with as little of the host's time as can be.

A model that is not compiled is bound by the host: by what Python and PyTorch take for each layer. So a layer looks up once what does
not change from call to call, and a call with nothing special about it goes past operators and their dispatch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _native
from .ops import compiler, kept_scratch, on_device

# By name once: looking through modules takes as long as the calls. A build for the CPU alone has no GPU to ask for.
dispatch_modes, transform, tracing = torch._C._len_torch_dispatch_stack, torch._C._functorch.maybe_current_level, torch._C._get_tracing_state
is_grad_enabled = torch.is_grad_enabled
current_device = getattr(torch._C, "_cuda_getDevice", None)
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
BF16 = torch.bfloat16
# No tensor is on this device.
NOWHERE = -2
# Most tokens of a layer that has counts of its own.
MOST_COUNTED = 1536
NOTHING = (None, 0, 0)


def is_watched(x: Tensor, bias: Tensor | None) -> bool:
    """Whether someone must see the operator: autograd, a mode, a transform, or a class of tensors."""
    return (type(x) is not Tensor or dispatch_modes() > 0 or transform() is not None or tracing() is not None
            or (is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad))))


class Product:
    """Weights at an address, ready to be multiplied by."""

    __slots__ = ("address", "count_bytes", "device", "inputs", "kept", "outputs", "start")

    def __init__(self, data: Tensor, shape: tuple[int, int], codec: str):
        self.address, self.device, self.count_bytes = data.data_ptr(), NOWHERE, 0
        self.outputs, self.inputs = shape
        if data.is_cuda:
            compiler()
            with on_device(data):
                native = _native.Product(data.get_device(), codec, self.outputs, self.inputs, data.numel())
            self.device, self.start, self.count_bytes = data.get_device(), native.start, native.count_room(MOST_COUNTED)
            self.kept = kept_scratch(self.device, self.outputs, self.inputs)

    def __call__(self, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """x times the weights, and the bias; None if something about it is special, so that the operator must do it."""
        device = self.device
        if x.get_device() != device or x.dtype is not BF16 or not x.is_contiguous() or is_watched(x, bias):
            return None
        size, added = list(x.shape), 0
        if size[-1] != self.inputs or current_device() != device:
            return None
        if bias is not None:
            if bias.get_device() != device or bias.dtype is not BF16 or not bias.is_contiguous():
                return None
            added = bias.data_ptr()
        size[-1] = self.outputs
        y, stream = x.new_empty(size), current_stream(device)
        _, scratch, room = self.kept.get(stream, NOTHING)
        return y if self.start(stream, self.address, x.data_ptr(), x.numel(), added, y.data_ptr(), scratch, room) else None
