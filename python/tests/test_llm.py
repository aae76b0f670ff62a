"""``buddy.llm`` writes the tokens and the text of Transformers on the CPU."""

import copy
import pathlib
import re

import pytest

torch = pytest.importorskip("torch")
T = transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

import buddy
from buddy.llm import Sampling, Unsupported, load
from buddy.llm.sampling import choose
from buddy.llm.text import TextStream
from buddy.torch import PackedLinear
from buddy.transformers import BuddyConfig

S = dict(vocab_size=512, hidden_size=128, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
         max_position_embeddings=512, initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=None)
# Tied, a random model would repeat its last token.
GEMMA = S | dict(head_dim=64, tie_word_embeddings=False)
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS = {
    "llama": lambda: T.LlamaConfig(**S, attention_bias=True, mlp_bias=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    "llama-tied": lambda: T.LlamaConfig(**S, tie_word_embeddings=True),
    "llama-yarn": lambda: T.LlamaConfig(**S, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)),
    "mistral": lambda: T.MistralConfig(**S, sliding_window=24),
    "qwen2": lambda: T.Qwen2Config(**S, use_sliding_window=True, sliding_window=24, layer_types=TYPES),
    "qwen3": lambda: T.Qwen3Config(**S, head_dim=64),
    "gemma": lambda: T.GemmaConfig(**GEMMA | dict(tie_word_embeddings=True)),
    "gemma2": lambda: T.Gemma2Config(**GEMMA, sliding_window=24, layer_types=TYPES, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                                     query_pre_attn_scalar=32),
    "gemma3": lambda: T.Gemma3TextConfig(**GEMMA, sliding_window=24, layer_types=TYPES, query_pre_attn_scalar=32, rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}),
}
PROMPTS = [list(range(7, 47)), [3, 1, 4, 1, 5], list(range(300, 240, -1))]


def made(name, dtype=torch.float32):
    """Returns a random model, in which biases and norms differ from their initial values."""
    torch.manual_seed(3)
    model = T.AutoModelForCausalLM.from_config(MODELS[name](), attn_implementation="eager")
    for one in model.parameters():
        if one.dim() == 1:
            torch.nn.init.normal_(one, 1.0 if one.mean() > 0.5 else 0.0, 0.3)
    return model.to(dtype).eval()


def expected(model, ids, count=24):
    return model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), max_new_tokens=count, do_sample=False)[0, len(ids) :].tolist()


def written(model, prompts, count=24, **options):
    rows = zip(*model.tokens(prompts, max_new_tokens=count, **options))
    return [[token for token in row if token is not None] for row in rows]


@pytest.fixture(scope="module")
def words():
    """A tokenizer of bytes, as Llama 3's and Qwen's."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["the sea was calm and the wind was cold, naïve café — 海は静か"] * 5, trainer)
    return T.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="module")
def pieces():
    """A tokenizer of words and bytes with spaces before words, as Llama 2's and Gemma's."""
    vocabulary = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "b", "▁a", "▁the", "c", "é"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({one: i for i, one in enumerate(vocabulary)}, [("▁", "a")], unk_token="<unk>", byte_fallback=True))
    D = tokenizers.decoders
    tokenizer.decoder = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    return T.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize("name", MODELS)
def test_greedy_tokens_equal_those_of_transformers(name):
    """In fp32, alone and in a batch of prompts of different lengths, past the window of attention."""
    model = made(name)
    wanted = [expected(model, ids) for ids in PROMPTS]
    ours = load(model)
    assert written(ours, PROMPTS) == wanted
    assert written(ours, PROMPTS[2:]) == wanted[2:]
    assert len({token for row in wanted for token in row}) > 8, "the model must not write one token alone"


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2"])
def test_tokens_do_not_depend_on_what_a_graph_reads_nor_on_when_the_host_reads_them(name, monkeypatch):
    """A captured step reads more tokens than there are, and the host is late; after a closed stream
    both hold what it left."""
    from buddy.llm.engines import TorchEngine

    ours, model = load(made(name)), made(name)
    wanted = [expected(model, ids) for ids in PROMPTS]
    monkeypatch.setattr(TorchEngine, "room", property(lambda engine: 256))
    ours.engine(3, 128).ahead = 2
    for count in [1, 2, 3, 24]:
        assert written(ours, PROMPTS, count) == [row[:count] for row in wanted]
        steps = ours.tokens(PROMPTS[::-1], max_new_tokens=40, temperature=2.0)
        for _ in range(7):
            next(steps)
        steps.close()


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_as_close_to_fp32_as_those_of_transformers(name, tmp_path):
    """In bf16, from a packed folder, with packed weights and with plain ones."""
    made(name, torch.bfloat16).save_pretrained(tmp_path / "plain")
    buddy.pack_model(tmp_path / "plain", tmp_path / "packed")
    exact, model = (T.AutoModelForCausalLM.from_pretrained(tmp_path / "plain", dtype=one, attn_implementation="eager") for one in (torch.float32, torch.bfloat16))
    ids = PROMPTS[0] + expected(model, PROMPTS[0], 30)
    with torch.no_grad():
        wanted, theirs = (one(torch.tensor([ids])).logits[0, 39:].float() for one in (exact, model))
    for ours in [load(tmp_path / "packed", packed=True), load(tmp_path / "packed"), load(tmp_path / "plain", packed=True)]:
        engine, found = ours.engine(1, 128), []
        steps = engine.write([ids[:40]], Sampling(), 31)
        for at in range(40, len(ids) + 1):
            next(steps)
            found.append(engine.logits[0].float().clone())
            if at < len(ids):
                engine.chosen.fill_(ids[at])  # their token, so that all see the same text
        error, allowed = ((torch.stack(found) - wanted).square().mean().sqrt(), (theirs - wanted).square().mean().sqrt())
        assert 0 < error < 1.15 * allowed + 1e-4


@pytest.mark.parametrize("name", ["llama-tied", "qwen2", "gemma2"])
@pytest.mark.parametrize("folder", ["plain", "packed"])
def test_folders_and_loaded_models_are_packed_on_request(name, folder, tmp_path):
    model = made(name, torch.bfloat16)
    model.save_pretrained(tmp_path / "plain")
    buddy.pack_model(tmp_path / "plain", tmp_path / "packed")
    plain, packed = load(tmp_path / folder, packed=False), load(tmp_path / folder, packed=True)
    assert packed.nbytes < 0.9 * plain.nbytes
    assert plain.nbytes == sum(one.nbytes for one in model.parameters())
    assert written(packed, PROMPTS) == written(plain, PROMPTS)
    loaded = T.AutoModelForCausalLM.from_pretrained(tmp_path / folder, dtype=torch.bfloat16, **({} if folder == "packed" else {"quantization_config": BuddyConfig()}))
    ours = load(loaded, packed=True)
    assert written(ours, PROMPTS) == written(plain, PROMPTS)
    assert ours.weights.layers[0].down.matrix is loaded.model.layers[0].mlp.down_proj.matrix, "the same memory"
    assert isinstance(loaded.lm_head, PackedLinear) and expected(loaded, PROMPTS[1], 2), "the model can still be used"


def test_images_models_write_text(tmp_path):
    vision = T.SiglipVisionConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
    torch.manual_seed(3)
    model = T.Gemma3ForConditionalGeneration(T.Gemma3Config(text_config=MODELS["gemma3"]().to_dict(), vision_config=vision.to_dict(), mm_tokens_per_image=4)).eval()
    model.set_attn_implementation("eager")
    wanted = expected(model, PROMPTS[0])
    assert written(load(model), PROMPTS[:1]) == [wanted]


def test_equal_seeds_write_equal_tokens_alone_and_in_a_batch():
    ours = load(made("llama"))
    how = dict(temperature=1.5, top_k=50, top_p=0.95)
    one, same, other = (written(ours, PROMPTS[:1], **how, seed=seed)[0] for seed in (7, 7, 8))
    assert one == same != other
    assert written(ours, PROMPTS, **how, seed=7)[0] == one
    torch.manual_seed(11)
    free = written(ours, PROMPTS[:1], **how)
    assert free != written(ours, PROMPTS[:1], **how)
    torch.manual_seed(11)
    assert free == written(ours, PROMPTS[:1], **how)
    assert written(ours, PROMPTS[:1], temperature=1e-6, seed=7) == written(ours, PROMPTS[:1])
    assert written(ours, PROMPTS[:1], temperature=3.0, top_k=1, seed=7) == written(ours, PROMPTS[:1])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("top_k, top_p", [(None, None), (5, None), (None, 0.8), (6, 0.8), (99, 1.0)])
def test_tokens_are_drawn_with_their_probabilities(temperature, top_k, top_p):
    torch.manual_seed(5)
    logits, draws = torch.randn(1, 12), 40000
    warpers = [T.TemperatureLogitsWarper(temperature)]
    warpers += [T.TopKLogitsWarper(min(top_k, 12))] if top_k else []
    warpers += [T.TopPLogitsWarper(top_p)] if top_p else []
    scores = logits
    for warper in warpers:
        scores = warper(None, scores)
    wanted = scores.softmax(-1)[0]
    # Numbers at equal distances: counts differ from the probabilities by one of them at most.
    even = (torch.arange(draws) + 0.5) / draws
    drawn = choose(logits.expand(draws, -1), even, torch.tensor(temperature), top_k, None if top_p is None else torch.tensor(top_p).double())
    found = torch.bincount(drawn, minlength=12) / draws
    assert (found - wanted).abs().max() < 3 / draws
    assert (found[wanted == 0] == 0).all()


def test_drawn_numbers_are_uniform_and_the_ends_draw_possible_tokens():
    numbers = Sampling(1.0, seed=4).uniforms(8, 5000).flatten()
    assert 0 <= numbers.min() and numbers.max() < 1
    assert (numbers.sort().values - (torch.arange(40000) + 0.5) / 40000).abs().max() < 1.63 / 200, "Kolmogorov-Smirnov, 1%"
    logits = torch.tensor([[-float("inf"), 0.0, 1.0, -float("inf")]])
    for number, token in [(0.0, 1), (1 - 2**-24, 2)]:
        assert choose(logits, torch.tensor([number]), torch.tensor(1.0), None, None).tolist() == [token]


def test_arguments_out_of_range_are_refused_before_anything_runs():
    ours = load(made("llama"))
    for wrong, message in [({"temperature": -1}, "temperature=-1"), ({"temperature": float("nan")}, "temperature=nan"), ({"top_k": 0}, "top_k=0"),
                           ({"top_p": 0.0}, "top_p=0.0"), ({"top_p": 1.5}, "top_p=1.5"), ({"max_new_tokens": 0}, "max_new_tokens=0")]:
        with pytest.raises(ValueError, match=message):
            ours.tokens([[1]], **wrong)
    for prompts in [[], [[1], []]]:
        with pytest.raises(ValueError, match="at least one token"):
            ours.tokens(prompts)
    for prompt in ["text", [1, 2]]:
        with pytest.raises(ValueError, match=r"pass \[prompt\]"):
            ours.tokens(prompt)
    with pytest.raises(ValueError, match="token 512 in a prompt"):
        ours.tokens([[1, 512]])
    with pytest.raises(ValueError, match="has no tokenizer: pass load"):
        ours.generate("text")


def test_two_streams_of_one_model_are_an_error_and_a_closed_one_is_not():
    ours = load(made("llama"))
    first = ours.tokens([[1, 2]])
    next(first)
    with pytest.raises(RuntimeError, match="finish or close the other"):
        next(ours.tokens([[3]]))
    first.close()
    next(ours.tokens([[3]]))


def test_a_sequence_ends_with_its_stop_token():
    ours = load(made("qwen3"))
    long = written(ours, PROMPTS)
    stop = long[1][5]
    found = written(ours, PROMPTS, stop_tokens=[stop])
    assert found == [row[: row.index(stop) + 1] if stop in row else row for row in long]
    assert len(found[1]) <= 6
    model = made("qwen3")
    model.generation_config.eos_token_id = [stop, 511]
    assert written(load(model), PROMPTS) == found, "by default those of the model"


def test_streams_join_to_the_text_of_generate_and_of_transformers(words):
    ours, model = load(made("llama"), words), made("llama")
    prompt = "the sea was"
    for how in [{}, dict(temperature=1.2, seed=3), dict(temperature=4.0, seed=1, max_new_tokens=120)]:
        ids = [token for (token,) in ours.tokens([prompt], **({"max_new_tokens": 40} | how))]
        found = list(ours.stream(prompt, **({"max_new_tokens": 40} | how)))
        assert len(found) > 3
        text = words.decode([one for one in ids if one < len(words)], skip_special_tokens=True)
        assert "".join(found) == text == ours.generate(prompt, **({"max_new_tokens": 40} | how))
    assert ours.generate([prompt, "wind"], max_new_tokens=9) == [ours.generate(one, max_new_tokens=9) for one in (prompt, "wind")]
    ids = words(prompt)["input_ids"]
    assert ours.generate(prompt, max_new_tokens=20) == words.decode([one for one in expected(model, ids, 20) if one < len(words)], skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_pieces_of_any_tokens_join_to_their_text(kind, request):
    tokenizer = request.getfixturevalue(kind)
    generator = torch.Generator().manual_seed(2)
    for size in [1, 2, 5, 40, 300]:
        first = 0 if kind == "words" else 259  # words alone, without bytes
        ids = torch.randint(first, len(tokenizer), (size,), generator=generator).tolist()
        if size == 300:
            ids = tokenizer("the café — 海は静か, naïve a a b" * 5, add_special_tokens=False)["input_ids"]
        stream = TextStream(tokenizer)
        found = [stream.add(one) for one in ids] + [stream.finish()]
        kept = [one for one in ids if one not in tokenizer.all_special_ids]
        assert "".join(found) == tokenizer.decode(kept, clean_up_tokenization_spaces=False)
    assert len([one for one in found if one]) > 20 and "�" not in "".join(found)


@pytest.mark.parametrize("stop", ["wind", " was", ["nowhere", "d the", "calm"], "t", "zebra"])
def test_text_ends_before_a_stop_string_wherever_tokens_split_it(words, stop):
    text = "the sea was calm and the wind was cold"
    ids, stops = words(text)["input_ids"], [stop] if isinstance(stop, str) else stop
    ends = [text.find(one) for one in stops if one in text]
    stream = TextStream(words, stops)
    found = ""
    for one in ids:
        found += stream.add(one)
        assert not ends or len(found) <= min(ends)
    assert found + stream.finish() == (text[: min(ends)] if ends else text)
    assert stream.done


def test_generation_ends_at_a_stop_string(words):
    ours = load(made("llama"), words)
    whole = ours.generate("the sea", max_new_tokens=30)
    stop = whole[len(whole) // 2 :][:3]
    assert ours.generate("the sea", max_new_tokens=30, stop=stop) == whole[: whole.index(stop)] == "".join(ours.stream("the sea", max_new_tokens=30, stop=[stop]))
    assert ours.generate(["the sea"], max_new_tokens=30, stop=stop) == [whole[: whole.index(stop)]]


def test_messages_go_through_the_chat_template(words):
    tokenizer = copy.deepcopy(words)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}me: {% endif %}"
    ours = load(made("llama"), tokenizer)
    messages = [{"role": "you", "content": "the sea?"}]
    assert ours.encode(messages) == tokenizer("you: the sea?\nme: ")["input_ids"]
    assert ours.generate(messages, max_new_tokens=5) == ours.generate("you: the sea?\nme: ", max_new_tokens=5)
    assert ours.generate([messages], max_new_tokens=5) == [ours.generate(messages, max_new_tokens=5)]


def test_the_example_of_the_guide_runs(words, tmp_path, capsys):
    guide = (pathlib.Path(__file__).parents[2] / "docs/guide/models.md").read_text()
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "buddy.llm.load" in one)
    made("llama", torch.bfloat16).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    names = {}
    exec(compile(block.replace('"Llama-3.1-8B"', repr(str(tmp_path))), "models.md", "exec"), names)
    assert len(names["texts"]) == 2 and all(names["texts"]) and len(capsys.readouterr().out) > 50


def test_a_folder_brings_its_tokenizer(words, tmp_path):
    made("llama", torch.bfloat16).save_pretrained(tmp_path)
    bare = load(tmp_path)
    with pytest.raises(ValueError, match="no tokenizer"):
        bare.stream("text")
    words.save_pretrained(tmp_path)
    assert load(tmp_path).generate("the sea", max_new_tokens=4) == load(tmp_path, words).generate("the sea", max_new_tokens=4)


REFUSED = {
    "not falcon": lambda: T.FalconConfig(vocab_size=64, hidden_size=64, num_hidden_layers=1, num_attention_heads=2),
    "not qwen3_moe": lambda: T.Qwen3MoeConfig(**S, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64),
    "RoPE": lambda: T.LlamaConfig(**S, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    "bidirectional": lambda: T.Gemma3TextConfig(**GEMMA, use_bidirectional_attention=True),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_other_models_are_refused_before_their_weights_are_read(reason, tmp_path):
    config = REFUSED[reason]()
    with pytest.raises(Unsupported, match=reason):
        load(T.AutoModelForCausalLM.from_config(config))
    config.save_pretrained(tmp_path)  # no weights at all
    with pytest.raises(Unsupported, match=reason):
        load(tmp_path)


class FakeKernels:
    """The kernels of ``Decoder`` by PyTorch's operations: they read and write the same memory."""

    def __init__(self):
        self.launches, self.norms = [], []

    def gather(self, where, format, weights, entries, to):
        self.launches.append("gather")
        rows = unpacked(weights[0]).view(-1, 64)
        to.view(-1, 64).copy_(rows[entries.flatten().long()])

    def linear_prefetched(self, where, format, weights, x, y, scratch, swiglu):
        self.linear(where, format, weights, x, None, y, scratch, None, True, swiglu)

    def linear(self, where, format, weights, x, bias, y, scratch, counters, prefetch, swiglu):
        self.launches.append("linear" if bias is None else "biased")
        assert counters is None and prefetch and weights[1] == 2 * y.shape[-1] * x.shape[-1] * (2 if swiglu else 1)
        out = torch.nn.functional.linear(x, unpacked(weights[0]).view(-1, x.shape[-1]), bias)
        if swiglu:
            gate, up = out.view(len(x), -1, 2, 8).unbind(-2)
            out = (torch.nn.functional.silu(gate) * up).flatten(-2)
        y.copy_(out)

    def decode_norm(self, where, spans, epsilon, rounds_once=False):
        self.launches.append("norm")
        stream, added, weight, out, total = spans
        rows = stream.reshape(-1, weight.numel())
        if added is not None:
            rows = rows + added.view_as(rows)
            total.copy_(rows.view_as(total))
        out.copy_((weight * torch.nn.functional.rms_norm(rows.float(), weight.shape, None, epsilon).bfloat16()).view_as(out))

    def decode_argmax(self, where, spans):
        self.launches.append("argmax")
        logits, history, lengths, entries = spans
        chosen = logits.argmax(-1)
        history[torch.arange(len(chosen)), lengths.long()] = chosen.int()
        lengths += 1
        entries.copy_(chosen[:, None] * entries.shape[1] + torch.arange(entries.shape[1]))


def unpacked(data):
    """Returns the values of a packed matrix, whose bytes the header describes."""
    _, _, row, size, _ = buddy._native.parse_header(buddy.torch.ops.span(data[:128].contiguous()))
    return buddy.torch.PackedTensor.read(data, (size // (128 * row), 64 * row), torch.bfloat16).unpack()


class FakeCache:
    """``PagedCache`` in plain memory."""

    def __init__(self, layers, kv_heads, head, sequences, capacity, device):
        assert capacity % 64 == 0
        self.device, self.sequences, self.capacity = device, sequences, capacity
        self.kv = torch.full((layers, 2, sequences, kv_heads, capacity, head), float("nan"), dtype=torch.bfloat16)
        self.lengths, self.appended = torch.zeros(sequences, dtype=torch.int32), []

    def clear(self):
        self.lengths.zero_()

    def append(self, layer, keys, values, first, sequence):
        self.appended.append((layer, first, sequence))
        for half, one in enumerate((keys, values)):
            self.kv[layer, half, sequence, :, first : first + one.shape[1]] = one[0].transpose(0, 1)

    def append_attend(self, layer, rows, rope, out, scale):
        heads, kv_heads, head = out.shape[1] // self.kv.shape[-1], self.kv.shape[3], self.kv.shape[-1]
        for i, (row, length) in enumerate(zip(rows.view(self.sequences, -1, head), self.lengths.tolist())):
            q, k, v = row.split([heads, kv_heads, kv_heads])
            table = rope[length - 1].float()
            cos, sin = (torch.cat([one, one], -1) for one in table.unbind(-1))
            q, k = (one.float() * cos + torch.cat([-one[:, head // 2 :], one[:, : head // 2]], -1).float() * sin for one in (q, k))
            self.kv[layer, 0, i, :, length - 1], self.kv[layer, 1, i, :, length - 1] = k.bfloat16(), v
            keys, values = (one[i, :, :length].float() for one in self.kv[layer])
            group = heads // kv_heads
            scores = q.bfloat16().float().view(kv_heads, group, head) @ keys.transpose(1, 2) * scale
            out[i] = (scores.softmax(-1) @ values).flatten().bfloat16()


@pytest.fixture
def kernels(monkeypatch):
    """Lets a model on the CPU be run by the kernels' engine."""
    from buddy.llm import decoder, engines, model

    fakes = FakeKernels()
    monkeypatch.setattr(decoder, "_native", fakes)
    monkeypatch.setattr(decoder, "span", lambda tensor: tensor)
    monkeypatch.setattr(decoder, "device_and_stream", lambda tensor: (0, 5))
    monkeypatch.setattr(decoder, "linear_scratch_bytes", lambda weight, tokens: 16)
    monkeypatch.setattr(engines, "PagedCache", FakeCache)
    monkeypatch.setattr(engines, "on_hopper", lambda device: True)
    monkeypatch.setattr(model, "has_kernels", lambda device: True)
    return fakes


H64 = dict(head_dim=64)
KERNELS = {
    "llama": lambda: T.LlamaConfig(**S, **H64), "llama-biases": lambda: T.LlamaConfig(**S, **H64, attention_bias=True),
    "llama3-tied": lambda: T.LlamaConfig(**S, **H64, tie_word_embeddings=True, rope_parameters=MODELS["llama"]().rope_parameters),
    "mistral": lambda: T.MistralConfig(**S, **H64, sliding_window=4096), "qwen2": lambda: T.Qwen2Config(**S | dict(num_attention_heads=2, num_key_value_heads=1)),
    "qwen3": lambda: T.Qwen3Config(**S, **H64),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_of_the_decoder_get_the_model(name, monkeypatch, kernels):
    """The launches of a step, their order and their memory, with kernels that PyTorch imitates."""
    monkeypatch.setitem(MODELS, name, KERNELS[name])
    model = made(name, torch.bfloat16)
    ours, plain = load(model, packed=True), load(copy.deepcopy(model).float())
    from buddy.llm.engines import KernelEngine, TorchEngine

    for prompts in [PROMPTS, PROMPTS[1:2]]:
        engine, other = ours.engine(len(prompts), 128), TorchEngine(ours.weights, len(prompts), 128)
        assert isinstance(engine, KernelEngine)
        exact = plain.engine(len(prompts), 128)
        steps = [one.write(prompts, Sampling(), 12) for one in (engine, other, exact)]
        errors = [[], []]
        for turn in range(12):
            del kernels.launches[:]
            for one in steps:
                next(one)
            assert engine.lengths.tolist() == other.lengths.tolist() == [len(ids) + 1 + turn for ids in prompts]
            for error, one in zip(errors, (engine, other)):
                error.append((one.logits.float() - exact.logits).square().mean())
            for one in (engine, other):  # so that all see the same text
                one.replace(exact.chosen)
            heads = 2 if name == "qwen3" and len(prompts) == 1 else 0
            biased = {"llama-biases": 2, "qwen2": 1}.get(name, 0)
            wanted = ["gather", *(["norm", *["biased" if biased else "linear"], *["norm"] * heads, "biased" if biased == 2 else "linear", "norm",
                                   "linear", "linear"] * 3), "norm", "linear", "argmax"]
            assert kernels.launches == (wanted if turn else [])
        ours_error, torch_error = (torch.stack(error).mean().sqrt() for error in errors)
        assert ours_error < 1.15 * torch_error + 1e-4, (ours_error, torch_error)
        assert [one for one in engine.cache.appended if one[0] == 0] == [(0, 0, number) for number in range(len(prompts))], "the first trains windows"


def test_the_kernels_of_the_decoder_write_drawn_tokens(monkeypatch, kernels):
    monkeypatch.setitem(MODELS, "drawn", KERNELS["qwen3"])
    ours = load(made("drawn", torch.bfloat16), packed=True)
    how = dict(temperature=0.7, top_p=0.9, seed=5)
    found = written(ours, PROMPTS, **how)
    assert "argmax" not in kernels.launches and found == written(ours, PROMPTS, **how) != written(ours, PROMPTS)
    assert written(ours, PROMPTS, 6, temperature=2.0, top_k=1) == written(ours, PROMPTS, 6)
    assert "argmax" in kernels.launches


@pytest.mark.parametrize("name, capacity, reason", [
    ("gemma3", 512, "Llama's norms"), ("mistral", 512, "no window"), ("llama", 512, "no bias of gate"), ("llama-tied", 512, "heads of 64 or 128")])
def test_models_that_the_kernels_cannot_run_are_run_by_pytorch(name, capacity, reason, kernels):
    from buddy.llm.engines import TorchEngine, refusal

    ours = load(made(name, torch.bfloat16), packed=True)
    assert reason in refusal(ours.weights, capacity) and type(ours.engine(1, capacity)) is TorchEngine
    assert ours.weights.interleaved and written(ours, PROMPTS) == written(load(made(name, torch.bfloat16)), PROMPTS)
    assert "not all packed" in refusal(load(made(name, torch.bfloat16), packed=False).weights, capacity)


def test_adapters_and_headless_models_are_refused():
    peft = pytest.importorskip("peft")
    with pytest.raises(Unsupported, match="LlamaModel has no head"):
        load(made("llama").model)
    adapted = peft.get_peft_model(made("llama"), peft.LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(Unsupported, match="q_proj is a Linear, not a plain or packed.*merge adapters"):
        load(adapted.get_base_model())
    assert written(load(adapted.merge_and_unload()), PROMPTS[:1])


def test_damaged_folders_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    made("llama-tied", torch.bfloat16).save_pretrained(tmp_path / "plain")
    buddy.pack_model(tmp_path / "plain", tmp_path / "packed")
    file = tmp_path / "packed" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-300] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        load(tmp_path / "packed")
    state = load_file(tmp_path / "plain" / "model.safetensors")
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, tmp_path / "plain" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="lacks 1 weights of its model: model.layers.1.mlp.up_proj.weight"):
        load(tmp_path / "plain")
    (tmp_path / "plain" / "model.safetensors").write_bytes(b"\0" * 40)
    with pytest.raises(Exception, match="(?i)header|safetensor"):
        load(tmp_path / "plain")


def test_a_longer_prompt_gets_another_engine():
    ours, model = load(made("qwen3")), made("qwen3")
    first = ours.engine(1, 10)
    assert ours.engine(1, 500) is first
    long = [(i * 37) % 509 for i in range(700)]
    assert written(ours, [long], 5) == [expected(model, long, 5)]
    assert ours.engine(1, 10).capacity == 1024
