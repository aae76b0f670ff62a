#!/usr/bin/env python3
"""Compares attention over packed pages with vLLM's FlashAttention over plain ones, a layer of
Llama 3 8B's shapes at a time: bits, error beside double precision, time, and entries that overflow.

    tools/kv_attention_check.py [--tokens 32768] [--sequences 8] [--out record.json]

Keys and values are normal, or have columns that are larger than the others, before and after RoPE.
Each line is one distribution. Needs a GPU with vLLM; `--trained off` fixes the windows and no
column has a shift.
"""

import argparse
import json
import pathlib
import statistics
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kv_overflow
from buddy import _native
from buddy.vllm.pages import LayerPages, scratch_bytes, token_bytes

HEADS, GROUP, HEAD, BLOCK = 8, 4, 128, 16
RAW = 5


def distributions():
    """Yields names and functions that return one sequence's values: (tokens, heads, head dimension)."""
    yield "normal", lambda: kv_overflow.normal()
    for channels, size in [(1, 8), (2, 16), (4, 64)]:
        # The same channels in all sequences, as in a trained model.
        signs = torch.zeros(1, HEADS, HEAD)
        for head in range(HEADS):
            signs[0, head, torch.randperm(HEAD)[:channels]] = torch.randint(0, 2, (channels,)) * 2.0 - 1

        def keys(signs=signs, size=size):
            noise = kv_overflow.normal()
            return torch.where(signs.cuda() == 0, noise, size * (signs.cuda() + 0.1 * noise))

        yield f"{channels} channels offset by {size}", keys
        yield f"{channels} channels offset by {size}, after RoPE", lambda keys=keys: kv_overflow.rope(keys())
    for spread in (1, 2):
        scales = 2.0 ** (spread * torch.randn(1, HEADS, HEAD))
        yield f"channels' scales 2^N(0, {spread})", lambda s=scales: kv_overflow.normal() * s.cuda()


def milliseconds(run, repeats=20):
    """Returns the median time of a call, replayed from a graph."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def exact(queries, keys, values, scale):
    """Attention of one token in double precision: queries (heads, head), keys (tokens, heads, head)."""
    keys, values = (one.double().transpose(0, 1) for one in (keys, values))
    grouped = queries.double().view(HEADS, GROUP, HEAD)
    return (torch.softmax(grouped @ keys.transpose(1, 2) * scale, -1) @ values).view(-1, HEAD)


def check(name, draw, asked):
    from vllm.vllm_flash_attn import flash_attn_varlen_func

    tokens, sequences, device = asked.tokens, asked.sequences, "cuda"
    blocks, scale = tokens // BLOCK, HEAD**-0.5
    kv_overflow.TOKENS, kv_overflow.HEADS = tokens, HEADS
    torch.set_default_device(device)
    keys = torch.stack([draw() for _ in range(sequences)]).bfloat16()
    values = torch.randn(sequences, tokens, HEADS, HEAD).bfloat16()
    queries = torch.randn(sequences, HEADS * GROUP, HEAD).bfloat16()
    table = torch.randperm(sequences * blocks, dtype=torch.int32).view(sequences, blocks)
    torch.set_default_device("cpu")
    lengths = torch.full((sequences,), tokens, dtype=torch.int32, device=device)
    region = torch.zeros(sequences * blocks, HEADS, BLOCK, token_bytes(HEAD) // 2, dtype=torch.bfloat16, device=device)
    pages = LayerPages(region, HEAD, None if asked.trained == "on" else 117)
    slots = (table.long()[:, :, None] * BLOCK + torch.arange(BLOCK, device=device)).view(sequences, tokens)
    for i in range(sequences):
        pages.train(keys[i], values[i], slots[i])
        pages.append(keys[i], values[i], slots[i])
    same = all(torch.equal(one, two) for i in range(sequences) for one, two in zip(pages.read_new(table[i], tokens), (keys[i], values[i])))
    nibbles = pages.region.view(torch.uint8).flatten()[_native.kv_parts(pages.shape)[0] :]
    counts = torch.bincount(torch.cat([nibbles & 15, nibbles >> 4]).int(), minlength=8)
    share = lambda count: float(count) / (sequences * tokens * HEADS * 4)
    scratch = torch.zeros(scratch_bytes(region, HEADS, HEAD, sequences), dtype=torch.uint8, device=device)
    out, other = torch.empty_like(queries), torch.empty_like(queries)
    plain = [torch.empty(sequences * blocks, BLOCK, HEADS, HEAD, dtype=torch.bfloat16, device=device) for _ in range(2)]
    for to, of in zip(plain, (keys, values)):
        to[table.long().flatten()] = of.view(-1, BLOCK, HEADS, HEAD)
    starts = torch.arange(sequences + 1, dtype=torch.int32, device=device)

    def attend():
        pages.attend(queries, out, table, lengths, scale, scratch)

    def flash():
        flash_attn_varlen_func(q=queries, k=plain[0], v=plain[1], out=other, cu_seqlens_q=starts, seqused_k=lengths, max_seqlen_q=1,
                               max_seqlen_k=tokens, softmax_scale=scale, causal=True, block_table=table, fa_version=3)

    ours, theirs = milliseconds(attend), milliseconds(flash)
    wanted = torch.stack([exact(queries[i], keys[i], values[i], scale) for i in range(sequences)])
    error = lambda found: float((found.double() - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())
    return {"keys": name, "bits_are_equal": same, "overflow": share(counts[RAW]), "not_in_window": share(counts.sum() - counts[RAW + 1]),
            "error": error(out), "error_of_flash_attention": error(other), "ms": ours, "ms_of_flash_attention": theirs, "ratio": theirs / ours}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--trained", choices=["on", "off"], default="on")
    parser.add_argument("--out")
    asked = parser.parse_args()
    torch.manual_seed(1)
    found = []
    for name, draw in distributions():
        found.append(check(name, draw, asked))
        print(json.dumps(found[-1]), flush=True)
    if asked.out:
        record = {"kind": "kv-attention", "gpu": torch.cuda.get_device_name(), "asked": vars(asked), "results": found}
        pathlib.Path(asked.out).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
