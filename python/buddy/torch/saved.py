"""Saved activations in fewer bytes, exact to the bit: ``with compress_saved(model):`` around the forward pass."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .activations import Activated, Output
from .again import CHEAP, Again, Made, plain_call
from .kept import UNTOLD, Kept, Part, Passed, over
from .policy import Policy, Site
from .report import SavedReport
from .slabs import Slabs

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
# Bytes of plain memory that wait for the GPU's answer, at most.
MOST_IN_FLIGHT = 1 << 30
# Steps after which the memory of parameters and buffers is found anew.
OWNED_STEPS = 16
# What is kept of a model between steps: how its tensors are packed.
_MODELS: weakref.WeakKeyDictionary[torch.nn.Module, dict[Any, SavedMemory]] = weakref.WeakKeyDictionary()


def compress_saved(model: torch.nn.Module, *, least: str = "2x", least_bytes: int = 1 << 20, most_overflow: float = 0.1,
                   least_saved: float = 0.1, recompute: tuple[type, ...] = CHEAP, learn: bool = True,
                   in_flight_bytes: int | None = None) -> SavedMemory:
    """Packs what autograd saves for the backward pass. Gradients are those without it, to the bit.

    Put it around the forward pass; the backward pass may be inside or after it::

        with buddy.torch.compress_saved(model) as mem:
            loss = model(batch).mean()
        loss.backward()
        print(mem.report())

    By default only tensors that reach 2x are packed (what follows a ReLU, masks, sparse ones), found by a look in the first
    steps; ``least="4/3x"`` packs dense bf16 too. At most ``most_overflow`` of a tensor's entries may be beyond its target, and
    at least ``least_saved`` of its bytes must be saved.
    What is cheap to compute again from a tensor that is kept anyway, the output of a module of the types ``recompute``, is not
    packed but computed. What is wanted again at once, or held by someone else too, is left alone in later steps unless ``learn`` is
    off. Parameters, buffers, subclasses of tensors and what is smaller than ``least_bytes`` are passed through. The same model and
    options give the same memory, so it may be written into the training loop. Plain memory is let go once the GPU says that its
    packed form had room; at most ``in_flight_bytes`` of it wait for that answer, by default a tenth of what is saved, 1 GB at most.

    Memory that is changed behind autograd's back (through ``.data``, or by kernels that do not say so) between two operations
    that save it must not be used with this.
    """
    options = (least, least_bytes, most_overflow, least_saved, learn, tuple(recompute), in_flight_bytes)
    kept = _MODELS.setdefault(model, {})
    if options not in kept:
        kept[options] = SavedMemory(weakref.ref(model), Policy(*options[:5]), tuple(recompute), in_flight_bytes)
    return kept[options]


class SavedMemory:
    """What ``compress_saved`` keeps of a model: how each saved tensor is packed, and what the last step gave."""

    def __init__(self, model: weakref.ref[torch.nn.Module], policy: Policy, recompute: tuple[type, ...],
                 in_flight_bytes: int | None):
        self.policy, self.recompute, self.in_flight_bytes, self.step = policy, recompute, in_flight_bytes, 0
        self._model, self._owned, self._numbers = model, set(), {}
        self._sites: dict[Any, Site] = {}
        # By the identity of the storage; a Kept holds a weak reference that keeps it from being given to another.
        self._known: weakref.WeakValueDictionary[int, Kept] = weakref.WeakValueDictionary()
        self._lock, self._pending, self._waiting, self._told, self._saved = threading.Lock(), deque(), 0, [], 0
        self._slabs: dict[torch.device, Slabs] = {}
        self._given, self._saved_before, self._in_flight = 0, 0, MOST_IN_FLIGHT
        self._inside, self._hooks, self._report, self._alone = [], [], SavedReport(), False
        self._made: dict[int, Made] = {}
        self._agrees: weakref.WeakKeyDictionary[torch.nn.Module, bool] = weakref.WeakKeyDictionary()
        # What activations packed and put out, until autograd saves it.
        self._packed: dict[int, Activated] = {}
        self._outputs: dict[int, Output] = {}

    def report(self) -> SavedReport:
        """What the last step gave: bytes, ratio, overflow, and what was passed through and why."""
        self._settle(0)
        return self._report

    def __enter__(self) -> SavedMemory:
        if not self._inside:
            self.step += 1
            self._numbers, self._report = {}, SavedReport()
            self._find_owned()
            self._limit_flight()
            for slabs in self._slabs.values():
                slabs.begin()
        self._alone = not torch._C._autograd._top_saved_tensors_default_hooks(False)
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        hooks.__enter__()
        self._inside.append(hooks)
        return self

    def __exit__(self, *about: Any) -> None:
        self._inside.pop().__exit__(*about)
        if not self._inside:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []
            for fresh in (self._made, self._packed, self._outputs):
                fresh.clear()
            for slabs in self._slabs.values():
                slabs.end()

    def _limit_flight(self):
        """How many bytes may wait for the GPU's answer in this step: plain memory that is on its way out adds to the peak."""
        saved, self._saved_before = self._saved - self._saved_before, self._saved
        share = min(saved // 10, MOST_IN_FLIGHT) if saved else MOST_IN_FLIGHT
        self._in_flight = share if self.in_flight_bytes is None else self.in_flight_bytes

    def _find_owned(self):
        """The memory of parameters and buffers. Sharded ones are gathered when a module runs: they are noted then."""
        model = self._model()
        modules = list(model.modules()) if model is not None else []
        # Not at every step: what has become a parameter since is packed like any other memory, which costs a little and is right.
        if self.step <= 2 or self.step % OWNED_STEPS == 0:
            self._owned = set()
            for module in modules:
                self._note(module, None)
        sharded = any(type(module).__name__.startswith("FSDP") for module in modules)
        for module in modules:
            if sharded and module._parameters:
                self._hooks.append(module.register_forward_pre_hook(self._note))
            elif type(module) in self.recompute and not (module._forward_hooks or module._forward_pre_hooks):
                self._hooks.append(module.register_forward_hook(self._note_made))

    def _note(self, module, _):
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                self._own(tensor)

    def _note_made(self, module, inputs, output):
        # Within a compiled graph there is nothing to note: the compiler decides what it keeps.
        if torch.compiler.is_compiling() or not isinstance(output, torch.Tensor):
            return
        if output.untyped_storage()._cdata not in self._outputs and plain_call(module, inputs, output):
            self._made[output.untyped_storage()._cdata] = Made(module, inputs, output)

    def note_made(self, module, x, y, kept, function, with_relu):
        """A module of ours made y of x, and ``function`` does it again, ``with_relu`` with the ReLU after it."""
        self._made[y.untyped_storage()._cdata] = Made(module, [x], y, function, with_relu, kept)

    def keep_input(self, x):
        """The memory of x, to be held until autograd has it, and whether it stays as it is: then autograd may save it without asking, which
        saves the host's time. Not if there are other hooks below ours, who would then be asked."""
        with _disable_current_modes() if torch._C._len_torch_dispatch_stack() else contextlib.nullcontext():
            if not self._alone or self._unfit(x) is not None:
                return None, False
            storage = x.untyped_storage()
            kept = self._known.get(storage._cdata)
            if kept is None:
                kept = self._keep(x, storage)
            return kept, isinstance(kept, Kept) and kept.packed is None and kept.is_of(x, storage)

    def then_relu_(self, x):
        """A ReLU in place is about to follow; whether x will still be something that can be computed again."""
        made = self._made.get(x.untyped_storage()._cdata)
        if made is None or made.output.expired() or made.version != x._version or len(made.inputs) != 1:
            return False
        made.then_relu_()
        return True

    def agrees(self, module, x, native):
        """Whether PyTorch's own kernels of batch normalisation give what the module does, to the bit; found once, waits for the GPU."""
        if module not in self._agrees:
            with torch.no_grad(), _disable_current_modes():
                before = module.running_mean.clone(), module.running_var.clone()
                found = native(x, *(one.clone() for one in before))[0]
                wanted = torch.nn.functional.batch_norm(x, *before, module.weight, module.bias, True, module.momentum, module.eps)
                self._agrees[module] = torch.equal(found, wanted)
        return self._agrees[module]

    def _own(self, tensor):
        if type(tensor) not in PLAIN:
            tensor = getattr(tensor, "_local_tensor", tensor)
        try:
            self._owned.add(tensor.untyped_storage()._cdata)
        except (RuntimeError, NotImplementedError):  # some have no storage
            pass

    def _pack(self, tensor):
        """The hook: what autograd shall keep instead of a tensor."""
        if torch._C._len_torch_dispatch_stack():
            # Our own work is no one else's to count or to keep.
            with _disable_current_modes():
                return self._pack_one(tensor)
        return self._pack_one(tensor)

    def _pack_one(self, tensor):
        if self._packed and (packed := self._packed.pop(tensor.untyped_storage()._cdata, None)) is not None:
            return packed
        reason = self._unfit(tensor)
        if reason is None:
            storage = tensor.untyped_storage()
            kept = self._known.get(storage._cdata)
            # From here on autograd holds it.
            if self._outputs.pop(storage._cdata, None) is not None:
                self._report.computed(kept.size)
            if kept is None:
                kept = self._keep(tensor, storage)
            elif kept.is_of(tensor, storage):
                self._report.again(kept)
            else:
                reason = "changed in place since it was packed"
            if reason is None:
                kept.uses += 1
                return Part(kept, tensor)
        self._report.skip(reason, tensor)
        return Passed(tensor)

    def _unfit(self, tensor):
        """Why a tensor is passed through, before anyone looks at it."""
        if type(tensor) not in PLAIN:
            return "a subclass of tensors"
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_inference():
            return "not plain memory"
        if not (tensor.is_cuda or tensor.is_cpu):
            return "not on the CPU or an NVIDIA GPU"
        storage = tensor.untyped_storage()
        if storage._cdata in self._owned:
            return "a parameter or a buffer"
        if storage.nbytes() < max(self.policy.least_bytes, 1):
            return "small"
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return "captured in a graph"
        return None

    def _keep(self, tensor, storage):
        """Packs memory that was not seen before, if that pays."""
        self._settle(self._in_flight)
        place = (tensor.device, tensor.dtype, storage.nbytes())
        number = self._numbers[place] = self._numbers.get(place, 0) + 1
        site = self._sites.setdefault((*place, number), Site())
        if (again := self._again(tensor, storage, site)) is not None:
            self._report.computed(again.size)
            self._known[storage._cdata] = again
            return again
        if site.sticks is None and self.step >= site.due:
            flat = over(storage, torch.uint8, (storage.nbytes(),), (1,), 0)
            self.policy.look(site, self.step, flat, tensor.dtype)
        kept = self._known[storage._cdata] = Kept(tensor, site)
        self._saved += kept.size
        kept.at = self._saved
        if reason := site.sticks or site.reason:
            # Kept as it is; what is cheap may be computed from it.
            self._report.skip(reason, tensor)
            return kept
        self._packing(kept, lambda told, take: kept.pack(site, told, take))
        return kept

    def _packing(self, kept, pack):
        """Packs by ``pack(told, take)``, and sees to it that the plain memory goes."""
        take = self._slabs.setdefault(kept.device, Slabs()).take
        if kept.device.type == "cpu":
            pack(None, take)
            self._settled(kept, self._report)
            return
        with self._lock:
            told = self._told.pop() if self._told else torch.empty((), dtype=torch.int32, pin_memory=True)
            told.fill_(UNTOLD)
            pack(told, take)
            self._pending.append((weakref.ref(kept), told, kept.size, kept.device, self._report))
            self._waiting += kept.size

    def plan_activation(self, kind, x):
        """How an activation's input is packed, if it is."""
        storage = x.untyped_storage()
        if self._unfit(x) is not None or storage._cdata in self._known:
            return None
        self._settle(self._in_flight)
        place = (kind.name, x.device, storage.nbytes())
        number = self._numbers[place] = self._numbers.get(place, 0) + 1
        site = self._sites.setdefault((*place, number), Site())
        if self.step >= site.due:
            with torch.no_grad(), _disable_current_modes():
                kept = kind.kept(x.detach())
                flat = over(kept.untyped_storage(), torch.uint8, (storage.nbytes(),), (1,), 0)
                # It costs next to nothing, so 4/3x is enough.
                self.policy.look(site, self.step, flat, x.dtype, least="4/3x", codec="bf16")
                if site.reason is None and not Activated(x.detach(), kind, site).agrees(x.detach()):
                    site.reason = "not PyTorch's bits"
        return None if site.reason else site

    def keep_activation(self, kept, y):
        """Runs an activation to y; gives what autograd shall save."""
        self._packing(kept, lambda told, take: kept.forward(told, take, y))
        at = y.untyped_storage()._cdata
        self._outputs[at] = self._known[at] = Output(y, kept)
        saved = kept.packed if kept.packed is not None else kept.tensor
        self._packed[saved.untyped_storage()._cdata] = kept
        return saved

    def note_activated(self, y):
        """Autograd has taken over an activation's output, which may have raised its version."""
        if (output := self._outputs.get(y.untyped_storage()._cdata)) is not None:
            output.version = y._version
            if output.of.tensor is not None:
                output.of.version = output.of.tensor._version

    def _again(self, tensor, storage, site):
        """How to compute memory again, if that gives the same bits."""
        made = self._made.get(storage._cdata)
        if made is None or made.output.expired() or made.version != tensor._version or site.differs:
            return None
        sources = made.sources(self._known)
        if sources is None:
            return None
        again = Again(tensor, made, sources)
        if self.step >= site.due or site.maker is None or site.maker() is not made.module:
            site.looked(self.step)
            site.reason, site.maker = None, weakref.ref(made.module)
            wanted = over(storage, torch.uint8, (again.size,), (1,), 0)
            found = again.compute().untyped_storage()
            site.differs = found.nbytes() != again.size or not torch.equal(over(found, torch.uint8, (again.size,), (1,), 0), wanted)
            if site.differs:
                site.due = 0
                return None
        return again

    def _settle(self, most):
        """Takes the answers that are there, and waits for some while more bytes than these are in flight."""
        with self._lock:
            while self._pending:
                kept, told, size, device, report = self._pending[0]
                if int(told) == UNTOLD:
                    if self._waiting <= most:
                        break
                    wait_for(told, device)
                self._pending.popleft()
                self._waiting -= size
                if (kept := kept()) is not None and kept.told is not None:
                    self._settled(kept, report)
                self._told.append(told)

    def _settled(self, kept, report):
        fitted = kept.settle()
        if fitted:
            report.packed(kept)
        else:
            # Another look at the next step.
            kept.site.due = 0
            report.skip("overflowed its room", kept.tensor)


    def _unpack(self, saved):
        """The hook: the tensor again. Before the first of a backward pass all plain memory that can go is let go."""
        if self._pending:
            self._settle(0)
        self._outputs.clear()
        self._made.clear()
        if isinstance(saved, Part) and isinstance(kept := saved.kept, Kept):
            kept.uses -= 1
            if self.policy.learn:
                self._learn(kept)
            return saved.unpack(kept.site.soon and kept.uses > 0)
        return saved.unpack()

    def _learn(self, kept):
        """What its uses say of the next step: memory that is wanted again at once, or that others hold, is not worth packing; memory
        that is wanted twice in a row is read once."""
        site = kept.site
        if kept.given is not None and self._given - kept.given < kept.size:
            site.soon = True
        self._given += kept.size
        kept.given = self._given
        if kept.at is not None and self._saved - kept.at < kept.size:
            site.sticks = "wanted again at once"
        kept.at = None
        if kept.tensor is None and not kept.storage.expired():
            site.held += 1
            if site.held > 2:
                site.sticks = "held by someone else too"


def wait_for(told, device):
    """Waits until the GPU has said something; what went wrong there is raised."""
    start = time.perf_counter()
    while int(told) == UNTOLD:
        time.sleep(2e-5)
        if time.perf_counter() - start > 5:
            torch.cuda.synchronize(device)
            start = time.perf_counter()
