"""Follows a training step's tensors in Caffe's layout: every blob's data and gradient (diff),
allocated for the whole run.

A blob is a layer's output and keeps its values until the next step overwrites them. ReLU and
dropout work in place on the previous layer's blob. A blob with several readers goes through a
Split, which gives each of them its own diff. Weights, their diffs and their history (momentum)
exist throughout; a step starts with zeroed weight diffs.

The arithmetic is PyTorch's: module outputs, forward and backward, are copied to the blobs at once.
Layers' private memory is not included: workspaces, dropout masks, prefetched batches.
"""

import contextlib

import torch
from torch import nn

from .tensors import Live, Tensors, address, flat

IN_PLACE = (nn.ReLU, nn.Dropout)


class Blobs(Tensors):
    """Follows the blobs of one model, with the interface of `Tensors`."""

    in_place = IN_PLACE

    def __init__(self, model, loss, optimizer, on_event):
        super().__init__(model, loss, optimizer, on_event)
        self.data, self.diff, self.module, self.arguments = {}, {}, None, ()
        self.calls, self.readers, self.split = {}, {}, set()

    def begin(self, batch):
        """Starts a new step. The readers counted in the previous step decide which blobs need a
        Split."""
        if [tensor.shape for tensor in batch] != [tensor.shape for tensor in self.batch]:
            self.data, self.diff = {}, {}
        super().begin(batch)
        self.small = {}
        self.split = {blob for blob, count in self.readers.items() if count > 1}
        self.calls, self.readers = {}, {}

    def hooks(self):
        return contextlib.nullcontext()

    def enter(self, name, module, args):
        """Called before a layer. Inputs from a Split become separate tensors, so that their
        gradients are distinct."""
        self.current, self.module, self.arguments = name, module, args
        if self.adds_nothing(module):
            return None
        return tuple(self.read(tensor) for tensor in args)

    def adds_nothing(self, module):
        return isinstance(module, (*self.in_place, nn.Flatten))

    def read(self, tensor):
        blob = self.made.get(address(tensor)) if tensor.requires_grad else None
        if blob is None:
            return tensor
        number = self.readers[blob] = self.readers.get(blob, 0) + 1
        if blob not in self.split:
            return tensor
        part = tensor.view_as(tensor)
        part.register_hook(lambda grad: hold(self.diff, f"{blob}.split{number}", grad))
        return part

    def leave(self, output):
        name, outputs = self.current, [tensor for tensor in flat(output) if tensor.is_floating_point()]
        same = self.made.get(address(self.arguments[0])) if self.adds_nothing(self.module) else None
        call = self.calls[name] = self.calls.get(name, 0) + 1
        for index, tensor in enumerate(outputs, 1):
            blob = same or name + (f".{call}" if call > 1 else "") + (f".out{index}" if index > 1 else "")
            self.made[address(tensor)] = blob
            hold(self.data, blob, tensor)
            if tensor.requires_grad:
                tensor.register_hook(lambda grad, blob=blob: self.back(name, blob, grad))
        if name == "loss":
            # SoftmaxWithLoss keeps its probabilities.
            hold(self.data, "loss.prob", self.arguments[0].detach().softmax(1))
        self.inside_forward(name, outputs)
        self.on_event("forward", name, None)

    def back(self, name, blob, grad):
        hold(self.diff, blob, grad)
        self.inside_backward(name, grad)
        self.on_event("backward", name, None)

    def inside_forward(self, name, outputs):
        """Holds what the layer keeps for itself after its forward pass."""

    def inside_backward(self, name, grad):
        """Holds what the layer keeps for itself after its backward pass."""

    def rows(self):
        """Returns everything that Caffe has allocated, of any size."""
        learned = [(layer, weight.grad) for layer, weight in self.parameters if weight.grad is not None]
        rows = self.everlasting + [Live("gradients", layer, grad) for layer, grad in learned]
        rows += [Live("input", key, tensor) for key, tensor in zip(["batch", "labels"], self.batch)]
        rows += [Live("activations", blob, tensor) for blob, tensor in self.data.items()]
        return rows + [Live("gradients", f"{blob}.output", tensor) for blob, tensor in self.diff.items()]

    def footprint(self):
        return sum(row.bytes for row in self.rows())

    def live(self, *_):
        return [row for row in self.rows() if self.large(row.bytes, row.name)]


class BvlcBlobs(Blobs):
    """Follows blobs with BVLC's batch normalisation instead of cuDNN's: two layers in place,
    BatchNorm and Scale, that keep four tensors of the blob's size (batch_norm_layer.cu and
    scale_layer.cu of BVLC/caffe).

    | tensor | forward | backward |
    |---|---|---|
    | `temp` | the deviation of its channel in every element | unchanged |
    | `x_norm` | the normalised input | unchanged |
    | `x_norm.output` | not written | the gradient that Scale passes on |
    | `scale_temp` | the normalised input | the gradient times the normalised input |
    """

    in_place = (*IN_PLACE, nn.BatchNorm2d)

    def begin(self, batch):
        super().begin(batch)
        self.norms = {}

    def inside_forward(self, name, outputs):
        if not isinstance(self.module, nn.BatchNorm2d):
            return
        x = self.arguments[0].detach()
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
        deviation = (variance + self.module.eps).sqrt()
        hold(self.data, f"{name}.temp", deviation.expand_as(x))
        for kept in ("x_norm", "scale_temp"):
            hold(self.data, f"{name}.{kept}", (x - mean) / deviation)
        self.norms[name] = self.module.weight.detach()[:, None, None]

    def inside_backward(self, name, grad):
        if name in self.norms:
            hold(self.data, f"{name}.scale_temp", grad * self.data[f"{name}.x_norm"])
            hold(self.diff, f"{name}.x_norm", grad * self.norms[name])


def hold(blobs, name, tensor):
    """Copies a tensor to the blob of that name, which is allocated once."""
    if name not in blobs:
        blobs[name] = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    blobs[name].copy_(tensor.detach().reshape(blobs[name].shape))

