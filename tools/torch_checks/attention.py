"""RoPE, append and attention of a new token in one launch."""

import torch

from buddy import _native
from buddy.llm import PagedCache
from buddy.torch.ops import span

from . import GPU, same


def right_angle_rope(positions, half):
    """Returns a RoPE table of right angles: all arithmetic is exact."""
    which = torch.randint(0, 4, (positions, half), device=GPU)
    return torch.stack([torch.tensor([1.0, 0, -1, 0], device=GPU)[which], torch.tensor([0, 1.0, 0, -1], device=GPU)[which]], -1).contiguous()


def apply_rope(x, table):
    """Rotates heads (sequences, heads, head dimension) by the rows (sequences, half, 2) of a
    table."""
    first, second = x.float().chunk(2, -1)
    cos, sin = (one.unsqueeze(1) for one in table.unbind(-1))
    return torch.cat([first * cos + -second * sin, second * cos + first * sin], -1).bfloat16()


def check_append_attend_equals_rope_append_and_attend():
    """One launch gives the bits of RoPE, append and attention one after another."""
    for head, heads, group, sequences, capacity in [(128, 8, 4, 1, 1100), (128, 8, 4, 8, 320), (64, 4, 1, 3, 700), (64, 2, 16, 2, 100), (128, 2, 8, 40, 200)]:
        caches = [PagedCache(1, heads, head, sequences, capacity) for _ in range(2)]
        old = torch.randn(2, sequences, capacity - 40, heads, head, device=GPU).bfloat16()
        old[:, :, ::9] *= 1e-6
        lengths = torch.randint(1, capacity - 40, (sequences,), dtype=torch.int32, device=GPU)
        lengths[0] = capacity - 40
        for cache in caches:
            cache.append(0, old[0], old[1], 0)
            cache.lengths.copy_(lengths)
        table = right_angle_rope(capacity, head // 2)
        for step in range(34):
            rows = torch.randn(sequences, group + 2, heads, head, device=GPU).bfloat16()
            if step % 3 == 0:
                rows[..., ::7] *= 1e-7  # beyond a window of exponents
            if step % 5 == 4:
                rows[:, group:, :, step:] = 0
            queries, keys, values = rows.view(sequences, -1, head).split([heads * group, heads, heads], 1)
            results = [torch.full((sequences, heads * group * head), 7.0, dtype=torch.bfloat16, device=GPU) for _ in caches]
            for cache in caches:
                cache.lengths += 1
            at = (caches[0].lengths - 1).long()
            caches[0].append_attend(0, rows, table, results[0], head**-0.5)
            pages = caches[1].table[torch.arange(sequences, device=GPU), at // 64].long() * 64 + at % 64
            plain = apply_rope(keys, table[at]).contiguous(), values.contiguous()
            _native.kv_append(caches[1].where, caches[1].native, (span(plain[0]), span(plain[1]), 0, heads * head, 0, 1, sequences), span(pages))
            caches[1].attend(0, apply_rope(queries, table[at]).reshape(sequences, -1), results[1], head**-0.5)
            same(*results)
        for one, other in zip(*(cache.read(0, capacity - 6) for cache in caches)):
            same(one, other)
