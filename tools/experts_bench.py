#!/usr/bin/env python3
"""Checks and measures packed experts on a GPU of compute capability 9.0, beside plain bf16.

    tools/experts_bench.py check      results against fp32 for every tile, with entries of every layout; graphs; repetition
    tools/experts_bench.py speed      Qwen3 30B-A3B's experts: microseconds of each step, beside torch._grouped_mm
    tools/experts_bench.py prompts    host and GPU time of a prompt on packed layers, plain and packed in turn
    tools/experts_bench.py model      four layers of Qwen3 30B-A3B in Transformers: logits, tokens/s, torch.compile
    tools/experts_bench.py large      builds an 80B mixture (160 GB plain) layer by layer, packed, and generates

Needs the package, PyTorch and for the last two Transformers. Prints one JSON object per line; `--out FILE`
keeps them as a list. `--tiny` runs `large` and `model` with a small model, also on the CPU.
"""

import argparse
import copy
import json
import os
import sys
import time

os.environ.setdefault("BUDDY_EXPERTS", "grouped")

import torch
from torch.nn import functional

from buddy.torch import compress_, grouped
from buddy.torch.experts import pack_experts
from buddy.torch.layers import PackedMatrix

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EXPERTS, TOP, HIDDEN, INTERMEDIATE = 128, 8, 2048, 768
RESULTS = []


def tell(**values):
    RESULTS.append({key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()})
    print(json.dumps(RESULTS[-1]), flush=True)


def weights_of(experts, rows, columns, rare=False):
    """Returns normal weights; if `rare`, some entries that need other layouts or overflow."""
    plain = torch.randn(experts, rows, columns, device=DEVICE) * 0.02
    if rare:
        entries = plain.view(-1, 64)
        entries[::97, 5] = 3e-6
        entries[::89] *= torch.logspace(-4, 2, 64, device=DEVICE)
        entries[::83] = 0
    return plain.bfloat16()


def check_case(experts, rows, columns, tokens, top, tile, rare, dtype):
    plain = weights_of(experts, rows, columns, rare)
    packed = pack_experts(plain)
    x, bias = torch.randn(tokens, columns, device=DEVICE).bfloat16(), torch.randn(experts, rows, device=DEVICE).bfloat16()
    outside = 2 if rare else 0
    ids = torch.randint(-outside, experts + outside, (tokens, top), device=DEVICE).to(dtype)
    ids[: tokens // 2, 0] = min(1, experts - 1)
    grouped.tile_tokens = lambda *_: tile
    route, sorted_rows = torch.ops.buddy.experts_route(x, ids, experts)
    wanted_route, wanted_rows = grouped._route(x, ids, experts)
    count = grouped.HEAD + 4 * int(route[0])
    linear = lambda: torch.ops.buddy.experts_linear(sorted_rows, route, packed.data, bias, packed.codec, experts, rows, columns)
    y, valid = linear(), int(route[1])
    flat, positions = ids.flatten().long(), route[-ids.numel():].long()
    worst = 0.0
    for expert in flat.unique().tolist():
        if 0 <= expert < experts:
            at = (flat == expert).nonzero().squeeze(1)
            wanted = x[at // top].float() @ plain[expert].float().T + bias[expert].float()
            scale = x.float().abs().mean() * plain[expert].float().abs().mean() * columns
            worst = max(worst, ((y[positions[at]].float() - wanted).abs() / (wanted.abs() + 0.05 * scale)).max().item())
    weights = torch.rand(tokens, top, device=DEVICE)
    sums = torch.ops.buddy.experts_combine(y, route, weights)
    tell(check=[experts, rows, columns, tokens, top, tile, rare], worst=worst, good=worst < 0.02,
         repeats=all(torch.equal(linear()[:valid], y[:valid]) for _ in range(3)),
         route=torch.equal(route[:count], wanted_route[:count]) and torch.equal(positions, wanted_route[-ids.numel():].long()),
         rows=torch.equal(sorted_rows, wanted_rows), sums=torch.equal(sums, grouped._combine(y, route, weights)))


def check_joined():
    """SwiGLU in the kernel of w13 against SwiGLU behind it."""
    w13, w2 = weights_of(8, 2 * 128, 256), weights_of(8, 256, 128)
    plain, joined, second = pack_experts(w13), pack_experts(grouped.interleave(w13)), pack_experts(w2)
    for tokens in [1, 5, 40, 300]:
        x, weights = torch.randn(tokens, 256, device=DEVICE).bfloat16(), torch.rand(tokens, 2, device=DEVICE)
        ids = torch.rand(tokens, 8, device=DEVICE).topk(2).indices
        call = lambda first, activation: torch.ops.buddy.experts(x, weights, ids, first.data, None, first.codec, second.data, None, second.codec, 8, 128, activation)
        y, wanted = call(joined, "swiglu"), call(plain, "silu")
        worst = ((y - wanted).abs().max() / wanted.abs().max()).item()
        tell(check=["swiglu", tokens], worst=worst, good=worst < 0.02, repeats=all(torch.equal(call(joined, "swiglu"), y) for _ in range(3)),
             route=True, rows=True, sums=True)


def check():
    usual = grouped.tile_tokens
    for tile in grouped.TILES:
        check_case(6, 400, 512, 150, 2, tile, True, torch.int64)
        check_case(5, 176, 320, 33, 2, tile, True, torch.int32)
    check_case(EXPERTS, 2 * INTERMEDIATE, HIDDEN, 32, TOP, 8, False, torch.int64)
    check_case(EXPERTS, HIDDEN, INTERMEDIATE, 512, TOP, 64, True, torch.int64)
    check_case(512, 64, 128, 4000, 10, 32, True, torch.int64)
    check_case(1, 16, 64, 1, 1, 8, False, torch.int64)
    grouped.tile_tokens = usual
    check_joined()
    names = ["good", "repeats", "route", "rows", "sums"]
    bad = [one["check"] for one in RESULTS if not all(one[name] for name in names)]
    tell(checked=len(RESULTS), bad=bad)
    if bad:
        sys.exit(1)


def graph_time(function, repeats=20):
    """Returns the microseconds of a call from a CUDA graph of `repeats`; `function(i)` uses data i."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function(0), function(1 % repeats)
    torch.cuda.synchronize()
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph, stream=stream):
        for i in range(repeats):
            function(i)
    for _ in range(7):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) * 1e3 / repeats)
    return sorted(times)[len(times) // 2]


def plain_sort(x, ids):
    order, permutation = torch.sort(ids.flatten())
    counts = torch.histc(order.int(), bins=EXPERTS, min=0, max=EXPERTS - 1)
    return x[permutation // TOP], torch.cumsum(counts, 0, dtype=torch.int32), permutation


def plain_experts(x, weights, ids, w13, w2):
    """The experts as Transformers' `grouped_mm` computes them."""
    rows, offsets, permutation = plain_sort(x, ids)
    gate, up = torch._grouped_mm(rows, w13.transpose(-2, -1), offs=offsets).chunk(2, -1)
    y = torch._grouped_mm(functional.silu(gate) * up, w2.transpose(-2, -1), offs=offsets)
    inverse = torch.empty_like(permutation)
    inverse[permutation] = torch.arange(permutation.numel(), device=DEVICE)
    return (y * weights.flatten()[permutation, None])[inverse].view(*ids.shape, HIDDEN).sum(1).to(x.dtype)


def speed():
    w13, w2 = weights_of(EXPERTS, 2 * INTERMEDIATE, HIDDEN), weights_of(EXPERTS, HIDDEN, INTERMEDIATE)
    first, second = pack_experts(grouped.interleave(w13)), pack_experts(w2)
    tell(share=(first.nbytes + second.nbytes) / (w13.nbytes + w2.nbytes))
    usual = grouped.tile_tokens
    for tokens in [1, 8, 32, 128, 512, 2048]:
        repeats = 20 if tokens <= 128 else 5
        data = [(torch.randn(tokens, HIDDEN, device=DEVICE).bfloat16(), torch.rand(tokens, TOP, device=DEVICE),
                 torch.rand(tokens, EXPERTS, device=DEVICE).topk(TOP).indices) for _ in range(repeats)]
        chosen = sum(ids.unique().numel() for _, _, ids in data) / repeats
        sorts, middle = [plain_sort(x, ids) for x, _, ids in data], torch.randn(tokens * TOP, 2 * INTERMEDIATE, device=DEVICE).bfloat16()
        packed = lambda i: torch.ops.buddy.experts(*data[i], first.data, None, first.codec, second.data, None, second.codec, EXPERTS, INTERMEDIATE, "swiglu")
        plain = lambda i: plain_experts(*data[i], w13, w2)
        difference = ((plain(0).float() - packed(0).float()).abs().max() / plain(0).float().abs().max()).item()
        routes = [torch.ops.buddy.experts_route(x, ids, EXPERTS) for x, _, ids in data]
        y = torch.randn(tokens * TOP, HIDDEN, device=DEVICE).bfloat16()
        tell(tokens=tokens, chosen=chosen, difference=difference, plain=graph_time(plain, repeats), packed=graph_time(packed, repeats),
             route=graph_time(lambda i: torch.ops.buddy.experts_route(data[i][0], data[i][2], EXPERTS), repeats),
             combine=graph_time(lambda i: torch.ops.buddy.experts_combine(y, routes[i][0], data[i][1]), repeats))
        half = middle[:, :INTERMEDIATE].contiguous()
        layers = [("w13", first, w13, lambda i: sorts[i][0]), ("w2", second, w2, lambda i: half)]
        for name, matrix, whole, rows_of in layers:
            _, rows, columns = whole.shape
            cost = graph_time(lambda i: torch._grouped_mm(rows_of(i), whole.transpose(-2, -1), offs=sorts[i][1]), repeats)
            for tile in [one for one in grouped.TILES if usual(tokens * TOP, EXPERTS) // 2 <= one <= 2 * usual(tokens * TOP, EXPERTS)]:
                grouped.tile_tokens = lambda *_: tile
                routes = [torch.ops.buddy.experts_route(x, ids, EXPERTS) for x, _, ids in data]
                time_of = graph_time(lambda i: torch.ops.buddy.experts_linear(rows_of(i), routes[i][0], matrix.data, None, matrix.codec, EXPERTS, rows, columns), repeats)
                read = chosen / EXPERTS * matrix.nbytes
                tell(tokens=tokens, layer=name, tile=tile, plain=cost, packed=time_of, gb_per_s=read / time_of / 1e3, faster=cost / time_of)
            grouped.tile_tokens = usual


def prompts():
    shapes = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    plain = torch.nn.ModuleList(torch.nn.Linear(k, n, bias=False, device=DEVICE, dtype=torch.bfloat16) for n, k in shapes).requires_grad_(False)
    packed = compress_(copy.deepcopy(plain))
    for tokens in [512, 2048]:
        xs, found = [torch.randn(tokens, k, device=DEVICE).bfloat16() for _, k in shapes], {"plain": [], "packed": []}
        for _ in range(12):
            for name, layers in [("plain", plain), ("packed", packed)]:
                torch.cuda.synchronize()
                start = time.perf_counter()
                for layer, x in zip(layers, xs):
                    layer(x)
                host = time.perf_counter() - start
                torch.cuda.synchronize()
                found[name].append((host / len(shapes) * 1e6, (time.perf_counter() - start) / len(shapes) * 1e6))
        medians = {f"{name}_{kind}": sorted(values)[len(values) // 2] for name, all in found.items() for kind, values in zip(["host", "whole"], zip(*all[2:]))}
        tell(prompt=tokens, direct=[layer.matrix.plan(x, None) is not None for layer, x in zip(packed, xs)], **medians)


def config_of(tiny, **sizes):
    import transformers

    small = dict(hidden_size=128, num_attention_heads=2, num_key_value_heads=1, head_dim=64, moe_intermediate_size=64, num_experts=8,
                 num_experts_per_tok=2, vocab_size=512, num_hidden_layers=2)
    return transformers.Qwen3MoeConfig(intermediate_size=6144, max_position_embeddings=4096, norm_topk_prob=True, **(small if tiny else sizes))


def initialise(module):
    """Gives a module on the meta device normal weights."""
    module.to_empty(device=DEVICE)
    for name, one in module.named_parameters():
        torch.nn.init.ones_(one) if one.dim() == 1 else torch.nn.init.normal_(one, std=0.02)
        one.requires_grad_(False)


def built(config, pack):
    """Returns a model built layer by layer; `pack` packs each before the next is made."""
    import transformers

    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    torch.manual_seed(1)
    inner = model.model
    for layer in inner.layers:
        initialise(layer)
        if pack:
            compress_(layer)
    for parent, name in [(inner, "embed_tokens"), (inner, "norm"), (model, "lm_head")]:
        initialise(getattr(parent, name))
    inner.rotary_emb = type(inner.rotary_emb)(config).to(DEVICE)
    return compress_(model) if pack else model


def generate_speed(model, tokens=24):
    prompt = torch.arange(8, device=DEVICE)[None] % model.config.vocab_size
    start = time.perf_counter()
    model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
    return tokens / (time.perf_counter() - start)


def model(tiny):
    config = config_of(tiny, hidden_size=HIDDEN, num_hidden_layers=4, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
                       moe_intermediate_size=INTERMEDIATE, num_experts=EXPERTS, num_experts_per_tok=TOP, vocab_size=32000)
    plain, packed = built(config, False), built(config, True)
    ids = torch.randint(0, config.vocab_size, (2, 40), device=DEVICE)
    with torch.no_grad():
        a, b = plain(ids).logits.float(), packed(ids).logits.float()
        found = {"plain": [], "packed": []}
        for _ in range(5):
            for name, one in [("plain", plain), ("packed", packed)]:
                found[name].append(generate_speed(one))
        tell(logits=a.abs().mean().item(), difference=(a - b).abs().mean().item(), **{f"{name}_tokens_per_s": sorted(all)[2] for name, all in found.items()})
        if DEVICE.type == "cuda":
            experts, of = packed.model.layers[1].mlp.experts, plain.model.layers[1].mlp.experts
            x, index = torch.randn(4, config.hidden_size, device=DEVICE).bfloat16(), torch.randint(0, config.num_experts, (4, 2), device=DEVICE)
            weights = torch.rand(4, 2, device=DEVICE)
            tell(in_place=experts._multiplies_in_place(x, index, weights))
            compiled = torch.compile(experts.forward, fullgraph=True, mode="reduce-overhead")
            for _ in range(3):
                y = compiled(x, index, weights)
            tell(compiled_difference=(y.float() - of(x, index, weights).float()).abs().max().item(), of=y.abs().max().item())


def large(tiny):
    config = config_of(tiny, hidden_size=2048, num_hidden_layers=48, num_attention_heads=16, num_key_value_heads=2, head_dim=256,
                       moe_intermediate_size=512, num_experts=512, num_experts_per_tok=10, vocab_size=151936)
    start = time.perf_counter()
    packed = built(config, True)
    matrices = [one for one in packed.modules() if isinstance(one, PackedMatrix)]
    values = sum(torch.Size(one.shape).numel() for one in matrices)
    size = sum(one.data.nbytes for one in matrices) + sum(one.nbytes for one in packed.parameters())
    peak = torch.cuda.max_memory_allocated() if DEVICE.type == "cuda" else 0
    with torch.no_grad():
        generate_speed(packed, 4)
        tell(parameters=values, plain_gb=2 * values / 1e9, packed_gb=size / 1e9, peak_gb=peak / 1e9, build_s=time.perf_counter() - start,
             tokens_per_s=generate_speed(packed))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "speed", "prompts", "model", "large"])
    parser.add_argument("--tiny", action="store_true", help="a small model")
    parser.add_argument("--out", help="file for the results")
    options = parser.parse_args()
    if DEVICE.type == "cpu" and not options.tiny:
        sys.exit("there is no GPU: only `model --tiny` and `large --tiny` run without")
    try:
        {"check": check, "speed": speed, "prompts": prompts}[options.what]() if options.what not in ("model", "large") else \
            {"model": model, "large": large}[options.what](options.tiny)
    finally:
        if options.out:
            with open(options.out, "w") as file:
                file.write("[\n" + ",\n".join(json.dumps(one) for one in RESULTS) + "\n]\n")


if __name__ == "__main__":
    main()
