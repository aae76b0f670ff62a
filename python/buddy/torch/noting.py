"""The half of ``SavedMemory`` that modules talk to: what is computed again, and what an activation packs itself."""

import weakref

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .activations import Activated, Output
from .again import Again, Made, plain_call
from .kept import Kept, Part, over
from .owned import PLAIN

_modes = torch._C._len_torch_dispatch_stack


def capturing(device):
    """Whether what is done there now goes into a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class Noting:
    """What modules did, until autograd saves it."""

    def __init__(self):
        self._paused = self._parts = None
        self._made: dict[int, Made] = {}
        self._agrees: dict[int, tuple[weakref.ref[torch.nn.Module], bool]] = {}
        # What activations packed and put out.
        self._packed: dict[int, Activated] = {}
        self._outputs: dict[int, Output] = {}

    def _forget(self):
        """All that autograd has not saved by now."""
        for fresh in (self._made, self._packed, self._outputs):
            fresh.clear()
        self._parts = None

    def _begin_cheap(self, module, inputs):
        """Keeps a module's inputs, which it is about to save; if they stay as they are, autograd may save them without asking."""
        # Within a compiled graph there is nothing to note: the compiler decides what it keeps.
        if torch.compiler.is_compiling():
            return
        self.go_on()
        self._parts = None
        if not inputs or not all(type(x) in PLAIN and x.requires_grad for x in inputs):
            return
        # Autocast saves copies of them.
        if not (torch.is_grad_enabled() and self._on_top()) or torch.is_autocast_enabled(inputs[0].device.type):
            return
        found = [self.keep_input(x) for x in inputs]
        if all(kept is not None for kept, _ in found):
            self._parts = [Part(kept, x) for (kept, _), x in zip(found, inputs)]
            if all(is_plain for _, is_plain in found):
                self.pause()

    def _end_cheap(self, module, inputs, output):
        if torch.compiler.is_compiling():
            return
        self.go_on()
        if not isinstance(output, torch.Tensor):
            return
        if (key := output.untyped_storage()._cdata) not in self._outputs and plain_call(module, inputs, output):
            self._made[key] = Made(module, output, inputs, self._parts)
        self._parts = None

    def note_made(self, module, x, y, kept, function, others):
        """A module of ours made y of x, and ``function(x, *others, whether a ReLU in place follows)`` does it again."""
        parts = [Part(kept, x)] if kept is not None else None
        self._made[y.untyped_storage()._cdata] = Made(module, y, [x], parts, function, others)

    def keep_input(self, x):
        """The memory of x, and whether it stays as it is: then autograd may save it without asking, which
        saves the host's time. Not if there are other hooks below ours, who would then be asked."""
        if not self._alone or _modes():
            return None, False
        storage = x.untyped_storage()
        if self._unfit(x, storage) is not None:
            return None, False
        kept = self._find(storage._cdata)
        if kept is None:
            kept = self._keep(x, storage)
        if not kept.is_of(x, storage):
            return None, False
        return kept, isinstance(kept, Kept) and kept.packed is None

    def _on_top(self):
        """Whether autograd's innermost hooks are ours."""
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
        return hooks is not None and getattr(hooks[0], "__self__", None) is self

    def pause(self):
        """Autograd saves what it saves by itself, until ``go_on``."""
        self._paused = torch._C._autograd._top_saved_tensors_default_hooks(False)
        torch._C._autograd._pop_saved_tensors_default_hooks()

    def go_on(self):
        if self._paused is not None:
            torch._C._autograd._push_saved_tensors_default_hooks(*self._paused)
            self._paused = None

    def then_relu_(self, x):
        """A ReLU in place is about to follow; whether x will still be something that can be computed again."""
        made = self._made.get(x.untyped_storage()._cdata)
        if made is None or made.version != x._version or made.output.expired() or len(made.parts or made.inputs) != 1:
            return False
        made.then_relu_()
        return True

    def agrees(self, module, x, native):
        """Whether PyTorch's own kernels of batch normalisation give what the module does, to the bit; found once, waits for the GPU."""
        found = self._agrees.get(id(module))
        if found is None or found[0]() is not module:
            if capturing(x.device):
                return False
            with torch.no_grad(), _disable_current_modes():
                before = module.running_mean.clone(), module.running_var.clone()
                ours = native(x, *(one.clone() for one in before))[0]
                wanted = torch.nn.functional.batch_norm(x, *before, module.weight, module.bias, True, module.momentum, module.eps)
                found = self._agrees[id(module)] = weakref.ref(module), torch.equal(ours, wanted)
        return found[1]

    def _again(self, tensor, storage, site):
        """How to compute memory again, if that gives the same bits."""
        made = self._made.get(storage._cdata)
        if made is None or made.version != tensor._version or site.differs or made.output.expired():
            return None
        if (sources := made.sources(self)) is None:
            return None
        again = Again(tensor, storage, made, sources)
        is_known = site.maker is not None and site.maker() is made.module
        if not is_known or (self.step >= site.due and not self._capturing):
            if self._capturing or not self._same(again, storage, site, made.module):
                return None
        self._report.computed(again.size)
        return again

    def _same(self, again, storage, site, module):
        """Whether computing memory again gives the same bits: a look."""
        site.looked(self.step)
        site.reason, site.maker = None, weakref.ref(module)
        found = again.compute().untyped_storage()
        one, other = (over(one, torch.uint8, (one.nbytes(),), (1,), 0) for one in (found, storage))
        site.differs = not torch.equal(one, other)
        if site.differs:
            site.due = 0
        return not site.differs

    def plan_activation(self, kind, x):
        """How an activation's input is packed, if it is."""
        storage = x.untyped_storage()
        if self._unfit(x, storage) is not None or self._find(storage._cdata) is not None:
            return None
        if self._flight.pending:
            self._flight.settle(self._in_flight)
        self._capturing = capturing(x.device)
        site = self._sites.next((kind.name, storage.nbytes(), x.device))
        if self._capturing:
            return None if self._decided(site) else site
        if self.step >= site.due:
            with torch.no_grad(), _disable_current_modes():
                kept = kind.kept(x.detach())
                flat = over(kept.untyped_storage(), torch.uint8, (storage.nbytes(),), (1,), 0)
                # It costs next to nothing, so 4/3x is enough.
                self.policy.look(site, self.step, flat, x.dtype, least="4/3x", codec="bf16")
                if site.reason is None and not Activated(x.detach(), kind, site).agrees(x.detach(), self._piece(site, storage.nbytes())):
                    site.reason = "not PyTorch's bits"
        return None if site.reason else site

    def keep_activation(self, kept, y):
        """Runs an activation to y; gives what autograd shall save."""
        self._packing(kept, kept.forward, y)
        at, output = y.untyped_storage()._cdata, Output(y, kept)
        self._outputs[at], self._known[at] = output, weakref.ref(output)
        saved = kept.packed.tensor() if kept.packed is not None else kept.tensor
        self._packed[saved.untyped_storage()._cdata] = kept
        return saved

    def note_activated(self, y):
        """Autograd has taken over an activation's output, which may have raised its version."""
        if (output := self._outputs.get(y.untyped_storage()._cdata)) is not None:
            output.version = y._version
            if output.of.tensor is not None:
                output.of.version = output.of.tensor._version
