"""Accesses of transfers to staging memory and slots, ordered as on a GPU: streams become vector
clocks, and any two accesses to the same bytes, one of them a write, must be ordered by events."""

import random

import pytest

torch = pytest.importorskip("torch")

from buddy.kv import HostPool, PageFormat, transfer
from torch.overrides import TorchFunctionMode

PAGE = 1 << 10
HOST = "host"


class Event:
    """A point of a stream: how far every stream was."""

    def __init__(self, streams, clock):
        self.streams, self.clock = streams, clock

    def query(self):
        return False

    def synchronize(self):
        self.streams.join(HOST, self.clock)


class Streams(TorchFunctionMode):
    """The clocks of all streams and of the host, and every access so far."""

    def __init__(self):
        super().__init__()
        self.clocks, self.now, self.accesses, self.pairs = {HOST: {}}, HOST, [], 0

    def join(self, stream, clock):
        mine = self.clocks[stream]
        mine.update({name: max(time, mine.get(name, 0)) for name, time in clock.items()})

    def access(self, tensor, write):
        """Records an access of the current stream, and compares it with those of others."""
        clock = self.clocks[self.now]
        clock[self.now] = clock.get(self.now, 0) + 1
        begin = tensor.data_ptr()
        end = begin + tensor.numel() * tensor.element_size()
        for stream, time, (low, high), wrote in self.accesses:
            if low < end and begin < high and (write or wrote) and stream != self.now:
                self.pairs += 1
                assert clock.get(stream, 0) >= time, f"{self.now} does not wait for {stream}"
        self.accesses.append((self.now, clock[self.now], (begin, end), write))

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function is torch.Tensor.copy_ and self.now != HOST:
            self.access(arguments[1], False)
            self.access(arguments[0], True)
        return function(*arguments, **keywords or {})


@pytest.fixture
def streams(monkeypatch):
    found = Streams()

    class Lane:
        """Stands for `transfer.Lane` on a GPU."""

        def __init__(self, device):
            self.name = f"stream {len(found.clocks)}"
            found.clocks[self.name] = {}

        def __enter__(self):
            # Work that the host enqueues comes after what the host has waited for.
            found.join(self.name, found.clocks[HOST])
            found.now = self.name

        def __exit__(self, *error):
            found.now = HOST

        def event(self, timed=False):
            return Event(found, dict(found.clocks[self.name]))

        def after(self, event):
            if event is not None:
                found.join(self.name, event.clock)

        def after_current(self):
            found.join(self.name, found.clocks[HOST])

    def recorded(function, reads, writes):
        def call(*arguments):
            for at, write in [*((at, False) for at in reads), *((at, True) for at in writes)]:
                found.access(arguments[at], write)
            return function(*arguments)

        return call

    monkeypatch.setattr(transfer, "Lane", Lane)
    # Arguments: pages, format, slots, counters; slots, format, pages; slots.
    monkeypatch.setattr(transfer, "pack_pages", recorded(transfer.pack_pages, [0], [2, 3]))
    monkeypatch.setattr(transfer, "unpack_slots", recorded(transfer.unpack_slots, [0], [2]))
    monkeypatch.setattr(transfer, "fits", recorded(transfer.fits, [0], []))
    monkeypatch.setattr(transfer, "BATCH_BYTES", 2 * PAGE)
    with found:
        yield found


def test_transfers_wait_for_what_they_use(streams):
    draw, cache, pool = random.Random(1), torch.randn(40, PAGE // 2).bfloat16().view(torch.uint8), HostPool(PageFormat(PAGE), 40)
    store, load = pool.mover("cpu", "store"), pool.mover("cpu", "load")
    flying, busy = [], set()
    for _ in range(60):
        slots = draw.sample(range(40), draw.randrange(1, 9))
        if busy & set(slots):
            for transfer_, _ in flying:
                transfer_.wait()
            flying, busy = [], set()
        # A store replaces pages; slots that hold one are loaded to the blocks of the same numbers.
        if draw.random() < 0.5:
            move = lambda first, pages, slots=slots: [pages[i].copy_(cache[slots[first + i]]) for i in range(len(pages))]
            flying.append((store.store(slots, move), slots))
        elif slots := [slot for slot in slots if slot in pool.held]:
            move = lambda first, pages, slots=slots: [cache[slots[first + i]].copy_(pages[i]) for i in range(len(pages))]
            flying.append((load.load(slots, move), slots))
        busy.update(slots)
    for transfer_, _ in flying:
        transfer_.wait()
    assert streams.pairs > 500 and len(streams.clocks) == 5


def test_an_access_without_an_event_is_found(streams, monkeypatch):
    monkeypatch.setattr(transfer.Lane, "after", lambda self, event: None)
    with pytest.raises(AssertionError, match="does not wait for"):
        HostPool(PageFormat(PAGE), 9).put(range(9), torch.randn(9, PAGE // 2).bfloat16())
