"""What of a model is passed through, its parameters and buffers, and which of its modules are watched."""

import weakref

import torch

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
# Steps after which modules are found anew.
STEPS = 16
# Under which our hooks are among a module's, which are numbered.
KEY = "buddy"


class Owned:
    """The memory of a model's parameters and buffers, by identity, and its modules of some types."""

    def __init__(self, model, types):
        self.model, self.types, self.storages = model, types, set()
        self.gathered: list[weakref.ref[torch.nn.Module]] = []
        self.cheap: list[weakref.ref[torch.nn.Module]] = []

    def find(self, step):
        """Not at every step: what has become a parameter since is packed like any other memory, which costs a little and is right."""
        if step > 2 and step % STEPS:
            return
        model = self.model()
        modules = list(model.modules()) if model is not None else []
        self.storages.clear()
        for module in modules:
            self.note(module, None)
        # Sharded parameters are gathered when a module runs: they are noted then.
        sharded = any(type(module).__name__.startswith("FSDP") for module in modules)
        gathered = {module for module in modules if sharded and module._parameters}
        self.gathered = [weakref.ref(module) for module in gathered]
        self.cheap = [weakref.ref(module) for module in modules if type(module) in self.types and module not in gathered]

    def watch(self, begin, end):
        """Hooks on the modules for a step: ``begin`` and ``end`` around those of the types. Not by PyTorch's function, which takes the
        host a tenth of what all else of a step does; gives where they are."""
        hooks = [(module._forward_pre_hooks, self.note) for one in self.gathered if (module := one()) is not None]
        for one in self.cheap:
            if (module := one()) is not None and not (module._forward_hooks or module._forward_pre_hooks):
                hooks += [(module._forward_pre_hooks, begin), (module._forward_hooks, end)]
        for where, hook in hooks:
            where[KEY] = hook
        return [where for where, _ in hooks]

    def note(self, module, _):
        """A forward pre-hook: the memory of a module's own parameters and buffers."""
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                self._add(tensor)

    def _add(self, tensor):
        if type(tensor) not in PLAIN:
            tensor = getattr(tensor, "_local_tensor", tensor)
        try:
            self.storages.add(tensor.untyped_storage()._cdata)
        except (RuntimeError, NotImplementedError):  # some have no storage
            pass
