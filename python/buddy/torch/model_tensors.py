"""The parameters and buffers of a model, which are never packed, and the hooks on its modules."""

import threading
import weakref

import torch

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
# Steps after which the modules are enumerated again.
REFRESH_STEPS = 16
# Key of our hooks in a module's hook dictionaries; PyTorch's keys are numbers.
KEY = "buddy"

# The memories that a thread has entered, innermost last. Hooks are shared by all threads and find
# theirs here.
_entered = threading.local()
# Number of steps, in all threads, that use a hook dictionary.
_users: dict[int, int] = {}
_lock = threading.Lock()


def enter(memory):
    """Makes a ``SavedMemory`` the innermost of this thread."""
    if not hasattr(_entered, "stack"):
        _entered.stack = []
    _entered.stack.append(memory)


def leave(memory):
    """Removes the innermost entry of a ``SavedMemory`` of this thread."""
    stack = _entered.stack
    del stack[len(stack) - 1 - stack[::-1].index(memory)]


def _innermost():
    stack = getattr(_entered, "stack", None)
    return stack[-1] if stack else None


def _record(module, inputs):
    # A compiler decides itself what it saves.
    if not torch.compiler.is_compiling() and (memory := _innermost()) is not None:
        memory._model_tensors.record(module)


def _before(module, inputs):
    if not torch.compiler.is_compiling() and (memory := _innermost()) is not None:
        memory._before_cheap(module, inputs)


def _after(module, inputs, output):
    if not torch.compiler.is_compiling() and (memory := _innermost()) is not None:
        memory._after_cheap(module, inputs, output)


class ModelTensors:
    """The storages of a model's parameters and buffers, and its modules whose output is
    recomputed."""

    def __init__(self, model, types):
        self.model, self.types, self.storages = model, types, set()
        self.sharded: list[weakref.ref[torch.nn.Module]] = []
        self.cheap: list[weakref.ref[torch.nn.Module]] = []

    def refresh(self, step):
        """Enumerates modules and parameters, but not at every step. A parameter that is missed is
        packed, which is only slower."""
        if step > 2 and step % REFRESH_STEPS:
            return
        model = self.model()
        modules = list(model.modules()) if model is not None else []
        self.storages.clear()
        for module in modules:
            self.record(module)
        # Sharded parameters are gathered when a module runs, and recorded then.
        is_sharded = any(type(module).__name__.startswith("FSDP") for module in modules)
        sharded = {module for module in modules if is_sharded and module._parameters}
        self.sharded = [weakref.ref(module) for module in sharded]
        self.cheap = [weakref.ref(module) for module in modules if type(module) in self.types and module not in sharded]

    def install_hooks(self):
        """Installs hooks for a step and returns their dictionaries. PyTorch's own function would
        cost a tenth of a step's host time."""
        hooks = [(module._forward_pre_hooks, _record) for one in self.sharded if (module := one()) is not None]
        for one in self.cheap:
            if (module := one()) is not None and not {*module._forward_hooks, *module._forward_pre_hooks} - {KEY}:
                hooks += [(module._forward_pre_hooks, _before), (module._forward_hooks, _after)]
        with _lock:
            for where, hook in hooks:
                _users[id(where)] = _users.get(id(where), 0) + 1
                if KEY not in where:
                    where[KEY] = hook
        return [where for where, _ in hooks]

    @staticmethod
    def remove_hooks(installed):
        """Removes hooks that no other thread or step uses."""
        with _lock:
            for where in installed:
                _users[id(where)] -= 1
                if not _users[id(where)]:
                    del _users[id(where)]
                    where.pop(KEY, None)

    def record(self, module):
        """Records the storages of a module's own parameters and buffers."""
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                self._add(tensor)

    def _add(self, tensor):
        if type(tensor) not in PLAIN:
            tensor = getattr(tensor, "_local_tensor", tensor)
        try:
            self.storages.add(tensor.untyped_storage()._cdata)
        except (RuntimeError, NotImplementedError):  # some tensors have no storage
            pass
