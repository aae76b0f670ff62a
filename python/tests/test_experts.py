"""Mixtures of experts with packed weights compute and save the bits of plain ones on the CPU."""

import copy
import io
import json
import os

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import buddy
from buddy.torch import PackedExperts, PackedLinear, compress_, decompress_
from buddy.torch.layers import PackedMatrix
from buddy.transformers import BuddyCache, BuddyConfig

import families

SMALL = dict(vocab_size=256, hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256)
FAMILIES = {
    "mixtral": lambda: transformers.MixtralConfig(**SMALL, num_local_experts=8, num_experts_per_tok=2),
    "qwen3-moe": lambda: transformers.Qwen3MoeConfig(**SMALL, head_dim=64, moe_intermediate_size=64, num_experts=16, num_experts_per_tok=2),
    "qwen3-next": lambda: transformers.Qwen3NextConfig(
        **SMALL, head_dim=64, moe_intermediate_size=64, shared_expert_intermediate_size=64, num_experts=16, num_experts_per_tok=2,
        linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=32, linear_value_head_dim=32,
        layer_types=["linear_attention", "full_attention"]),
    "deepseek-v3": lambda: transformers.DeepseekV3Config(
        **SMALL | {"num_key_value_heads": 4}, moe_intermediate_size=64, n_routed_experts=16, num_experts_per_tok=2, n_group=4,
        topk_group=2, first_k_dense_replace=1, q_lora_rank=64, kv_lora_rank=64, qk_rope_head_dim=32, qk_nope_head_dim=32, v_head_dim=32),
    "gpt-oss": lambda: transformers.GptOssConfig(**SMALL, head_dim=64, num_local_experts=8, num_experts_per_tok=2,
                                                 layer_types=["sliding_attention", "full_attention"]),
    "llama4": lambda: transformers.Llama4TextConfig(**SMALL, head_dim=64, intermediate_size_mlp=128, num_local_experts=4,
                                                    num_experts_per_tok=1, interleave_moe_layer_step=1),
}
IDS = (torch.arange(20) * 37 % 251).unsqueeze(0)


def made(family):
    return families.made(FAMILIES[family])


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def load(folder, **kwargs):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **kwargs).eval()


def check_equal(packed, plain):
    experts = [one for one in packed.modules() if isinstance(one, PackedExperts)]
    assert experts and all(one.dim() < 3 for expert in experts for one in expert.parameters())
    with torch.no_grad():
        for ids in [IDS, IDS[:, :1]]:
            assert torch.equal(packed(ids).logits, plain(ids).logits)
    state, wanted = packed.state_dict(), plain.state_dict()
    assert state.keys() == wanted.keys()
    assert all(torch.equal(state[name], one) for name, one in wanted.items())


@pytest.mark.parametrize("experts", ["eager", "batched_mm", "grouped_mm"])
def test_packed_experts_compute_the_bits_of_plain_ones(family, experts):
    plain = made(family)
    if family != "llama4":
        plain.set_experts_implementation(experts)
    elif experts != "eager":
        pytest.skip("Llama 4 has one implementation")
    check_equal(compress_(copy.deepcopy(plain)), plain)


def test_only_chosen_experts_are_unpacked(monkeypatch):
    from buddy.torch.experts import PackedExpertWeight

    packed, read = compress_(made("qwen3-moe")), []
    select = PackedExpertWeight.select
    monkeypatch.setattr(PackedExpertWeight, "unpack", lambda *_: pytest.fail("all experts were unpacked"))
    monkeypatch.setattr(PackedExpertWeight, "select", lambda self, chosen: read.append(chosen.numel()) or select(self, chosen))
    with torch.no_grad():
        packed(IDS[:, :1])
    assert read == [2] * 4, "two experts per token, two weights, two layers"


def test_gradients_flow_through_packed_experts():
    plain = made("mixtral").requires_grad_(False)
    packed, found = compress_(copy.deepcopy(plain)), []
    for model in [plain, packed]:
        x = torch.randn(1, 5, 128, generator=torch.Generator().manual_seed(1)).bfloat16().requires_grad_()
        model(inputs_embeds=x).logits.float().square().mean().backward()
        found.append(x.grad)
    assert torch.equal(*found)


def test_trained_biases_of_experts_keep_their_gradients(monkeypatch):
    """The kernels in place have no gradients, so autograd must see a call whose biases train."""
    module = next(one for one in compress_(made("qwen3-moe")).modules() if isinstance(one, PackedExperts))
    monkeypatch.setattr("buddy.torch.grouped.MODE", "grouped")
    monkeypatch.setattr("buddy.torch.grouped.has_kernels", lambda device: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    module.has_bias = True
    for name in ["gate_up_proj", "down_proj"]:
        bias = torch.nn.Parameter(torch.zeros(module.num_experts, module.matrices[name].shape[1], dtype=torch.bfloat16), requires_grad=False)
        module.register_parameter(f"{name}_bias", bias)
    arguments = torch.zeros(3, 128).bfloat16(), torch.zeros(3, 2, dtype=torch.long), torch.zeros(3, 2).bfloat16()
    for compiling in [False, True]:
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
        assert module._multiplies_in_place(*arguments)
        for name in ["gate_up_proj", "down_proj"]:
            bias = getattr(module, f"{name}_bias").requires_grad_()
            assert not module._multiplies_in_place(*arguments), name
            with torch.no_grad():
                assert module._multiplies_in_place(*arguments)
            bias.requires_grad_(False)


def test_packed_experts_copy_pickle_load_and_decompress():
    plain = made("gpt-oss")
    packed = compress_(copy.deepcopy(plain))
    file = io.BytesIO()
    torch.save(packed, file)
    file.seek(0)
    for one in [copy.deepcopy(packed), torch.load(file, weights_only=False)]:
        check_equal(one, plain)
    other = copy.deepcopy(plain)
    with torch.no_grad():
        other.model.layers[0].mlp.experts.down_proj.mul_(2)
        packed.model.layers[0].mlp.experts.down_proj.mul_(2)
    check_equal(packed, other)
    packed.load_state_dict(plain.state_dict())
    check_equal(packed, plain)
    back = decompress_(packed)
    assert not any(isinstance(one, PackedExperts) for one in back.modules())
    assert {name for name, _ in back.named_parameters()} == {name for name, _ in plain.named_parameters()}
    assert torch.equal(back(IDS).logits, plain(IDS).logits)


def test_folders_load_packed_and_restore_every_byte(family, tmp_path):
    made(family).save_pretrained(tmp_path / "plain")
    buddy.pack_model(tmp_path / "plain", tmp_path / "packed", verify=True)
    plain = load(tmp_path / "plain")
    on_load, folder = load(tmp_path / "plain", quantization_config=BuddyConfig()), load(tmp_path / "packed")
    for packed in [on_load, folder]:
        check_equal(packed, plain)
        assert packed.num_parameters() == plain.num_parameters()
    buddy.unpack_model(tmp_path / "packed", tmp_path / "back")
    for name in os.listdir(tmp_path / "plain"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "back" / name).read_bytes(), name
    folder.save_pretrained(tmp_path / "saved")
    assert "quantization_config" not in json.loads((tmp_path / "saved" / "config.json").read_text())
    check_equal(compress_(load(tmp_path / "saved")), plain)
    assert not any(isinstance(one, PackedExperts) for one in folder.dequantize().modules())
    assert torch.equal(folder(IDS).logits, plain(IDS).logits)


def test_a_tight_folder_loads_packed(tmp_path):
    made("mixtral").save_pretrained(tmp_path / "plain")
    assert buddy._native.command(["buddy", "pack", str(tmp_path / "plain"), "--tight", "--out", str(tmp_path / "tight")]) == 0
    assert b"bf16-tight" in (tmp_path / "tight/model.safetensors").read_bytes()
    check_equal(load(tmp_path / "tight"), load(tmp_path / "plain"))


@pytest.mark.parametrize("family", families.EXPERTS)
def test_folders_load_packed_in_other_families(family, tmp_path):
    families.check_family(family, families.EXPERTS[family], tmp_path)


def test_a_packed_cache_holds_attention_and_leaves_other_layers_to_transformers(family):
    model = compress_(made(family))
    written = lambda **more: model.generate(IDS, max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0, **more)
    if family == "qwen3-next" and transformers.__version__.startswith("5.4."):
        with pytest.raises(ValueError, match="no layers of linear_attention"):
            BuddyCache(model.config, capacity=64)
        return
    cache = BuddyCache(model.config, capacity=64)
    assert torch.equal(written(past_key_values=cache), written())
    assert cache.get_seq_length() == IDS.shape[1] + 3


def test_modules_to_not_convert_keep_their_experts_plain(tmp_path):
    made("mixtral").save_pretrained(tmp_path / "plain")
    packed = load(tmp_path / "plain", quantization_config=BuddyConfig(modules_to_not_convert=["model.layers.0"]))
    assert [isinstance(layer.mlp.experts, PackedExperts) for layer in packed.model.layers] == [False, True]


def test_lists_of_expert_matrices_are_packed():
    experts = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4)).bfloat16()
    assert all(isinstance(one, PackedLinear) for one in compress_(torch.nn.ModuleDict({"experts": experts}))["experts"])


def test_share_of_memory_on_normal_weights():
    config = transformers.Qwen3MoeConfig(**SMALL | {"hidden_size": 256}, head_dim=64, moe_intermediate_size=192, num_experts=32, num_experts_per_tok=4)
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    plain = sum(one.nbytes for one in model.parameters())
    compress_(model)
    packed = sum(one.nbytes for one in model.parameters()) + sum(one.data.nbytes for one in model.modules() if isinstance(one, PackedMatrix))
    assert packed / plain <= 0.78, packed / plain
