"""Saved activations in fewer bytes, exact to the bit: ``with compress_saved(model):`` around the forward pass."""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import flight, noting
from .again import CHEAP
from .beside import Beside
from .kept import Kept, Memory, Part, changed, over
from .owned import KEY, PLAIN, Owned
from .policy import Policy, Sites
from .report import SavedReport
from .slabs import Slabs

# Bytes of plain memory that wait for the GPU's answer, at most.
MOST_IN_FLIGHT = 1 << 30
# Memory that is wanted again before so many times its bytes are is held until then: what attention puts out is, with queries, keys and
# values in between.
SOON = 4
# What is kept of a model between steps: how its tensors are packed.
_MODELS: weakref.WeakKeyDictionary[torch.nn.Module, dict[Any, SavedMemory]] = weakref.WeakKeyDictionary()
_modes = torch._C._len_torch_dispatch_stack


def compress_saved(model: torch.nn.Module, *, least: str = "2x", least_bytes: int = 1 << 20, most_overflow: float = 0.1,
                   least_saved: float = 0.1, recompute: tuple[type, ...] = CHEAP, learn: bool = True,
                   in_flight_bytes: int | None = None, overflow: str = "host", share: float = 1.0) -> SavedMemory:
    """Packs what autograd saves for the backward pass. Gradients are those without it, to the bit.

    Put it around the forward pass; the backward pass may be inside or after it::

        with buddy.torch.compress_saved(model) as mem:
            loss = model(batch).mean()
        loss.backward()
        print(mem.report())

    By default only tensors that reach 2x are packed (what follows a ReLU, masks, sparse ones), found by a look in the first
    steps; ``least="4/3x"`` packs dense bf16 too, or the share ``share`` of it: its time grows with its bytes. At most ``most_overflow`` of a tensor's entries may be beyond its target, and
    at least ``least_saved`` of its bytes must be saved.
    What is cheap to compute again from a tensor that is kept anyway, the output of a module of the types ``recompute``, is not
    packed but computed. What is wanted again at once, or held by someone else too, is left alone in later steps unless ``learn`` is
    off. Parameters, buffers, subclasses of tensors and what is smaller than ``least_bytes`` are passed through. The same model and
    options give the same memory, so it may be written into the training loop.
    What overflows goes to pinned memory of the host, which has room for all that may, a quarter of what is packed at 4/3x, half at 2x:
    so nothing waits, and the step can be captured in a CUDA graph, after a few steps without one, if it then saves the same tensors.
    With ``overflow="device"``, or if no more can be pinned, it lies on the device: plain memory is let go once the GPU says that its packed
    form had room, and at most ``in_flight_bytes`` of it wait for that answer, by default a tenth of what is saved, 1 GB at most.

    Memory that is changed behind autograd's back (through ``.data``, or by kernels that do not say so) between two operations
    that save it must not be used with this.
    """
    options = (least, least_bytes, most_overflow, least_saved, learn, overflow, share, tuple(recompute), in_flight_bytes)
    kept = _MODELS.setdefault(model, {})
    if options not in kept:
        kept[options] = SavedMemory(weakref.ref(model), Policy(*options[:7]), tuple(recompute), in_flight_bytes)
    return kept[options]


class SavedMemory(noting.Noting):
    """What ``compress_saved`` keeps of a model: how each saved tensor is packed, and what the last step gave."""

    def __init__(self, model: weakref.ref[torch.nn.Module], policy: Policy, recompute: tuple[type, ...],
                 in_flight_bytes: int | None):
        super().__init__()
        self.policy, self.in_flight_bytes, self.step = policy, in_flight_bytes, 0
        self._owned, self._sites = Owned(model, recompute), Sites()
        # By the identity of the storage; a Memory holds a weak reference that keeps it from being given to another.
        self._known: dict[int, weakref.ref[Memory]] = {}
        self._flight, self._saved = flight.Flight(), 0
        self._slabs: dict[torch.device, Slabs] = defaultdict(Slabs)
        self._beside, self._captured = Beside(), []
        self._given, self._saved_before, self._in_flight = 0, 0, MOST_IN_FLIGHT
        self._inside, self._hooks, self._report, self._alone, self._capturing = [], [], SavedReport(), False, False

    def report(self) -> SavedReport:
        """What the last step gave: bytes, ratio, overflow, and what was passed through and why."""
        self._flight.settle(flight.NONE)
        return self._report

    def __enter__(self) -> SavedMemory:
        if not self._inside:
            self.step += 1
            self._report = SavedReport()
            self._sites.begin()
            self._known = {key: kept for key, kept in self._known.items() if kept() is not None}
            self._owned.find(self.step)
            self._hooks = self._owned.watch(self._begin_cheap, self._end_cheap)
            self._limit_flight()
            for slabs in self._slabs.values():
                slabs.begin()
        self._alone = not torch._C._autograd._top_saved_tensors_default_hooks(False)
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        hooks.__enter__()
        self._inside.append(hooks)
        return self

    def __exit__(self, *about: Any) -> None:
        # A module may have raised.
        self.go_on()
        self._inside.pop().__exit__(*about)
        if not self._inside:
            for where in self._hooks:
                where.pop(KEY, None)
            self._hooks = []
            self._forget()
            for slabs in self._slabs.values():
                slabs.end()

    def _limit_flight(self):
        """How many bytes may wait for the GPU's answer in this step: plain memory that is on its way out adds to the peak."""
        saved, self._saved_before = self._saved - self._saved_before, self._saved
        share = min(saved // 10, MOST_IN_FLIGHT) if saved else MOST_IN_FLIGHT
        self._in_flight = share if self.in_flight_bytes is None else self.in_flight_bytes

    def _find(self, key):
        """The memory that is known by this identity."""
        found = self._known.get(key)
        return found() if found is not None else None

    def _pack(self, tensor):
        """The hook: what autograd shall keep instead of a tensor."""
        if _modes():
            # Our own work is no one else's to count or to keep.
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
        kept = self._find(key)
        if kept is None:
            kept = self._keep(tensor, storage)
        elif not kept.is_of(tensor, storage):
            return self._pass(tensor, "changed in place since it was packed")
        # From here on autograd holds it.
        elif self._outputs and self._outputs.pop(key, None) is not None:
            self._report.computed(kept.size)
        else:
            self._report.again(kept)
        if kept.tensor is not None and kept.packed is None:
            # It stays as it is, and is known as long as autograd holds it.
            return tensor, kept.version, kept
        kept.uses += 1
        return Part(kept, tensor)

    def _pass(self, tensor, reason):
        self._report.skip(reason, tensor)
        return tensor, None if tensor.is_inference() else tensor._version

    def _unfit(self, tensor, storage):
        """Why a tensor is passed through, before anyone looks at it."""
        if storage._cdata in self._owned.storages:
            return "a parameter or a buffer"
        if storage.nbytes() < max(self.policy.least_bytes, 1):
            return "small"
        if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_inference():
            return "not plain memory"
        if not (tensor.is_cuda or tensor.is_cpu):
            return "not on the CPU or an NVIDIA GPU"
        return None

    def _keep(self, tensor, storage):
        """Packs memory that was not seen before, if that pays."""
        if self._flight.pending:
            self._flight.settle(self._in_flight)
        self._capturing = noting.capturing(tensor.device)
        site = self._sites.next((tensor.dtype, storage.nbytes(), tensor.device))
        kept = self._again(tensor, storage, site)
        if kept is None:
            kept = Kept(tensor, storage, site)
            self._saved += kept.size
            kept.at = self._saved
            if reason := self._reason(site, tensor, storage):
                # Kept as it is; what is cheap may be computed from it.
                self._report.skip(reason, tensor)
            else:
                self._packing(kept, kept.pack)
        self._known[storage._cdata] = weakref.ref(kept)
        return kept

    def _reason(self, site, tensor, storage):
        """Why memory stays as it is, after a look if one is due."""
        if site.sticks is None and self.step >= site.due and not self._capturing:
            flat = over(storage, torch.uint8, (storage.nbytes(),), (1,), 0)
            self.policy.look(site, self.step, flat, tensor.dtype)
        return self._decided(site, storage.nbytes())

    def _decided(self, site, size=0):
        """The same as far as it is known: while a graph is captured nobody may look or wait."""
        if self._capturing and self.policy.overflow != "host":
            return "captured in a graph"
        reason = site.sticks or site.reason
        if reason is None and site.how is not None and not self._sites.has_share(site, size, self.policy.share):
            return "beyond the share"
        if reason is None and self._capturing and not site.has_piece():
            return "not seen before the graph"
        return reason

    def _packing(self, kept, pack, *others):
        """Packs by ``pack(take, told, beside)``, and sees to it that the plain memory goes."""
        beside, told = self._piece(kept.site, kept.size), None
        if flight.waits(kept.device) and not self._capturing:
            told = self._flight.word()
        pack(self._slabs[kept.device].take, told, beside, *others)
        if beside is not None:
            kept.let_go()
        if told is None:
            self._settled(kept.sectors, kept, self._report)
        elif beside is None:
            self._flight.add(told, kept.size, kept.device, self._answered, weakref.ref(kept), told, self._report)
        else:
            self._report.packed(kept)
            self._flight.add(told, 0, kept.device, self._counted, kept.site, self._report)

    def _piece(self, site, size):
        """Memory for whatever may overflow, if it goes to the host and there is some. A graph's is never another's."""
        if not site.beside:
            return None
        try:
            piece = site.piece() or self._beside.take(site.beside)
        except RuntimeError:
            # No more memory can be pinned.
            self.policy.keep_on_device(site, size)
            return None
        if self._capturing:
            # Nothing else is under way when a capture begins.
            piece.is_graphs, piece.stream = True, None
            self._captured.append(piece)
        return piece

    def _settled(self, sectors, kept, report):
        """It is known how many sectors overflow: the plain memory goes, or the packed."""
        if kept.settle(sectors):
            report.packed(kept)
        else:
            report.skip("overflowed its room", kept.tensor)
        self._expected(sectors, kept.site)

    def _answered(self, sectors, kept, told, report):
        if (kept := kept()) is not None and kept.told is told:
            self._settled(sectors, kept, report)

    def _counted(self, sectors, site, report):
        """So many have overflowed to the host."""
        report.overflow_bytes += 32 * sectors
        self._expected(sectors, site)

    def _expected(self, sectors, site):
        if sectors > site.sectors:
            # Another look at the next step.
            site.due = 0

    def _unpack(self, saved):
        """The hook: the tensor again. Before the first of a backward pass all plain memory that can go is let go."""
        if self._flight.pending:
            self._flight.settle(0)
        if self._outputs or self._made:
            self._outputs.clear()
            self._made.clear()
        if type(saved) is tuple:
            tensor, version = saved[:2]
            if version is not None and tensor._version != version:
                raise changed(tensor, version)
            return tensor
        if type(saved) is Part and type(kept := saved.kept) is Kept:
            kept.uses -= 1
            if self.policy.learn and not self._capturing:
                self._learn(kept)
            return kept.give(saved, kept.site.soon and kept.uses > 0)
        return saved.unpack()

    def _learn(self, kept):
        """What its uses say of the next step: memory that is wanted again at once, or that others hold, is not worth packing; memory
        that is wanted twice, with little in between, is read once."""
        site = kept.site
        if kept.given is not None and self._given - kept.given < SOON * kept.size:
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
