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
from .kept import Kept, over
from .layout import ENTRY, room
from .ops import on_device, place, span

aten = torch.ops.aten


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
        on_cpu = x.device.type == "cpu"
        super().__init__(kind.kept(x) if on_cpu else x, site)
        self.kind, self.size_of, self.stride_of = kind, x.size(), x.stride()

    def forward(self, told, take, y):
        """Writes the activation's output, to the input's own memory if y is that. On a GPU one kernel writes both; ``told`` and ``take`` as
        for ``Kept.pack``."""
        site = self.site
        if told is None:
            self.pack(site, told, take)
            y.copy_(self.kind.forward(self.tensor))
            return
        self.how, self.capacity, self.told = (site.codec, site.target, 0), site.sectors, told
        x = self.tensor
        self.packed = take(room(site.target, 0, self.size, site.sectors), x.device)
        with on_device(x):
            _native.activate(place(x), self.how, self.kind.name, span(x), span(y), span(self.packed), told.data_ptr())
            self.stream = torch.cuda.current_stream(self.device)
            x.record_stream(self.stream)
        if y.data_ptr() == x.data_ptr():
            torch.autograd.graph.increment_version(y)

    def ready(self):
        """The packed form for the current stream, or None if it had no room: then the plain one is in ``tensor``."""
        if self.plain() is not None and self.packed is None:
            return None
        if self.stream is not None and place(self.packed)[1] != self.stream.cuda_stream:
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self.stream)
            self.packed.record_stream(current)
        return self.packed

    def unpack(self):
        """What backward is given: the packed bytes, or the plain tensor."""
        packed = self.ready()
        return self.tensor if packed is None else packed

    def output(self):
        """The activation's output again."""
        packed = self.ready()
        if packed is None or self.device.type == "cpu":
            return self.kind.forward(self.kind.kept(self.tensor if packed is None else self.values(packed)))
        y = self.empty()
        with on_device(y):
            _native.activated(place(y), self.how, self.kind.name, span(packed), span(y))
        return y

    def values(self, packed):
        """What is packed."""
        values = self.empty()
        with on_device(values):
            _native.read_frozen(place(values), self.how, span(packed), span(values))
        return values

    def empty(self):
        return torch.empty_strided(self.size_of, self.stride_of, dtype=torch.bfloat16, device=self.device)

    def gradient(self, saved, of_output):
        """The input's gradient, from what ``unpack`` gave."""
        if saved.dtype != torch.uint8:
            return self.kind.backward(self.kind.kept(saved), of_output)
        if self.device.type == "cpu":
            return self.kind.backward(self.values(saved), of_output)
        if of_output.stride() != self.stride_of or of_output.data_ptr() % 16:
            of_output = self.empty().copy_(of_output)
        to = self.empty()
        with on_device(to):
            _native.activation_gradients(place(to), self.how, self.kind.name, span(saved), span(of_output), span(to))
        return to

    def agrees(self, x):
        """Whether outputs and gradients are PyTorch's, to the bit, on this input; waits for the GPU."""
        told = None if self.device.type == "cpu" else torch.zeros((), dtype=torch.int32, pin_memory=True)
        y, kept = torch.empty_like(x), self.kind.kept(x)
        self.forward(told, lambda size, device: torch.empty(size, dtype=torch.uint8, device=device), y)
        wanted, gradient = self.kind.forward(kept), self.kind.backward(kept, x)
        if told is not None:
            torch.cuda.synchronize(self.device)
        pairs = [(y, wanted)]
        if self.settle():
            pairs += [(self.output(), wanted), (self.gradient(self.packed, x), gradient)]
        return all(torch.equal(one.view(torch.int16), other.view(torch.int16)) for one, other in pairs)


class Output:
    """The storage that an activation's output was in, computed again when it is asked for; used like a ``Kept``."""

    __slots__ = ("storage", "address", "size", "version", "of", "restored", "uses", "__weakref__")
    tensor = site = None

    def __init__(self, y, of):
        storage = y.untyped_storage()
        self.storage, self.address, self.size = StorageWeakRef(storage), storage.data_ptr(), storage.nbytes()
        self.version, self.of, self.restored, self.uses = y._version, of, None, 0

    is_of = Kept.is_of

    def restore(self, hold=False):
        if self.restored is not None and not self.restored.expired():
            if (storage := torch.UntypedStorage._new_with_weak_ptr(self.restored.cdata)) is not None:
                return storage
        storage = self.of.output().untyped_storage()
        self.restored = StorageWeakRef(storage)
        return storage


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

    __slots__ = ("kind", "size_of", "stride_of", "device", "how")
    gradient, values, empty = Activated.gradient, Activated.values, Activated.empty

    def __init__(self, kept):
        self.kind, self.size_of, self.stride_of, self.device, self.how = kept.kind, kept.size_of, kept.stride_of, kept.device, kept.how
