"""Device maps over several devices. The CPU under two numbers stands for two GPUs: accelerate attaches
the hooks of two devices, and every product still runs."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")

import buddy
from buddy.torch import PackedEmbedding, PackedLinear, compress_
from buddy.transformers import BuddyConfig, BuddyQuantizer

IDS = (torch.arange(20) * 37 % 251).unsqueeze(0)
FIRST, SECOND = "cpu:0", "cpu:1"
SPREAD = {"model.embed_tokens": FIRST, "model.rotary_emb": FIRST, "model.layers.0": FIRST, "model.layers.1": SECOND, "model.norm": SECOND,
          "lm_head": SECOND}


@pytest.fixture(autouse=True)
def same_memory(monkeypatch):
    """Weights are where accelerate wants them, as after loading to two GPUs."""
    monkeypatch.setattr(accelerate.utils.modeling, "check_device_same", lambda *devices: all(one.type == "cpu" for one in devices))


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def folders(request, tmp_path):
    torch.manual_seed(4)
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
                                      num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=request.param)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path / "plain")
    buddy.pack_model(tmp_path / "plain", tmp_path / "packed")
    return tmp_path


def load(folder, **how):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **how).eval()


@pytest.fixture
def moved(monkeypatch):
    """The devices to which hooks move inputs, in order."""
    devices, send = [], accelerate.hooks.send_to_device
    monkeypatch.setattr(accelerate.hooks, "send_to_device", lambda tensor, device, **how: devices.append(str(device)) or send(tensor, device, **how))
    return devices


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_packed_layers_keep_the_hooks_of_their_devices(folders, kind, moved):
    plain = load(folders / "plain")
    with torch.no_grad():
        wanted = plain(IDS).logits
    model = load(folders / kind, device_map=SPREAD, **({"quantization_config": BuddyConfig(exact=True)} if kind == "plain" else {}))
    assert isinstance(model.get_input_embeddings(), PackedEmbedding) and not any(type(one) is torch.nn.Linear for one in model.modules())
    packed = {name: one for name, one in model.named_modules() if isinstance(one, (PackedLinear, PackedEmbedding))}
    assert len(packed) == 16
    for name, one in packed.items():
        device = next(device for path, device in SPREAD.items() if f"{name}.".startswith(f"{path}."))
        assert str(one._hf_hook.execution_device) == device, name
    del moved[:]
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, wanted)
    # Each packed layer's hook moves its inputs; so do those of blocks, norms and the model.
    assert moved.count(FIRST) > 8 and moved.count(SECOND) > 8
    assert torch.equal(model.generate(IDS, max_new_tokens=4, do_sample=False), plain.generate(IDS, max_new_tokens=4, do_sample=False))


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_tied_weights_on_two_devices_are_two_packed_matrices(folders, kind, tmp_path, monkeypatch):
    """Accelerate copies a tied weight to the device of each layer, before layers are replaced."""
    after = BuddyQuantizer._process_model_after_weight_loading

    def copied(quantizer, model, **how):
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.data.clone(), requires_grad=False)
        return after(quantizer, model, **how)

    plain = load(folders / "plain")
    monkeypatch.setattr(BuddyQuantizer, "_process_model_after_weight_loading", copied)
    model = load(folders / kind, device_map=SPREAD, **({"quantization_config": BuddyConfig(exact=True)} if kind == "plain" else {}))
    assert model.lm_head.matrix is not model.get_input_embeddings().matrix
    assert model.lm_head.matrix.data.data_ptr() != model.get_input_embeddings().matrix.data.data_ptr()
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, plain(IDS).logits)
    monkeypatch.undo()
    model.save_pretrained(tmp_path / "saved")
    saved = load(tmp_path / "saved")
    assert all(torch.equal(one, plain.state_dict()[name]) for name, one in saved.state_dict().items())


def test_a_dispatched_model_can_be_packed(folders):
    """``compress_`` on a model that is spread already packs each layer where it is."""
    plain, model = load(folders / "plain"), load(folders / "plain", device_map=SPREAD)
    hooks = {name: one._hf_hook for name, one in model.named_modules() if type(one) in (torch.nn.Linear, torch.nn.Embedding)}
    compress_(model, exact=True)
    assert len(hooks) == 16 and all(isinstance(model.get_submodule(name), (PackedLinear, PackedEmbedding)) for name in hooks)
    assert all(model.get_submodule(name)._hf_hook is hook for name, hook in hooks.items())
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, plain(IDS).logits)


def test_the_loop_refuses_a_model_on_two_devices(folders):
    model = load(folders / "plain")
    model.model.layers[1].mlp.up_proj.weight = torch.nn.Parameter(model.model.layers[1].mlp.up_proj.weight.to("meta"))
    with pytest.raises(buddy.llm.Unsupported, match="spread over cpu, meta"):
        buddy.llm.load(model)
