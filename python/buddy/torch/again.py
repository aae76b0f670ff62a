"""What is cheap to compute again is neither kept nor packed: the output of an activation or a normalisation whose input is kept anyway.

A hook notes which module made a tensor of what. When autograd saves that tensor for the next operation, its input is packed already,
saved by the module's own backward; so the output is computed from it again when it is asked for. That costs less than packing it.
Batch normalisation of our own notes the mean and the deviation with it, and a ReLU in place after it is one more step of the same.
Looks (``Policy``) compare the two to the bit; where they differ, the tensor is packed like any other.
"""

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from .kept import Memory, Part, changed
from .modules import Product, Square

# Functions of their input and their parameters alone, whose backward keeps the input.
CHEAP = (nn.GELU, nn.SiLU, nn.LayerNorm, nn.RMSNorm, Square, Product)


class Made:
    """A tensor that a module made: by which function of its inputs and of what else, and where the inputs are. Unless that is known,
    only weak references are held: the inputs may be gone by now, and the identities stay theirs."""

    __slots__ = ("module", "function", "others", "relu", "output", "version", "inputs", "parts")

    def __init__(self, module, output, inputs, parts=None, function=None, others=()):
        self.module, self.version, self.function, self.others, self.relu = module, output._version, function or module.forward, others, False
        self.output = StorageWeakRef(output.untyped_storage())
        self.parts, self.inputs = parts, ()
        if parts is None:
            self.inputs = [(StorageWeakRef(one.untyped_storage()), one._version, Part(None, one)) for one in inputs]

    def then_relu_(self):
        """The next thing that happens to it is a ReLU in place."""
        self.relu, self.version = True, self.version + 1

    def sources(self, memory):
        """The inputs as parts of memory that is kept; None if one is not."""
        if self.parts is not None:
            return self.parts
        parts = []
        for storage, version, part in self.inputs:
            kept = memory._find(storage.cdata)
            if kept is None or kept.version != version:
                return None
            parts.append(part.of(kept))
        return parts


def plain_call(module, inputs, output):
    """Whether a call can be done again: plain tensors in, a new contiguous one out, and nothing hooked on that changes either."""
    if not inputs:
        return False  # they were given by name
    for one in (*inputs, output):
        if type(one) not in (torch.Tensor, nn.Parameter) or one.is_inference():
            return False
    if len(module._forward_hooks) != 1 or len(module._forward_pre_hooks) != 1 or nn.modules.module._global_forward_hooks:
        return False  # not ours alone
    fresh = output.untyped_storage()
    return fresh.nbytes() == output.nbytes and all(one.untyped_storage()._cdata != fresh._cdata for one in inputs)


class Again(Memory):
    """Memory that is computed again when it is asked for."""

    __slots__ = ("function", "others", "relu", "sources", "parameters")
    site = None

    def __init__(self, tensor, storage, made, sources):
        # The same reference as the one that noted who made it.
        super().__init__(tensor, storage, made.output)
        self.function, self.others, self.relu, self.sources = made.function, made.others, made.relu, sources
        module = made.module
        parameters = module.parameters() if module._modules else module._parameters.values()
        self.parameters = [(one, one._version) for one in parameters if one is not None]

    def compute(self, hold=False):
        """The module's output from its inputs as they were."""
        for parameter, version in self.parameters:
            if parameter._version != version:
                raise changed(parameter, version)
        inputs = [part.unpack(hold) for part in self.sources]
        device = inputs[0].device.type
        if torch.is_grad_enabled() or torch.is_autocast_enabled(device):
            with torch.no_grad(), torch.autocast(device, enabled=False):
                return self._compute(inputs)
        return self._compute(inputs)

    def _compute(self, inputs):
        if self.others:
            return self.function(*inputs, *self.others, self.relu)
        made = self.function(*inputs)
        return made.relu_() if self.relu else made

    def give(self, part, hold=False):
        """A part of it; the memory is there until all who saved it had it."""
        self.uses -= 1
        return super().give(part, self.uses > 0)

    def make(self, part):
        # The module's own backward comes soon and wants the input too.
        return self.compute(hold=True)
