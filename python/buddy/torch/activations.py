"""Activations whose forward kernel packs what backward needs, and whose backward kernel reads it
packed.

Within ``compress_saved`` a ReLU saves its output packed, where a zero takes one bit. The output
that the next layer saves is recomputed from that. Elsewhere, and where packing is impossible or
does not pay, PyTorch's own kernels run. Results are bit-equal to PyTorch's; surveys (``Policy``)
verify this on the data. The CPU does the same in separate steps.
"""

import dataclasses
from typing import Callable

import torch
from torch.autograd.function import once_differentiable
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _native
from .arena import ArenaBlock
from .layout import ENTRY
from .ops import call_native, span
from .saved_tensors import PackedStorage, SavedStorage

aten = torch.ops.aten
# Bytes of a buffer's header that hold the count of overflowing sectors.
SECTORS_FIELD = slice(48, 52)


@dataclasses.dataclass(frozen=True)
class Kind:
    """An activation in PyTorch's operations: the output from the saved tensor, and the input's
    gradient from that and the output's."""

    name: str
    forward: Callable[[torch.Tensor], torch.Tensor]
    backward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def saved(self, x):
        """Returns what is saved of the input. Idempotent."""
        return torch.relu(x)


def _relu_backward(r, g):
    return aten.threshold_backward(g, r, 0)


RELU = Kind("relu", torch.clone, _relu_backward)
SQUARED_RELU = Kind("squared_relu", torch.square, lambda r, g: _relu_backward(r, g * (2 * r)))


def activate(kind, x, plain, in_place=False):
    """Applies an activation: packed if autograd's innermost hooks are ``compress_saved``'s and
    packing pays, else ``plain(x)``."""
    memory = memory_of(x)
    site = memory.plan_activation(kind, x) if memory is not None and can_pack(x) else None
    if site is None:
        return plain(x)
    y = _Activation.apply(x, kind, in_place, memory, site)
    memory.update_version(y)
    return y


def memory_of(x):
    """Returns the ``SavedMemory`` whose hooks autograd will call for x, if any."""
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and x.requires_grad):
        return None
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    memory = getattr(hooks[0], "__self__", None) if hooks else None
    return memory if hasattr(memory, "plan_activation") else None


def can_pack(x):
    """Returns whether x is dense bf16 that fills its storage with whole entries, in any order of
    dimensions."""
    return (type(x) is torch.Tensor and x.dtype == torch.bfloat16 and x.device.type in ("cpu", "cuda") and x.numel() > 0
            and x.untyped_storage().nbytes() == 2 * x.numel() and 2 * x.numel() % ENTRY == 0 and x.data_ptr() % 16 == 0
            and not x.is_inference() and torch._debug_has_internal_overlap(x) == 0)


class PackedActivation(PackedStorage):
    """The packed input of an activation. ``tensor`` is the plain form, until the packed one is
    known to have room."""

    __slots__ = ("kind", "size_of", "stride_of")

    def __init__(self, x, kind, site):
        kept = kind.saved(x) if x.device.type == "cpu" else x
        super().__init__(kept, kept.untyped_storage(), site)
        self.kind, self.size_of, self.stride_of = kind, x.size(), x.stride()

    def forward(self, take, status, pinned, y):
        """Writes the output to y, which may be the input's own memory. On a GPU one kernel writes
        output and packed form. The other arguments are those of ``PackedStorage.pack``."""
        if self.device.type == "cpu":
            self.pack(take, status, pinned)
            y.copy_(self.kind.forward(self.tensor))
            return
        self.begin(take, status, pinned)
        address = status.address if status is not None else 0
        source = _native.Span(self.tensor, self.address, self.size)
        call_native(self.device, _native.activation_forward, self.format, self.kind.name, source, span(y), self.packed.span(), address,
                    self.overflow(), self.packed.counters)
        if y.data_ptr() == self.address:
            torch.autograd.graph.increment_version(y)

    def is_packed(self):
        """Returns whether there is a packed form, and makes the current stream wait for it. Without
        one ``tensor`` is the plain form."""
        if self.is_plain() and self.packed is None:
            return False
        self.wait()
        return True

    def unpack(self):
        """Returns what backward is given: the packed bytes, or the plain tensor."""
        return self.packed.tensor() if self.is_packed() else self.tensor

    def output(self):
        """Recomputes the output."""
        if not self.is_packed():
            return self.kind.forward(self.kind.saved(self.tensor))
        if self.device.type == "cpu":
            return self.kind.forward(self.kind.saved(self.values(self.packed.span())))
        y = self.empty()
        call_native(self.device, _native.activation_output, self.format, self.kind.name, self.packed.span(), span(y), self.overflow())
        self.done()
        return y

    def values(self, packed):
        """Unpacks the saved values."""
        values = self.empty()
        call_native(self.device, _native.unpack, self.format, packed, span(values), self.overflow())
        return values

    def empty(self):
        return torch.empty_strided(self.size_of, self.stride_of, dtype=torch.bfloat16, device=self.device)

    def gradient(self, saved, grad_output):
        """Returns the input's gradient, from what ``unpack`` returned."""
        if saved.dtype != torch.uint8:
            return self.kind.backward(self.kind.saved(saved), grad_output)
        if self.device.type == "cpu":
            return self.kind.backward(self.values(span(saved)), grad_output)
        if grad_output.stride() != self.stride_of or grad_output.data_ptr() % 16:
            grad_output = self.empty().copy_(grad_output)
        to = self.empty()
        call_native(self.device, _native.activation_backward, self.format, self.kind.name, span(saved), span(grad_output), span(to),
                    self.overflow())
        return to

    def agrees(self, x, pinned):
        """Returns whether outputs and gradients equal PyTorch's bit for bit on this input.
        Synchronises with the GPU."""
        y, kept = torch.empty_like(x), self.kind.saved(x)
        self.forward(lambda size, device: ArenaBlock(torch.empty(size, dtype=torch.uint8, device=device), 0, size), None, pinned, y)
        sectors = self.sectors if self.device.type == "cpu" else int(self.packed.tensor()[SECTORS_FIELD].view(torch.int32))
        wanted, gradient = self.kind.forward(kept), self.kind.backward(kept, x)
        pairs = [(y, wanted)]
        if self.settle(sectors):
            pairs += [(self.output(), wanted), (self.gradient(self.packed.tensor(), x), gradient)]
        return all(torch.equal(one.view(torch.int16), other.view(torch.int16)) for one, other in pairs)


class ActivationOutput(SavedStorage):
    """The storage of an activation's output, recomputed on demand."""

    __slots__ = ("of",)
    site = None

    def __init__(self, y, of):
        storage = y.untyped_storage()
        super().__init__(y, storage, StorageWeakRef(storage))
        self.of = of

    def make(self, view):
        return self.of.output()


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kind, in_place, memory, site):
        packed, y = PackedActivation(x.detach(), kind, site), x if in_place else torch.empty_like(x)
        if in_place:
            ctx.mark_dirty(x)
        # The metadata without the memory, which autograd holds and releases.
        ctx.save_for_backward(memory.save_activation(packed, y))
        ctx.activation = ActivationMetadata(packed)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (saved,) = ctx.saved_tensors
        return ctx.activation.gradient(saved, grad_output), None, None, None, None


class ActivationMetadata:
    """A ``PackedActivation`` without its memory."""

    __slots__ = ("kind", "size_of", "stride_of", "device", "format", "pinned")
    gradient, values, empty, overflow = PackedActivation.gradient, PackedActivation.values, PackedActivation.empty, PackedActivation.overflow

    def __init__(self, packed):
        self.kind, self.size_of, self.stride_of = packed.kind, packed.size_of, packed.stride_of
        self.device, self.format, self.pinned = packed.device, packed.format, packed.pinned
