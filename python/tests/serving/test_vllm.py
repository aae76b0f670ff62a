"""quantization="buddy" of vLLM on the CPU: registration, layers, loading, refusals, two ranks.

Run by `tools/python_check.sh vllm`, which has vLLM; a whole engine needs a GPU
(`tools/vllm_bench.py`).
"""

import importlib.metadata
import json
import pathlib
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import block
import torch
from block import Block, build, checkpoint, loaded
from buddy import _native, pack_model
from buddy.torch import PackedTensor
from buddy.vllm import operators, register
from buddy.vllm.operators import codec_of
from vllm.config import LoadConfig, set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.weight_utils import get_quant_config

register()
register()
from buddy.vllm.config import BuddyConfig, Options

IDS = torch.arange(11) * 37 % block.VOCABULARY


@pytest.fixture(scope="session", autouse=True)
def group():
    block.join_group()


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Lets vLLM look at a model's class here: another process would import all of vLLM again."""
    monkeypatch.setattr("vllm.model_executor.models.registry._run_in_subprocess", lambda function: function())


@pytest.fixture
def said(monkeypatch):
    """The lines that the plug-in logs."""
    lines = []
    monkeypatch.setattr("buddy.vllm.config.logger.info", lambda text, *arguments: lines.append(text % arguments))
    return lines


def test_the_entry_point_registers_once():
    assert QUANTIZATION_METHODS.count("buddy") == 1 and get_quantization_config("buddy") is BuddyConfig
    found = importlib.metadata.entry_points(group="vllm.general_plugins", name="buddy")
    assert [one.value for one in found] in (["buddy.vllm:register"], []), "an installed wheel names the function"


def test_layers_give_what_plain_ones_give(said):
    plain, packed = loaded(None), loaded(BuddyConfig(Options(fused=False)))
    x = plain(IDS)
    assert torch.equal(packed(IDS), x) and torch.equal(packed.logits(x), plain.logits(x))
    assert all(one.dtype == torch.uint8 for name, one in packed.named_parameters() if "weight" in name and "norm" not in name)
    assert len(said) == 1 and said[0].startswith("buddy: 6 layers packed, 0.00 GB as 0.00 GB")


def test_fused_layers_round_as_plain_ones():
    plain, packed = loaded(None), loaded(BuddyConfig(Options(fused=True)))
    x, y = plain(IDS).float(), packed(IDS).float()
    assert packed.mlp.act_fn(y) is y, "gate and up are joined before"
    # Normalised values are not rounded to bf16 before they are multiplied by the norm's weight.
    assert (x - y).abs().max() <= 0.01 * x.abs().max()
    mlp = plain.mlp(x.bfloat16())
    assert torch.equal(packed.mlp(x.bfloat16()), mlp)


def test_a_gpu_before_hopper_keeps_norms_and_activations(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for capability, fuses in [((8, 0), False), ((8, 9), False), ((9, 0), True), ((12, 0), True)]:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        assert operators.has_fused_kernels.__wrapped__() == fuses
    monkeypatch.undo()
    monkeypatch.setattr("buddy.vllm.fusion.has_fused_kernels", lambda: False)
    plain, packed = loaded(None), loaded(BuddyConfig(Options(fused=True)))
    x = torch.randn(3, block.HIDDEN).bfloat16()
    assert packed.mlp.act_fn(x).shape[-1] == block.HIDDEN // 2 and torch.equal(packed(IDS), plain(IDS))


def test_another_forward_keeps_its_activation():
    class Scaled(block.MLP):
        def forward(self, x):
            x, _ = self.gate_up_proj(x)
            x = self.act_fn(2 * x)
            x, _ = self.down_proj(x)
            return x

    def make(config):
        found = Block(config)
        found.mlp = Scaled(config)
        return found

    plain, packed = loaded(None, make=make), loaded(BuddyConfig(Options(fused=True)), make=make)
    x = torch.randn(5, block.HIDDEN).bfloat16()
    assert torch.equal(packed.mlp(x), plain.mlp(x))


def test_a_graph_serves_any_number_of_tokens_and_any_codec():
    packed, graphs = loaded(BuddyConfig(Options(fused=True))), []

    def backend(graph, inputs):
        graphs.append(graph.code)
        return graph.forward

    compiled = torch.compile(packed, fullgraph=True, backend=backend)
    for count in [11, 2, 7]:
        ids = IDS[:count].clone()
        torch._dynamo.mark_dynamic(ids, 0)
        assert torch.equal(compiled(ids), packed(ids))
    assert len(graphs) == 1 and "serve_linear" in graphs[0] and "bf16:" not in graphs[0]


def test_a_packed_folder_loads_as_the_plain_one(tmp_path):
    plain = block.write_folder(tmp_path / "plain", checkpoint())
    pack_model(plain, tmp_path / "packed")
    states = []
    for folder in [plain, tmp_path / "packed"]:
        asked = EngineArgs(model=str(folder), skip_tokenizer_init=True, dtype="bfloat16", quantization="buddy" if folder == plain else None)
        model_config = asked.create_model_config()
        assert model_config.quantization == "buddy"
        loader = DefaultModelLoader(LoadConfig(use_tqdm_on_load=False))
        config = get_quant_config(model_config, LoadConfig())
        model = build(config, load=lambda model: model.load_weights(loader.get_all_weights(model_config, model)))
        states.append(model.state_dict())
    assert states[0].keys() == states[1].keys()
    for name, one in states[0].items():
        assert torch.equal(one.view(torch.uint8), states[1][name].view(torch.uint8)), name


def packed_stack(folder):
    """Packs a stack of matrices and a vector into ``folder``, and returns them."""
    weights = {"experts": torch.randn(4, 32, 512).bfloat16(), "scale": torch.randn(7).bfloat16()}
    pack_model(block.write_folder(folder.parent / f"{folder.name}-plain", weights), folder)
    return weights


@pytest.fixture
def snapshot(tmp_path, monkeypatch):
    """A packed model in a cache of the Hub: links to files without names, and no buddy.json."""
    weights, folder = packed_stack(tmp_path / "packed"), tmp_path / "hub/snapshots/1"
    folder.mkdir(parents=True)
    (tmp_path / "packed/model.safetensors").rename(tmp_path / "hub/0123abcd")
    (folder / "model.safetensors").symlink_to(tmp_path / "hub/0123abcd")
    monkeypatch.setattr("vllm.model_executor.model_loader.default_loader.list_filtered_repo_files", lambda **_: [])
    monkeypatch.setattr("vllm.model_executor.model_loader.default_loader.download_weights_from_hf", lambda *_, **__: str(folder))
    monkeypatch.setattr("vllm.model_executor.model_loader.default_loader.download_safetensors_index_file_from_hf", lambda *_, **__: None)
    return weights, tmp_path / "hub/0123abcd"


def test_packed_weights_of_more_dimensions_keep_their_shape(tmp_path, snapshot):
    for folder, weights in [(str(tmp_path / "local"), packed_stack(tmp_path / "local")), ("someone/model", snapshot[0])]:
        found = dict(block.weights_of(folder))
        assert found.keys() == weights.keys()
        for name, one in weights.items():
            assert torch.equal(found[name], one), (folder, name)


def test_tight_weights_are_unpacked(tmp_path):
    weights = packed_stack(tmp_path / "packed")
    assert _native.command(["buddy", "pack", str(tmp_path / "packed-plain"), "--tight", "--out", str(tmp_path / "tight")]) == 0
    assert b"bf16-tight" in (tmp_path / "tight/model.safetensors").read_bytes()
    found = dict(block.weights_of(str(tmp_path / "tight")))
    assert found.keys() == weights.keys() and all(torch.equal(found[name], one) for name, one in weights.items())


def test_a_changed_file_is_refused_in_a_folder_and_from_the_hub(tmp_path, snapshot):
    packed_stack(tmp_path / "local")
    for folder, file in [(str(tmp_path / "local"), tmp_path / "local/model.safetensors"), ("someone/model", snapshot[1])]:
        with open(file, "rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            begin, _ = json.loads(opened.read(length))["scale"]["data_offsets"]
        data = bytearray(file.read_bytes())
        data[8 + length + begin] ^= 1  # of a plain tensor, which no checksum but the file's covers
        file.write_bytes(data)
        with pytest.raises(ValueError, match="model.safetensors"):
            dict(block.weights_of(folder))


def test_a_plain_folder_is_not_compared_with_checksums(tmp_path, monkeypatch):
    monkeypatch.delattr("buddy.vllm.loading.FileCheck")
    weights = checkpoint()
    found = dict(block.weights_of(str(block.write_folder(tmp_path, weights))))
    assert all(torch.equal(found[name], one) for name, one in weights.items())


def test_secondary_weights_of_a_model_are_unpacked_too(tmp_path):
    weights, model = packed_stack(tmp_path / "packed"), torch.nn.Module()
    block.write_folder(tmp_path / "plain", checkpoint())
    model.secondary_weights = [DefaultModelLoader.Source(str(tmp_path / "packed"), None, prefix="second.")]
    config = SimpleNamespace(model=str(tmp_path / "plain"), revision=None, quantization="buddy")
    found = dict(DefaultModelLoader(LoadConfig(use_tqdm_on_load=False)).get_all_weights(config, model))
    assert torch.equal(found["second.experts"], weights["experts"]) and torch.equal(found["o_proj.weight"], checkpoint()["o_proj.weight"])


def test_weights_are_the_plain_ones_bit_for_bit():
    weights = checkpoint()
    packed = loaded(BuddyConfig(), weights)
    for layer, name in [(packed.o_proj, "o_proj"), (packed.lm_head, "lm_head"), (packed.embed_tokens, "embed_tokens")]:
        one = PackedTensor.read(layer.weight.data, layer.buddy_shape, torch.bfloat16)
        assert torch.equal(one.unpack(), weights[f"{name}.weight"])
        assert codec_of(layer.weight) == one.codec


def test_a_tied_head_shares_the_embedding():
    class Tied(Block):
        def __init__(self, config):
            super().__init__(config)
            self.lm_head = self.lm_head.tie_weights(self.embed_tokens)

    weights = {name: one for name, one in checkpoint().items() if "lm_head" not in name}
    packed, plain = loaded(BuddyConfig(), weights, Tied), loaded(None, weights, Tied)
    x = torch.randn(3, block.HIDDEN).bfloat16()
    assert torch.equal(packed.logits(x), plain.logits(x)) and torch.equal(packed.embed_tokens(IDS), plain.embed_tokens(IDS))
    assert not list(packed.lm_head.parameters())


def test_layers_that_cannot_be_packed_stay_plain_and_are_named(said):
    make = lambda config: Block(config, 96)
    weights = checkpoint(96)
    config = BuddyConfig(Options(modules_to_not_convert=["o_proj"]))
    packed, plain = loaded(config, weights, make), loaded(None, weights, make)
    assert (packed(IDS) - plain(IDS)).abs().max() <= 0.01 * plain(IDS).abs().max()
    assert "mlp.down_proj (96 inputs on a rank, no multiple of 64)" in said[0] and "o_proj (modules_to_not_convert)" in said[0]
    assert packed.mlp.down_proj.weight.dtype == torch.bfloat16 == packed.o_proj.weight.dtype


def test_plain_copies_serve_many_tokens_at_their_price(said):
    packed, plain = loaded(BuddyConfig(Options(fused=True, plain_copies_gb=1.0))), loaded(None)
    assert packed.mlp.gate_up_proj.plain_copy.dtype == torch.bfloat16 and "GB of plain copies" in said[0]
    x = torch.randn(100, block.HIDDEN).bfloat16()
    assert torch.equal(packed.mlp(x), plain.mlp(x))
    none = loaded(BuddyConfig(Options(plain_copies_gb=1e-9)))
    assert not any("plain_copy" in name for name, _ in none.named_parameters())


def reload(model, weights):
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

    with set_current_vllm_config(block.vllm_config()):
        initialize_layerwise_reload(model)
        model.load_weights(weights.items())
        finalize_layerwise_reload(model, None)


@pytest.mark.parametrize("copies", [0.0, 1.0])
def test_new_weights_go_into_the_same_memory(copies):
    packed = loaded(BuddyConfig(Options(fused=True, reserve=0.05, plain_copies_gb=copies)))
    before = {name: one.data_ptr() for name, one in packed.named_parameters()}
    new = {name: (one.float() * 1.01).bfloat16() for name, one in checkpoint().items()}
    reload(packed, new)
    assert {name: one.data_ptr() for name, one in packed.named_parameters()} == before
    for ids in [IDS, torch.arange(100)]:
        assert torch.equal(packed(ids), loaded(BuddyConfig(Options(fused=True, plain_copies_gb=copies)), new)(ids))


def test_a_full_reserve_and_none_are_errors():
    new = {name: one * torch.where(torch.rand(one.shape) < 0.5, 1e-9, 1.0).bfloat16() for name, one in checkpoint().items()}
    with pytest.raises(ValueError, match="reserve of .* sectors is full"):
        reload(loaded(BuddyConfig(Options(reserve=0.01))), new)
    with pytest.raises(ValueError, match="new weights need a reserve"):
        reload(loaded(BuddyConfig()), checkpoint())


def test_other_methods_and_unknown_options_are_refused(tmp_path):
    folder = str(block.write_folder(tmp_path / "plain", {"a": torch.zeros(64, 64).bfloat16()}))
    with pytest.raises(ValueError, match="no option thre"):
        BuddyConfig.from_config({"quant_method": "buddy", "thre": 1})
    assert BuddyConfig.from_config({"quant_method": "buddy", "exact": False, "reserve": 0.5}).options == Options(reserve=0.5)
    assert BuddyConfig().get_supported_act_dtypes() == [torch.bfloat16]
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "plain/config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="does not match"):
        EngineArgs(model=folder, skip_tokenizer_init=True, dtype="bfloat16", quantization="buddy").create_model_config()


def experts_of(config, weights):
    class Experts(torch.nn.Module):
        def __init__(self, quant_config):
            super().__init__()
            from vllm.model_executor.layers import fused_moe

            make = getattr(fused_moe, "FusedMoEFactory", None) or fused_moe.FusedMoE  # the name in 0.26
            runner = make(8, 2, block.HIDDEN, 128, quant_config=quant_config, prefix="experts")
            self.experts = runner.routed_experts

    def load(model):
        for name, shard, index, weight in weights:
            parameter = getattr(model.experts, name)
            parameter.weight_loader(parameter, weight, f"experts.{index}.{name}", shard_id=shard, expert_id=index)

    return build(config, Experts, load).experts


def test_packed_experts_give_what_plain_ones_give(said):
    make = lambda *shape: (torch.randn(shape) / shape[1] ** 0.5).bfloat16()
    gates, ups, downs = ([make(*shape) for _ in range(8)] for shape in [(128, block.HIDDEN), (128, block.HIDDEN), (block.HIDDEN, 128)])
    weights = [("w13_weight", "w1", i, one) for i, one in enumerate(gates)] + [("w13_weight", "w3", i, one) for i, one in enumerate(ups)]
    weights += [("w2_weight", "w2", i, one) for i, one in enumerate(downs)]
    layer = experts_of(BuddyConfig(Options(experts=True)), weights)
    assert layer.w13_weight.dtype == torch.uint8 == layer.w2_weight.dtype and said[0].startswith("buddy: 1 layers packed")
    x, ids, shares = torch.randn(5, block.HIDDEN).bfloat16(), torch.randint(8, (5, 2)), torch.rand(5, 2)
    found = layer.quant_method.apply(layer, x, shares, ids, None, None)
    wanted = torch.zeros(5, block.HIDDEN)
    for token in range(5):
        for k in range(2):
            one = ids[token, k]
            inner = torch.nn.functional.silu(x[token] @ gates[one].T) * (x[token] @ ups[one].T)
            wanted[token] += shares[token, k] * (inner @ downs[one].T)
    assert (found.float() - wanted).abs().max() <= 0.02 * wanted.abs().max()
