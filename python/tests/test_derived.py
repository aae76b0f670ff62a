"""Packed forms of Transformers' own layers: scaled embeddings, ``Conv1D`` and ``FalconLinear``."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn
from transformers.models.bart.modeling_bart import BartScaledWordEmbedding
from transformers.models.falcon.modeling_falcon import FalconLinear
from transformers.models.gemma3.modeling_gemma3 import Gemma3TextScaledWordEmbedding
from transformers.pytorch_utils import Conv1D

from buddy.torch import PackedEmbedding, PackedLinear, compress_, decompress_
from buddy.torch.derived import base_of
from buddy.torch.layers import PackedLayer

IDS = torch.tensor([[1, 99, 0], [5, 5, 7]])
X = torch.randn(4, 128, generator=torch.Generator().manual_seed(2)).bfloat16()
LAYERS = {
    "gemma": (lambda: Gemma3TextScaledWordEmbedding(100, 128, 0, embed_scale=11.3), IDS),
    "bart": (lambda: BartScaledWordEmbedding(100, 128, 0, embed_scale=11.3), IDS),
    "conv1d": (lambda: Conv1D(192, 128), X),
    "falcon": (lambda: FalconLinear(128, 192), X),
}


@pytest.fixture(params=LAYERS)
def case(request):
    make, inputs = LAYERS[request.param]
    torch.manual_seed(4)
    plain = nn.ModuleDict({"layer": make()}).bfloat16()
    return plain, compress_(copy.deepcopy(plain)), inputs


def same_states(one, other):
    assert one.state_dict().keys() == other.state_dict().keys()
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_packed_forms_keep_class_bits_and_results(case):
    plain, packed, inputs = case
    layer, wanted = packed["layer"], plain["layer"](inputs)
    assert isinstance(layer, PackedLayer) and isinstance(layer, type(plain["layer"])) and type(layer) is not type(plain["layer"])
    assert [name for name, _ in layer.named_parameters()] == [name for name, _ in plain["layer"].named_parameters() if name != "weight"]
    for one in [packed, copy.deepcopy(packed), pickle.loads(pickle.dumps(packed))]:
        assert torch.equal(one["layer"](inputs), wanted)
        same_states(one, plain)
    back = decompress_(packed)
    assert type(back["layer"]) is type(plain["layer"]) and torch.equal(back["layer"](inputs), wanted)
    same_states(back, plain)


def test_packed_forms_compile_as_one_graph(case):
    _, packed, inputs = case
    torch._dynamo.reset()
    compiled = torch.compile(packed["layer"], backend="eager", fullgraph=True)
    assert torch.equal(compiled(inputs), packed["layer"](inputs))


def test_a_scaled_embedding_is_not_unpacked(monkeypatch):
    packed = compress_(nn.ModuleDict({"layer": LAYERS["gemma"][0]()}).bfloat16())
    monkeypatch.setattr(type(packed["layer"].matrix), "unpack", lambda self: pytest.fail("the whole embedding was unpacked"))
    packed["layer"](IDS)


def test_embeddings_with_other_formulas_stay_plain():
    class Normed(nn.Embedding):
        def forward(self, input_ids):
            return nn.functional.layer_norm(super().forward(input_ids), (128,))

    class Offset(nn.Embedding):
        def forward(self, input_ids):
            input_ids = input_ids + 2
            return super().forward(input_ids) * self.embed_scale

    for kind in [Normed, Offset, nn.Embedding, nn.Linear, nn.LayerNorm]:
        assert base_of(kind) is None
    assert type(compress_(nn.ModuleDict({"layer": Normed(100, 128).bfloat16()}))["layer"]) is Normed


def test_lora_trains_and_merges_over_a_packed_conv1d():
    peft = pytest.importorskip("peft")

    def tuned(pack):
        torch.manual_seed(4)
        model = nn.Sequential(Conv1D(192, 128), nn.SiLU(), Conv1D(64, 192)).bfloat16()
        model = peft.get_peft_model(compress_(model) if pack else model, peft.LoraConfig(target_modules=["0", "2"], r=8, init_lora_weights=False,
                                                                                         fan_in_fan_out=True))
        model = model.bfloat16()
        model(X).float().square().mean().backward()
        gradients = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
        return gradients, model.merge_and_unload()

    (wanted, plain), (found, packed) = tuned(False), tuned(True)
    assert wanted.keys() == found.keys() and len(found) == 4 and all(torch.equal(found[name], one) for name, one in wanted.items())
    assert type(packed[0]).__name__ == "PackedConv1D"
    same_states(packed, plain)


def test_layers_on_two_devices_keep_the_hooks_of_accelerate():
    """accelerate gives each layer of a model on two devices a hook, and each device a copy of a tied
    weight."""
    hooks = pytest.importorskip("accelerate").hooks

    def made():
        torch.manual_seed(4)
        model = nn.ModuleDict({"embed": LAYERS["gemma"][0](), "up": nn.Linear(128, 128), "head": nn.Linear(128, 100, bias=False)}).bfloat16()
        model["head"].weight = nn.Parameter(model["embed"].weight.detach().clone())
        return model

    plain, hooked = made(), made()
    for name, device in [("embed", "cpu:0"), ("up", "cpu:1"), ("head", "cpu:1")]:
        hooked[name]._old_forward = hooked[name].forward
        hooks.add_hook_to_module(hooked[name], hooks.AlignDevicesHook(execution_device=None, io_same_device=False, tied_params_map={}))
        hooked[name]._hf_hook.execution_device = torch.device(device)
    compress_(hooked)
    assert isinstance(hooked["head"], PackedLinear) and isinstance(hooked["embed"], PackedEmbedding)
    assert [str(one._hf_hook.execution_device) for one in hooked.values()] == ["cpu:0", "cpu:1", "cpu:1"]
    assert hooked["head"].matrix is not hooked["embed"].matrix, "one copy on each device"
    run = lambda model: model["head"](model["up"](model["embed"](IDS)))
    assert torch.equal(run(hooked), run(plain))
