#!/usr/bin/env python3
"""Prints the share of entries of synthetic keys and values that overflow at 4/3x, as a table.

Keys are normal, with a common scale, with outlier channels (a constant offset and noise of that
size, as in trained models), before and after RoPE; values are normal, Laplacian or Student's t.
An entry is 64 values of a token (`by token`), or the same channels of 16 or 64 tokens (`by
channel`). The window is the default one, or trained on the data (`buddy.kv` has one per pool).
`shifted` is the cache that attention reads in place: windows per head and shifts per channel, chosen
by the first 1024 tokens; in brackets the entries outside the window, which it decodes slowly.
"""

import argparse

import torch
from buddy import _native
from buddy.kv import PageFormat, pack_pages
from buddy.torch.ops import span
from buddy.vllm.pages import LayerPages, token_bytes

TOKENS, HEADS, HEAD = 2048, 8, 128
# Base of the angles, as in Llama 3.
BASE = 500_000.0


def rope(keys):
    """Rotates each value with its partner half a head away by an angle of the position."""
    angles = torch.arange(TOKENS)[:, None] * BASE ** (-torch.arange(HEAD // 2) / (HEAD // 2))
    cosine, sine = angles.cos()[:, None], angles.sin()[:, None]
    first, second = keys[..., : HEAD // 2], keys[..., HEAD // 2 :]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


def normal(scale=1.0):
    return scale * torch.randn(TOKENS, HEADS, HEAD)


def outliers(channels, size):
    """Normal keys; in each head some channels are offset by `size` and vary by a tenth of it."""
    keys = normal()
    for head in range(HEADS):
        at = torch.randperm(HEAD)[:channels]
        sign = torch.randint(0, 2, (channels,)) * 2.0 - 1
        keys[:, head, at] = size * (sign + 0.1 * torch.randn(TOKENS, channels))
    return keys


def scaled_channels(spread):
    """Normal, each channel with its own scale: 2 to the power of a normal number times `spread`."""
    return normal() * 2.0 ** (spread * torch.randn(1, HEADS, HEAD))


def cases():
    """Yields the name and the values of each distribution."""
    yield "normal", normal()
    yield "normal, times 1/64", normal(1 / 64)
    yield "normal, times 20", normal(20)
    for channels, size in [(1, 8), (2, 16), (4, 16), (2, 64), (8, 64)]:
        keys = outliers(channels, size)
        yield f"{channels} channels offset by {size}", keys
        yield f"{channels} channels offset by {size}, after RoPE", rope(keys)
    yield "channels' scales 2^N(0, 1)", scaled_channels(1)
    yield "channels' scales 2^N(0, 2)", scaled_channels(2)
    yield "Laplace", torch.distributions.Laplace(0.0, 1.0).sample((TOKENS, HEADS, HEAD))
    yield "Student's t, 3 degrees of freedom", torch.distributions.StudentT(3.0).sample((TOKENS, HEADS, HEAD))
    yield "values 90% zero", normal() * (torch.rand(TOKENS, HEADS, HEAD) < 0.1)


def by_channel(values, tokens):
    """Orders values so that an entry holds the same channels of `tokens` tokens."""
    return values.view(TOKENS // tokens, tokens, HEADS, HEAD).permute(0, 2, 3, 1).contiguous()


def share(values, window=None):
    """Returns the share of the entries that overflow, in percent, and the window."""
    flat = values.bfloat16().contiguous().view(1, -1)
    if window is None:
        window = int(_native.train((-1, 0), "bf16", span(flat)).split(":")[1])
    (slot,) = pack_pages(flat, PageFormat(2 * flat.shape[1], window=window))
    # The count of overflowing sectors in the header, one for each entry.
    return 100 * int(slot[48:52].view(torch.int32)) / (flat.shape[1] / 64), window


def shifted_share(values):
    """Returns the shares of keys that overflow and that are outside the window, in percent."""
    keys, slots = values.bfloat16(), torch.arange(TOKENS)
    pages = LayerPages(torch.zeros(TOKENS // 16, HEADS, 16, token_bytes(HEAD) // 2, dtype=torch.bfloat16), HEAD)
    pages.train(keys, torch.zeros_like(keys), slots)
    pages.append(keys, torch.zeros_like(keys), slots)
    nibbles = pages.region.view(torch.uint8).flatten()[_native.kv_parts(pages.shape)[0] :]
    counts = torch.bincount(torch.cat([nibbles & 15, nibbles >> 4]).int(), minlength=8)
    entries = TOKENS * HEADS * HEAD // 64
    return 100 * int(counts[5]) / entries, 100 - 100 * int(counts[6]) / entries


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    torch.manual_seed(parser.parse_args().seed)
    default = PageFormat(128).window
    print(f"| {HEADS} heads of {HEAD}, {TOKENS} tokens | by token, window {default} | by token, trained | by token, shifted | by channel, 16 tokens | by channel, 64 tokens |")
    print("|---|---|---|---|---|---|")
    for name, values in cases():
        trained, window = share(values)
        found = [share(values, default)[0], trained, *(share(by_channel(values, tokens))[0] for tokens in (16, 64))]
        first, second, *rest = [f"{one:.3g}" for one in found]
        shifted = "{:.3g} ({:.2g})".format(*shifted_share(values))
        print(f"| {name} | {first} | {second} ({window}) | {shifted} | {' | '.join(rest)} |", flush=True)


if __name__ == "__main__":
    main()
