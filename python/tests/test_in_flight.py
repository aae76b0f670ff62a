"""Packing that completes late, and steps captured in a graph. The CPU stands in for the GPU."""

import copy
import ctypes
import gc
import types

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from buddy import _native
from buddy.torch import arena, compress_saved, in_flight, module_hooks, policy, saved_tensors, swap_
from networks import ALL, Block, compare, equal, gradients

DEVICE = {**ALL, "overflow": "device"}
WHOLE = {**DEVICE, "recompute": ()}
ENOUGH = 1 << 30


class Gpu:
    """Packs at once, and confirms when told to."""

    def __init__(self, monkeypatch):
        self.words, self.waits, self.more = [], 0, 0
        monkeypatch.setattr(in_flight, "is_async", lambda device: True)
        monkeypatch.setattr(in_flight, "wait_for", lambda status, device: self.wait())
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: self.wait())
        monkeypatch.setattr(saved_tensors, "_native", types.SimpleNamespace(pack=self.pack, unpack=_native.unpack, Span=_native.Span))

    def pack(self, device, format, source, to, status, overflow, counters):
        sectors = _native.pack(device, format, source, to, 0, overflow)
        if status:
            self.words.append((status, sectors))
        return None if status else sectors

    def answer(self):
        for address, sectors in self.words:
            ctypes.c_int32.from_address(address).value = sectors + self.more
        self.words.clear()

    def wait(self):
        self.waits += 1
        self.answer()


@pytest.fixture
def gpu(monkeypatch):
    return Gpu(monkeypatch)


def watched(mem, x):
    """Runs a step; returns its output and a weak reference to the plain memory it saved."""
    with mem:
        middle = x.exp()
        memory = StorageWeakRef(middle.untyped_storage())
        y = middle.sin().sum()
    return y, memory


def test_plain_memory_stays_until_packing_is_confirmed(gpu):
    x = torch.randn(256, 64, requires_grad=True)
    mem = compress_saved(nn.Identity(), in_flight_bytes=ENOUGH, **WHOLE)
    y, memory = watched(mem, x)
    gc.collect()
    assert not memory.expired() and mem._in_flight.bytes == x.nbytes and gpu.waits == 0
    gpu.answer()
    assert mem.report().tensors == 1 and memory.expired() and gpu.waits == 0 and mem._in_flight.bytes == 0
    (found,) = torch.autograd.grad(y, x)
    assert torch.equal(found, torch.autograd.grad(x.exp().sin().sum(), x)[0])


def test_bytes_in_flight_are_limited(gpu):
    x, size = torch.randn(64, 64, requires_grad=True), 64 * 64 * 4
    for most, waits in [(ENOUGH, 0), (4 * size, 1), (0, 9)]:
        mem, gpu.waits = compress_saved(nn.Identity(), in_flight_bytes=most, **WHOLE), 0
        gpu.answer()
        with mem:
            y = x * 1.5
            for _ in range(10):
                # Before each save, packing is confirmed if too much is in flight.
                y = y.exp().clamp(max=1)
            assert mem._in_flight.bytes <= most + size
        assert gpu.waits == waits, (most, gpu.waits)
        del y


def test_overflow_without_room_keeps_the_plain_memory(gpu):
    gpu.more = 10**6
    for model, shape in [(Block(), (2, 16, 64)), (nn.Linear(64, 64), (32, 64))]:
        report = compare(model, torch.randn(shape), **{**WHOLE, "in_flight_bytes": ENOUGH}).report()
        assert report.tensors == 0 and report.skipped["overflowed its room"][0] > 0


def test_a_tensor_modified_while_in_flight_keeps_its_gradient(gpu):
    x = torch.randn(32, 64, requires_grad=True)
    with compress_saved(nn.Identity(), in_flight_bytes=ENOUGH, **WHOLE):
        middle = x * 2
        y = middle.sin()
        middle.add_(1)
    read = y.grad_fn._saved_self
    assert torch.equal(read, x * 2) and gpu.waits > 0


def test_a_dropped_graph_returns_its_status_words(gpu):
    x = torch.randn(64, 64, requires_grad=True)
    mem = compress_saved(nn.Identity(), in_flight_bytes=ENOUGH, **WHOLE)
    for _ in range(3):
        watched(mem, x)
        gpu.answer()
    mem.report()
    assert not mem._in_flight.pending and len(mem._in_flight._words) == in_flight.WORDS


HOST = {**ALL, "overflow": "host"}
MODELS = {"gelu": (lambda: Block(), (2, 16, 64)), "relu": (lambda: Block(activation=nn.ReLU()), (2, 16, 64)),
          "squared": (lambda: swap_(nn.Sequential(Block(activation=nn.ReLU()))).bfloat16(), (2, 16, 64))}


@pytest.mark.parametrize("name", MODELS)
def test_overflow_on_the_host_never_blocks(gpu, name):
    make, shape = MODELS[name]
    model = make()
    mem = compare(model, torch.randn(shape, dtype=next(model.parameters()).dtype), steps=3, in_flight_bytes=0, overflow="host")
    assert gpu.waits == 0 and mem.report().tensors > 0
    assert gpu.waits == 1 and not mem._in_flight.pending, "the report waits"


def test_overflow_on_the_host_always_has_room():
    model, x = nn.Identity(), (torch.randn(256, 64) - 2).relu().requires_grad_()
    options = {"least_bytes": 256, "learn": False, "overflow": "host"}
    for data in [x, x, torch.randn(256, 64).exp().requires_grad_()]:
        with compress_saved(model, **options) as mem:
            y = data.square() * 2
        report = mem.report()
        (found,) = torch.autograd.grad(y.sum(), data)
        assert torch.equal(found, 4 * data) and report.tensors == 1, report
    # All of the last one exceeds its target, and it is surveyed again.
    assert report.overflow_bytes > 256 * 64 * 4 / 4
    with compress_saved(model, **options) as mem:
        data.square()
    assert mem.report().skipped.keys() == {"does not reach 2x"}


def test_without_pinned_memory_overflow_stays_on_the_device(monkeypatch):
    from buddy.torch.pinned import PinnedPool

    def full(self, size):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(PinnedPool, "take", full)
    for name, (make, shape) in MODELS.items():
        model = make()
        mem = compare(model, torch.randn(shape, dtype=next(model.parameters()).dtype), steps=3, **HOST)
        report = mem.report()
        assert report.tensors > 0 and "overflowed its room" not in report.skipped, (name, report)


def test_live_buffers_share_no_pinned_memory():
    model, batches = Block(), [torch.randn(2, 16, 64) for _ in range(3)]
    wanted = [gradients(copy.deepcopy(model), batch)[:-1] for batch in batches]
    for _ in range(2):
        losses = []
        for batch in batches:
            with compress_saved(model, **HOST):
                torch.manual_seed(7)
                losses.append(model(batch).square().mean())
        for loss, one in zip(losses, wanted):
            model.zero_grad()
            loss.backward()
            equal([p.grad for p in model.parameters()], one)


class Capture:
    """A graph capture: surveys, waits and pinning fail."""

    def __init__(self, monkeypatch):
        self.on = False
        monkeypatch.setattr(module_hooks, "is_capturing", lambda device: self.on)
        for place, name in [(policy.Policy, "survey"), (in_flight.InFlight, "take_word"), (module_hooks.ModuleHooks, "_is_same")]:
            self.refuse(monkeypatch, place, name)
        from buddy.torch.pinned import PinnedPool
        self.refuse(monkeypatch, PinnedPool, "take")

    def refuse(self, monkeypatch, place, name):
        real = getattr(place, name)

        def call(*arguments, **options):
            assert not self.on, f"{name} in a capture"
            return real(*arguments, **options)

        monkeypatch.setattr(place, name, call)


@pytest.fixture
def capture(monkeypatch):
    return Capture(monkeypatch)


@pytest.mark.parametrize("name", [*MODELS, "convolutions"])
def test_a_captured_step_packs_the_tensors_of_the_steps_before_it(capture, name):
    if name == "convolutions":
        model = swap_(nn.Sequential(nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3))).bfloat16()
        batch = torch.randn(2, 4, 12, 12).bfloat16()
    else:
        model = MODELS[name][0]()
        batch = torch.randn(MODELS[name][1], dtype=next(model.parameters()).dtype)
    reports = []
    for step in range(12):
        # Also at the tenth step, at which surveys are due.
        capture.on = step in (3, 9, 10)
        wanted = gradients(copy.deepcopy(model), batch)
        with compress_saved(model, **HOST) as mem:
            equal(gradients(model, batch), wanted)
        reports.append(mem.report())
    for captured in (3, 9):
        assert (reports[captured].tensors, reports[captured].recomputed) == (reports[2].tensors, reports[2].recomputed), reports[captured]
    # Pinned blocks belong to their graph: the next graph has none unless a step in between made
    # some.
    assert reports[2].tensors > 0 and set(reports[10].skipped) >= {"not seen before the graph"}


def test_a_captured_step_packs_the_share_of_the_steps_before_it(capture):
    model, batch, packed = nn.Sequential(Block(), Block()).bfloat16(), torch.randn(2, 16, 64).bfloat16(), []
    for step in range(4):
        capture.on = step == 3
        wanted = gradients(copy.deepcopy(model), batch)
        with compress_saved(model, least="4/3x", least_bytes=256, least_saved=-9.0, overflow="host", share=0.5) as mem:
            equal(gradients(model, batch), wanted)
        packed.append((mem.report().tensors, mem.report().skipped["beyond the share"]))
    assert packed[2] == packed[3] and packed[2][0] > 3


def test_pinned_memory_of_a_graph_is_never_reused(capture):
    model, batch = Block(), torch.randn(2, 16, 64)
    for step in range(4):
        capture.on = step == 2
        with compress_saved(model, **HOST) as mem:
            loss = model(batch).square().mean()
        used = {one.pinned.address for ref in mem._known.values() if getattr(one := ref(), "pinned", None) is not None}
        if step == 2:
            graphs = used
        loss.backward()
        del loss, one
    assert graphs and not graphs & used


def test_a_capture_without_eager_steps_packs_nothing(capture):
    for options, reason in [(HOST, "not seen before the graph"), (DEVICE, "captured in a graph")]:
        model, batch = Block(), torch.randn(2, 16, 64)
        wanted = gradients(copy.deepcopy(model), batch)
        capture.on = True
        with compress_saved(model, **options) as mem:
            equal(gradients(model, batch), wanted)
        assert mem.report().tensors == 0 and reason in mem.report().skipped
        capture.on = False


def test_overflow_is_on_the_device_or_on_the_host():
    with pytest.raises(ValueError, match="device or host"):
        compress_saved(nn.Identity(), overflow="disk")


def test_counters_belong_to_a_stream_or_a_graph(monkeypatch):
    now = {"stream": 1, "capturing": False}
    monkeypatch.setattr(arena, "raw_stream", lambda device: now["stream"])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now["capturing"])
    monkeypatch.setattr(torch, "zeros", lambda size, dtype, device, zeros=torch.zeros: zeros(size, dtype=dtype))
    arena_ = arena.Arena()

    def zeros(**where):
        now.update(where)
        return arena_.zero_counters(torch.device("cuda", 0))

    first = zeros()
    assert first.nbytes == arena.COUNTER_BYTES and zeros() == first, "kernels leave them zero, so they are reused"
    graphs = zeros(capturing=True)
    assert len({first, zeros(stream=2, capturing=False), graphs}) == 3
    kept = [arena_.counters[1, True]]
    arena_.begin()
    assert zeros(stream=1) == first
    assert zeros(capturing=True) not in (first, graphs), "two graphs may run at the same time"
    assert kept and arena_.zero_counters(torch.device("cpu")) is None
