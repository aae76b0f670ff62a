"""Packing activations give bit-equal gradients, and are used only where possible."""

import contextlib
import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.utils.checkpoint import checkpoint

from buddy.torch import BatchNorm2d, ReLU, SquaredReLU, compress_saved, swap_
from networks import ALL, SMALL, Block, Convolutions, equal, gradients

KINDS = {"relu": nn.ReLU, "relu in place": lambda: nn.ReLU(inplace=True), "squared_relu": SquaredReLU}


def layers(activation, width=128):
    return nn.Sequential(nn.Linear(64, width), activation(), nn.Linear(width, 64)).bfloat16()


def both(model, batch, steps=3, **options):
    """Compares the gradients of a swapped, packed model with those of the plain one."""
    plain, model = copy.deepcopy(model), swap_(model)
    for _ in range(steps):
        wanted = gradients(plain, batch)
        mem = compress_saved(model, **{**SMALL, **options})
        mem.__enter__()

        def backward(loss):
            mem.__exit__(None, None, None)
            assert not mem._outputs and not mem._packed
            loss.backward()

        equal(gradients(model, batch, backward), wanted)
    return mem


@pytest.mark.parametrize("name", KINDS)
def test_gradients_are_equal_to_the_bit(name):
    batch = torch.randn(64, 64).bfloat16()
    report = both(layers(KINDS[name]), batch).report()
    # The activation's input is packed, its output recomputed.
    assert report.plain_bytes == 64 * 128 * 2 and report.recomputed_bytes == 64 * 128 * 2
    assert report.codecs == {"bf16 at 2x": 64 * 128 * 2}


def test_models_are_swapped_in_one_line():
    model = nn.Sequential(Block(activation=nn.ReLU()), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.GELU())
    weight = model[1].weight
    assert swap_(model) is model and isinstance(model[0].activation, ReLU) and not model[0].activation.inplace
    assert isinstance(model[1], BatchNorm2d) and model[1].weight is weight and isinstance(model[2], ReLU) and model[2].inplace
    assert type(model[3]) is nn.GELU
    shared = nn.ReLU()
    model = swap_(nn.ModuleList([shared, nn.Sequential(shared)]), only=lambda name, module: name != "1")
    assert model[0] is model[1][0] and isinstance(model[0], ReLU)
    assert not isinstance(swap_(nn.Sequential(nn.ReLU()), only=lambda name, module: False)[0], ReLU)
    with pytest.raises(ValueError, match="itself"):
        swap_(nn.ReLU())


def test_transformers_and_convolutions_train_to_the_bit():
    both(nn.Sequential(Block(activation=nn.ReLU()), Block(activation=SquaredReLU())).bfloat16(), torch.randn(2, 16, 64).bfloat16(), least="4/3x")
    model = nn.Sequential(nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.Conv2d(32, 16, 3)).bfloat16()
    for layout in [torch.contiguous_format, torch.channels_last]:
        batch = torch.randn(4, 16, 18, 18).bfloat16().to(memory_format=layout)
        report = both(copy.deepcopy(model).to(memory_format=layout), batch).report()
        # The ReLU's output is recomputed from the input of the normalisation.
        assert report.recomputed_bytes == 4 * 32 * 16 * 16 * 2 and report.recomputed == 1
    both(Convolutions().bfloat16(), torch.randn(2, 16, 24, 24).bfloat16())


def test_batch_normalisation_runs_once_and_is_recomputed_with_its_relu():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.relu = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)
            self.last, self.end, self.out = nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)

        def forward(self, x):
            return self.out(self.end(self.last(self.relu(self.norm(self.conv(x))))).add_(x))

    model = nn.Sequential(Residual(), Residual()).bfloat16()
    plain, size = copy.deepcopy(model), 4 * 16 * 16 * 16 * 2
    batch = torch.randn(4, 16, 16, 16).bfloat16()
    report = both(model, batch, steps=4).report()
    # Each block's first ReLU; its second follows a sum, and is packed.
    assert report.recomputed_bytes == 3 * size and report.plain_bytes == 2 * size
    assert not any("changed in place" in reason for reason in report.skipped)
    for _ in range(4):
        gradients(plain, batch)
    for one, other in zip(model.buffers(), plain.buffers(), strict=True):
        assert torch.equal(one, other)
    assert model.state_dict().keys() == plain.state_dict().keys()


def test_unsupported_activations_use_pytorch():
    for model, batch in [(layers(nn.ReLU).float(), torch.randn(64, 64)),  # not bf16
                         (layers(nn.ReLU, width=96), torch.randn(3, 64).bfloat16())]:  # not whole entries
        assert "bf16" not in both(model, batch, least_bytes=128).report().codecs
    model = swap_(layers(nn.ReLU))
    assert gradients(model, torch.randn(64, 64).bfloat16())  # no compress_saved around it
    with compress_saved(model, **SMALL) as mem, torch.no_grad():
        model(torch.randn(64, 64).bfloat16())
    assert mem.report().tensors == 0 and not mem._outputs


def test_overflow_without_room_keeps_the_plain_form():
    model, batch = layers(nn.ReLU), torch.randn(64, 64).bfloat16()
    plain, model = copy.deepcopy(model), swap_(model)
    for bias in [0, 0, 9]:
        # In the last step nothing is zero any more, and the room of the first survey is too small.
        with torch.no_grad():
            for one in (plain, model):
                one[0].bias += bias
        wanted = gradients(plain, batch)
        mem = compress_saved(model, **SMALL, overflow="device")
        with mem:
            equal(gradients(model, batch), wanted)
    assert "overflowed its room" in mem.report().skipped


def test_activations_unpack_twice_or_never():
    model, batch = swap_(layers(nn.ReLU)), torch.randn(64, 64).bfloat16()
    with compress_saved(model, **SMALL) as mem:
        loss = model(batch).float().square().mean()
    loss.backward(retain_graph=True)
    first = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    loss.backward()
    equal([p.grad for p in model.parameters()], first)
    with compress_saved(model, **SMALL):
        loss = model(batch).float().square().mean()
    del loss
    assert all(one() is None for one in mem._known.values())


def test_around_and_inside_checkpoints():
    for inside in [True, False]:
        class Checked(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = layers(nn.ReLU)

            def forward(self, x):
                return checkpoint(self.layers, x, use_reentrant=False)

        model = Checked() if inside else nn.Sequential(Checked(), layers(nn.ReLU))
        both(model, torch.randn(64, 64).bfloat16())


def test_a_compiled_model_is_left_to_the_compiler():
    model, batch = swap_(layers(nn.ReLU)), torch.randn(64, 64).bfloat16()
    compiled = torch.compile(model, backend="aot_eager")
    wanted = gradients(model, batch)
    with compress_saved(model, **SMALL):
        equal(gradients(compiled, batch), wanted)


def test_gradients_of_gradients_are_refused_not_wrong():
    model = swap_(layers(nn.ReLU))
    batch = torch.randn(64, 64).bfloat16().requires_grad_()
    with compress_saved(model, **SMALL):
        (grad,) = torch.autograd.grad(model(batch).float().square().sum(), batch, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.float().sum().backward()


def test_hooks_of_others_below_ours_see_no_difference():
    """Batch normalisation bypasses our hooks only where no other hooks would be called."""
    model = swap_(nn.Sequential(nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3))).bfloat16()
    batch, asked = torch.randn(2, 4, 12, 12).bfloat16(), []

    def ask(tensor):
        asked.append(tensor.shape)
        return tensor

    wanted = gradients(copy.deepcopy(model), batch)
    for others in [False, True]:
        outer = torch.autograd.graph.saved_tensors_hooks(ask, lambda tensor: tensor) if others else contextlib.nullcontext()
        for _ in range(2):
            with outer, compress_saved(model, least_bytes=256) as mem:
                equal(gradients(model, batch)[:-1], wanted[:-1])
            assert not asked and mem.report().recomputed == 1


def test_the_input_of_batch_normalisation_is_packed_once():
    model = swap_(nn.Sequential(nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3))).bfloat16()
    batch = torch.randn(2, 4, 12, 12).bfloat16()
    for _ in range(2):
        with compress_saved(model, **ALL) as mem:
            loss = model(batch).float().square().mean()
        report = mem.report()
        # The batch, the output of the first layer, and what the loss keeps.
        assert (report.tensors, report.recomputed) == (3, 1), report
        loss.backward()
