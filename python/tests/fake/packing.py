"""What packing a saved tensor gives the GPU. Run by test_product.py in a process of its own."""

import ctypes
import struct

import pytest

import fake
from buddy import _native
from buddy.torch.layout import room
from buddy.torch.ops import span

HOW = ("bf16:112", "4/3x", 0)
GPU = (0, 5)


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    return fake.load(tmp_path_factory.mktemp("driver"))


def counts(driver):
    return [ctypes.c_int.in_dll(driver, f"fake_{name}").value for name in ["launches", "memsets"]]


def last(driver):
    """The last kernel, whether it may begin before the one before it ends, and the first of what it was given: addresses, then order."""
    view = struct.unpack("<12Q", bytes((ctypes.c_ubyte * 96).in_dll(driver, "fake_view")))
    return ctypes.c_char_p.in_dll(driver, "fake_kernel").value, ctypes.c_int.in_dll(driver, "fake_overlaps").value, view


@pytest.mark.parametrize("entries", [1, 64, 1000, 64 * 300 * 255])
@pytest.mark.parametrize("apart", [False, True])
def test_packing_with_sums_is_two_kernels_and_clears_nothing(driver, entries, apart):
    data, sums, host = fake.aligned(128), fake.aligned(1024), fake.aligned(64)
    size = 128 * entries
    need = room("4/3x", 0, size, 0 if apart else 7)
    # Nothing is touched: an address and a length do.
    packed, overflow = (fake.aligned(128).data_ptr(), need), span(host) if apart else (0, 0)
    for given, kernels, memsets, name, overlaps in [((0, 0), 3, 1, b"frozen_overflow", 0), (span(sums), 2, 0, b"frozen_finish", 1)]:
        before = counts(driver)
        _native.freeze(GPU, HOW, (data.data_ptr(), size), packed, 4096, overflow, given)
        assert [now - then for now, then in zip(counts(driver), before)] == [kernels, memsets]
        kernel, may_overlap, view = last(driver)
        assert (kernel, may_overlap) == (name, overlaps)
        assert view[0] == data.data_ptr() and view[1] == packed[0] + 128 and view[5:7] == (packed[0], 4096)
        assert view[4] == host.data_ptr() if apart else packed[0] < view[3] < view[4] <= packed[0] + need
        assert view[7] == (sums.data_ptr() if given[1] else packed[0] + 64), "in memory of their own, or in the header"
        assert view[8] == entries and view[9] == 0
        device_bytes, capacity, pages, _ = struct.unpack("<4I", struct.pack("<2Q", *view[10:]))
        # Whatever the other parts leave of the memory.
        assert device_bytes == 96 and capacity >= (2 if apart else 7)
        parts = -(-(-(-entries // 64)) // pages)
        assert parts <= (255 if given[1] else 16) and pages >= (8 if given[1] else 1)


def test_zeros_of_another_size_are_refused(driver):
    with pytest.raises(ValueError, match="1024 bytes of zeros"):
        _native.freeze(GPU, HOW, (fake.aligned(128).data_ptr(), 128), (fake.aligned(128).data_ptr(), room("4/3x", 0, 128, 0)), 0, (0, 0),
                       (fake.aligned(512).data_ptr(), 512))
