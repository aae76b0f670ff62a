"""Launch arguments of a mixture of experts. Run by test_linear_plan.py in a process of its own."""

import ctypes
import struct

import pytest
import torch

import fake
from buddy import _native
from buddy.torch import grouped
from buddy.torch.experts import pack_experts
from buddy.torch.ops import span

EXPERTS, OUTPUTS, INPUTS, TOKENS, TOP, TILE = 6, 48, 128, 5, 2, 8
DEVICE = (0, 5)


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    return fake.load(tmp_path_factory.mktemp("driver"))


def tensors():
    """Returns rows, route, and the words before the route's positions."""
    assignments = TOKENS * TOP
    head = grouped.HEAD + 4 * grouped.route_groups(assignments, EXPERTS)
    return bf16(assignments, INPUTS), fake.aligned(4 * (head + assignments)).view(torch.int32), head


def bf16(*size):
    return fake.aligned(2 * torch.Size(size).numel()).view(torch.bfloat16).view(size)


def last(driver, form):
    """Returns name, first argument and attributes of the last launch."""
    name = ctypes.c_char_p.in_dll(driver, "fake_kernel").value.decode()
    view = bytes((ctypes.c_ubyte * 96).in_dll(driver, "fake_view"))[: struct.calcsize(form)]
    return name, struct.unpack(form, view), ctypes.c_int.in_dll(driver, "fake_overlaps").value


def test_a_route_gets_ids_rows_and_sizes(driver):
    rows, route, head = tensors()
    x, ids = bf16(TOKENS, INPUTS), fake.aligned(8 * TOKENS * TOP).view(torch.int64)
    spans = [span(one) for one in (ids, x, rows, route)]
    _native.experts_route(DEVICE, spans, (TOP, EXPERTS, TILE), True)
    name, view, overlaps = last(driver, "<4Q7I")
    assert name == "experts_route" and overlaps
    assert view == (ids.data_ptr(), x.data_ptr(), rows.data_ptr(), route.data_ptr(), TOKENS * TOP, TOP, EXPERTS, TILE, INPUTS // 8,
                    grouped.route_groups(TOKENS * TOP, EXPERTS), 1)
    for wrong in [(TOP, 0, TILE), (TOP, 1025, TILE), (3, EXPERTS, TILE), (TOP, EXPERTS + 1, TILE)]:
        with pytest.raises(ValueError):
            _native.experts_route(DEVICE, spans, wrong, True)


@pytest.mark.parametrize("bias", [True, False])
def test_a_grouped_layer_gets_the_rows_of_one_expert_as_outputs(driver, bias):
    packed = pack_experts(torch.randn(EXPERTS, OUTPUTS, INPUTS).bfloat16())
    data = fake.aligned(packed.nbytes).copy_(packed.data)
    rows, route, _ = tensors()
    y, biases = bf16(TOKENS * TOP, OUTPUTS), bf16(EXPERTS, OUTPUTS) if bias else None
    scratch = fake.aligned(_native.experts_scratch_bytes(DEVICE, TILE, INPUTS))
    spans = [span(rows), biases if biases is None else span(biases), span(y), span(route), span(scratch)]
    launch = lambda spans, sizes: _native.experts_linear(DEVICE, (packed.codec, "4/3x", INPUTS // 64), (span(data), 2 * EXPERTS * OUTPUTS * INPUTS), spans, sizes)
    launch(spans, (EXPERTS, TILE))
    name, view, overlaps = last(driver, "<4Q2I5Q4I")
    assert name == "linear_wide" and overlaps, "it waits for the route by itself"
    assert view[0] == data.data_ptr() + 128
    assert view[6:9] == (rows.data_ptr(), biases.data_ptr() if bias else 0, y.data_ptr())
    assert view[10] == scratch.data_ptr() < view[9] < scratch.data_ptr() + scratch.numel()
    assert view[11:] == (OUTPUTS, INPUTS, TOKENS * TOP, 0)
    for sizes in [(0, TILE), (4, TILE), (EXPERTS, 24)]:
        with pytest.raises(ValueError):
            launch(spans, sizes)
    with pytest.raises(ValueError):
        launch([*spans[:3], span(route[:8]), spans[4]], (EXPERTS, TILE))


def test_sums_get_their_weights_and_positions(driver):
    _, route, head = tensors()
    rows, y, weights = bf16(TOKENS * TOP, OUTPUTS), bf16(TOKENS, OUTPUTS), bf16(TOKENS, TOP)
    _native.experts_combine(DEVICE, [span(one) for one in (rows, route, weights, y)], TOP, True)
    name, view, overlaps = last(driver, "<4Q4I")
    assert name == "experts_combine" and overlaps
    assert view == (rows.data_ptr(), route.data_ptr(), weights.data_ptr(), y.data_ptr(), TOP, OUTPUTS // 8, head, 1)
    with pytest.raises(ValueError):
        _native.experts_combine(DEVICE, [span(one) for one in (rows, route, weights, y[1:])], TOP, True)
