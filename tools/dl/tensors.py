"""Follows the live tensors of a training step: weights, gradients, optimizer state, activations.

Hooks on the leaf modules record which module makes which tensor. A tensor that autograd saves for
the backward pass is held by a small object that dies when autograd releases it, so the set of live
activations is always exact.
"""

import copy
import weakref

import torch

KINDS = ["weights", "gradients", "optimizer", "activations", "input"]
# Smaller tensors are omitted, and counted.
SMALLEST = 64 * 1024


class Saved:
    """A tensor saved by autograd. The detached tensor shares its memory without a reference to the
    graph."""

    def __init__(self, tensor, order):
        self.tensor, self.order, self.row = tensor.detach(), order, None

    def call(self, name):
        """Sets its name. A weight in another type counts as a weight."""
        self.row = Live("weights" if ".cast" in name else "activations", name, self.tensor, numbers_in(self.tensor, name))


class Live:
    """One live piece of memory."""

    __slots__ = ("kind", "name", "data", "bytes", "dtype")

    def __init__(self, kind, name, tensor, dtype=None):
        storage = tensor.untyped_storage()
        self.kind, self.name, self.data, self.bytes = kind, f"{kind}/{name}", storage.data_ptr(), storage.nbytes()
        self.dtype = dtype or tensor.dtype


class Tensors:
    """Follows the tensors of one model. `on_event` is called when a module has run, forward or
    backward."""

    def __init__(self, model, loss, optimizer, on_event):
        self.optimizer, self.on_event = optimizer, on_event
        self.saved, self.made, self.order = weakref.WeakSet(), {}, 0
        self.current, self.inputs, self.fresh, self.inside = None, set(), [], []
        self.batch, self.device = (), next(model.parameters()).device
        self.lasting, self.everlasting, self.small = [], [], {}
        self.layers = [name for name, _ in model.named_modules() if name] + ["loss"]
        self.parameters = named_weights(model)
        self.owned = {address(tensor) for _, tensor in self.parameters}
        for name, module in [*model.named_modules(), ("loss", loss)]:
            if not list(module.children()):
                module.register_forward_pre_hook(lambda module, args, name=name: self.enter(name, module, args))
                module.register_forward_hook(lambda module, args, output: self.leave(output))

    def begin(self, batch):
        """Starts a new step: tensors of the previous one are gone, weights and optimizer state
        stay."""
        self.batch, self.small = batch, {}
        self.made.clear()
        rows = [Live("weights", layer, weight) for layer, weight in self.parameters]
        for layer, weight in self.parameters:
            for key, state in self.optimizer.state.get(weight, {}).items():
                if isinstance(state, torch.Tensor) and state.dim() > 0:
                    rows.append(Live("optimizer", f"{layer}.{key}", state))
        self.everlasting = rows
        self.lasting = [row for row in rows if self.large(row.bytes, row.kind, row.data)]
        self.learned = [(layer, weight) for layer, weight in self.parameters
                        if self.large(weight.untyped_storage().nbytes(), "gradients", id(weight))]

    def large(self, size, *key):
        """Returns whether memory is large enough to follow; counts it otherwise."""
        if size < SMALLEST:
            self.small[key] = size
        return size >= SMALLEST

    def hooks(self):
        """Returns the context in which the forward pass must run."""
        return torch.autograd.graph.saved_tensors_hooks(self.pack, lambda saved: saved.tensor)

    def enter(self, name, module, args):
        self.current, self.fresh, self.inside = name, [], [sorted(p.shape) for p in module.parameters(recurse=False)]
        self.inputs = {address(tensor) for tensor in args if isinstance(tensor, torch.Tensor)}

    def pack(self, tensor):
        saved = Saved(tensor, self.order)
        self.order += 1
        large = self.large(tensor.untyped_storage().nbytes(), "saved", address(tensor))
        if large and address(tensor) not in self.owned:
            self.saved.add(saved)
            if self.current is None or address(tensor) in self.inputs:
                saved.call(self.made.get(address(tensor), "other"))
            else:
                self.fresh.append(saved)
        return saved

    def leave(self, output):
        outputs = [tensor for tensor in flat(output) if tensor.is_floating_point()]
        for tensor in outputs:
            # A tensor changed in place keeps the name of the layer that made it.
            if address(tensor) not in self.inputs:
                self.made[address(tensor)] = self.current
        made, extra = {address(tensor) for tensor in outputs}, {}
        for saved in self.fresh:
            where = address(saved.tensor)
            if where in made:
                saved.call(self.made[where])
            else:
                # Internal to the layer: a weight copied to another type, a mask, indices,
                # statistics.
                shape = sorted(saved.tensor.shape)
                copied = shape in self.inside and saved.tensor.is_floating_point()
                suffix = f"cast{self.inside.index(shape) or ''}" if copied else f"saved{len(extra) + 1}"
                saved.call(extra.setdefault(where, f"{self.current}.{suffix}"))
        name = self.current
        self.current, self.inputs, self.fresh = None, set(), []
        for tensor in outputs[:1]:
            if tensor.requires_grad:
                tensor.register_hook(lambda grad, name=name: self.on_event("backward", name, grad))
        self.on_event("forward", name, outputs[0] if outputs else None)

    def place(self, name):
        """Returns the position of a layer, such as that of gradients/conv1.output, in the forward
        order."""
        layer = name.split("/", 1)[1]
        while layer and layer not in self.layers:
            layer = layer.rpartition(".")[0]
        return self.layers.index(layer) if layer else len(self.layers)

    def live(self, phase, name, tensor):
        """Returns everything that is live, each piece of memory once."""
        rows = [Live("gradients", layer, w.grad) for layer, w in self.learned if w.grad is not None]
        rows += [Live("input", key, tensor) for key, tensor in zip(["batch", "labels"], self.batch)]
        rows += [saved.row for saved in sorted(self.saved, key=lambda saved: saved.order)]
        if tensor is not None and phase == "forward":
            rows.append(Live("activations", self.made.get(address(tensor), name), tensor))
        if tensor is not None and phase == "backward":
            rows.append(Live("gradients", f"{name}.output", tensor))
        return once(self.lasting + [row for row in rows if row.bytes >= SMALLEST])


def named_weights(model):
    """Yields every parameter and buffer, a layer's main weights under the layer's name."""
    rows = []
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        layer, _, leaf = name.rpartition(".")
        rows.append((layer if leaf in ("weight", "weight_ih_l0") else name, tensor))
    return rows


def numbers_in(tensor, name):
    """Returns the type of numbers in a tensor; cuDNN stores a recurrent layer's state as bytes."""
    return torch.float32 if tensor.dtype == torch.uint8 and "lstm" in name else None


def once(rows):
    """Drops rows that share the memory of an earlier row; the second of two equal names gets a
    number."""
    seen, names, kept = set(), {}, []
    for row in rows:
        if row.data in seen:
            continue
        seen.add(row.data)
        count = names[row.name] = names.get(row.name, 0) + 1
        if count > 1:
            row = copy.copy(row)
            row.name = f"{row.name}.{count}"
        kept.append(row)
    return kept


def address(tensor):
    return tensor.untyped_storage().data_ptr()


def flat(output):
    """Returns the tensors of a module's output."""
    if isinstance(output, torch.Tensor):
        return [output]
    return [tensor for part in output for tensor in flat(part)]
