"""Recomputation of cheap outputs: an activation or normalisation whose input is saved anyway is not
saved itself.

A module hook records which module produced a tensor. When autograd saves that tensor for the next
operation, the input has already been saved by the module's own backward, and the output is
recomputed from it; that costs less than packing. Our batch normalisation records mean and deviation
too, and a following in-place ReLU is part of the recomputation. Surveys (``Policy``) compare the
bits; where they differ, the tensor is packed instead.
"""

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from .modules import Multiply, Square
from .saved_tensors import SavedStorage, SavedView, version_error

# Modules that are functions of their input and parameters only, and whose backward saves the input.
CHEAP = (nn.GELU, nn.SiLU, nn.LayerNorm, nn.RMSNorm, Square, Multiply)


class Producer:
    """The module call that produced a tensor: its function, its inputs and other arguments.

    Holds weak references to the inputs, unless their views are given: a live reference keeps an
    identity from being reused.
    """

    __slots__ = ("module", "function", "others", "relu", "output", "version", "inputs", "views")

    def __init__(self, module, output, inputs, views=None, function=None, others=()):
        self.module, self.version, self.function, self.others, self.relu = module, output._version, function or module.forward, others, False
        self.output = StorageWeakRef(output.untyped_storage())
        self.views, self.inputs = views, ()
        if views is None:
            self.inputs = [(StorageWeakRef(one.untyped_storage()), one._version, SavedView(None, one)) for one in inputs]

    def add_relu_(self):
        """Appends an in-place ReLU to the recomputation."""
        self.relu, self.version = True, self.version + 1

    def sources(self, memory):
        """Returns the inputs as views of saved storages; None if one is not saved."""
        if self.views is not None:
            return self.views
        views = []
        for storage, version, view in self.inputs:
            saved = memory._find(storage.cdata)
            if saved is None or saved.version != version:
                return None
            views.append(view.of(saved))
        return views


def is_repeatable(module, inputs, output):
    """Returns whether a call can be repeated: plain tensors in, a new contiguous tensor out, and no
    hooks but ours."""
    if not inputs:
        return False  # passed by keyword
    for one in (*inputs, output):
        if type(one) not in (torch.Tensor, nn.Parameter) or one.is_inference():
            return False
    if len(module._forward_hooks) != 1 or len(module._forward_pre_hooks) != 1 or nn.modules.module._global_forward_hooks:
        return False
    fresh = output.untyped_storage()
    return fresh.nbytes() == output.nbytes and all(one.untyped_storage()._cdata != fresh._cdata for one in inputs)


class RecomputedStorage(SavedStorage):
    """A storage that is recomputed on demand."""

    __slots__ = ("function", "others", "relu", "sources", "parameters")
    site = None

    def __init__(self, tensor, storage, producer, sources):
        super().__init__(tensor, storage, producer.output)
        self.function, self.others, self.relu, self.sources = producer.function, producer.others, producer.relu, sources
        module = producer.module
        parameters = module.parameters() if module._modules else module._parameters.values()
        self.parameters = [(one, one._version) for one in parameters if one is not None]

    def compute(self, hold=False):
        """Recomputes the output. Raises if a parameter was modified in place."""
        for parameter, version in self.parameters:
            if parameter._version != version:
                raise version_error(parameter, version)
        inputs = [view.unpack(hold) for view in self.sources]
        device = inputs[0].device.type
        if torch.is_grad_enabled() or torch.is_autocast_enabled(device):
            with torch.no_grad(), torch.autocast(device, enabled=False):
                return self._compute(inputs)
        return self._compute(inputs)

    def _compute(self, inputs):
        if self.others:
            return self.function(*inputs, *self.others, self.relu)
        output = self.function(*inputs)
        return output.relu_() if self.relu else output

    def restore(self, view, hold=False):
        """Returns a view; the storage is held until every user has had it."""
        self.uses -= 1
        return super().restore(view, self.uses > 0)

    def make(self, view):
        # The module's own backward follows soon and needs the input too.
        return self.compute(hold=True)
