"""``python -m buddy.bench decode``: a decode step from compressed memory beside PyTorch on plain memory, in one run; ``load``: a
model's file to the GPU, plain and packed."""

from __future__ import annotations

import argparse
import json
import sys
import time

import torch
from torch.nn import functional

from .llm import SHAPES, Decoder, PagedCache, loading, packed_layer
from .llm.decoder import gates_and_values
from .llm.plain import PlainDecoder, norm, rotate
from .llm.shapes import Shape, matrix, random_layers, turns
from .torch import PackedTensor, linear, linear_room, pack_weight

# What a kernel reads of HBM on an H200, measured by `buddy gpu bench`: the bound that bytes set.
READS_GB_S = 4620
WARM_UP, REPEATS = 8, 64


def seconds(replay, count: int = REPEATS) -> float:
    """Seconds of a step, the fastest of three runs of some."""
    for _ in range(WARM_UP):
        replay()
    best = float("inf")
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            replay()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1000 / count)
    return best


def say(row: dict) -> None:
    print(json.dumps(row), flush=True)


def save(record: dict, path: str | None) -> None:
    """Writes the record as far as it is."""
    record["allocated_most"] = torch.cuda.max_memory_allocated()
    if path:
        with open(path, "w") as file:
            json.dump(record, file, indent=1)


class Model:
    """Weights of a shape on the card: packed, and plain beside them if asked for."""

    def __init__(self, shape: Shape, plain: bool, device: str = "cuda"):
        generator = torch.Generator(device=device).manual_seed(1)
        started = time.perf_counter()
        self.shape, self.plain, self.packed = shape, [], []
        for layer in random_layers(shape, generator):
            self.packed.append(packed_layer(layer))
            if plain:
                self.plain.append(layer)
        self.embedding = matrix(shape.vocabulary, shape.hidden, generator)
        self.packed_embedding = pack_weight(self.embedding)
        self.embedding = self.embedding if plain else None
        self.head = matrix(shape.vocabulary, shape.hidden, generator)
        self.packed_head = pack_weight(self.head)
        self.head = self.head if plain else None
        self.norm = torch.ones(shape.hidden, dtype=torch.bfloat16, device=device)
        torch.cuda.synchronize()
        self.seconds = time.perf_counter() - started

    def decoder(self, cache: PagedCache) -> Decoder:
        return Decoder(self.shape, self.packed, self.packed_embedding, self.packed_head, self.norm, cache)

    def plain_decoder(self, sequences: int, tokens: int) -> PlainDecoder:
        return PlainDecoder(self.shape, self.plain, self.embedding, self.head, self.norm, sequences, tokens)


def fill(shape: Shape, cache: PagedCache, plain: PlainDecoder | None, tokens: int) -> None:
    """Normal keys and values for the first tokens: the same in both, layer by layer."""
    generator = torch.Generator(device="cuda").manual_seed(2)
    for layer in range(shape.layers):
        for first in range(0, tokens, 8192):
            size = (cache.sequences, min(8192, tokens - first), shape.kv_heads, shape.head)
            keys, values = (torch.randn(size, generator=generator, device="cuda").to(torch.bfloat16) for _ in range(2))
            cache.append(layer, keys, values, first)
            if plain is not None:
                plain.keys[layer][:, :, first : first + size[1]] = keys.transpose(1, 2)
                plain.values[layer][:, :, first : first + size[1]] = values.transpose(1, 2)


def difference(ours: torch.Tensor, plain: torch.Tensor) -> dict:
    """How far scores are apart, beside how far they spread; and how many sequences choose the same token."""
    ours, plain = ours.float(), plain.float()
    return {"most": (ours - plain).abs().max().item(), "spread": plain.std().item(),
            "same_token": (ours.argmax(-1) == plain.argmax(-1)).float().mean().item()}


def decode(model: Model, sequences: int, context: int, compiled: bool = True, count: int = REPEATS) -> dict:
    """One case: steps of so many sequences with so many tokens each, and on from there."""
    shape, room = model.shape, context + 3 * count + WARM_UP + 8
    row = {"sequences": sequences, "context": context, "written": 3 * count + WARM_UP}
    cache = PagedCache(shape.layers, shape.kv_heads, shape.head, sequences, room)
    plain = model.plain_decoder(sequences, context) if model.plain else None
    fill(shape, cache, plain, context - 1)
    decoder = model.decoder(cache)
    tokens = torch.arange(sequences, device="cuda")
    cache.lengths.fill_(context - 1)
    decoder.ask(tokens)
    decoder.capture()
    kept = [one.clone() for one in [cache.lengths, decoder.entries]]
    decoder.graph.replay()
    if plain is not None:
        plain.tokens.copy_(tokens)
        for name in ["eager", "compiled"] if compiled else ["eager"]:
            plain.capture(name == "compiled")
            plain.graph.replay()
            row[f"difference_to_{name}"] = difference(decoder.scores, plain.scores)
            row[f"plain_{name}_s"] = seconds(plain.graph.replay)
    for one, was in zip([cache.lengths, decoder.entries], kept):
        one.copy_(was)
    row["buddy_s"] = seconds(decoder.graph.replay, count)
    free, total = torch.cuda.mem_get_info()
    row |= {"card_used": total - free, "card": total}
    read = decoder.weight_bytes - model.packed_embedding.nbytes + int(cache.entries.numel() * context / cache.capacity)
    row |= {"buddy_bytes": read, "plain_bytes": shape.weight_bytes + sequences * shape.kv_bytes(context),
            "weights": decoder.weight_bytes, "cache": cache.device_bytes, "plain_cache": sequences * shape.kv_bytes(context)}
    for name in ["buddy", "plain"]:
        row[f"{name}_bound_s"] = row[f"{name}_bytes"] / READS_GB_S / 1e9
    for name in ["buddy", "plain_eager", "plain_compiled"]:
        if f"{name}_s" in row:
            row[f"{name}_tokens_s"] = sequences / row[f"{name}_s"]
    return row


def forward(shape: Shape, layers: list[dict], multiply, halves, x: torch.Tensor, turned: torch.Tensor) -> torch.Tensor:
    """All layers on the tokens of one prompt. ``halves`` takes gates and values apart."""
    tokens, heads = x.shape[0], [shape.heads, shape.kv_heads, shape.kv_heads]
    cos, sin = (torch.cat([one, one], -1).to(torch.bfloat16).unsqueeze(1) for one in turned.unbind(-1))
    for layer in layers:
        qkv = multiply(norm(x, layer["norm"], shape.epsilon), layer["qkv"]).view(tokens, -1, shape.head)
        q, k, v = qkv.split(heads, 1)
        q, k, v = (one.transpose(0, 1).unsqueeze(0) for one in [rotate(q, cos, sin), rotate(k, cos, sin), v])
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + multiply(out[0].transpose(0, 1).reshape(tokens, -1), layer["o"])
        gate, up = halves(multiply(norm(x, layer["inner_norm"], shape.epsilon), layer["gate_up"]))
        x = x + multiply(functional.silu(gate) * up, layer["down"])
    return x


def prefill(model: Model, tokens: int) -> dict:
    """A prompt of so many tokens through all layers: everything but the products is the same, PyTorch's."""
    shape = model.shape
    x = torch.randn(tokens, shape.hidden, device="cuda").to(torch.bfloat16)
    turned = turns(shape, tokens, "cuda")
    kinds = {one.shape: one for one in model.packed[0].values() if isinstance(one, PackedTensor)}
    scratch = {size: torch.zeros(linear_room(one, tokens), dtype=torch.uint8, device="cuda") for size, one in kinds.items()}
    ours = lambda: forward(shape, model.packed, lambda x, w: linear(x, w, scratch=scratch[w.shape]), gates_and_values, x, turned)
    row = {"prefill": tokens, "buddy_s": seconds(ours, 4)}
    if model.plain:
        plain = lambda: forward(shape, model.plain, functional.linear, lambda both: both.chunk(2, -1), x, turned)
        row["plain_s"] = seconds(plain, 4)
        row["difference"] = difference(ours(), plain())
    return row


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m buddy.bench", description=__doc__)
    parser.add_argument("what", choices=["decode", "load"], help="a decode step, or a model's file to the GPU")
    parser.add_argument("--matrices", type=int, default=64, help="matrices of 33.6 MB in the file that is loaded")
    parser.add_argument("--shape", choices=SHAPES, default="llama-8b")
    parser.add_argument("--cases", default="1x1024,8x1024,32x1024", help="sequences x tokens, with commas")
    parser.add_argument("--prefill", type=int, default=0, help="also measure a prompt of so many tokens")
    parser.add_argument("--tokens", type=int, default=REPEATS, help="tokens that are written three times, each timed")
    parser.add_argument("--no-plain", action="store_true", help="measure Buddy alone, where plain does not fit")
    parser.add_argument("--eager", action="store_true", help="leave the compiled plain step out")
    parser.add_argument("--json", help="write the record here")
    asked = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("buddy.bench: no GPU here", file=sys.stderr)
        return 1
    if asked.what == "load":
        record = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__} | loading.measure(asked.matrices)
        say(record)
        save(record, asked.json)
        return 0
    model = Model(SHAPES[asked.shape], not asked.no_plain)
    record = {"shape": asked.shape, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
              "making_and_packing_s": model.seconds, "cases": [],
              "plain_weights": model.shape.weight_bytes + 2 * model.shape.hidden * model.shape.vocabulary}
    for case in filter(None, asked.cases.split(",")):
        sequences, context = map(int, case.split("x"))
        row = decode(model, sequences, context, not asked.eager, asked.tokens)
        say(row)
        record["cases"].append(row)
        save(record, asked.json)
    if asked.prefill:
        record["prefill"] = prefill(model, asked.prefill)
        say(record["prefill"])
    save(record, asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
