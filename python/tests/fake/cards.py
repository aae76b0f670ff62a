"""Kernels of GPUs of each architecture. Run by test_linear_plan.py in a process of its own."""

import ctypes

import pytest
import torch
from torch import nn

import fake
from buddy import _native
from buddy.torch import compress_

# GPUs of driver.c: index, compute capability, CTAs of the portable kernel on an SM.
PORTABLE = [(1, "8.0", 2), (2, "8.9", 1), (3, "10.0", 2), (4, "12.0", 1)]
HOPPER, SMS = 0, 132
# Four tiles of 16 rows for each SM.
OUTPUTS, INPUTS = 4 * 16 * SMS, 64


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    return fake.load(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def layer(driver):
    torch.manual_seed(1)
    (layer,) = compress_(nn.Sequential(nn.Linear(INPUTS, OUTPUTS, bias=False)).bfloat16().requires_grad_(False))
    return layer


def launched(driver, layer, gpu, tokens):
    """Returns the kernel that a call launches on a GPU, and its CTAs."""
    fake.plan_of(layer.matrix, gpu).scratch[5] = fake.scratch(64 << 20)
    before = ctypes.c_int.in_dll(driver, "fake_launches").value
    layer(torch.randn(tokens, INPUTS).bfloat16())
    assert ctypes.c_int.in_dll(driver, "fake_launches").value == before + 1
    return ctypes.c_char_p.in_dll(driver, "fake_kernel").value.decode(), ctypes.c_int.in_dll(driver, "fake_blocks").value


@pytest.mark.parametrize("gpu, name, ctas", PORTABLE)
@pytest.mark.parametrize("tokens", [1, 9, 32])
def test_few_tokens_take_the_portable_kernel_on_every_gpu_but_hopper(driver, layer, gpu, name, ctas, tokens):
    assert launched(driver, layer, gpu, tokens) == ("linear_portable", ctas * SMS), name


def test_hopper_takes_it_on_request(driver, layer, monkeypatch):
    assert launched(driver, layer, HOPPER, 1)[0] == "linear_narrow"
    monkeypatch.setenv("BUDDY_PORTABLE_LINEAR", "1")
    assert launched(driver, layer, HOPPER, 1) == ("linear_portable", 2 * SMS)


@pytest.mark.parametrize("gpu, why", [(0, None), (1, "sm_90 or later; this one is sm_80"), (2, "sm_90 or later; this one is sm_89"), (3, None),
                                      (4, "232448 bytes of shared memory for a CTA; a CTA of this GPU, sm_120, has at most 101376")])
def test_attention_in_place_is_refused_where_it_does_not_run(driver, gpu, why):
    assert _native.kv_attends((gpu, 5)) == (why is None)
    sizes = lambda: _native.kv_bytes((gpu, 5), (1, 4, 2, 128, 64), 1)
    if why is None:
        assert min(sizes()) > 0
    else:
        with pytest.raises((RuntimeError, ValueError), match=why):
            sizes()
