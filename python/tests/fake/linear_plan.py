"""When a packed layer bypasses the dispatcher, and its launch arguments. Run by test_linear_plan.py
in a process of its own."""

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
    fake.plan_of(layer.matrix).scratch[5] = fake.scratch(1 << 20)
    return layer


def number(driver, name):
    return ctypes.c_int.in_dll(driver, name).value


def launches(driver):
    return number(driver, "fake_launches")


def viewed(driver):
    """Returns the view of the last launch: weights, sectors and window; x, bias, y, partials,
    counters; outputs, inputs, tokens, type."""
    return struct.unpack("<4Q2I5Q4I", bytes((ctypes.c_ubyte * 96).in_dll(driver, "fake_view")))


def launches_directly(driver, layer, x):
    """Returns whether a call launches a kernel directly; the operator would multiply on the CPU."""
    before = launches(driver)
    layer(x)
    return launches(driver) - before == 1


def test_an_ordinary_call_launches_directly_with_its_arguments(driver, layer):
    assert launches_directly(driver, layer, X)
    y = layer(X)
    assert y.shape == (2, 3, OUTPUTS) and y.dtype == torch.bfloat16
    view = viewed(driver)
    memory, scratch, _ = layer.matrix.plan.scratch[5]
    assert view[0] == layer.matrix.data.data_ptr() + 128, "entries begin after the header"
    assert view[6:9] == (X.data_ptr(), layer.bias.data_ptr() if layer.bias is not None else 0, y.data_ptr())
    assert view[10] == scratch < view[9] < scratch + memory.numel(), "counters first, then partials"
    assert view[11:] == (OUTPUTS, INPUTS, 6, 0)
    assert number(driver, "fake_overlaps") == 0, "the kernel before may have packed the weights"


@pytest.mark.parametrize("grad", [True, False])
def test_autograd_sees_the_operator(driver, layer, grad):
    with torch.set_grad_enabled(grad):
        assert launches_directly(driver, layer, X.clone().requires_grad_()) != grad
        if layer.bias is not None:
            layer.bias.requires_grad_()
            assert launches_directly(driver, layer, X) != grad


def test_modes_classes_and_transforms_see_the_operator(driver, layer):
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Other(torch.Tensor):
        pass

    with Mode():
        assert not launches_directly(driver, layer, X)
    assert not launches_directly(driver, layer, X.as_subclass(Other))
    before = launches(driver)
    torch.jit.trace(layer, X, check_trace=False)
    torch.func.functionalize(layer)(X)
    assert launches(driver) == before


def test_strided_misaligned_and_exact_calls_go_to_the_operator(driver, layer):
    assert not launches_directly(driver, layer, X.transpose(0, 1)), "strided"
    flat = torch.zeros(3 * INPUTS + 1).bfloat16()
    assert not launches_directly(driver, layer, flat[1:].view(3, INPUTS)), "not aligned"
    layer.exact = True
    assert not launches_directly(driver, layer, X)


def test_a_captured_graph_and_a_new_stream_do_not_use_pooled_scratch(driver, layer):
    capturing = ctypes.c_int.in_dll(driver, "fake_capturing")
    capturing.value = 1
    try:
        assert not launches_directly(driver, layer, X)
    finally:
        capturing.value = 0
    kept = layer.matrix.plan.scratch.pop(5)
    assert not launches_directly(driver, layer, X)
    layer.matrix.plan.scratch[5] = fake.scratch(64)
    assert not launches_directly(driver, layer, X), "too little"
    layer.matrix.plan.scratch[5] = kept
    assert launches_directly(driver, layer, X)


def test_a_prompt_works_in_fresh_memory_with_the_kept_counters(driver, layer):
    plan = layer.matrix.plan
    kept = plan.scratch[5] = fake.scratch(plan.counter_bytes)
    assert plan.scratch_bytes(6) > plan.counter_bytes, "what is kept is too little"
    assert launches_directly(driver, layer, X)
    assert viewed(driver)[10] == kept[1], "its counters are the kept ones"
    assert not kept[1] <= viewed(driver)[9] < kept[1] + kept[2], "its partials are elsewhere"


@pytest.mark.parametrize("captured", [True, False])
def test_a_graph_of_a_compiled_model_clears_nothing_and_prefetches_weights(driver, layer, captured, monkeypatch):
    monkeypatch.setattr(ops, "device_and_stream", lambda tensor: (0, 5))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captured)
    for name in ["zeros", "empty"]:
        monkeypatch.setattr(torch, name, lambda size, **more: fake.aligned(size).fill_(name == "empty"))
    counts = fake.aligned(layer.matrix.plan.counter_bytes)
    ops._linear_cuda(X, layer.matrix.data, layer.bias, counts, layer.matrix.codec, OUTPUTS, INPUTS, False)
    # Only graphs of the same layer, which a compiled model replays one at a time, share its
    # counters.
    assert (viewed(driver)[10] == counts.data_ptr()) == captured
    assert number(driver, "fake_overlaps") == captured


def test_moved_or_reloaded_weights_get_a_new_plan(driver, layer):
    first = layer.matrix.plan
    assert layer.matrix.plan is first
    layer.matrix._apply(torch.clone)
    assert layer.matrix.plan is not first and layer.matrix.plan.address == layer.matrix.data.data_ptr()
    second = layer.matrix.plan
    layer.load_state_dict(layer.state_dict())
    assert layer.matrix.plan is not second
