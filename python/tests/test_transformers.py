"""Transformers models with packed weights and KV cache generate the tokens of plain ones on the
CPU."""

import json
import os

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import buddy
from buddy.torch import PackedEmbedding, PackedLinear
from buddy.transformers import BuddyCache, BuddyConfig, BuddyQuantizer, save_packed

import families

SMALL = dict(vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, attn_implementation="eager")
FAMILIES = {
    "llama": lambda: transformers.LlamaConfig(**SMALL, tie_word_embeddings=False),
    "llama-tied": lambda: transformers.LlamaConfig(**SMALL, tie_word_embeddings=True),
    "qwen": lambda: transformers.Qwen3Config(**SMALL, head_dim=64),
    "gemma2": lambda: transformers.Gemma2Config(**SMALL, head_dim=64, sliding_window=16),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=512, n_embd=128, n_layer=2, n_head=4, n_positions=512),
    "opt": lambda: transformers.OPTConfig(vocab_size=512, hidden_size=128, word_embed_proj_dim=128, ffn_dim=256, num_hidden_layers=2,
                                          num_attention_heads=4, max_position_embeddings=512),
    "gemma": lambda: transformers.Gemma3TextConfig(**SMALL, head_dim=64, sliding_window=16),
}
# Long enough to fill a block of 64 tokens.
IDS = (torch.arange(60) * 37 % 509).unsqueeze(0)


@pytest.fixture(params=FAMILIES)
def folder(request, tmp_path):
    torch.manual_seed(5)
    config = FAMILIES[request.param]()
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "plain")
    return tmp_path / "plain"


def load(folder, **kwargs):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **kwargs).eval()


def written(model, **kwargs):
    return model.generate(IDS, max_new_tokens=8, do_sample=False, **kwargs)


def check_packed(model, plain):
    assert any(isinstance(one, PackedLinear) for one in model.modules())
    assert not any(type(one) is torch.nn.Linear for one in model.modules()) and isinstance(model.get_input_embeddings(), PackedEmbedding)
    assert torch.equal(model(IDS).logits, plain(IDS).logits)
    for name, one in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], one), name


def test_a_plain_folder_loads_packed(folder):
    plain = load(folder, dtype=torch.bfloat16)
    check_packed(load(folder, dtype=torch.bfloat16, quantization_config=BuddyConfig(exact=True)), plain)


def test_a_packed_folder_loads_packed_and_unpacks_to_the_byte(folder, tmp_path):
    buddy.pack_model(folder, tmp_path / "packed", verify=True)
    plain = load(folder, dtype=torch.bfloat16)
    packed = load(tmp_path / "packed", dtype=torch.bfloat16)
    check_packed(packed, plain)
    buddy.unpack_model(tmp_path / "packed", tmp_path / "back")
    for name in os.listdir(folder):
        assert (folder / name).read_bytes() == (tmp_path / "back" / name).read_bytes(), name
    assert json.loads((tmp_path / "packed" / "config.json").read_text())["quantization_config"] == {"quant_method": "buddy"}


@pytest.mark.parametrize("folder", ["llama-tied", "gpt2"], indirect=True)
def test_a_tight_folder_loads_packed(folder, tmp_path):
    assert buddy._native.command(["buddy", "pack", str(folder), "--tight", "--out", str(tmp_path / "tight")]) == 0
    assert b"bf16-tight" in (tmp_path / "tight/model.safetensors").read_bytes()
    check_packed(load(tmp_path / "tight", dtype=torch.bfloat16), load(folder, dtype=torch.bfloat16))


@pytest.mark.parametrize("family", families.DENSE)
def test_a_packed_folder_loads_packed_in_other_families(family, tmp_path):
    families.check_family(family, families.DENSE[family], tmp_path)


@pytest.mark.parametrize("family", families.OTHERS)
def test_a_packed_folder_loads_packed_in_models_of_other_tasks(family, tmp_path):
    """A head's bias follows its tied weight, and initial values may follow from a weight's shape."""
    torch.manual_seed(3)
    kind, config, inputs = families.OTHERS[family]()
    kind(config).bfloat16().save_pretrained(tmp_path / "plain")
    buddy.pack_model(tmp_path / "plain", tmp_path / "packed")
    model = kind.from_pretrained(tmp_path / "plain", dtype=torch.bfloat16).eval()
    with torch.no_grad():
        wanted, state = model(**inputs)[0], model.state_dict()
    for folder, more in [("plain", {"quantization_config": BuddyConfig()}), ("packed", {})]:
        packed = kind.from_pretrained(tmp_path / folder, dtype=torch.bfloat16, **more).eval()
        assert not any(type(one) is torch.nn.Linear for one in packed.modules())
        with torch.no_grad():
            assert torch.equal(packed(**inputs)[0], wanted)
        found = packed.state_dict()
        assert found.keys() == state.keys() and all(torch.equal(found[name], one) for name, one in state.items())


def test_saved_folders_are_plain_and_hold_tied_weights_once(folder, tmp_path):
    packed = load(folder, dtype=torch.bfloat16, quantization_config=BuddyConfig(compiled=True))
    packed.save_pretrained(tmp_path / "saved")
    assert "quantization_config" not in json.loads((tmp_path / "saved" / "config.json").read_text())
    assert "static" not in (tmp_path / "saved" / "generation_config.json").read_text()
    assert packed.generation_config.cache_implementation == "static"
    assert (tmp_path / "saved" / "model.safetensors").stat().st_size <= 1.01 * (folder / "model.safetensors").stat().st_size
    plain, saved = load(folder, dtype=torch.bfloat16), load(tmp_path / "saved", dtype=torch.bfloat16)
    assert not any(isinstance(one, PackedLinear) for one in saved.modules())
    assert torch.equal(saved(IDS).logits, plain(IDS).logits)
    check_packed(load(tmp_path / "saved", dtype=torch.bfloat16, quantization_config=BuddyConfig()), plain)


@pytest.mark.parametrize("folder", ["llama", "llama-tied"], indirect=True)
def test_parameters_are_counted_and_dequantize_restores_the_plain_model(folder):
    plain, packed = load(folder, dtype=torch.bfloat16), load(folder, dtype=torch.bfloat16, quantization_config=BuddyConfig())
    assert packed.num_parameters() == plain.num_parameters()
    assert packed.num_parameters(exclude_embeddings=True) == plain.num_parameters(exclude_embeddings=True)
    back = packed.dequantize()
    assert not any(isinstance(one, PackedLinear) for one in back.modules()) and back.num_parameters() == plain.num_parameters()
    assert (back.lm_head.weight is back.model.embed_tokens.weight) == plain.config.tie_word_embeddings
    assert torch.equal(back(IDS).logits, plain(IDS).logits)


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_unknown_options_are_refused_and_no_ops_warn(folder, caplog, capfd):
    with pytest.raises(ValueError, match="no option 'bits'; those known are exact"):
        BuddyConfig(bits=4)
    transformers.logging.enable_propagation()
    load(folder, dtype=torch.float16, quantization_config=BuddyConfig())
    transformers.logging.disable_propagation()
    assert "packed none of 16 layers (weights: torch.float16)" in caplog.text
    capfd.readouterr()
    load(folder, dtype=torch.bfloat16, quantization_config=BuddyConfig(modules_to_not_convert=["lm_head"]))
    assert "15 of 16 layers packed" in (said := capfd.readouterr().err) and "left plain: lm_head" in said, said


@pytest.mark.parametrize("folder", ["gpt2"], indirect=True)
def test_the_report_names_what_stays_plain_with_its_class_and_bytes(folder, capfd):
    packed = load(folder, dtype=torch.bfloat16, quantization_config=BuddyConfig())
    assert "11 of 11 layers packed, 1.06 MB to" in (said := capfd.readouterr().err) and "left plain" not in said, said
    assert type(packed.transformer.h[0].attn.c_attn).__name__ == "PackedConv1D"
    load(folder, dtype=torch.bfloat16, quantization_config=BuddyConfig(modules_to_not_convert=["attn", "mlp"]))
    said = capfd.readouterr().err
    assert "3 of 11 layers packed" in said and "(Conv1D)" in said and "and others, 786 KB" in said, said


@pytest.mark.parametrize("folder", ["llama", "llama-tied", "gemma"], indirect=True)
def test_resized_embeddings_are_packed_again(folder):
    plain, packed = load(folder, dtype=torch.bfloat16), load(folder, dtype=torch.bfloat16, quantization_config=BuddyConfig(exact=True))
    for model in [plain, packed]:
        torch.manual_seed(4)
        assert model.resize_token_embeddings(520, mean_resizing=False) is model.get_input_embeddings()
    check_packed(packed, plain)
    assert packed.lm_head.exact and packed.num_parameters() == plain.num_parameters() and packed.config.vocab_size == 520


def places(**devices):
    return {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu",
            "model.layers.0": "cpu", "model.layers.1": "cpu"} | {f"model.{name}": one for name, one in devices.items()}


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
@pytest.mark.parametrize("from_packed", [False, True])
def test_offloaded_weights_are_refused_unless_they_stay_plain(folder, tmp_path, from_packed):
    pytest.importorskip("accelerate")
    plain = load(folder, dtype=torch.bfloat16)
    if from_packed:
        buddy.pack_model(folder, tmp_path / "packed")
    path = tmp_path / "packed" if from_packed else folder
    for name, device in [("layers.1", "disk"), ("layers", "disk")]:
        where = {"model.layers": device, **{key: one for key, one in places().items() if "layers" not in key}} if name == "layers" else places(**{name: device})
        with pytest.raises(ValueError, match=f"offloads model.{name} to disk.*modules_to_not_convert"):
            load(path, dtype=torch.bfloat16, quantization_config=BuddyConfig(), device_map=where, offload_folder=tmp_path / "disk")
    if from_packed:
        return
    config = BuddyConfig(exact=True, modules_to_not_convert=["model.layers.1"])
    mixed = load(path, dtype=torch.bfloat16, quantization_config=config, device_map=places(**{"layers.1": "disk"}), offload_folder=tmp_path / "disk")
    assert type(mixed.model.layers[0].mlp.up_proj) is PackedLinear and mixed.model.layers[1].mlp.up_proj.weight.is_meta
    with torch.no_grad():
        assert torch.equal(mixed(IDS).logits, plain(IDS).logits)


def test_a_cpu_in_a_map_of_gpus_is_offloading():
    quantizer = BuddyQuantizer(BuddyConfig(modules_to_not_convert=["lm_head"]))
    quantizer.shapes = {"model.layers.0.up.weight": (64, 64), "model.norm.weight": (64,), "lm_head.weight": (64, 64)}
    for fine in [{"": 0}, {"": "cpu"}, {"model": 0, "lm_head": "cpu"}, {"model.layers": 1, "model.norm": "cpu", "lm_head": 0}, "auto"]:
        quantizer.validate_environment(device_map=fine)
    for offloaded in [{"model": "cpu", "lm_head": 0}, {"model.layers.0": torch.device("cpu"), "lm_head": 0}, {"": "disk"}]:
        with pytest.raises(ValueError, match="cannot be offloaded"):
            quantizer.validate_environment(device_map=offloaded)


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
@pytest.mark.parametrize("from_packed", [False, True])
def test_modules_to_not_convert_stay_plain_also_from_packed_folders(folder, tmp_path, from_packed):
    plain = load(folder, dtype=torch.bfloat16)
    if from_packed:
        buddy.pack_model(folder, tmp_path / "packed")
        folder = tmp_path / "packed"
    config = BuddyConfig(exact=True, modules_to_not_convert=["lm_head", "model.layers.0", "k_proj"])
    packed = load(folder, dtype=torch.bfloat16, quantization_config=config)
    kinds = {name: type(one) for name, one in packed.named_modules()}
    assert kinds["lm_head"] is kinds["model.layers.0.mlp.up_proj"] is kinds["model.layers.1.self_attn.k_proj"] is torch.nn.Linear
    assert kinds["model.layers.1.mlp.up_proj"] is PackedLinear and packed.model.layers[1].mlp.up_proj.exact
    assert torch.equal(packed(IDS).logits, plain(IDS).logits)


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_a_cache_under_autograd_is_an_error(folder):
    model = load(folder, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="carries no gradients"):
        model(IDS, past_key_values=BuddyCache(model.config, capacity=128))
    with torch.no_grad():
        model(IDS, past_key_values=BuddyCache(model.config, capacity=128))


@pytest.mark.parametrize("folder", ["llama", "llama-tied", "gemma"], indirect=True)
def test_models_are_saved_packed_on_request(folder, tmp_path):
    plain = load(folder, dtype=torch.bfloat16)
    packed = load(folder, dtype=torch.bfloat16, quantization_config=BuddyConfig(compiled=True))
    result = save_packed(packed, tmp_path / "deep" / "saved")
    assert result.share < 0.85 and os.listdir(tmp_path / "deep") == ["saved"]
    assert "static" not in (tmp_path / "deep" / "saved" / "generation_config.json").read_text()
    check_packed(load(tmp_path / "deep" / "saved", dtype=torch.bfloat16), plain)
    with pytest.raises(FileExistsError, match="not empty"):
        save_packed(packed, tmp_path / "deep" / "saved")


@pytest.mark.parametrize("folder", ["llama", "llama-tied"], indirect=True)
@pytest.mark.parametrize("from_packed", [False, True])
def test_loading_reserves_the_packed_size(folder, tmp_path, monkeypatch, from_packed):
    """Transformers reserves device memory before it loads; a packed model needs no more than its
    packed size."""
    reserved = []

    def reserve(model, device_map, quantizer):
        names = {name: torch.device("cpu") for name, _ in model.named_parameters()}
        reserved.append(sum(modeling_utils.get_total_byte_count(model, names, quantizer).values()))

    modeling_utils = transformers.modeling_utils
    monkeypatch.setattr(modeling_utils, "caching_allocator_warmup", reserve)
    if from_packed:
        buddy.pack_model(folder, tmp_path / "packed")
        folder = tmp_path / "packed"
    model = load(folder, dtype=torch.bfloat16, device_map="cpu", quantization_config=BuddyConfig())
    taken = sum(one.nbytes for one in {id(one): one for one in [*model.parameters(), *model.buffers()]}.values())
    assert 0.9 * taken < reserved[0] < 1.05 * taken


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_prompt_lookup_and_assisted_decoding_write_the_same_with_a_packed_cache(folder):
    model, assistant = load(folder, dtype=torch.bfloat16), load(folder, dtype=torch.bfloat16)
    repeated = IDS[:, :20].repeat(1, 4)
    for how in [{"prompt_lookup_num_tokens": 3}, {"assistant_model": assistant}]:
        cache = BuddyCache(model.config, capacity=128)
        found = model.generate(repeated, max_new_tokens=12, do_sample=False, past_key_values=cache, **how)
        assert torch.equal(found, model.generate(repeated, max_new_tokens=12, do_sample=False, **how))
        assert cache.get_seq_length() == found.shape[1] - 1


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
@pytest.mark.parametrize("kept", [0, 1, 63, 64, 65, 130])
def test_a_cropped_cache_continues_like_a_short_one(folder, kept):
    model = load(folder, dtype=torch.bfloat16)
    ids = (torch.arange(140) * 37 % 509).unsqueeze(0)
    with torch.no_grad():
        cropped, short = (BuddyCache(model.config, capacity=256) for _ in range(2))
        model(ids, past_key_values=cropped)
        cropped.crop(kept - 140)
        if kept:
            model(ids[:, :kept], past_key_values=short)
        assert cropped.get_seq_length() == kept
        keys = [cache.layers[1].update(*[torch.ones(1, 2, 3, 32, dtype=torch.bfloat16)] * 2)[0] for cache in [cropped, short]]
    # Batched products of the prompts differ in the last bits; the shapes and the new tokens agree.
    assert keys[0].shape == keys[1].shape == (1, 2, kept + 3, 32)
    assert torch.allclose(keys[0].float(), keys[1].float(), atol=0.05)
    with pytest.raises(ValueError, match="cannot be removed"):
        cropped.crop(-200)


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_compiled_models_run_a_packed_cache_outside_their_graphs(folder):
    model, compiled = load(folder, dtype=torch.bfloat16), load(folder, dtype=torch.bfloat16)
    graphs = []
    backend = lambda graph, inputs: graphs.append(graph) or graph
    torch._dynamo.reset()
    compiled.forward = torch.compile(compiled.forward, backend=backend, fullgraph=True)
    with pytest.raises(Exception, match="BuddyCache packs outside compiled graphs"):
        written(compiled, past_key_values=BuddyCache(model.config, capacity=128))
    del compiled.forward, graphs[:]
    torch._dynamo.reset()
    compiled.forward = torch.compile(compiled.forward, backend=backend)
    assert torch.equal(written(compiled, past_key_values=BuddyCache(model.config, capacity=128)), written(model))
    count = len(graphs)
    compiled.generate(IDS, max_new_tokens=16, do_sample=False, past_key_values=BuddyCache(model.config, capacity=128))
    assert len(graphs) == count > 0, "longer caches share the graphs"


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_beam_search_with_a_packed_cache_is_refused(folder):
    model = load(folder, dtype=torch.bfloat16)
    with pytest.raises(NotImplementedError, match="no beam search.*num_beams=1"):
        model.generate(IDS, max_new_tokens=4, num_beams=2, past_key_values=BuddyCache(model.config, capacity=128))


def test_generate_writes_the_same_with_packed_weights_keys_and_values(folder):
    plain = load(folder, dtype=torch.bfloat16)
    packed = load(folder, dtype=torch.bfloat16, quantization_config=BuddyConfig())
    expected = written(plain)
    assert torch.equal(written(packed), expected)
    cache = BuddyCache(packed.config, capacity=128)
    if "sliding_attention" in getattr(packed.config, "layer_types", []):
        pytest.skip("a cache of the whole context and one of a window add up in another order")
    assert torch.equal(written(packed, past_key_values=cache), expected)
    assert cache.get_seq_length() == expected.shape[1] - 1


def test_a_full_cache_is_an_error(folder):
    plain = load(folder, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="larger capacity"):
        written(plain, past_key_values=BuddyCache(plain.config, capacity=16))


@pytest.mark.parametrize("folder", ["llama", "gemma"], indirect=True)
def test_compiled_generation_has_the_graphs_of_plain_ones_and_writes_the_same(folder):
    def compiled(model, **how):
        graphs = []
        config = transformers.CompileConfig(fullgraph=True, mode=None, backend=lambda graph, inputs: graphs.append(graph) or graph)
        config._compile_all_devices = True
        torch._dynamo.reset()
        return written(model, compile_config=config, **how), graphs

    packed = load(folder, dtype=torch.bfloat16, quantization_config=BuddyConfig(compiled=True))
    (expected, plain_graphs), (found, graphs) = compiled(load(folder, dtype=torch.bfloat16), cache_implementation="static"), compiled(packed)
    assert torch.equal(found, expected)
    # No graph breaks, and no more recompilation than the plain model.
    assert len(graphs) == len(plain_graphs) > 0
    layers = [one for one in packed.modules() if isinstance(one, PackedLinear)]
    assert sum("buddy.linear" in str(node.target) for node in graphs[0].graph.nodes) == len(layers)


@pytest.fixture
def packed_llama(tmp_path):
    """A packed folder of several shards."""
    model = transformers.AutoModelForCausalLM.from_config(FAMILIES["llama"](), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "plain", max_shard_size="200KB")
    buddy.pack_model(tmp_path / "plain", tmp_path / "packed")
    return tmp_path / "packed"


def test_loading_refuses_changed_and_incomplete_folders(packed_llama):
    shards = sorted(packed_llama.glob("*.safetensors"))
    assert len(shards) > 1 and load(packed_llama)
    for path, at in [(shards[0], -500), (shards[1], -1), (packed_llama / "buddy.json", 30)]:
        whole = path.read_bytes()
        data = bytearray(whole)
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(ValueError, match="checksum|not packed by Buddy"):
            load(packed_llama)
        path.write_bytes(whole)
    (packed_llama / "config.json").write_text((packed_llama / "config.json").read_text().replace("}", " }"))
    with pytest.raises(ValueError, match="config.json: its bytes do not match"):
        load(packed_llama)


def test_loading_refuses_a_folder_whose_packing_did_not_finish(packed_llama, tmp_path):
    # As a killed run leaves it, but for the configuration, which is written last.
    (packed_llama / "tokenizer.json").mkdir()
    (tmp_path / "plain" / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError):
        buddy.pack_model(tmp_path / "plain", packed_llama)
    with pytest.raises(ValueError, match="packing did not finish"):
        load(packed_llama)


def test_a_folder_without_checksums_loads_with_a_warning(folder, tmp_path, monkeypatch):
    from buddy import transformers as ours

    warned = []
    monkeypatch.setattr(ours.logger, "warning", warned.append)
    monkeypatch.setattr(ours._native, "verify_shards", lambda files: (0, 0, len(files)))
    buddy.pack_model(folder, tmp_path / "packed")
    load(tmp_path / "packed")
    assert any("without checksums" in line for line in warned)
