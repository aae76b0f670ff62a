"""When a packed layer goes past operators, and what it gives the GPU then. Run by test_product.py in a process of its own."""

import ctypes
import struct

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import fake
from buddy.torch import compress_, ops

OUTPUTS, INPUTS = 48, 128
X = torch.randn(2, 3, INPUTS).bfloat16()


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    return fake.load(tmp_path_factory.mktemp("driver"))


@pytest.fixture(params=[False, True], ids=["plain", "bias"])
def layer(request, driver):
    torch.manual_seed(1)
    (layer,) = compress_(nn.Sequential(nn.Linear(INPUTS, OUTPUTS, bias=request.param)).bfloat16().requires_grad_(False))
    fake.product_of(layer.store).kept[5] = fake.scratch(1 << 20)
    return layer


def number(driver, name):
    return ctypes.c_int.in_dll(driver, name).value


def launches(driver):
    return number(driver, "fake_launches")


def viewed(driver):
    """What the last launch was given: the weights' parts, sectors and window; x, bias, y, parts, counts; outputs, inputs, tokens, type."""
    return struct.unpack("<4Q2I5Q4I", bytes((ctypes.c_ubyte * 96).in_dll(driver, "fake_view")))


def starts(driver, layer, x):
    """Whether a call starts a product at once; the operator, which it else goes to, multiplies on the CPU."""
    before = launches(driver)
    layer(x)
    return launches(driver) - before == 1


def test_a_call_with_nothing_special_starts_at_once_with_what_it_was_given(driver, layer):
    assert starts(driver, layer, X)
    y = layer(X)
    assert y.shape == (2, 3, OUTPUTS) and y.dtype == torch.bfloat16
    view = viewed(driver)
    memory, scratch, _ = layer.store.product.kept[5]
    assert view[0] == layer.store.data.data_ptr() + 128, "entries begin after the header"
    assert view[6:9] == (X.data_ptr(), layer.bias.data_ptr() if layer.bias is not None else 0, y.data_ptr())
    assert view[10] == scratch < view[9] < scratch + memory.numel(), "counts first, then what is worked in"
    assert view[11:] == (OUTPUTS, INPUTS, 6, 0)
    assert number(driver, "fake_overlaps") == 0, "the kernel before may have packed the weights"


@pytest.mark.parametrize("grad", [True, False])
def test_autograd_sees_the_operator(driver, layer, grad):
    with torch.set_grad_enabled(grad):
        assert starts(driver, layer, X.clone().requires_grad_()) != grad
        if layer.bias is not None:
            layer.bias.requires_grad_()
            assert starts(driver, layer, X) != grad


def test_modes_classes_and_transforms_see_the_operator(driver, layer):
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Other(torch.Tensor):
        pass

    with Mode():
        assert not starts(driver, layer, X)
    assert not starts(driver, layer, X.as_subclass(Other))
    before = launches(driver)
    torch.jit.trace(layer, X, check_trace=False)
    torch.func.functionalize(layer)(X)
    assert launches(driver) == before


def test_what_the_kernel_cannot_take_goes_to_the_operator(driver, layer):
    assert not starts(driver, layer, X.transpose(0, 1)), "not one row after the other"
    flat = torch.zeros(3 * INPUTS + 1).bfloat16()
    assert not starts(driver, layer, flat[1:].view(3, INPUTS)), "not aligned"
    layer.exact = True
    assert not starts(driver, layer, X)


def test_a_captured_graph_and_a_new_stream_do_not_take_scratch_memory_that_is_kept(driver, layer):
    capturing = ctypes.c_int.in_dll(driver, "fake_capturing")
    capturing.value = 1
    try:
        assert not starts(driver, layer, X)
    finally:
        capturing.value = 0
    kept = layer.store.product.kept.pop(5)
    assert not starts(driver, layer, X)
    layer.store.product.kept[5] = fake.scratch(64)
    assert not starts(driver, layer, X), "too little"
    layer.store.product.kept[5] = kept
    assert starts(driver, layer, X)


@pytest.mark.parametrize("captured", [True, False])
def test_a_graph_of_a_compiled_model_clears_nothing_and_asks_for_weights_early(driver, layer, captured, monkeypatch):
    monkeypatch.setattr(ops, "place", lambda tensor: (0, 5))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captured)
    for name in ["zeros", "empty"]:
        monkeypatch.setattr(torch, name, lambda size, **more: fake.aligned(size).fill_(name == "empty"))
    counts = fake.aligned(layer.store.product.count_bytes)
    ops._linear_cuda(X, layer.store.data, layer.bias, counts, layer.store.codec, OUTPUTS, False)
    # Beside anything but a graph of the same layer, which a compiled model replays one at a time, it has memory of its own.
    assert (viewed(driver)[10] == counts.data_ptr()) == captured
    assert number(driver, "fake_overlaps") == captured


def test_weights_that_moved_or_were_loaded_are_looked_up_again(driver, layer):
    first = layer.store.product
    assert layer.store.product is first
    layer.store._apply(torch.clone)
    assert layer.store.product is not first and layer.store.product.address == layer.store.data.data_ptr()
    second = layer.store.product
    layer.load_state_dict(layer.state_dict())
    assert layer.store.product is not second
