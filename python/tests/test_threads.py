"""Threads that train one model under ``compress_saved`` get the gradients of plain training."""

import collections
import threading

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from buddy.torch import compress_saved


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.ReLU(),
                         nn.Linear(64, 64)).bfloat16()


def gradient(model, x, packed):
    x = x.clone().requires_grad_()
    if packed:
        with compress_saved(model, least="4/3x", least_bytes=1, most_overflow=1.0):
            loss = model(x).float().square().mean()
    else:
        loss = model(x).float().square().mean()
    return torch.autograd.grad(loss, x)[0]


def test_threads_that_share_a_model_get_plain_gradients():
    model, counts = make(), collections.Counter()

    def work(thread):
        for step in range(40):
            x = torch.randn(256, 64, generator=torch.Generator().manual_seed(1000 * thread + step)).bfloat16().relu()
            try:
                counts[torch.equal(gradient(model, x, False), gradient(model, x, True))] += 1
            except Exception as error:
                counts[repr(error)] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {True: 160}
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_one_object_in_two_threads_is_an_error():
    mem, errors = compress_saved(make()), []

    def enter():
        try:
            with mem:
                pass
        except RuntimeError as error:
            errors.append(str(error))

    with mem:
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(errors) == 1 and "in each thread" in errors[0]
    with mem:
        pass


def test_each_thread_has_its_own_object_and_keeps_it():
    model, found = make(), []
    thread = threading.Thread(target=lambda: found.extend([compress_saved(model), compress_saved(model)]))
    thread.start()
    thread.join()
    assert found[0] is found[1] and compress_saved(model) is compress_saved(model) is not found[0]
