"""What is cheap to compute again is neither kept nor packed: the output of an activation or a normalisation whose input is kept anyway.

A hook notes which module made a tensor of what. When autograd saves that tensor for the next operation, its input is packed already,
saved by the module's own backward; so the output is computed from it again when it is asked for. That costs less than packing it.
Batch normalisation of our own notes the mean and the deviation with it, and a ReLU in place after it is one more step of the same.
Looks (``Policy``) compare the two to the bit; where they differ, the tensor is packed like any other.
"""

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from .kept import Part, changed
from .modules import Product, Square

# Functions of their input and their parameters alone, whose backward keeps the input.
CHEAP = (nn.GELU, nn.SiLU, nn.LayerNorm, nn.RMSNorm, Square, Product)


class Made:
    """A tensor that a module made: how, and the memory of its inputs, which may be gone by now. Only weak references are held, so that
    the identities stay theirs; and ``kept``, if autograd has the input without us."""

    __slots__ = ("module", "function", "with_relu", "output", "version", "inputs", "kept")

    def __init__(self, module, inputs, output, function=None, with_relu=None, kept=None):
        self.module, self.version, self.function = module, output._version, function or module.forward
        self.with_relu, self.kept = with_relu, kept
        self.output = StorageWeakRef(output.untyped_storage())
        self.inputs = [(StorageWeakRef(one.untyped_storage()), one._version, Part(None, one)) for one in inputs]

    def then_relu_(self):
        """The next thing that happens to it is a ReLU in place."""
        before = self.function
        self.function, self.version = self.with_relu or (lambda *inputs: before(*inputs).relu_()), self.version + 1

    def sources(self, known):
        """The inputs as parts of memory that is kept; None if one is not."""
        parts = []
        for storage, version, part in self.inputs:
            kept = known.get(storage.cdata)
            if kept is None or kept.version != version:
                return None
            parts.append(part.of(kept))
        return parts


def plain_call(module, inputs, output):
    """Whether a call can be done again: plain tensors in, a new contiguous one out, and nothing hooked on that changes either."""
    tensors = [*inputs, output]
    if not all(type(one) in (torch.Tensor, nn.Parameter) and not one.is_inference() for one in tensors):
        return False
    if len(module._forward_hooks) != 1 or module._forward_pre_hooks or nn.modules.module._global_forward_hooks:
        return False
    size = output.numel() * output.element_size()
    fresh = output.untyped_storage()
    return fresh.nbytes() == size and all(one.untyped_storage()._cdata != fresh._cdata for one in inputs)


class Again:
    """A storage that is computed again when it is asked for; used like a ``Kept``."""

    __slots__ = ("storage", "address", "size", "version", "function", "sources", "parameters", "restored", "held", "uses", "__weakref__")
    # As a Kept of which nothing plain is left.
    tensor = site = None

    def __init__(self, tensor, made, sources):
        storage = tensor.untyped_storage()
        self.storage, self.address, self.size = StorageWeakRef(storage), storage.data_ptr(), storage.nbytes()
        self.version, self.function, self.sources, self.restored = tensor._version, made.function, sources, None
        self.held, self.uses = None, 0
        self.parameters = [(one, one._version) for one in made.module.parameters()]

    def is_of(self, tensor, storage):
        return (not self.storage.expired() and tensor._version == self.version
                and (storage.data_ptr(), storage.nbytes()) == (self.address, self.size))

    def compute(self, hold=False):
        """The module's output from its inputs as they were."""
        for parameter, version in self.parameters:
            if parameter._version != version:
                raise changed(parameter, version)
        inputs = [part.unpack(hold) for part in self.sources]
        with torch.no_grad():
            if not torch.is_autocast_enabled(inputs[0].device.type):
                return self.function(*inputs)
            with torch.autocast(inputs[0].device.type, enabled=False):
                return self.function(*inputs)

    def restore(self, hold=False):
        """A storage with the bytes as they were; it is there until all who saved it had it."""
        storage = self._restore()
        self.uses -= 1
        self.held = storage if self.uses > 0 else None
        return storage

    def _restore(self):
        if self.restored is not None and not self.restored.expired():
            if (storage := torch.UntypedStorage._new_with_weak_ptr(self.restored.cdata)) is not None:
                return storage
        # The module's own backward comes soon and wants the input too.
        storage = self.compute(hold=True).untyped_storage()
        self.restored = StorageWeakRef(storage)
        return storage
