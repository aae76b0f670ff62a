"""Tiny random models of many families, for test_transformers.py and test_experts.py."""

import pytest

torch = pytest.importorskip("torch")
transformers = T = pytest.importorskip("transformers")

Z = dict(vocab_size=256, hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=256)
S = Z | dict(num_key_value_heads=2)
DENSE = {
    "bloom": lambda: T.BloomConfig(vocab_size=256, hidden_size=128, n_layer=2, n_head=2),
    "cohere": lambda: T.CohereConfig(**S),
    "cohere2": lambda: T.Cohere2Config(**S),
    "ernie4.5": lambda: T.Ernie4_5Config(**S, head_dim=64),
    "exaone4": lambda: T.Exaone4Config(**S),
    "falcon": lambda: T.FalconConfig(vocab_size=256, hidden_size=128, num_hidden_layers=2, num_attention_heads=2),
    "gemma3n": lambda: T.Gemma3nTextConfig(
        **S | {"num_hidden_layers": 4}, head_dim=64, hidden_size_per_layer_input=64, vocab_size_per_layer_input=256, num_kv_shared_layers=2,
        laurel_rank=64, activation_sparsity_pattern=None, layer_types=["sliding_attention", "full_attention"] * 2),
    "gemma4": lambda: T.Gemma4TextConfig(**S, head_dim=64, vocab_size_per_layer_input=256),
    "glm4": lambda: T.Glm4Config(**S, head_dim=64, pad_token_id=0),
    "gpt-neox": lambda: T.GPTNeoXConfig(**Z),
    "gptj": lambda: T.GPTJConfig(vocab_size=256, n_embd=128, n_layer=2, n_head=2, rotary_dim=32, n_positions=256),
    "granite": lambda: T.GraniteConfig(**S),
    "hunyuan": lambda: T.HunYuanDenseV1Config(**S, head_dim=64, pad_token_id=0),
    "lfm2": lambda: T.Lfm2Config(**S, layer_types=["conv", "full_attention"]),
    "mamba2": lambda: T.Mamba2Config(vocab_size=256, hidden_size=128, num_hidden_layers=2, num_heads=8, head_dim=32, state_size=16, n_groups=1),
    "ministral3": lambda: T.Ministral3Config(**S, head_dim=64),
    "mistral": lambda: T.MistralConfig(**S),
    "mpt": lambda: T.MptConfig(vocab_size=256, d_model=128, n_heads=2, n_layers=2, max_seq_len=256),
    "nemotron": lambda: T.NemotronConfig(**S),
    "olmo2": lambda: T.Olmo2Config(**S),
    "olmo3": lambda: T.Olmo3Config(**S),
    "phi": lambda: T.PhiConfig(**S),
    "phi3": lambda: T.Phi3Config(**S, pad_token_id=0),
    "qwen2": lambda: T.Qwen2Config(**S),
    "seed-oss": lambda: T.SeedOssConfig(**S, head_dim=64),
    "smollm3": lambda: T.SmolLM3Config(**S, pad_token_id=0),
    "stablelm": lambda: T.StableLmConfig(**S),
    "starcoder2": lambda: T.Starcoder2Config(**S),
}
EXPERTS = {
    "deepseek-v2": lambda: T.DeepseekV2Config(
        **S, moe_intermediate_size=64, n_routed_experts=8, num_experts_per_tok=2, n_group=4, topk_group=2, first_k_dense_replace=1,
        q_lora_rank=64, kv_lora_rank=64, qk_rope_head_dim=32, qk_nope_head_dim=32, v_head_dim=32),
    "glm4-moe": lambda: T.Glm4MoeConfig(**S, moe_intermediate_size=64, n_routed_experts=8, num_experts_per_tok=2, first_k_dense_replace=1),
    "granitemoe": lambda: T.GraniteMoeConfig(**S, num_local_experts=4, num_experts_per_tok=2),
    "jamba": lambda: T.JambaConfig(
        **S, num_experts=4, num_experts_per_tok=2, use_mamba_kernels=False, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2,
        expert_layer_offset=1, mamba_d_state=16),
    "minimax-m2": lambda: T.MiniMaxM2Config(**S, head_dim=64, num_local_experts=4, num_experts_per_tok=2),
    "olmoe": lambda: T.OlmoeConfig(**S, num_experts=8, num_experts_per_tok=2),
    "phimoe": lambda: T.PhimoeConfig(**S, num_local_experts=4, num_experts_per_tok=2),
    "qwen2-moe": lambda: T.Qwen2MoeConfig(**S, moe_intermediate_size=64, shared_expert_intermediate_size=64, num_experts=8, num_experts_per_tok=2),
    "qwen3.5-moe": lambda: T.Qwen3_5MoeTextConfig(
        **S, head_dim=64, moe_intermediate_size=64, shared_expert_intermediate_size=64, num_experts=8, num_experts_per_tok=2,
        linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=32, linear_value_head_dim=32,
        layer_types=["linear_attention", "full_attention"]),
}
IDS = (torch.arange(20) * 37 % 251).unsqueeze(0)
# Encoders, encoder and decoder, and heads for other tasks: the class, its configuration, its inputs.
D = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
OTHERS = {
    "bert": lambda: (T.BertForMaskedLM, T.BertConfig(vocab_size=256, **D), dict(input_ids=IDS)),
    "roberta": lambda: (T.RobertaForMaskedLM, T.RobertaConfig(vocab_size=256, **D), dict(input_ids=IDS)),
    "modernbert": lambda: (T.ModernBertForMaskedLM, T.ModernBertConfig(
        vocab_size=256, pad_token_id=0, bos_token_id=0, eos_token_id=0, cls_token_id=0, sep_token_id=0, **D), dict(input_ids=IDS)),
    "whisper": lambda: (T.WhisperForConditionalGeneration, T.WhisperConfig(
        vocab_size=256, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=128,
        decoder_ffn_dim=128, num_mel_bins=16, max_source_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1),
                        dict(input_features=torch.randn(1, 16, 40).bfloat16(), decoder_input_ids=IDS)),
    "t5": lambda: (T.T5ForConditionalGeneration, T.T5Config(vocab_size=256, d_model=128, d_kv=64, d_ff=128, num_layers=2, num_heads=2),
                   dict(input_ids=IDS, decoder_input_ids=IDS)),
    "vit": lambda: (T.ViTModel, T.ViTConfig(image_size=32, patch_size=8, **D), dict(pixel_values=torch.randn(1, 3, 32, 32).bfloat16())),
}
# Transformers 5.4 refuses these configurations, or has no such family.
NOT_IN_5_4 = {"cohere2", "ernie4.5", "gemma4", "olmo2", "olmo3", "olmoe", "phimoe"}
# Models that take no cache, or count its tokens in their own way.
NO_CACHE = {"mamba2", "mpt"}


def made(make):
    """Returns a random model of a configuration, experts included."""
    torch.manual_seed(6)
    model = transformers.AutoModelForCausalLM.from_config(make(), dtype=torch.bfloat16).eval()
    for one in model.parameters():  # some families start experts at zero
        if one.dim() == 3:
            torch.nn.init.normal_(one, std=0.02)
    return model


def check_family(name, make, folder):
    """Checks a family from a plain and a packed folder: logits, state, count and generated tokens."""
    import buddy
    from buddy.torch import PackedEmbedding, PackedLinear
    from buddy.torch.experts import expert_weights
    from buddy.transformers import BuddyCache, BuddyConfig

    if name in NOT_IN_5_4 and transformers.__version__.startswith("5.4."):
        pytest.skip("Transformers 5.4 refuses the configuration, or has no such family")
    made(make).save_pretrained(folder / "plain")
    buddy.pack_model(folder / "plain", folder / "packed")
    load = lambda kind, **more: transformers.AutoModelForCausalLM.from_pretrained(folder / kind, dtype=torch.bfloat16, **more).eval()
    written = lambda model, **more: model.generate(IDS, max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0, **more)
    plain = load("plain")
    tokens, state = written(plain), plain.state_dict()
    with torch.no_grad():
        logits = plain(IDS).logits
    assert not logits.isnan().any()
    for packed in [load("plain", quantization_config=BuddyConfig()), load("packed")]:
        assert not any(type(one) is torch.nn.Linear and one.weight.shape[1] % 64 == 0 and one.weight.shape[0] >= 16 for one in packed.modules())
        assert not any(expert_weights(one) for one in packed.modules())
        assert any(isinstance(one, PackedLinear) for one in packed.modules()) or name == "falcon"
        assert isinstance(packed.get_input_embeddings(), PackedEmbedding)
        with torch.no_grad():
            assert torch.equal(packed(IDS).logits, logits)
        found = packed.state_dict()
        assert found.keys() == state.keys() and all(torch.equal(found[key], one) for key, one in state.items())
        assert packed.num_parameters() == plain.num_parameters()
        assert torch.equal(written(packed), tokens)
    if name in NO_CACHE:
        return
    try:
        cache = BuddyCache(plain.config, capacity=64)
    except ValueError as error:
        assert transformers.__version__.startswith("5.4.") and "BuddyCache has no layers of" in str(error)
    else:
        assert torch.equal(written(packed, past_key_values=cache), tokens)
