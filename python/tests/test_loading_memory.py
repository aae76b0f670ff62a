"""Loading takes at most the packed model and one plain layer."""

import gc

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import buddy
from buddy.torch.experts import PackedExpertWeight
from buddy.torch.layers import PackedMatrix
from buddy.transformers import BuddyConfig, Pack, Unpack

SMALL = dict(vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4)


def live_bytes():
    """Returns the bytes of all tensors that Python made since `gc.freeze`."""
    storages = [one.untyped_storage() for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter) and one.device.type == "cpu"]
    return sum({one._cdata: one.nbytes() for one in storages}.values())


@pytest.fixture
def samples(monkeypatch):
    """The bytes of all tensors after every weight that is packed, unpacked or stored."""
    found = []

    def sampled(owner, name):
        function = getattr(owner, name)

        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            found.append(live_bytes())
            return result

        monkeypatch.setattr(owner, name, call)

    for owner, name in [(Pack, "convert"), (Unpack, "convert"), (PackedMatrix, "pack"), (PackedExpertWeight, "pack")]:
        sampled(owner, name)
    return found


@pytest.mark.parametrize("experts", [False, True], ids=["dense", "experts"])
def test_loading_takes_the_packed_size_and_at_most_a_layer(tmp_path, samples, request, experts):
    config = transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2) if experts else transformers.LlamaConfig(**SMALL)
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    made.save_pretrained(tmp_path / "plain")
    layer = sum(one.nbytes for one in made.model.layers[0].parameters())
    del made
    buddy.pack_model(tmp_path / "plain", tmp_path / "packed")
    gc.collect()
    gc.freeze()  # what was there before is not looked through again
    request.addfinalizer(gc.unfreeze)
    for folder, options in [("packed", {}), ("plain", {"quantization_config": BuddyConfig()})]:
        samples.clear()
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / folder, dtype=torch.bfloat16, **options)
        matrices = [one for one in model.modules() if isinstance(one, PackedMatrix)]
        size = sum(one.nbytes for one in model.parameters()) + sum(one.data.nbytes for one in matrices)
        assert size / 2 < max(samples) <= size + layer, (folder, size, layer)
        del model, matrices
        gc.collect()
