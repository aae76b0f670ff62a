"""The part of ``SavedMemory`` that modules call: recomputation, and activations that pack their
input themselves."""

import weakref

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .activations import ActivationOutput, PackedActivation
from .model_tensors import PLAIN
from .recompute import Producer, RecomputedStorage, is_repeatable
from .saved_tensors import PackedStorage, SavedView, view_of

_modes = torch._C._len_torch_dispatch_stack


def is_capturing(device):
    """Returns whether the current stream of a device is capturing a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class ModuleHooks:
    """Records of module calls until autograd saves their results."""

    def __init__(self):
        self._paused = self._views = None
        self._producers: dict[int, Producer] = {}
        self._agrees: dict[int, tuple[weakref.ref[torch.nn.Module], bool]] = {}
        # Packed inputs and outputs of activations.
        self._packed: dict[int, PackedActivation] = {}
        self._outputs: dict[int, ActivationOutput] = {}

    def _forget(self):
        """Drops the records of everything that autograd has not saved."""
        for records in (self._producers, self._packed, self._outputs):
            records.clear()
        self._views = None

    def _before_cheap(self, module, inputs):
        """Saves the inputs of a module, which its backward is about to save. If they stay plain,
        autograd saves them without our hooks."""
        self.resume()
        self._views = None
        if not inputs or not all(type(x) in PLAIN and x.requires_grad for x in inputs):
            return
        # Autocast saves casted copies.
        if not (torch.is_grad_enabled() and self._on_top()) or torch.is_autocast_enabled(inputs[0].device.type):
            return
        found = [self.save_input(x) for x in inputs]
        if all(saved is not None for saved, _ in found):
            self._views = [SavedView(saved, x) for (saved, _), x in zip(found, inputs)]
            if all(is_plain for _, is_plain in found):
                self.pause()

    def _after_cheap(self, module, inputs, output):
        self.resume()
        if not isinstance(output, torch.Tensor):
            return
        if (key := output.untyped_storage()._cdata) not in self._outputs and is_repeatable(module, inputs, output):
            self._producers[key] = Producer(module, output, inputs, self._views)
        self._views = None

    def record_producer(self, module, x, y, saved, function, others):
        """Records that y is ``function(x, *others, relu)``, where ``relu`` tells whether an
        in-place ReLU followed."""
        views = [SavedView(saved, x)] if saved is not None else None
        self._producers[y.untyped_storage()._cdata] = Producer(module, y, [x], views, function, others)

    def save_input(self, x):
        """Returns the saved storage of x, and whether it stays plain: then autograd may save it
        without our hooks, which saves host time. Not if other hooks lie below ours, which would
        then be called."""
        if not self._alone or _modes():
            return None, False
        storage = x.untyped_storage()
        if self._unfit(x, storage) is not None:
            return None, False
        saved = self._find(storage._cdata)
        if saved is None:
            saved = self._save(x, storage)
        if not saved.matches(x, storage):
            return None, False
        return saved, isinstance(saved, PackedStorage) and saved.packed is None

    def _on_top(self):
        """Returns whether autograd's innermost hooks are ours."""
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
        return hooks is not None and getattr(hooks[0], "__self__", None) is self

    def pause(self):
        """Removes our hooks from autograd until ``resume``."""
        self._paused = torch._C._autograd._top_saved_tensors_default_hooks(False)
        torch._C._autograd._pop_saved_tensors_default_hooks()

    def resume(self):
        if self._paused is not None:
            torch._C._autograd._push_saved_tensors_default_hooks(*self._paused)
            self._paused = None

    def add_relu_(self, x):
        """Records that an in-place ReLU follows. Returns whether x can still be recomputed."""
        producer = self._producers.get(x.untyped_storage()._cdata)
        if (producer is None or producer.version != x._version or producer.output.expired()
                or len(producer.views or producer.inputs) != 1):
            return False
        producer.add_relu_()
        return True

    def agrees(self, module, x, native):
        """Returns whether PyTorch's batch-norm kernels give the module's output bit for bit. Found
        once per module; synchronises."""
        found = self._agrees.get(id(module))
        if found is None or found[0]() is not module:
            if is_capturing(x.device):
                return False
            with torch.no_grad(), _disable_current_modes():
                before = module.running_mean.clone(), module.running_var.clone()
                ours = native(x, *(one.clone() for one in before))[0]
                wanted = torch.nn.functional.batch_norm(x, *before, module.weight, module.bias, True, module.momentum, module.eps)
                found = self._agrees[id(module)] = weakref.ref(module), torch.equal(ours, wanted)
        return found[1]

    def _recomputation(self, tensor, storage, site):
        """Returns the recomputation of a storage, if it gives the same bits."""
        producer = self._producers.get(storage._cdata)
        if producer is None or producer.version != tensor._version or site.differs or producer.output.expired():
            return None
        if (sources := producer.sources(self)) is None:
            return None
        recomputed = RecomputedStorage(tensor, storage, producer, sources)
        is_known = site.producer is not None and site.producer() is producer.module
        if not is_known or (self.step >= site.next_survey and not self._capturing):
            if self._capturing or not self._is_same(recomputed, storage, site, producer.module):
                return None
        self._report.count_recomputed(recomputed.size)
        return recomputed

    def _is_same(self, recomputed, storage, site, module):
        """Compares a recomputation with the storage, bit for bit."""
        site.surveyed(self.step)
        site.reason, site.producer = None, weakref.ref(module)
        found = recomputed.compute().untyped_storage()
        one, other = (view_of(one, torch.uint8, (one.nbytes(),), (1,), 0) for one in (found, storage))
        site.differs = not torch.equal(one, other)
        if site.differs:
            site.next_survey = 0
        return not site.differs

    def plan_activation(self, kind, x):
        """Returns the site of an activation's input if it shall be packed, else None."""
        storage = x.untyped_storage()
        if self._unfit(x, storage) is not None or self._find(storage._cdata) is not None:
            return None
        if self._in_flight.pending:
            self._in_flight.settle(self._flight_limit)
        self._capturing = is_capturing(x.device)
        site = self._sites.next((kind.name, storage.nbytes(), x.device))
        if self._capturing:
            return None if self._decided(site) else site
        if self.step >= site.next_survey:
            with torch.no_grad(), _disable_current_modes():
                kept = kind.saved(x.detach())
                flat = view_of(kept.untyped_storage(), torch.uint8, (storage.nbytes(),), (1,), 0)
                # The fused kernel costs next to nothing, so 4/3x pays.
                self.policy.survey(site, self.step, flat, x.dtype, least="4/3x", codec="bf16")
                if site.reason is None:
                    packed = PackedActivation(x.detach(), kind, site)
                    if not packed.agrees(x.detach(), self._pinned_block(site, storage.nbytes())):
                        site.reason = "not PyTorch's bits"
        return None if site.reason else site

    def save_activation(self, packed, y):
        """Runs an activation into y and returns the tensor that autograd shall save."""
        self._start_packing(packed, packed.forward, y)
        key, output = y.untyped_storage()._cdata, ActivationOutput(y, packed)
        self._outputs[key], self._known[key] = output, weakref.ref(output)
        saved = packed.packed.tensor() if packed.packed is not None else packed.tensor
        self._packed[saved.untyped_storage()._cdata] = packed
        return saved

    def update_version(self, y):
        """Takes the version of an activation's output after autograd has wrapped it, which may have
        raised it."""
        if (output := self._outputs.get(y.untyped_storage()._cdata)) is not None:
            output.version = y._version
            if output.of.tensor is not None:
                output.of.version = output.of.tensor._version
