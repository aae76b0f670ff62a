"""Adapters over packed weights: equal gradients, exact merges, and layers that PEFT accepts as
linear layers."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from buddy.torch import PackedLinear, compress_, decompress_


class Adapter(nn.Module):
    """A layer with a low-rank adapter, shaped as PEFT's."""

    def __init__(self, base_layer):
        super().__init__()
        self.base_layer = base_layer.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base_layer.in_features, 64, bias=False, dtype=torch.bfloat16)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(64, base_layer.out_features, bias=False, dtype=torch.bfloat16)})

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64)).bfloat16()


def adapter_gradients(model, x):
    model.zero_grad()
    model(x).float().square().mean().backward()
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


def test_compress_keeps_adapters_plain_and_trainable_with_equal_gradients():
    model = network()
    model[0], model[2] = Adapter(model[0]), Adapter(model[2])
    packed = compress_(copy.deepcopy(model))
    assert isinstance(packed[0].base_layer, PackedLinear) and type(packed[0].lora_A["default"]) is nn.Linear
    x = torch.randn(4, 64).bfloat16()
    wanted, found = adapter_gradients(model, x), adapter_gradients(packed, x)
    assert wanted.keys() == found.keys() and len(wanted) == 4
    assert all(torch.equal(found[name], one) for name, one in wanted.items())


def test_hooks_survive_compress_and_decompress():
    model, called = network(), []
    model[0].register_forward_hook(lambda *_: called.append("after"))
    model[0].register_forward_pre_hook(lambda *_: called.append("before"))
    x = torch.randn(4, 64).bfloat16()
    compress_(model)(x)
    assert isinstance(model[0], PackedLinear) and called == ["before", "after"]
    decompress_(model)(x)
    assert type(model[0]) is nn.Linear and called == ["before", "after"] * 2


def test_decompress_restores_layers_and_bits():
    plain, back = network(), decompress_(compress_(network()))
    assert type(back[0]) is nn.Linear and back.state_dict().keys() == plain.state_dict().keys()
    assert all(torch.equal(one, plain.state_dict()[name]) for name, one in back.state_dict().items())


@pytest.fixture
def peft():
    return pytest.importorskip("peft")


def tuned(peft, model):
    torch.manual_seed(4)
    model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["0", "2"], r=8, init_lora_weights=False))
    return model.bfloat16()


def test_peft_trains_over_packed_layers_with_equal_gradients(peft):
    plain, packed = tuned(peft, network()), tuned(peft, compress_(network()))
    assert isinstance(packed.base_model.model[0].base_layer, PackedLinear)
    x = torch.randn(4, 64).bfloat16()
    assert torch.equal(packed(x), plain(x))
    wanted, found = adapter_gradients(plain, x), adapter_gradients(packed, x)
    assert wanted.keys() == found.keys() and wanted
    assert all(torch.equal(found[name], one) for name, one in wanted.items())


@pytest.mark.parametrize("safe", [False, True])
def test_peft_merges_exactly_into_packed_layers(peft, safe):
    plain, packed = (tuned(peft, model).merge_and_unload(safe_merge=safe) for model in [network(), compress_(network())])
    assert isinstance(packed[0], PackedLinear)
    assert not torch.equal(packed[0].weight, network()[0].weight), "the merge changed the weight"
    for name, one in plain.state_dict().items():
        assert torch.equal(packed.state_dict()[name], one), name


def test_trainer_trains_adapters_of_a_packed_model(peft, tmp_path):
    """The recipe of docs/guide/models.md: QLoRA's, without its loss of bits."""
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from buddy.transformers import BuddyConfig

    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                      num_attention_heads=2, num_key_value_heads=1)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path / "plain")
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(256, (8, 16))]

    def trained(**how):
        torch.manual_seed(7)
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "plain", dtype=torch.bfloat16, **how)
        model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj", "up_proj"], r=4))
        options = transformers.TrainingArguments(str(tmp_path / "out"), max_steps=3, per_device_train_batch_size=4, learning_rate=1e-2,
                                                 report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, seed=7)
        transformers.Trainer(model, options, train_dataset=rows).train()
        return model

    plain, packed = trained(), trained(quantization_config=BuddyConfig())
    assert isinstance(packed.base_model.model.model.layers[0].self_attn.q_proj.base_layer, PackedLinear)
    wanted, found = (peft.get_peft_model_state_dict(model) for model in [plain, packed])
    assert wanted.keys() == found.keys() and any(one.any() for name, one in wanted.items() if "lora_B" in name)
    assert all(torch.equal(found[name], one) for name, one in wanted.items())
    # Adapters are saved alone, and a merge is saved as a plain model.
    packed.save_pretrained(tmp_path / "adapters")
    assert (tmp_path / "adapters" / "adapter_model.safetensors").stat().st_size < 100_000
    merged, wanted = packed.merge_and_unload(), plain.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    saved = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.bfloat16)
    assert all(torch.equal(one, wanted.state_dict()[name]) for name, one in saved.state_dict().items())


def test_peft_says_that_packed_experts_take_no_adapters_and_trains_plain_ones(peft):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.Qwen3MoeConfig(vocab_size=256, hidden_size=64, intermediate_size=64, moe_intermediate_size=64, num_hidden_layers=1,
                                         num_attention_heads=2, num_key_value_heads=1, num_experts=4, num_experts_per_tok=2)
    plain = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    packed, mixed = compress_(copy.deepcopy(plain)), compress_(copy.deepcopy(plain), only=lambda name, module: "experts" not in name)
    experts = ["mlp.experts.down_proj"]
    with pytest.raises(ValueError, match="no `target_parameters` found"):
        peft.get_peft_model(packed, peft.LoraConfig(target_modules=[], target_parameters=experts))
    with pytest.warns(RuntimeWarning, match="target_parameters.*no parameter was matched"):
        peft.get_peft_model(packed, peft.LoraConfig(target_modules=["q_proj"], target_parameters=experts))
    tuned = peft.get_peft_model(mixed, peft.LoraConfig(target_modules=["q_proj"], target_parameters=experts)).bfloat16()
    ids = torch.arange(12).unsqueeze(0)
    tuned(input_ids=ids, labels=ids).loss.backward()
    trained = {name for name, one in tuned.named_parameters() if one.grad is not None}
    assert any("experts" in name for name in trained) and any("q_proj" in name for name in trained)


def test_peft_unmerges_what_it_merged(peft):
    plain, packed = tuned(peft, network()), tuned(peft, compress_(network()))
    for model in [plain, packed]:
        model.merge_adapter()
        model.unmerge_adapter()
    x = torch.randn(4, 64).bfloat16()
    assert torch.equal(packed(x), plain(x))


def test_compress_after_peft_keeps_its_adapters_trainable(peft):
    plain, packed = tuned(peft, network()), compress_(tuned(peft, network()))
    assert isinstance(packed.base_model.model[0].base_layer, PackedLinear)
    x = torch.randn(4, 64).bfloat16()
    wanted, found = adapter_gradients(plain, x), adapter_gradients(packed, x)
    assert wanted.keys() == found.keys() and all(torch.equal(found[name], one) for name, one in wanted.items())
