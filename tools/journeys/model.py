"""Writes a small Llama-like model in hub layout: bf16 shards with their index, a configuration, a
tokenizer.

    model.py FOLDER

Weights are normal with a scale per row, similar to trained models. Nothing is downloaded.
"""

import json
import pathlib
import sys

import numpy

HIDDEN, INNER, KEYS, LAYERS, WORDS = 512, 1408, 128, 4, 4096
MATRICES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (KEYS, HIDDEN), "self_attn.v_proj": (KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER), "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,),
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_size": HIDDEN,
    "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 1, "vocab_size": WORDS,
}


def shapes():
    yield "model.embed_tokens.weight", (WORDS, HIDDEN)
    for layer in range(LAYERS):
        for name, shape in MATRICES.items():
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (WORDS, HIDDEN)


def weights(random, shape):
    """Returns the upper half of each float, which is its bf16."""
    values = random.standard_normal(shape, dtype=numpy.float32)
    scale = 0.02 * numpy.exp(0.3 * random.standard_normal((shape[0], 1), dtype=numpy.float32))
    values = 1 + 0.1 * values if len(shape) == 1 else scale * values
    return (values.view(numpy.uint32) >> 16).astype(numpy.uint16)


def write_shard(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors:
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(values.tobytes() for _, values in tensors))


def main(folder):
    folder.mkdir()
    random = numpy.random.default_rng(1)
    tensors = [(name, weights(random, shape)) for name, shape in shapes()]
    half, places = len(tensors) // 2, {}
    for number, part in enumerate([tensors[:half], tensors[half:]], 1):
        shard = f"model-{number:05}-of-00002.safetensors"
        write_shard(folder / shard, part)
        places |= {name: shard for name, _ in part}
    index = {"metadata": {"total_size": sum(values.nbytes for _, values in tensors)}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "BPE"}}')


main(pathlib.Path(sys.argv[1]))
