"""``look`` predicts what ``pack`` gives."""

import pytest

torch = pytest.importorskip("torch")

from buddy.torch import look, pack


def test_a_model_and_its_optimizer():
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 256, dtype=torch.bfloat16)).square().sum().backward()
    optimizer.step()
    found = look(model, optimizer)
    names = [one.name for one in found.tensors]
    assert "0.weight" in names and "0.weight.grad" in names and "state0.exp_avg" in names and "0.bias" not in names
    weight = found.tensors[names.index("0.weight")]
    packed = pack(model[0].weight)
    assert (weight.codec, weight.target, weight.packed_bytes) == (packed.codec, packed.target, packed.nbytes)
    assert found.saved_bytes == sum(one.saved_bytes for one in found.tensors) and 1 < found.ratio < 2
    assert str(found).splitlines()[0].startswith("tensor") and found.to_dict()["ratio"] == found.ratio
    assert "0.weight" in found._repr_html_()


def test_zeros_noise_and_mistakes():
    found = look({"zeros": torch.zeros(1 << 14), "noise": torch.randint(0, 1 << 62, (1 << 12,)), "small": torch.zeros(3)})
    zeros, noise = found.tensors
    assert zeros.target == "16x" and noise.ratio == 1 and noise.saved_bytes == 0
    assert look().ratio == 1
    with pytest.raises(TypeError, match="look takes models"):
        look(3)
