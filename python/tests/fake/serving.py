"""Launch arguments of a served model's operators. Run by test_linear_plan.py in a process of its
own."""

import ctypes
import struct

import pytest
import torch

import fake
from buddy.llm.decoder import interleave_gate_up
from buddy.torch import pack_weight
from buddy.vllm import operators

OUTPUTS, INPUTS, GATED = 64, 128, 2


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    return fake.load(tmp_path_factory.mktemp("driver"))


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch, driver):
    """Lets CPU tensors count as those of GPU 0, in a captured graph."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(operators, "device_and_stream", lambda tensor: (0, 5))
    monkeypatch.setattr(operators, "is_hopper", lambda index: True)
    monkeypatch.setattr(operators, "call_native", lambda device, function, *arguments: function((0, 5), *arguments))
    for name in ["zeros", "empty"]:
        monkeypatch.setattr(torch, name, lambda size, **more: fake.aligned(size).fill_(name == "empty"))
    operators._WORKSPACES.clear()


@pytest.fixture
def packed(driver):
    found = pack_weight(interleave_gate_up(torch.randn(OUTPUTS, INPUTS).bfloat16()))
    data = fake.aligned(found.data.numel()).copy_(found.data)
    operators.remember(data, found.codec)
    return data


def number(driver, name):
    return ctypes.c_int.in_dll(driver, f"fake_{name}").value


def viewed(driver):
    """Returns the view of the last linear layer, as linear_plan.py says."""
    return struct.unpack("<4Q2I5Q4I", bytes((ctypes.c_ubyte * 96).in_dll(driver, "fake_view")))


def serve(packed, tokens, swiglu=False, plain=None, bias=None):
    x = fake.aligned(2 * tokens * INPUTS).view(torch.bfloat16).view(tokens, INPUTS)
    return operators._serve_linear(x, packed, plain, bias, OUTPUTS, INPUTS, swiglu)


@pytest.mark.parametrize("tokens", [1, 8, 100, 1536])
@pytest.mark.parametrize("swiglu", [False, True])
def test_a_layer_is_one_launch_that_loads_weights_early_and_clears_nothing(driver, packed, tokens, swiglu):
    before = number(driver, "launches"), number(driver, "memsets")
    assert serve(packed, tokens, swiglu).shape == (tokens, OUTPUTS // 2 if swiglu else OUTPUTS)
    assert (number(driver, "launches"), number(driver, "memsets")) == (before[0] + 1, before[1])
    assert number(driver, "overlaps") == 1
    view, (scratch, counters) = viewed(driver), operators._WORKSPACES[0, 5]
    assert view[0] == packed.data_ptr() + 128 and view[10] == counters.data_ptr()
    assert scratch.data_ptr() <= view[9] < scratch.data_ptr() + scratch.numel()
    assert view[11:] == (OUTPUTS, INPUTS, tokens, GATED if swiglu else 0)


def test_outside_a_graph_a_layer_waits_for_the_kernel_before_it(driver, packed, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    serve(packed, 1)
    assert number(driver, "overlaps") == 0


def test_layers_share_a_workspace_and_larger_ones_keep_those_that_graphs_hold(driver, packed):
    serve(packed, 1)
    first = operators._WORKSPACES[0, 5]
    serve(packed, 1)
    assert all(one is other for one, other in zip(first, operators._WORKSPACES[0, 5]))
    serve(packed, 1024)
    second = operators._WORKSPACES[0, 5]
    assert second[0] is not first[0] and second[1] is first[1]
    assert any(one is first[0] for one in operators._REPLACED)


def test_plain_copies_take_over_above_the_measured_number_of_tokens(driver, packed):
    plain = torch.randn(OUTPUTS, INPUTS).bfloat16()
    before = number(driver, "launches")
    serve(packed, operators.MOST_PACKED + 1, plain=plain)
    assert number(driver, "launches") == before
    serve(packed, operators.MOST_PACKED, plain=plain)
    assert number(driver, "launches") == before + 1


def test_nothing_is_compiled_after_loading(driver, packed, monkeypatch):
    tokens = [1, 2, 3, 8, 16, 64, 256, 1536]
    operators._native.linear_load((0, 5), [(OUTPUTS, INPUTS, True), (OUTPUTS, INPUTS, False)], tokens)
    loaded = number(driver, "modules")
    assert loaded >= 6
    for captured in [True, False]:
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda captured=captured: captured)
        for count in tokens:
            serve(packed, count), serve(packed, count, True)
    assert number(driver, "modules") == loaded
