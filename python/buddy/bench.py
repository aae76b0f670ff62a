"""``python -m buddy.bench decode`` times a decode step on compressed memory against PyTorch on
plain memory; ``load`` times loading a model file to the GPU, plain and packed."""

from __future__ import annotations

import argparse
import json
import sys
import time

import torch
from torch.nn import functional

from .llm import SHAPES, Decoder, PagedCache, loading, packed_layer
from .llm.baseline import BaselineDecoder, norm, rotate
from .llm.decoder import split_gate_up
from .llm.shapes import Shape, matrix, random_layers, rope_table
from .torch import PackedTensor, linear, linear_scratch_bytes, pack_weight

# HBM read bandwidth of an H200 by `buddy gpu bench`, for the bandwidth bound.
READS_GB_S = 4620
WARM_UP, REPEATS = 8, 64


def seconds(replay, count: int = REPEATS) -> float:
    """Returns the seconds of a step: the fastest of three runs of ``count`` steps."""
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
    """Writes the record, finished or not."""
    record["allocated_most"] = torch.cuda.max_memory_allocated()
    if path:
        with open(path, "w") as file:
            json.dump(record, file, indent=1)


class Model:
    """Random weights of a shape on the GPU, packed, and plain too if ``plain``."""

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

    def plain_decoder(self, sequences: int, tokens: int) -> BaselineDecoder:
        return BaselineDecoder(self.shape, self.plain, self.embedding, self.head, self.norm, sequences, tokens)


def fill(shape: Shape, cache: PagedCache, plain: BaselineDecoder | None, tokens: int) -> None:
    """Fills both caches with the same normal keys and values."""
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
    """Returns the largest difference of logits, their standard deviation, and the share of
    sequences with the same token."""
    ours, plain = ours.float(), plain.float()
    return {"most": (ours - plain).abs().max().item(), "spread": plain.std().item(),
            "same_token": (ours.argmax(-1) == plain.argmax(-1)).float().mean().item()}


def decode(model: Model, sequences: int, context: int, compiled: bool = True, count: int = REPEATS) -> dict:
    """Measures one case: decode steps of ``sequences`` sequences from ``context`` tokens on."""
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
    before = [one.clone() for one in [cache.lengths, decoder.entries]]
    decoder.graph.replay()
    if plain is not None:
        plain.tokens.copy_(tokens)
        for name in ["eager", "compiled"] if compiled else ["eager"]:
            plain.capture(name == "compiled")
            plain.graph.replay()
            row[f"difference_to_{name}"] = difference(decoder.logits, plain.logits)
            row[f"plain_{name}_s"] = seconds(plain.graph.replay)
    for one, was in zip([cache.lengths, decoder.entries], before):
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


def forward(shape: Shape, layers: list[dict], multiply, split, x: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
    """Runs all layers on one prompt. ``split`` separates gate and up."""
    tokens, heads = x.shape[0], [shape.heads, shape.kv_heads, shape.kv_heads]
    cos, sin = (torch.cat([one, one], -1).to(torch.bfloat16).unsqueeze(1) for one in rope.unbind(-1))
    for layer in layers:
        qkv = multiply(norm(x, layer["norm"], shape.epsilon), layer["qkv"]).view(tokens, -1, shape.head)
        q, k, v = qkv.split(heads, 1)
        q, k, v = (one.transpose(0, 1).unsqueeze(0) for one in [rotate(q, cos, sin), rotate(k, cos, sin), v])
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + multiply(out[0].transpose(0, 1).reshape(tokens, -1), layer["o"])
        gate, up = split(multiply(norm(x, layer["inner_norm"], shape.epsilon), layer["gate_up"]))
        x = x + multiply(functional.silu(gate) * up, layer["down"])
    return x


def prefill(model: Model, tokens: int) -> dict:
    """Times the prefill of a prompt. Everything but the linear layers is PyTorch's in both."""
    shape = model.shape
    x = torch.randn(tokens, shape.hidden, device="cuda").to(torch.bfloat16)
    rope = rope_table(shape, tokens, "cuda")
    kinds = {one.shape: one for one in model.packed[0].values() if isinstance(one, PackedTensor)}
    scratch = {size: torch.zeros(linear_scratch_bytes(one, tokens), dtype=torch.uint8, device="cuda") for size, one in kinds.items()}
    ours = lambda: forward(shape, model.packed, lambda x, w: linear(x, w, scratch=scratch[w.shape]), split_gate_up, x, rope)
    row = {"prefill": tokens, "buddy_s": seconds(ours, 4)}
    if model.plain:
        plain = lambda: forward(shape, model.plain, functional.linear, lambda both: both.chunk(2, -1), x, rope)
        row["plain_s"] = seconds(plain, 4)
        row["difference"] = difference(ours(), plain())
    return row


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m buddy.bench", description=__doc__)
    parser.add_argument("what", choices=["decode", "load"], help="a decode step, or loading a model file to the GPU")
    parser.add_argument("--matrices", type=int, default=64, help="number of 33.6 MB matrices in the loaded file")
    parser.add_argument("--shape", choices=SHAPES, default="llama-8b")
    parser.add_argument("--cases", default="1x1024,8x1024,32x1024", help="sequences x tokens, comma-separated")
    parser.add_argument("--prefill", type=int, default=0, help="also measure the prefill of a prompt of this many tokens")
    parser.add_argument("--tokens", type=int, default=REPEATS, help="tokens to decode in each of three timed runs")
    parser.add_argument("--no-plain", action="store_true", help="measure Buddy alone, where the plain model does not fit")
    parser.add_argument("--eager", action="store_true", help="skip the compiled baseline")
    parser.add_argument("--json", help="write the record to this file")
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
