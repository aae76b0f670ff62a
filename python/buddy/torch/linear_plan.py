"""Linear layers from packed weights with little host time.

The host bounds an eager model: Python and the dispatcher take longer than a launch. A layer
therefore resolves once what does not change between calls, and an ordinary call goes past the
dispatcher.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _native
from .ops import MAX_COUNTED_TOKENS, load_nvrtc, on_device, scratch_pool

# Bound once: attribute look-ups take as long as the calls. A CPU build has no CUDA functions.
dispatch_modes, transform, tracing = torch._C._len_torch_dispatch_stack, torch._C._functorch.maybe_current_level, torch._C._get_tracing_state
is_grad_enabled, empty = torch.is_grad_enabled, torch.empty
current_device = getattr(torch._C, "_cuda_getDevice", None)
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
BF16 = torch.bfloat16
# The device of a plan for the CPU; no tensor has it.
NO_DEVICE = -2
NO_SCRATCH = (None, 0, 0)


def needs_dispatcher(x: Tensor, bias: Tensor | None) -> bool:
    """Returns whether autograd, a mode, a transform or a tensor subclass must see the operator."""
    return (type(x) is not Tensor or dispatch_modes() > 0 or transform() is not None or tracing() is not None
            or (is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad))))


class LinearPlan:
    """A packed matrix at a fixed address, ready to be multiplied."""

    __slots__ = ("address", "counter_bytes", "device", "enqueue", "inputs", "needs", "outputs", "scratch", "scratch_bytes")

    def __init__(self, data: Tensor, shape: tuple[int, int], codec: str):
        self.address, self.device, self.counter_bytes = data.data_ptr(), NO_DEVICE, 0
        self.outputs, self.inputs = shape
        self.needs = {}  # bytes of scratch memory by number of tokens
        if data.is_cuda:
            load_nvrtc()
            with on_device(data):
                native = _native.LinearPlan(data.get_device(), codec, self.outputs, self.inputs, data.numel())
            self.device, self.enqueue, self.counter_bytes = data.get_device(), native.enqueue, native.counter_bytes(MAX_COUNTED_TOKENS)
            self.scratch_bytes = native.scratch_bytes
            self.scratch = scratch_pool(self.device, self.outputs, self.inputs)

    def __call__(self, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """Returns ``linear(x)``, or None if the operator has to do it."""
        device = self.device
        if x.get_device() != device or x.dtype is not BF16 or not x.is_contiguous() or needs_dispatcher(x, bias):
            return None
        size, bias_address = list(x.shape), 0
        if not size or size[-1] != self.inputs or current_device() != device:
            return None
        if bias is not None:
            if bias.get_device() != device or bias.dtype is not BF16 or not bias.is_contiguous() or bias.numel() != self.outputs:
                return None
            bias_address = bias.data_ptr()
        size[-1] = self.outputs
        y, stream = x.new_empty(size), current_stream(device)
        _, scratch, scratch_bytes = self.scratch.get(stream, NO_SCRATCH)
        values, counters, counter_bytes = x.numel(), 0, 0
        if (need := self.needs.get(values)) is None:
            need = self.needs[values] = self.scratch_bytes(values // self.inputs)
        if scratch_bytes < need and self.counter_bytes <= scratch_bytes:
            # A prompt needs more than is kept, of which only the kept counters must be zero.
            large = empty(need, dtype=torch.uint8, device=x.device)
            counters, counter_bytes, scratch, scratch_bytes = scratch, scratch_bytes, large.data_ptr(), need
        # Bare addresses, for the sake of host time: x, bias and y are variables of this call, the
        # weights the layer's buffer, scratch that of this call or of the stream.
        done = self.enqueue(stream, self.address, x.data_ptr(), values, bias_address, y.data_ptr(), scratch, scratch_bytes, counters, counter_bytes)
        return y if done else None
