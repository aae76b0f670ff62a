"""Launches of attention over packed pages. Run by test_linear_plan.py in a process of its own."""

import ctypes
import struct

import pytest
import torch

import fake
from buddy import _native
from buddy.vllm import pages
from buddy.vllm.pages import LayerPages, scratch_bytes, token_bytes

PAGES, HEADS, HEAD, TOKENS, GROUP = 6, 2, 128, 16, 4

# For good: pages are dropped after a test, too.
pages.unpin = torch.cuda.synchronize = lambda *_: None


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    return fake.load(tmp_path_factory.mktemp("driver"))


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch, driver):
    """Lets CPU tensors count as those of GPU 0, and nothing be allocated unseen."""
    monkeypatch.setattr(pages, "device_and_stream", lambda tensor: (0, 5))
    monkeypatch.setattr(pages, "pinned", fake.aligned)
    monkeypatch.setattr(torch, "zeros", lambda size, **more: fake.aligned(size))


def region(skew=0):
    size = PAGES * HEADS * TOKENS * token_bytes(HEAD)
    return fake.aligned(size + skew)[skew:].view(torch.bfloat16).view(PAGES, HEADS, TOKENS, -1)


def number(driver, name):
    return ctypes.c_int.in_dll(driver, f"fake_{name}").value


def viewed(driver):
    """Returns the view of the last cache: entries, overflow, nibbles, page table, fault, number of
    entries; 96; windows, shifts; layers, pages, heads, entries of a head, tokens of a page."""
    fields = struct.unpack("<6Q2I2Q6I", bytes((ctypes.c_ubyte * 96).in_dll(driver, "fake_view")))
    return fields[:7] + fields[8:15]


def rows(count):
    """Keys and values as a fused layer writes them, between queries."""
    made = fake.aligned(count * (GROUP + 2) * HEADS * HEAD * 2).view(torch.bfloat16).view(count, -1)
    row = HEADS * HEAD
    return [made[:, at * row : (at + 1) * row].view(count, HEADS, HEAD) for at in (GROUP, GROUP + 1)]


def test_a_layer_is_one_append_and_one_attention_without_clearing(driver):
    cache = LayerPages(region(), HEAD)
    entries = PAGES * HEADS * TOKENS * 4
    address = cache.region.data_ptr()
    wanted = (address, cache.overflow.data_ptr(), address + 96 * entries, 0, cache.windows.data_ptr() + 128 + 2 * HEADS * HEAD, entries, 96,
              cache.windows.data_ptr(), cache.windows.data_ptr() + 128, 1, PAGES, HEADS, 2, TOKENS)
    assert number(driver, "memsets") == 4 and cache.windows[: 2 * HEADS].tolist() == [255] * 4
    scratch = fake.aligned(scratch_bytes(cache.region, HEADS, HEAD, 3))
    keys, values = rows(3)
    slots, lengths, table = torch.tensor([0, 17, -1]), torch.tensor([1, 2, 0], dtype=torch.int32), torch.tensor([[0] * 4] * 3, dtype=torch.int32)
    query, out = (fake.aligned(3 * GROUP * HEADS * HEAD * 2).view(torch.bfloat16).view(3, GROUP * HEADS, HEAD) for _ in range(2))
    cache.load(GROUP)
    for _ in range(2):
        before = [number(driver, name) for name in ("launches", "memsets", "modules")]
        cache.append(keys, values, slots)
        assert viewed(driver) == wanted and ctypes.c_char_p.in_dll(driver, "fake_kernel").value == b"kv_append"
        cache.attend(query, out, table, lengths, 0.1, scratch)
        assert viewed(driver) == wanted and ctypes.c_char_p.in_dll(driver, "fake_kernel").value == b"attention"
        after = [number(driver, name) for name in ("launches", "memsets", "modules")]
        assert after == [before[0] + 2, *before[1:]]
    kept = [torch.empty(5, HEADS, HEAD, dtype=torch.bfloat16) for _ in range(2)]
    cache.read(table[0], *[fake.aligned(one.numel() * 2).view(torch.bfloat16).view(one.shape) for one in kept])
    assert viewed(driver) == wanted and ctypes.c_char_p.in_dll(driver, "fake_kernel").value == b"kv_read"


def test_rows_of_a_fused_layer_are_not_copied(driver, monkeypatch):
    cache, seen = LayerPages(region(), HEAD), []
    monkeypatch.setattr(_native, "kv_append", lambda where, native, of, slots: seen.append(of))
    keys, values = rows(3)
    cache.append(keys, values, torch.tensor([0, 1, 2]))
    (found,) = seen
    assert [one.address for one in found[:2]] == [keys.data_ptr(), values.data_ptr()] and found[3] == keys.stride(0) == (GROUP + 2) * HEADS * HEAD
    assert found[0].nbytes == 2 * (2 * keys.stride(0) + HEADS * HEAD)


def test_memory_that_kernels_cannot_address_is_refused(driver):
    with pytest.raises(ValueError, match="block_size=64"):
        LayerPages(region(skew=32), HEAD)
