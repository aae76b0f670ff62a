"""Launches of `buddy.llm` with a Transformers model. Run by test_linear_plan.py in a process of its
own."""

import ctypes
import struct
import types

import pytest
import torch

import fake
from buddy import _native
from buddy.llm import Sampling, cache, decoder, engines
from buddy.llm import model as loop

transformers = pytest.importorskip("transformers")

# For good: caches are dropped after a test, too.
cache.unpin = torch.cuda.synchronize = lambda *_: None

DEVICE = (0, 5)
S = dict(vocab_size=512, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64)
CONFIGS = {"llama": lambda: transformers.LlamaConfig(**S, attention_bias=True), "qwen3": lambda: transformers.Qwen3Config(**S),
           "qwen2": lambda: transformers.Qwen2Config(**{**S, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64})}


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    return fake.load(tmp_path_factory.mktemp("driver"))


class Recorder:
    """The native functions; keeps the kernel and the arguments of each call's last launch."""

    def __init__(self, driver):
        self.driver, self.calls = driver, []

    def __getattr__(self, name):
        function = getattr(_native, name)

        def call(*arguments):
            before = ctypes.c_int.in_dll(self.driver, "fake_launches").value
            found = function(*arguments)
            if ctypes.c_int.in_dll(self.driver, "fake_launches").value > before:
                kernel = ctypes.c_char_p.in_dll(self.driver, "fake_kernel").value.decode()
                overlaps = ctypes.c_int.in_dll(self.driver, "fake_overlaps").value
                self.calls.append((name, kernel, overlaps, bytes((ctypes.c_ubyte * 96).in_dll(self.driver, "fake_view"))))
            return found

        return call


def filled():
    """Returns a function that takes the place of `torch.zeros` and `torch.empty`."""
    def make(*size, dtype=torch.float32, device=None, **_):
        size = torch.Size(size[0] if isinstance(size[0], (tuple, list, torch.Size)) else size)
        memory = fake.aligned(max(size.numel(), 1) * dtype.itemsize)
        return memory[: size.numel() * dtype.itemsize].view(dtype).view(size)

    return make


@pytest.fixture
def natives(driver, monkeypatch):
    """Lets CPU tensors count as those of GPU 0; memory is aligned as a GPU's."""
    recorder = Recorder(driver)
    for module in (cache, decoder):
        monkeypatch.setattr(module, "_native", recorder)
        monkeypatch.setattr(module, "device_and_stream", lambda tensor: DEVICE)
    monkeypatch.setattr(decoder, "linear_scratch_bytes", lambda weight, tokens: _native.linear_scratch_bytes(
        DEVICE, (weight.codec, weight.target, weight.row), weight.plain_bytes, tokens))
    monkeypatch.setattr(cache, "pinned", fake.aligned)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: types.SimpleNamespace(total_memory=1 << 37))
    monkeypatch.setattr(loop, "has_kernels", lambda device: True)
    monkeypatch.setattr(engines, "on_hopper", lambda weight: True)
    return recorder


def aligned_weights(weights):
    """Moves what kernels read to memory that is aligned as a GPU's."""
    for one in [weights.embedding, weights.head, *(getattr(layer, name) for layer in weights.layers for name in decoder.MATRICES)]:
        one.matrix.data = fake.aligned(one.matrix.data.numel()).copy_(one.matrix.data)
        if getattr(one, "bias", None) is not None:
            one.bias.data = filled()(one.bias.shape, dtype=torch.bfloat16).copy_(one.bias)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("sequences", [1, 2])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_step_launches_the_kernels_of_each_layer_on_its_memory(natives, monkeypatch, name, sequences, temperature):
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.bfloat16).eval()
    ours = loop.load(model, packed=True)
    weights = ours.weights
    aligned_weights(weights)
    monkeypatch.setattr(torch, "zeros", filled())
    monkeypatch.setattr(torch, "empty", filled())
    engine = ours.engine(sequences, 64)
    assert type(engine) is engines.KernelEngine
    steps = engine.write([[3, 1, 4, 1, 5], [9, 2]][:sequences], Sampling(temperature), 3)
    next(steps)
    called = [call[0] for call in natives.calls]
    assert called.count("kv_train") == 2 and called.count("kv_append") == 2 * sequences, "one training for each layer, one append for each prompt"
    del natives.calls[:]
    next(steps)
    names = [call[0] for call in natives.calls]
    norms = ["decode_norm"] * (2 if name == "qwen3" and sequences == 1 else 0)
    qkv, o = ("linear" if weights.layers[0].qkv.bias is not None else "linear_prefetched"), ("linear" if name == "llama" else "linear_prefetched")
    layer = ["decode_norm", qkv, *norms, "kv_append_attend", o, "decode_norm", "linear_prefetched", "linear_prefetched"]
    assert names == ["gather", *layer * 2, "decode_norm", "linear_prefetched"] + ([] if temperature else ["decode_argmax"])
    assert all(overlaps for call, _, overlaps, _ in natives.calls if call != "gather"), "each kernel may begin before the previous one has ended"
    views, at = {}, iter(natives.calls)
    for call, _, _, view in at:
        views.setdefault(call, []).append(view)
    decode = engine.decoder
    if norms:
        shape = weights.shape
        for number, one in enumerate(weights.layers):
            for part, (norm, first, count) in enumerate([(one.q_norm, 0, shape.heads), (one.k_norm, shape.heads, shape.kv_heads)]):
                stream, _, added, weight, out, chunks, epsilon = struct.unpack("<5QIf", views["decode_norm"][4 * number + 1 + part][:48])
                there = decode.qkv.data_ptr() + 2 * first * shape.head
                assert (stream, added, weight, out, chunks) == (there, 0, norm.weight.data_ptr(), there, shape.head // 8)
                assert epsilon == pytest.approx(weights.shape.epsilon)
    linears = [view for call, _, _, view in natives.calls if call.startswith("linear")]
    wanted = []
    for one in weights.layers:
        wanted += [(one.qkv, decode.x, decode.qkv), (one.o, decode.attended, decode.y), (one.gate_up, decode.x, decode.inner), (one.down, decode.inner, decode.y)]
    for view, (one, x, y) in zip(linears, [*wanted, (weights.head, decode.x, decode.logits)], strict=True):
        found = struct.unpack("<4Q2I3Q", view[:64])
        assert found[0] == one.matrix.data.data_ptr() + 128
        assert found[6:] == (x.data_ptr(), one.bias.data_ptr() if one.bias is not None else 0, y.data_ptr())
