"""``compress_saved`` packs the tensors that autograd saves, bit for bit."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import in_flight, model_tensors, module_hooks
from .arena import Arena
from .model_tensors import PLAIN, ModelTensors
from .pinned import PinnedPool
from .policy import Policy, Sites
from .recompute import CHEAP
from .report import SavedReport
from .saved_tensors import PackedStorage, SavedStorage, SavedView, version_error, view_of

# Most bytes of plain memory that may be in flight.
MAX_IN_FLIGHT = 1 << 30
# A storage that is restored again before this multiple of its bytes has been restored is held in
# between; the output of attention is, with queries, keys and values between its uses.
SOON = 4
# The memories of a model by options and thread; they live as long as the model and the thread.
_MODELS: weakref.WeakKeyDictionary[torch.nn.Module, dict[Any, weakref.WeakKeyDictionary[threading.Thread, SavedMemory]]] = (
    weakref.WeakKeyDictionary())
_models_lock = threading.Lock()
_modes = torch._C._len_torch_dispatch_stack


def compress_saved(model: torch.nn.Module, *, least: str = "2x", least_bytes: int = 1 << 20, most_overflow: float = 0.1,
                   least_saved: float = 0.1, recompute: tuple[type, ...] = CHEAP, learn: bool = True,
                   in_flight_bytes: int | None = None, overflow: str = "host", share: float = 1.0) -> SavedMemory:
    """Packs the tensors that autograd saves for the backward pass. Gradients do not change by one
    bit.

    Put it around the forward pass; the backward pass may be inside or after it::

        with buddy.torch.compress_saved(model) as mem:
            loss = model(batch).mean()
        loss.backward()
        print(mem.report())

    By default only tensors that reach 2x are packed (after a ReLU, masks, sparse ones), found by a
    survey in the first steps. ``least="4/3x"`` packs dense bf16 too, or the share ``share`` of it;
    its time grows with its bytes. At most ``most_overflow`` of a tensor's entries may exceed its
    target, and at least ``least_saved`` of its bytes must be saved. Parameters, buffers, tensor
    subclasses and tensors below ``least_bytes`` are not packed.

    The output of a module of the types ``recompute`` is recomputed from its input instead of being
    packed. Unless ``learn`` is off, later steps leave alone what is restored at once or held
    elsewhere too. The same model and options return the same object, so the call can stand in the
    training loop.

    Overflow goes to pinned host memory with room for the worst case: a quarter of what is packed at
    4/3x, half at 2x. So the host never waits, and a step can be captured in a CUDA graph after a
    few eager steps that save the same tensors. With ``overflow="device"``, or if no more memory can
    be pinned, overflow stays on the device: plain memory is then released once the GPU confirms
    that the overflow had room. At most ``in_flight_bytes`` wait for that; the default is a tenth of
    what is saved, at most 1 GB.

    Threads: each thread that trains the model gets its own object and state. The forward and the
    backward pass of a step belong to one thread. Entering one object in two threads raises
    ``RuntimeError``.

    Do not use this where memory is modified without raising its version counter (``.data``, foreign
    kernels) between two operations that save it.
    """
    options = (least, least_bytes, most_overflow, least_saved, learn, overflow, share, tuple(recompute), in_flight_bytes)
    with _models_lock:
        threads = _MODELS.setdefault(model, {}).setdefault(options, weakref.WeakKeyDictionary())
        thread = threading.current_thread()
        if thread not in threads:
            threads[thread] = SavedMemory(weakref.ref(model), Policy(*options[:7]), tuple(recompute), in_flight_bytes)
        return threads[thread]


class SavedMemory(module_hooks.ModuleHooks):
    """The state of ``compress_saved`` for a model and a thread: how each saved tensor is packed,
    and the report of the last step."""

    def __init__(self, model: weakref.ref[torch.nn.Module], policy: Policy, recompute: tuple[type, ...],
                 in_flight_bytes: int | None):
        super().__init__()
        self.policy, self.in_flight_bytes, self.step = policy, in_flight_bytes, 0
        self._model_tensors, self._sites = ModelTensors(model, recompute), Sites()
        # By storage identity; a SavedStorage holds a weak reference that keeps the identity from
        # being reused.
        self._known: dict[int, weakref.ref[SavedStorage]] = {}
        self._in_flight, self._saved_bytes = in_flight.InFlight(), 0
        self._arenas: dict[torch.device, Arena] = defaultdict(Arena)
        self._pinned_pool, self._graph_blocks = PinnedPool(), []
        self._restored_bytes, self._saved_before, self._flight_limit = 0, 0, MAX_IN_FLIGHT
        self._inside, self._thread, self._hooks, self._report = [], None, [], SavedReport()
        self._alone = self._capturing = False

    def report(self) -> SavedReport:
        """Returns the report of the last step: bytes, ratio, overflow, and what was not packed and
        why. Waits for the GPU."""
        self._in_flight.settle(in_flight.WAIT_ALL)
        return self._report

    def __enter__(self) -> SavedMemory:
        thread = threading.get_ident()
        if self._inside and self._thread != thread:
            raise RuntimeError("this compress_saved is in use in another thread: call compress_saved(model) in each thread")
        if not self._inside:
            self._thread = thread
            self.step += 1
            self._report = SavedReport()
            self._sites.begin()
            self._known = {key: saved for key, saved in self._known.items() if saved() is not None}
            self._model_tensors.refresh(self.step)
            self._hooks = self._model_tensors.install_hooks()
            self._limit_flight()
            for arena in self._arenas.values():
                arena.begin()
        self._alone = not torch._C._autograd._top_saved_tensors_default_hooks(False)
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        hooks.__enter__()
        self._inside.append(hooks)
        model_tensors.enter(self)
        return self

    def __exit__(self, *about: Any) -> None:
        # A module may have raised while our hooks were paused.
        self.resume()
        model_tensors.leave(self)
        self._inside.pop().__exit__(*about)
        if not self._inside:
            self._model_tensors.remove_hooks(self._hooks)
            self._hooks = []
            self._forget()
            for arena in self._arenas.values():
                arena.end()

    def _limit_flight(self):
        """Sets how many bytes may be in flight in this step: plain memory on its way out adds to
        the peak."""
        saved, self._saved_before = self._saved_bytes - self._saved_before, self._saved_bytes
        limit = min(saved // 10, MAX_IN_FLIGHT) if saved else MAX_IN_FLIGHT
        self._flight_limit = limit if self.in_flight_bytes is None else self.in_flight_bytes

    def _find(self, key):
        """Returns the live storage of an identity, or None."""
        found = self._known.get(key)
        return found() if found is not None else None

    def _pack(self, tensor):
        """Pack hook: returns what autograd saves instead of a tensor."""
        if _modes():
            # Dispatch modes of others must not see our work.
            with _disable_current_modes():
                return self._pack_one(tensor)
        return self._pack_one(tensor)

    def _pack_one(self, tensor):
        if type(tensor) not in PLAIN:
            return self._pass(tensor, "a subclass of tensors")
        if tensor.layout is not torch.strided:
            return self._pass(tensor, "not plain memory")
        storage = tensor.untyped_storage()
        key = storage._cdata
        if self._packed and (packed := self._packed.pop(key, None)) is not None:
            return packed
        if (reason := self._unfit(tensor, storage)) is not None:
            return self._pass(tensor, reason)
        saved = self._find(key)
        if saved is None:
            saved = self._save(tensor, storage)
        elif not saved.matches(tensor, storage):
            return self._pass(tensor, "changed in place since it was packed")
        # From here on autograd holds the storage.
        elif self._outputs and self._outputs.pop(key, None) is not None:
            self._report.count_recomputed(saved.size)
        else:
            self._report.count_saved_again(saved)
        if saved.tensor is not None and saved.packed is None:
            # Stays plain, and known as long as autograd holds it.
            return tensor, saved.version, saved
        saved.uses += 1
        return SavedView(saved, tensor)

    def _pass(self, tensor, reason):
        self._report.skip(reason, tensor)
        return tensor, None if tensor.is_inference() else tensor._version

    def _unfit(self, tensor, storage):
        """Returns why a tensor is never packed, or None."""
        if storage._cdata in self._model_tensors.storages:
            return "a parameter or a buffer"
        if storage.nbytes() < max(self.policy.least_bytes, 1):
            return "small"
        if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_inference():
            return "not plain memory"
        if not (tensor.is_cuda or tensor.is_cpu):
            return "not on the CPU or an NVIDIA GPU"
        return None

    def _save(self, tensor, storage):
        """Records a new storage, and packs it if that pays."""
        if self._in_flight.pending:
            self._in_flight.settle(self._flight_limit)
        self._capturing = module_hooks.is_capturing(tensor.device)
        site = self._sites.next((tensor.dtype, storage.nbytes(), tensor.device))
        saved = self._recomputation(tensor, storage, site)
        if saved is None:
            saved = PackedStorage(tensor, storage, site)
            self._saved_bytes += saved.size
            saved.saved_at = self._saved_bytes
            if reason := self._reason(site, tensor, storage):
                # Stays plain; cheap outputs may be recomputed from it.
                self._report.skip(reason, tensor)
            else:
                self._start_packing(saved, saved.pack)
        self._known[storage._cdata] = weakref.ref(saved)
        return saved

    def _reason(self, site, tensor, storage):
        """Returns why a storage stays plain, or None. Surveys it if that is due."""
        if site.permanent_reason is None and self.step >= site.next_survey and not self._capturing:
            flat = view_of(storage, torch.uint8, (storage.nbytes(),), (1,), 0)
            self.policy.survey(site, self.step, flat, tensor.dtype)
        return self._decided(site, storage.nbytes())

    def _decided(self, site, size=0):
        """Returns the same without a survey: a graph capture must neither survey nor wait."""
        if self._capturing and self.policy.overflow != "host":
            return "captured in a graph"
        reason = site.permanent_reason or site.reason
        if reason is None and site.format is not None and not self._sites.in_share(site, size, self.policy.share):
            return "beyond the share"
        if reason is None and self._capturing and not site.has_block():
            return "not seen before the graph"
        return reason

    def _start_packing(self, saved, pack, *others):
        """Packs by ``pack(take, status, pinned)`` and arranges the release of the plain memory."""
        pinned, status = self._pinned_block(saved.site, saved.size), None
        if in_flight.is_async(saved.device) and not self._capturing:
            status = self._in_flight.take_word()
        pack(self._arenas[saved.device].take, status, pinned, *others)
        if pinned is not None:
            saved.release()
        if status is None:
            self._settle(saved.sectors, saved, self._report)
        elif pinned is None:
            self._in_flight.add(status, saved.size, saved.device, self._confirm, weakref.ref(saved), status, self._report)
        else:
            self._report.count_packed(saved)
            self._in_flight.add(status, 0, saved.device, self._count_overflow, saved.site, self._report)

    def _pinned_block(self, site, size):
        """Returns pinned memory for the worst-case overflow, or None if overflow stays on the
        device. A graph's block is never reused."""
        if not site.pinned_bytes:
            return None
        try:
            block = site.take_block() or self._pinned_pool.take(site.pinned_bytes)
        except RuntimeError:
            # No more memory can be pinned.
            self.policy.keep_on_device(site, size)
            return None
        if self._capturing:
            # Nothing else is in flight when a capture begins.
            block.in_graph, block.stream = True, None
            self._graph_blocks.append(block)
        return block

    def _settle(self, sectors, saved, report):
        """Releases the plain memory, or the packed memory if the overflow had no room."""
        if saved.settle(sectors):
            report.count_packed(saved)
        else:
            report.skip("overflowed its room", saved.tensor)
        self._update_site(sectors, saved.site)

    def _confirm(self, sectors, saved, status, report):
        if (saved := saved()) is not None and saved.status is status:
            self._settle(sectors, saved, report)

    def _count_overflow(self, sectors, site, report):
        """Counts overflow on the host."""
        report.overflow_bytes += 32 * sectors
        self._update_site(sectors, site)

    def _update_site(self, sectors, site):
        if sectors > site.sectors:
            # Survey at the next step.
            site.next_survey = 0

    def _unpack(self, saved):
        """Unpack hook: returns the tensor. The first of a backward pass releases all plain memory
        that it can."""
        if self._in_flight.pending:
            self._in_flight.settle(0)
        if self._outputs or self._producers:
            self._outputs.clear()
            self._producers.clear()
        if type(saved) is tuple:
            tensor, version = saved[:2]
            if version is not None and tensor._version != version:
                raise version_error(tensor, version)
            return tensor
        if type(saved) is SavedView and type(storage := saved.saved) is PackedStorage:
            storage.uses -= 1
            if self.policy.learn and not self._capturing:
                self._learn(storage)
            return storage.restore(saved, storage.site.reused_soon and storage.uses > 0)
        return saved.unpack()

    def _learn(self, saved):
        """Learns for the next step: a storage that is restored at once or held elsewhere is not
        worth packing; one that is restored twice with little in between is unpacked once."""
        site = saved.site
        if saved.restored_at is not None and self._restored_bytes - saved.restored_at < SOON * saved.size:
            site.reused_soon = True
        self._restored_bytes += saved.size
        saved.restored_at = self._restored_bytes
        if saved.saved_at is not None and self._saved_bytes - saved.saved_at < saved.size:
            site.permanent_reason = "wanted again at once"
        saved.saved_at = None
        if saved.tensor is None and not saved.storage.expired():
            site.held_count += 1
            if site.held_count > 2:
                site.permanent_reason = "held by someone else too"
