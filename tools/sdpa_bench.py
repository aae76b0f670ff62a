#!/usr/bin/env python3
"""Times PyTorch's decode attention on plain bf16, for comparison with `buddy gpu attention`.

Each argument is SEQUENCES,TOKENS,HEADS,GROUP,VALUES: KV heads, query heads per KV head, head
dimension. Tries every backend of scaled_dot_product_attention, with the heads of a group as heads
and as query positions (the same sums), and with keys and values by head and by token. Times are
medians of graphs of five calls; the L2 cache stays cold if keys and values exceed it.
"""

import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
CALLS, GROUPS = 5, 7


def timed(call):
    """Returns the median microseconds of a call, in a graph."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    times = []
    for _ in range(GROUPS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000 / CALLS)
    return statistics.median(times)


def forms(sequences, tokens, heads, group, values):
    """Yields every equivalent call: a name, the three tensors, whether heads are grouped."""
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    keys, worth = make(sequences, heads, tokens, values), make(sequences, heads, tokens, values)
    query = make(sequences, heads * group, 1, values)
    positions = query.view(sequences, heads, group, values)
    by_token = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (keys, worth)]
    for order, (k, v) in {"by head": (keys, worth), "by token": by_token}.items():
        yield f"grouped heads, {order}", query, k, v, True
        yield f"positions, {order}", positions, k, v, False


def measure(*shape):
    best = None
    for form, q, k, v, grouped in forms(*shape):
        for name, backend in BACKENDS.items():
            try:
                with sdpa_kernel(backend):
                    time = timed(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped))
            except RuntimeError as error:
                print(f"{name}, {form}: not there ({str(error).splitlines()[0]})")
                continue
            print(f"{name}, {form}: {time:.1f} us")
            best = min(best or (time, ""), (time, f"{name}, {form}"))
    print(f"best of {shape}: {best[0]:.1f} us by {best[1]}")


if __name__ == "__main__":
    for argument in sys.argv[1:] or ["8,32768,8,4,128"]:
        measure(*map(int, argument.split(",")))
