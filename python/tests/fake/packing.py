"""Launch arguments of packing. Run by test_linear_plan.py in a process of its own."""

import ctypes
import struct

import pytest

import fake
from buddy import _native
from buddy.torch.layout import packed_bytes
from buddy.torch.ops import span

FORMAT = ("bf16:112", "4/3x", 0)
GPU = (0, 5)


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    return fake.load(tmp_path_factory.mktemp("driver"))


def counts(driver):
    return [ctypes.c_int.in_dll(driver, f"fake_{name}").value for name in ["launches", "memsets"]]


def last(driver):
    """Returns the last kernel, whether it may overlap the previous one, and its first argument."""
    view = struct.unpack("<12Q", bytes((ctypes.c_ubyte * 96).in_dll(driver, "fake_view")))
    return ctypes.c_char_p.in_dll(driver, "fake_kernel").value, ctypes.c_int.in_dll(driver, "fake_overlaps").value, view


@pytest.mark.parametrize("entries", [1, 64, 1000, 64 * 300 * 255])
@pytest.mark.parametrize("apart", [False, True])
def test_packing_with_counters_is_two_kernels_and_clears_nothing(driver, entries, apart):
    data, counters, host = fake.aligned(128), fake.aligned(1024), fake.aligned(64)
    size = 128 * entries
    need = packed_bytes("4/3x", 0, size, 0 if apart else 7)
    # Kernels do not run, so memory of a few bytes stands for all of it.
    memory = fake.aligned(128)
    packed, overflow = _native.Span(memory, memory.data_ptr(), need), span(host) if apart else None
    for given, kernels, memsets, name, overlaps in [(None, 3, 1, b"frozen_overflow", 0), (span(counters), 2, 0, b"frozen_finish", 1)]:
        before = counts(driver)
        _native.pack(GPU, FORMAT, _native.Span(data, data.data_ptr(), size), packed, 4096, overflow, given)
        assert [now - then for now, then in zip(counts(driver), before)] == [kernels, memsets]
        kernel, may_overlap, view = last(driver)
        assert (kernel, may_overlap) == (name, overlaps)
        assert view[0] == data.data_ptr() and view[1] == packed.address + 128 and view[5:7] == (packed.address, 4096)
        assert view[4] == host.data_ptr() if apart else packed.address < view[3] < view[4] <= packed.address + need
        assert view[7] == (counters.data_ptr() if given else packed.address + 64), "in memory of their own, or in the header"
        assert view[8] == entries and view[9] == 0
        device_bytes, capacity, pages, _ = struct.unpack("<4I", struct.pack("<2Q", *view[10:]))
        # Whatever the other parts leave of the memory.
        assert device_bytes == 96 and capacity >= (2 if apart else 7)
        parts = -(-(-(-entries // 64)) // pages)
        assert parts <= (255 if given else 16) and pages >= (8 if given else 1)


def test_counters_of_another_size_are_an_error(driver):
    with pytest.raises(ValueError, match="1024 bytes of zeros"):
        packed = fake.aligned(packed_bytes("4/3x", 0, 128, 0))
        _native.pack(GPU, FORMAT, span(fake.aligned(128)), span(packed), 0, None, span(fake.aligned(512)))


def test_pages_are_two_kernels_each_and_one_to_read(driver):
    pages, page, frozen, counters = 5, 1 << 14, packed_bytes("4/3x", 0, 1 << 14, 4), fake.aligned(1024)
    slot, memory = frozen + 128, fake.aligned(128)
    plain, packed = _native.Span(memory, memory.data_ptr(), pages * page), _native.Span(memory, memory.data_ptr() + (1 << 20), pages * slot)
    sizes, before = (page, slot, frozen), counts(driver)
    _native.pack_pages(GPU, FORMAT, plain, packed, sizes, span(counters))
    assert [now - then for now, then in zip(counts(driver), before)] == [2 * pages, 0]
    kernel, _, view = last(driver)
    header = packed.address + 4 * slot
    assert kernel == b"frozen_finish" and view[0] == plain.address + 4 * page and view[1] == header + 128 and view[5] == header
    assert view[8] == page // 128 and struct.unpack("<2I", struct.pack("<Q", view[10])) == (96, 4), "room for overflow ends with the slot"
    before = counts(driver)
    assert _native.unpack_pages(GPU, FORMAT, packed, plain, sizes) == []
    assert [now - then for now, then in zip(counts(driver), before)] == [pages, 0]
    kernel, _, view = last(driver)
    assert kernel == b"frozen_read" and view[0] == header + 128


@pytest.mark.parametrize("device", [GPU, (-1, 0)])
@pytest.mark.parametrize("pages, slots, sizes", [(256, 400, (128, 200, 201)), (255, 400, (128, 200, 128)), (256, 399, (128, 200, 128)),
                                                 (256, 400, (0, 200, 128)), (128, 2**63, (128, 2**63, 128))])
def test_pages_and_slots_that_do_not_belong_together_are_an_error(driver, device, pages, slots, sizes):
    memory = fake.aligned(128)
    spans = [_native.Span(memory, memory.data_ptr(), size % 2**62) for size in (pages, slots)]
    for call in [lambda: _native.pack_pages(device, FORMAT, *spans, sizes), lambda: _native.unpack_pages(device, FORMAT, *reversed(spans), sizes)]:
        with pytest.raises(ValueError, match="do not belong together"):
            call()
