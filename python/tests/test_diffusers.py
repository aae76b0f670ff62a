"""Diffusion transformers with packed weights compute, save and adapt as plain ones do on the CPU."""

import copy

import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from buddy.diffusers import BuddyConfig
from buddy.torch import PackedLinear

MODELS = {
    "flux": (lambda: diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=64, num_layers=1, num_single_layers=2, attention_head_dim=64, num_attention_heads=2, joint_attention_dim=128,
        pooled_projection_dim=64, axes_dims_rope=(16, 24, 24)),
             lambda: dict(hidden_states=noise(1, 16, 64), encoder_hidden_states=noise(1, 7, 128), pooled_projections=noise(1, 64),
                          timestep=torch.tensor([0.5]).bfloat16(), img_ids=torch.zeros(16, 3), txt_ids=torch.zeros(7, 3))),
    "sd3.5": (lambda: diffusers.SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=64, num_attention_heads=2, joint_attention_dim=128,
        caption_projection_dim=128, pooled_projection_dim=64, out_channels=4, pos_embed_max_size=16, dual_attention_layers=(0,), qk_norm="rms_norm"),
              lambda: dict(hidden_states=noise(1, 4, 8, 8), encoder_hidden_states=noise(1, 7, 128), pooled_projections=noise(1, 64),
                           timestep=torch.tensor([500.0]).bfloat16())),
    "wan": (lambda: diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=64, in_channels=4, out_channels=4, text_dim=64, freq_dim=64, ffn_dim=256,
        num_layers=2, cross_attn_norm=True, qk_norm="rms_norm_across_heads", rope_max_seq_len=32),
            lambda: dict(hidden_states=noise(1, 4, 2, 8, 8), encoder_hidden_states=noise(1, 7, 64), timestep=torch.tensor([500]))),
}


def noise(*size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(7)).bfloat16()


def run(model, inputs):
    with torch.no_grad():
        return model(**inputs, return_dict=False)[0]


@pytest.fixture(params=MODELS)
def case(request, tmp_path):
    make, inputs = MODELS[request.param]
    torch.manual_seed(3)
    made = make().to(torch.bfloat16)
    made.save_pretrained(tmp_path / "plain", max_shard_size="300KB")
    load = lambda folder, **more: type(made).from_pretrained(folder, torch_dtype=torch.bfloat16, **more).eval()
    return load, tmp_path, inputs()


def test_packed_transformers_compute_save_and_dequantize_the_bits_of_plain_ones(case, capsys):
    load, folder, inputs = case
    plain, packed = load(folder / "plain"), load(folder / "plain", quantization_config=BuddyConfig())
    layers = [one for one in packed.modules() if isinstance(one, PackedLinear)]
    assert len(layers) > 10 and "linear layers packed" in capsys.readouterr().err
    wanted = run(plain, inputs)
    assert torch.equal(run(packed, inputs), wanted)
    assert all(torch.equal(one, packed.state_dict()[name]) for name, one in plain.state_dict().items())
    packed.save_pretrained(folder / "saved")
    again = load(folder / "saved")
    assert not any(isinstance(one, PackedLinear) for one in again.modules())
    assert torch.equal(run(again, inputs), wanted)
    packed.dequantize()
    assert not any(isinstance(one, PackedLinear) for one in packed.modules())
    assert torch.equal(run(packed, inputs), wanted)


def test_modules_to_not_convert_stay_plain_and_fp32_models_warn(case, caplog):
    load, folder, inputs = case
    packed = load(folder / "plain", quantization_config=BuddyConfig(modules_to_not_convert=["proj_out"]))
    assert type(packed.proj_out) is torch.nn.Linear
    type_of = type(packed)
    with caplog.at_level("WARNING", "buddy.diffusers"):
        plain = type_of.from_pretrained(folder / "plain", torch_dtype=torch.float32, quantization_config=BuddyConfig())
    assert not any(isinstance(one, PackedLinear) for one in plain.modules())


def test_lora_adapters_run_train_and_fuse_over_packed_layers(tmp_path):
    peft = pytest.importorskip("peft")
    make, inputs = MODELS["flux"]
    torch.manual_seed(3)
    made = make().to(torch.bfloat16)
    made.save_pretrained(tmp_path)
    found = []
    for more in [{}, {"quantization_config": BuddyConfig()}]:
        model = type(made).from_pretrained(tmp_path, torch_dtype=torch.bfloat16, **more).requires_grad_(False)
        torch.manual_seed(5)
        model.add_adapter(peft.LoraConfig(r=4, target_modules=["to_q", "to_v"], init_lora_weights="gaussian"))
        for name, one in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(one, std=0.1)
        y = model(**inputs(), return_dict=False)[0]
        y.float().square().mean().backward()
        gradients = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
        assert gradients and all("lora" in name for name in gradients)
        model.fuse_lora()
        model.unload_lora()
        found.append((y.detach(), gradients, run(model, inputs())))
    (plain, plain_gradients, plain_fused), (packed, packed_gradients, packed_fused) = found
    assert torch.equal(packed, plain) and torch.equal(packed_fused, plain_fused) and not torch.equal(plain_fused, plain)
    assert plain_gradients.keys() == packed_gradients.keys()
    assert all(torch.equal(packed_gradients[name], one) for name, one in plain_gradients.items())


def test_narrow_layers_stay_plain_and_all_parameters_are_counted(tmp_path):
    """Fewer rows than a tile would take more bytes packed."""
    made = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=64, num_attention_heads=2, joint_attention_dim=64,
        pooled_projection_dim=64, axes_dims_rope=(16, 24, 24)).to(torch.bfloat16)
    made.save_pretrained(tmp_path)
    packed = type(made).from_pretrained(tmp_path, torch_dtype=torch.bfloat16, quantization_config=BuddyConfig())
    assert type(packed.proj_out) is torch.nn.Linear and packed.proj_out.weight.shape == (4, 128)
    assert isinstance(packed.context_embedder, PackedLinear)
    assert packed.num_parameters() == made.num_parameters()
    assert packed.num_parameters(only_trainable=True) < made.num_parameters(only_trainable=True)
    packed.dequantize()
    assert packed.num_parameters() == made.num_parameters()


def test_a_pipeline_loads_packed_runs_and_saves_the_bits_of_a_plain_one(tmp_path):
    transformers = pytest.importorskip("transformers")
    clip = transformers.CLIPTextConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
                                       projection_dim=64, max_position_embeddings=16, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    t5 = transformers.T5Config(vocab_size=64, d_model=128, d_kv=64, d_ff=128, num_layers=1, num_heads=2)
    torch.manual_seed(3)
    made = diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), text_encoder=transformers.CLIPTextModel(clip).bfloat16(), tokenizer=None,
        text_encoder_2=transformers.T5EncoderModel(t5).bfloat16(), tokenizer_2=None, transformer=MODELS["flux"][0]().bfloat16(),
        vae=diffusers.AutoencoderKL(block_out_channels=(32,), latent_channels=16, norm_num_groups=8, sample_size=16,
                                        scaling_factor=0.4, shift_factor=0.1).bfloat16())
    made.save_pretrained(tmp_path / "plain")
    config = diffusers.PipelineQuantizationConfig(quant_mapping={"transformer": BuddyConfig(), "text_encoder_2": BuddyConfig()})
    load = lambda folder, **more: diffusers.FluxPipeline.from_pretrained(tmp_path / folder, torch_dtype=torch.bfloat16, tokenizer=None, tokenizer_2=None,
                                                                      image_encoder=None, feature_extractor=None, **more)

    def image(pipe):
        with torch.no_grad():
            prompt = pipe.text_encoder_2(torch.arange(7).unsqueeze(0))[0]
            pooled = pipe.text_encoder(torch.arange(7).unsqueeze(0)).pooler_output
        pipe.set_progress_bar_config(disable=True)
        return pipe(prompt_embeds=prompt, pooled_prompt_embeds=pooled, num_inference_steps=2, height=16, width=16, output_type="pt",
                    generator=torch.Generator().manual_seed(5)).images

    plain, packed = load("plain"), load("plain", quantization_config=config)
    for model in [packed.transformer, packed.text_encoder_2]:
        assert any(isinstance(one, PackedLinear) for one in model.modules())
    assert not any(isinstance(one, PackedLinear) for one in packed.text_encoder.modules())
    wanted = image(plain)
    assert torch.equal(image(packed), wanted) and not wanted.isnan().any()
    packed.save_pretrained(tmp_path / "saved")
    assert torch.equal(image(load("saved")), wanted)


def test_a_pipeline_maps_its_models_to_configs():
    mapping = {"transformer": BuddyConfig(), "text_encoder": BuddyConfig(exact=True)}
    config = diffusers.PipelineQuantizationConfig(quant_mapping=mapping)
    assert config._resolve_quant_config(module_name="transformer") is mapping["transformer"]
    assert config._resolve_quant_config(is_diffusers=False, module_name="text_encoder") is mapping["text_encoder"]
    assert copy.deepcopy(mapping["transformer"]).to_dict()["quant_method"] == "buddy"
