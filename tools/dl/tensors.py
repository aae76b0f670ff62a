"""Which tensors are alive in a training step, and what they are: weights, gradients, optimizer state, activations.

Hooks on the leaf modules say who makes which tensor. What autograd saves for the backward pass is held by a small
object that dies when autograd lets go of it, so that the set of live activations is right at every moment.
"""

import weakref

import torch

KINDS = ["weights", "gradients", "optimizer", "activations", "input"]


class Saved:
    """A tensor that autograd keeps. The detached tensor has the same memory, and no way back to the graph."""

    def __init__(self, tensor, order):
        self.tensor, self.order, self.name = tensor.detach(), order, None


class Live:
    """One live piece of memory."""

    __slots__ = ("kind", "name", "data", "bytes", "dtype")

    def __init__(self, kind, name, tensor, dtype=None):
        storage = tensor.untyped_storage()
        self.kind, self.name, self.data, self.bytes = kind, name, storage.data_ptr(), storage.nbytes()
        self.dtype = dtype or tensor.dtype


class Tensors:
    """Follows the tensors of one model. `on_event` is called when a module has run, forward or backward."""

    def __init__(self, model, loss, optimizer, on_event):
        self.optimizer, self.on_event = optimizer, on_event
        self.saved, self.made, self.order = weakref.WeakSet(), {}, 0
        self.current, self.inputs, self.fresh, self.inside = None, set(), [], []
        self.batch, self.device = (), next(model.parameters()).device
        self.layers = [name for name, _ in model.named_modules() if name] + ["loss"]
        self.parameters = named_weights(model)
        self.owned = {address(tensor) for _, tensor in self.parameters}
        for name, module in [*model.named_modules(), ("loss", loss)]:
            if not list(module.children()):
                module.register_forward_pre_hook(lambda module, args, name=name: self.enter(name, module, args))
                module.register_forward_hook(lambda module, args, output: self.leave(output))

    def begin(self, batch):
        """A new step: no tensor of the one before is left."""
        self.batch = batch
        self.made.clear()

    def hooks(self):
        """The context in which the forward pass must run."""
        return torch.autograd.graph.saved_tensors_hooks(self.pack, lambda saved: saved.tensor)

    def enter(self, name, module, args):
        self.current, self.fresh, self.inside = name, [], [sorted(p.shape) for p in module.parameters(recurse=False)]
        self.inputs = {address(tensor) for tensor in args if isinstance(tensor, torch.Tensor)}

    def pack(self, tensor):
        saved = Saved(tensor, self.order)
        self.order += 1
        if address(tensor) not in self.owned:
            self.saved.add(saved)
            if self.current is None or address(tensor) in self.inputs:
                saved.name = self.made.get(address(tensor), "other")
            else:
                self.fresh.append(saved)
        return saved

    def leave(self, output):
        outputs = [tensor for tensor in flat(output) if tensor.is_floating_point()]
        for tensor in outputs:
            # What was changed in place keeps the name of the layer that made it.
            if address(tensor) not in self.inputs:
                self.made[address(tensor)] = self.current
        made, extra = {address(tensor) for tensor in outputs}, {}
        for saved in self.fresh:
            where = address(saved.tensor)
            if where in made:
                saved.name = self.made[where]
            else:
                # Something inside the layer: a copy of a weight in another type, a mask, indices, statistics.
                shape = sorted(saved.tensor.shape)
                copied = shape in self.inside and saved.tensor.is_floating_point()
                suffix = f"cast{self.inside.index(shape) or ''}" if copied else f"saved{len(extra) + 1}"
                saved.name = extra.setdefault(where, f"{self.current}.{suffix}")
        name = self.current
        self.current, self.inputs, self.fresh = None, set(), []
        for tensor in outputs[:1]:
            if tensor.requires_grad:
                tensor.register_hook(lambda grad, name=name: self.on_event("backward", name, grad))
        self.on_event("forward", name, outputs[0] if outputs else None)

    def place(self, name):
        """Where the layer of a name such as gradients/conv1.output stands in the forward order."""
        layer = name.split("/", 1)[1]
        while layer and layer not in self.layers:
            layer = layer.rpartition(".")[0]
        return self.layers.index(layer) if layer else len(self.layers)

    def live(self, phase, name, tensor):
        """Everything that is alive now, each piece of memory once."""
        rows = [Live("weights", layer, weight) for layer, weight in self.parameters]
        rows += [Live("gradients", layer, w.grad) for layer, w in self.parameters if w.grad is not None]
        for layer, weight in self.parameters:
            for key, state in self.optimizer.state.get(weight, {}).items():
                if isinstance(state, torch.Tensor) and state.dim() > 0:
                    rows.append(Live("optimizer", f"{layer}.{key}", state))
        rows += [Live("input", key, tensor) for key, tensor in zip(["batch", "labels"], self.batch)]
        for saved in sorted(self.saved, key=lambda saved: saved.order):
            kind = "weights" if ".cast" in saved.name else "activations"
            rows.append(Live(kind, saved.name, saved.tensor, float_inside(saved)))
        if tensor is not None and phase == "forward":
            rows.append(Live("activations", self.made.get(address(tensor), name), tensor))
        if tensor is not None and phase == "backward":
            rows.append(Live("gradients", f"{name}.output", tensor))
        return once(rows)


def named_weights(model):
    """Every parameter and buffer, a layer's main weights under the layer's name."""
    rows = []
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        layer, _, leaf = name.rpartition(".")
        rows.append((layer if leaf in ("weight", "weight_ih_l0") else name, tensor))
    return rows


def float_inside(saved):
    """cuDNN keeps what a recurrent layer needs later as bytes; they are numbers."""
    return torch.float32 if saved.tensor.dtype == torch.uint8 and "lstm" in saved.name else None


def once(rows):
    """Drops what has the memory of an earlier row, and gives rows of the same name numbers."""
    seen, names, kept = set(), {}, []
    for row in rows:
        if row.data in seen or row.bytes == 0:
            continue
        seen.add(row.data)
        full = f"{row.kind}/{row.name}"
        names[full] = names.get(full, 0) + 1
        row.name = full if names[full] == 1 else f"{full}.{names[full]}"
        kept.append(row)
    return kept


def address(tensor):
    return tensor.untyped_storage().data_ptr()


def flat(output):
    """The tensors of a module's output."""
    if isinstance(output, torch.Tensor):
        return [output]
    return [tensor for part in output for tensor in flat(part)]
