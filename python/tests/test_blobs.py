"""Blobs as Caffe holds them (tools/dl/blobs.py), against gradients that autograd gives for every
tensor by itself."""

import pathlib
import sys

import pytest
import torch
from torch import nn

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools"))

from dl import networks  # noqa: E402
from dl.blobs import Blobs, BvlcBlobs  # noqa: E402


class Forked(nn.Module):
    """A convolution and its ReLU in place, read by two layers, added in place, then dropout and a
    product."""

    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.left, self.right = nn.Conv2d(3, 4, 3), networks.relu(), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.add, self.flatten, self.drop, self.fc = networks.Add(), nn.Flatten(), nn.Dropout(), nn.Linear(144, 10)

    def forward(self, x):
        x = self.relu(self.conv(x))
        return self.fc(self.drop(self.flatten(self.add(self.left(x), self.right(x)))))


class Steps:
    """A model in training, with a copy of the blobs at every event of a step if it is to be looked
    at."""

    def __init__(self, model, look=True, follow=Blobs):
        self.model, self.loss = model.train(), nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.blobs = follow(model, self.loss, self.optimizer, lambda phase, name, _: look and self.events.append((phase, name, self.copies())))
        self.events = []

    def copies(self):
        return tuple({name: blob.clone() for name, blob in kind.items()} for kind in (self.blobs.data, self.blobs.diff))

    def step(self, inputs, labels):
        self.blobs.begin((inputs, labels))
        self.events = []
        self.start = [parameter.grad.clone() for parameter in self.model.parameters() if parameter.grad is not None]
        with self.blobs.hooks():
            loss = self.loss(self.model(inputs), labels)
        loss.backward()
        self.gradients = {name: parameter.grad.clone() for name, parameter in self.model.named_parameters()}
        self.end = self.copies()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)


def batch(size=2):
    return torch.randn(size, 3, 8, 8), torch.arange(size) % 10


def plain(model, inputs, labels):
    """The same step without anything in place: every tensor by its name, with its gradient."""
    conv = model.conv(inputs)
    relu = conv.relu()
    left, right = model.left(relu), model.right(relu)
    drop = torch.nn.functional.dropout((left + right).flatten(1))
    logits = model.fc(drop)
    tensors = {"conv": conv, "relu": relu, "left": left, "right": right, "drop": drop, "fc": logits}
    for tensor in tensors.values():
        tensor.retain_grad()
    nn.functional.cross_entropy(logits, labels).backward()
    return tensors


def test_blobs_hold_what_autograd_gives_each_tensor():
    inputs, labels = batch()
    steps = Steps(Forked())
    steps.step(inputs, labels)
    state = {name: value.clone() for name, value in steps.model.state_dict().items()}
    torch.manual_seed(7)
    steps.step(inputs, labels)
    twin = Forked()
    twin.load_state_dict(state)
    torch.manual_seed(7)
    expected = plain(twin, inputs, labels)
    data, diff = steps.end
    same = {"conv": "relu", "left": "left", "right": "right", "fc": "fc"}
    for blob, tensor in same.items():
        assert torch.equal(data[blob], expected[tensor].detach()), blob
    assert torch.equal(data["add"].flatten(1), expected["drop"].detach()), "dropout is in place"
    assert torch.equal(data["loss.prob"], expected["fc"].detach().softmax(1))
    for blob in ["conv", "left", "right", "fc"]:
        torch.testing.assert_close(diff[blob], expected[blob].grad)
    torch.testing.assert_close(diff["conv.split1"] + diff["conv.split2"], expected["relu"].grad)
    assert set(diff) == {"conv", "conv.split1", "conv.split2", "left", "right", "add", "fc", "loss"}


def test_a_blob_keeps_its_values_until_they_are_overwritten():
    steps = Steps(Forked())
    steps.step(*batch())
    steps.step(*batch())
    before = steps.end
    steps.step(*batch())
    for phase, name, (data, diff) in steps.events:
        if (phase, name) == ("forward", "left"):
            assert not torch.equal(data["conv"], before[0]["conv"])
            assert torch.equal(data["right"], before[0]["right"])
        if phase == "forward":
            assert all(torch.equal(diff[blob], before[1][blob]) for blob in diff), name
        if (phase, name) == ("backward", "fc"):
            assert not torch.equal(diff["fc"], before[1]["fc"])
            assert torch.equal(diff["conv"], before[1]["conv"])
    assert all(not grad.any() for grad in steps.start), "diffs of weights begin at zero"


def test_every_row_is_counted_once():
    steps = Steps(Forked())
    inputs, labels = batch()
    steps.step(inputs, labels)
    steps.step(inputs, labels)
    steps.blobs.begin((inputs, labels))
    weights = 4 * sum(parameter.numel() for parameter in steps.model.parameters())
    blob = 2 * 4 * 6 * 6 * 4
    # conv, left, right and add with their diffs, two diffs of the split; logits and their diff,
    # probabilities; the loss.
    assert steps.blobs.footprint() == 3 * weights + 10 * blob + 3 * 2 * 10 * 4 + 2 * 4 + inputs.nbytes + labels.nbytes
    assert len({row.data for row in steps.blobs.rows()}) == len(steps.blobs.rows())


@pytest.mark.parametrize("make, size", [(networks.squeezenet, 64), (networks.resnet50, 32), (networks.inception_v2, 64)])
def test_splits_of_real_networks(make, size):
    steps = Steps(networks.initialise(make()), look=False)
    plain = networks.initialise(make())
    plain.load_state_dict(steps.model.state_dict())
    inputs, labels = torch.randn(2, 3, size, size), torch.tensor([1, 2])
    for _ in range(2):
        steps.blobs.begin((inputs, labels))
        torch.manual_seed(5)
        steps.optimizer.zero_grad()
        steps.loss(steps.model(inputs), labels).backward()
    torch.manual_seed(5)
    nn.functional.cross_entropy(plain.train()(inputs), labels).backward()
    for ours, theirs in zip(steps.model.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad, msg="the blobs change what is computed")
    splits = {name for name in steps.blobs.diff if ".split" in name}
    forks = {"squeezenet": 8 * 2, "resnet50": 16 * 2, "inception_v2": 2 * 3 + 8 * 4}[make.__name__]
    assert len(splits) == forks
    for name in {name.rpartition(".")[0] for name in splits}:
        parts = [steps.blobs.diff[one] for one in splits if one.startswith(name + ".split")]
        assert all(part.shape == steps.blobs.data[name].shape for part in parts)


def test_an_unrolled_lstm_is_pytorchs():
    ours, theirs = networks.UnrolledLstm(6, 8, 4), nn.LSTM(6, 8, proj_size=4, batch_first=True)
    # PyTorch has the gates in the order input, forget, new, output; ours forget, input, output,
    # new.
    order = torch.cat([torch.arange(8) + 8 * gate for gate in (1, 0, 3, 2)])
    with torch.no_grad():
        ours.input.weight.copy_(theirs.weight_ih_l0[order])
        ours.input.bias.copy_((theirs.bias_ih_l0 + theirs.bias_hh_l0)[order])
        ours.recurrent.weight.copy_(theirs.weight_hh_l0[order])
        ours.project.weight.copy_(theirs.weight_hr_l0)
    x = torch.randn(3, 5, 6)
    torch.testing.assert_close(ours(x), theirs(x)[0])


def test_an_unrolled_lstm_has_blobs_for_every_step():
    steps = Steps(networks.UnrolledLstm(6, 8, 4))
    steps.loss = nn.Identity()
    for _ in range(2):
        steps.blobs.begin((torch.zeros(3, 5, 6),))
        steps.model(torch.randn(3, 5, 6)).sum().backward()
    data, diff = steps.blobs.data, steps.blobs.diff
    assert data["unit.5"].shape == data["unit.5.out2"].shape == (3, 8)
    assert data["gates.3"].shape == diff["gates.3"].shape == (3, 32)
    assert {"input.split5", "project.4.split1", "project.4.split2", "recurrent.5"} <= set(diff)
    assert not {"project.5.split1", "unit.split1"} & set(diff)


class Normalised(nn.Module):
    """A convolution, its batch normalisation and ReLU, and a product."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), networks.relu()
        self.flatten, self.fc = nn.Flatten(), nn.Linear(144, 10)

    def forward(self, x):
        return self.fc(self.flatten(self.relu(self.bn(self.conv(x)))))


def test_bvlcs_batch_normalisation_is_in_place_and_keeps_four_tensors():
    steps = Steps(Normalised(), follow=BvlcBlobs)
    nn.init.uniform_(steps.model.bn.weight, 0.5, 2)
    twin = Normalised()
    twin.load_state_dict(steps.model.state_dict())
    inputs, labels = batch()
    steps.step(inputs, labels)
    conv = twin.conv(inputs)
    mean, variance = conv.mean((0, 2, 3), keepdim=True), conv.var((0, 2, 3), correction=0, keepdim=True)
    normalised = (conv - mean) / (variance + twin.bn.eps).sqrt()
    scaled = normalised * twin.bn.weight[:, None, None] + twin.bn.bias[:, None, None]
    for tensor in (conv, normalised, scaled):
        tensor.retain_grad()
    nn.functional.cross_entropy(twin.fc(scaled.relu().flatten(1)), labels).backward()
    data, diff = steps.end
    torch.testing.assert_close(data["conv"], scaled.relu().detach())
    torch.testing.assert_close(diff["conv"].view_as(conv), conv.grad)
    torch.testing.assert_close(data["bn.x_norm"], normalised.detach())
    torch.testing.assert_close(diff["bn.x_norm"], normalised.grad)
    torch.testing.assert_close(data["bn.scale_temp"], (scaled.grad * normalised).detach())
    assert all(len(channel.unique()) == 1 for channel in data["bn.temp"].transpose(0, 1)), "one value a channel"
    assert "bn" not in data and "bn" not in diff, "it is in place"
