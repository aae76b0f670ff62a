"""Activations whose forward packs what backward needs in the same kernel, and whose backward reads it packed.

Within ``compress_saved`` a ReLU keeps its output packed, whose zeros take a bit each; what is put out, its square or the same, which
the next layer saves, is computed again from that. Outside, and wherever that is not possible or does not pay, each is PyTorch's
own. Results are PyTorch's to the bit: looks (``Policy``) compare them on the data that is there. On the CPU the same is done in steps.
"""

import dataclasses
from typing import Callable

import torch
from torch.autograd.function import once_differentiable
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _native
from .kept import Kept, Memory
from .layout import ENTRY
from .ops import call_on, span
from .slabs import Room

aten = torch.ops.aten
# Where a buffer's header has the number of sectors that overflow.
AT_SECTORS = slice(48, 52)


@dataclasses.dataclass(frozen=True)
class Kind:
    """An activation in PyTorch's steps: the output from what is kept, and the input's gradient from that and the output's."""

    name: str
    forward: Callable[[torch.Tensor], torch.Tensor]
    backward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def kept(self, x):
        """What is kept of the input; the same of itself."""
        return torch.relu(x)


def _relu_backward(r, g):
    return aten.threshold_backward(g, r, 0)


RELU = Kind("relu", torch.clone, _relu_backward)
SQUARED_RELU = Kind("squared_relu", torch.square, lambda r, g: _relu_backward(r, g * (2 * r)))


def activate(kind, x, plain, in_place=False):
    """The activation of x: packed if autograd's innermost hooks are ``compress_saved``'s and it pays there, else ``plain(x)``."""
    memory = memory_of(x)
    site = memory.plan_activation(kind, x) if memory is not None and suits(x) else None
    if site is None:
        return plain(x)
    y = _Activated.apply(x, kind, in_place, memory, site)
    memory.note_activated(y)
    return y


def memory_of(x):
    """The memory of ``compress_saved`` that keeps what autograd saves of x, if it will be asked."""
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and x.requires_grad):
        return None
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    memory = getattr(hooks[0], "__self__", None) if hooks else None
    return memory if hasattr(memory, "plan_activation") else None


def suits(x):
    """Whether a tensor is bf16 values that fill their memory, whole entries of them, in any order of dimensions."""
    return (type(x) is torch.Tensor and x.dtype == torch.bfloat16 and x.device.type in ("cpu", "cuda") and x.numel() > 0
            and x.untyped_storage().nbytes() == 2 * x.numel() and 2 * x.numel() % ENTRY == 0 and x.data_ptr() % 16 == 0
            and not x.is_inference() and torch._debug_has_internal_overlap(x) == 0)


class Activated(Kept):
    """What an activation keeps; packed when it is made. ``tensor`` is the plain form, until the packed one is known to have room."""

    __slots__ = ("kind", "size_of", "stride_of")

    def __init__(self, x, kind, site):
        kept = kind.kept(x) if x.device.type == "cpu" else x
        super().__init__(kept, kept.untyped_storage(), site)
        self.kind, self.size_of, self.stride_of = kind, x.size(), x.stride()

    def forward(self, take, told, beside, y):
        """Writes the activation's output, to the input's own memory if y is that. On a GPU one kernel writes both; the rest as for
        ``Kept.pack``."""
        if self.device.type == "cpu":
            self.pack(take, told, beside)
            y.copy_(self.kind.forward(self.tensor))
            return
        self.begin(take, told, beside)
        address = told.address if told is not None else 0
        call_on(self.device, _native.activate, self.how, self.kind.name, (self.address, self.size), span(y), self.packed.span(), address,
                self.overflow(), self.packed.sums)
        if y.data_ptr() == self.address:
            torch.autograd.graph.increment_version(y)

    def ready(self):
        """Whether there is a packed form, for the current stream; without, because it had no room, the plain one is in ``tensor``."""
        if self.plain() and self.packed is None:
            return False
        self.wait()
        return True

    def unpack(self):
        """What backward is given: the packed bytes, or the plain tensor."""
        return self.packed.tensor() if self.ready() else self.tensor

    def output(self):
        """The activation's output again."""
        if not self.ready():
            return self.kind.forward(self.kind.kept(self.tensor))
        if self.device.type == "cpu":
            return self.kind.forward(self.kind.kept(self.values(self.packed.span())))
        y = self.empty()
        call_on(self.device, _native.activated, self.how, self.kind.name, self.packed.span(), span(y), self.overflow())
        self.done()
        return y

    def values(self, packed):
        """What is packed there."""
        values = self.empty()
        call_on(self.device, _native.read_frozen, self.how, packed, span(values), self.overflow())
        return values

    def empty(self):
        return torch.empty_strided(self.size_of, self.stride_of, dtype=torch.bfloat16, device=self.device)

    def gradient(self, saved, of_output):
        """The input's gradient, from what ``unpack`` gave."""
        if saved.dtype != torch.uint8:
            return self.kind.backward(self.kind.kept(saved), of_output)
        if self.device.type == "cpu":
            return self.kind.backward(self.values(span(saved)), of_output)
        if of_output.stride() != self.stride_of or of_output.data_ptr() % 16:
            of_output = self.empty().copy_(of_output)
        to = self.empty()
        call_on(self.device, _native.activation_gradients, self.how, self.kind.name, span(saved), span(of_output), span(to), self.overflow())
        return to

    def agrees(self, x, beside):
        """Whether outputs and gradients are PyTorch's, to the bit, on this input; waits for the GPU."""
        y, kept = torch.empty_like(x), self.kind.kept(x)
        self.forward(lambda size, device: Room(torch.empty(size, dtype=torch.uint8, device=device), 0, size), None, beside, y)
        sectors = self.sectors if self.device.type == "cpu" else int(self.packed.tensor()[AT_SECTORS].view(torch.int32))
        wanted, gradient = self.kind.forward(kept), self.kind.backward(kept, x)
        pairs = [(y, wanted)]
        if self.settle(sectors):
            pairs += [(self.output(), wanted), (self.gradient(self.packed.tensor(), x), gradient)]
        return all(torch.equal(one.view(torch.int16), other.view(torch.int16)) for one, other in pairs)


class Output(Memory):
    """The storage that an activation's output was in, computed again when it is asked for."""

    __slots__ = ("of",)
    site = None

    def __init__(self, y, of):
        storage = y.untyped_storage()
        super().__init__(y, storage, StorageWeakRef(storage))
        self.of = of

    def make(self, part):
        return self.of.output()


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kind, in_place, memory, site):
        kept, y = Activated(x.detach(), kind, site), x if in_place else torch.empty_like(x)
        if in_place:
            ctx.mark_dirty(x)
        # The shape and the rest without the memory, which autograd keeps and lets go.
        ctx.save_for_backward(memory.keep_activation(kept, y))
        ctx.shape = Shape(kept)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, of_output):
        (saved,) = ctx.saved_tensors
        return ctx.shape.gradient(saved, of_output), None, None, None, None


class Shape:
    """What is known of an ``Activated`` without its memory."""

    __slots__ = ("kind", "size_of", "stride_of", "device", "how", "beside")
    gradient, values, empty, overflow = Activated.gradient, Activated.values, Activated.empty, Activated.overflow

    def __init__(self, kept):
        self.kind, self.size_of, self.stride_of, self.device, self.how = kept.kind, kept.size_of, kept.stride_of, kept.device, kept.how
        self.beside = kept.beside
