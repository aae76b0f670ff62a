"""The operators of packed experts: ``experts``, and its steps ``experts_route``, ``experts_linear``
and ``experts_combine``.

An assignment is one of a token's ``k`` experts. ``experts_route`` sorts the assignments by expert
and gathers their rows of x; ``experts_linear`` multiplies each expert's rows by its packed matrix;
``experts_combine`` adds up each token's results. On a GPU of compute capability 9.0 no step waits
for the host, so all of them can be captured in a graph, and only chosen experts are read. Elsewhere
each chosen expert is unpacked and multiplied by PyTorch.

The environment variable ``BUDDY_EXPERTS`` selects: ``grouped`` uses the kernels in packed modules
too, ``unpack`` nowhere; by default the operators use them, packed modules do not.
"""

import functools
import os

import torch
from torch.nn import functional

from .. import _native
from .ops import LIBRARY, TAGS, _zeros, call_native, check_packed, entries_per_row, span

# x: (tokens, hidden), bf16. weights, ids: (tokens, k); ids outside 0 to experts - 1 are skipped.
# w13: (experts, 2 * intermediate, hidden), packed, gates first, then up rows; w2: (experts, hidden,
# intermediate), packed. Biases: (experts, rows). activation: a name in `ACTIVATIONS`; or `swiglu`, for
# w13 from `interleave` without a bias: silu in the kernel of w13.
LIBRARY.define("experts(Tensor x, Tensor weights, Tensor ids, Tensor w13, Tensor? bias13, str codec13, Tensor w2, Tensor? bias2, str codec2, "
               "SymInt experts, SymInt intermediate, str activation) -> Tensor", tags=TAGS)
# Returns a route (int32) and the rows of x by position. A route holds the number of groups, that of
# valid assignments, two zeros; for each group an expert, its first and last position (exclusive)
# and a zero; and for each assignment its position. Invalid assignments come last.
LIBRARY.define("experts_route(Tensor x, Tensor ids, SymInt experts) -> (Tensor, Tensor)", tags=TAGS)
LIBRARY.define("experts_linear(Tensor rows, Tensor route, Tensor packed, Tensor? bias, str codec, SymInt experts, SymInt outputs, SymInt inputs) "
               "-> Tensor", tags=TAGS)
LIBRARY.define("experts_combine(Tensor rows, Tensor route, Tensor weights) -> Tensor", tags=TAGS)

ACTIVATIONS = {"silu": functional.silu, "gelu": functional.gelu, "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
               "relu": functional.relu}
MODE = os.environ.get("BUDDY_EXPERTS", "")
if MODE not in ("", "grouped", "unpack"):
    raise ValueError(f"BUDDY_EXPERTS is {MODE!r}; it may be 'grouped' or 'unpack'")
# Numbers of tokens of a tile of the kernel; the largest that is chosen, as 256 is slower (w13 of 2048
# tokens on an H200: 482 µs instead of 334); and the words before the groups of a route.
TILES, MOST_CHOSEN, HEAD = (8, 16, 32, 64, 128, 256), 128, 4


def tile_tokens(assignments, experts):
    """Returns the most tokens of a group: twice an expert's mean."""
    wanted = 2 * assignments / min(experts, max(assignments, 1))
    return next((tile for tile in TILES if tile >= wanted or tile == MOST_CHOSEN))


def route_groups(assignments, experts):
    """Returns the groups that a route has room for, whatever the tile."""
    return experts + assignments // TILES[0]


def unpack_chosen(chosen, packed, codec, experts, rows, columns):
    """Returns the plain matrices of the chosen experts. Reads no others."""
    ids = chosen.unsqueeze(1) * rows + torch.arange(rows, device=chosen.device)
    return torch.ops.buddy.embedding(ids, packed, codec, experts * rows, columns)


def check_rows(rows, packed, bias, experts, outputs, inputs):
    """Raises ``ValueError`` unless the arguments of ``experts_linear`` fit together."""
    if rows.dim() != 2 or rows.shape[1] != inputs or rows.dtype != torch.bfloat16:
        raise ValueError(f"rows of {tuple(rows.shape)} {rows.dtype} on experts with {inputs} bfloat16 inputs")
    if bias is not None and tuple(bias.shape) != (experts, outputs):
        raise ValueError(f"a bias of {tuple(bias.shape)} on {experts} experts with {outputs} outputs")
    check_packed(packed, "4/3x", entries_per_row(inputs), 2 * experts * outputs * inputs)


def _route(x, ids, experts):
    if x.dim() != 2 or ids.dim() != 2 or ids.shape[0] != x.shape[0]:
        raise ValueError(f"x of {tuple(x.shape)} with experts of {tuple(ids.shape)}: both have a row for each token")
    flat, tile = ids.reshape(-1).long(), tile_tokens(ids.numel(), experts)
    flat = torch.where((flat < 0) | (flat >= experts), experts, flat)
    order = torch.argsort(flat, stable=True)
    positions = torch.empty_like(order)
    positions[order] = torch.arange(flat.numel(), device=flat.device)
    counts = torch.bincount(flat, minlength=experts + 1)[:experts].tolist()
    groups, first = [], 0
    for expert, count in enumerate(counts):
        groups += [(expert, at, min(at + tile, first + count), 0) for at in range(first, first + count, tile)]
        first += count
    room = route_groups(ids.numel(), experts)
    head = [len(groups), first, 0, 0, *(word for group in groups for word in group)]
    head += [0] * (HEAD + 4 * room - len(head))
    route = torch.cat([torch.tensor(head, dtype=torch.int32, device=x.device), positions.int()])
    return route, x[order // max(ids.shape[1], 1)]


def groups_of(route):
    """Returns expert, first and last position of each group. Synchronises with a GPU."""
    words = route[: HEAD + 4 * int(route[0])].tolist()
    return [tuple(words[at : at + 3]) for at in range(HEAD, len(words), 4)]


def _linear(rows, route, packed, bias, codec, experts, outputs, inputs):
    check_rows(rows, packed, bias, experts, outputs, inputs)
    y = rows.new_zeros((rows.shape[0], outputs))
    for expert, first, last in groups_of(route):
        chosen = torch.tensor([expert], device=rows.device)
        weight = unpack_chosen(chosen, packed, codec, experts, outputs, inputs)[0]
        y[first:last] = functional.linear(rows[first:last], weight, None if bias is None else bias[expert])
    return y


def _combine(rows, route, weights):
    positions = route[route.numel() - weights.numel() :].long().view(weights.shape)
    total = torch.zeros((weights.shape[0], rows.shape[1]), device=rows.device)
    for expert in range(weights.shape[1]):  # one after the other, as the kernel adds them
        position = positions[:, expert]
        weighted = rows[position].float() * weights[:, expert, None].float()
        total += torch.where((position < route[1]).unsqueeze(1), weighted, 0)
    return total.to(rows.dtype)


@functools.cache
def has_kernels(device):
    """Returns whether a device uses the grouped kernels: compute capability 9.0."""
    return MODE != "unpack" and device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


# Scratch memory of grouped layers by GPU, tile and inputs, then by stream.
_SCRATCH = {}
_scratch_bytes = functools.lru_cache(4096)(_native.experts_scratch_bytes)


def _scratch(device, tile, inputs):
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    # A captured graph may run concurrently with anything.
    pool = None if torch.cuda.is_current_stream_capturing() else _SCRATCH.setdefault((device.index, tile, inputs), {})
    return _zeros(pool, stream, _scratch_bytes((device.index, 0), tile, inputs), device)


def _route_cuda(x, ids, experts):
    if not has_kernels(x.device) or x.dtype != torch.bfloat16 or x.shape[-1] % 8 or ids.dtype not in (torch.int32, torch.int64) or experts > 1024:
        return _route(x, ids, experts)
    top, assignments = ids.shape[1], ids.numel()
    route = torch.empty(HEAD + 4 * route_groups(assignments, experts) + assignments, dtype=torch.int32, device=x.device)
    rows = x.new_empty((assignments, x.shape[1]))
    if assignments == 0:
        return route.zero_(), rows
    spans = [span(one) for one in (ids.contiguous(), x.contiguous(), rows, route)]
    call_native(x.device, _native.experts_route, spans, (top, experts, tile_tokens(assignments, experts)), ids.dtype == torch.int64)
    return route, rows


def _linear_cuda(rows, route, packed, bias, codec, experts, outputs, inputs, swiglu=False):
    """``swiglu`` joins the rows of ``interleave``."""
    if not has_kernels(rows.device) or outputs % 16 or rows.shape[0] == 0 or (bias is not None and bias.dtype != torch.bfloat16):
        y = _linear(rows, route, packed, bias, codec, experts, outputs, inputs)
        return join(y) if swiglu else y
    check_rows(rows, packed, bias, experts, outputs, inputs)
    tile, y = tile_tokens(rows.shape[0], experts), rows.new_empty((rows.shape[0], outputs // 2 if swiglu else outputs))
    spans = [span(rows.contiguous()), None if bias is None else span(bias.contiguous()), span(y), span(route), span(_scratch(rows.device, tile, inputs))]
    weights = span(packed.contiguous()), 2 * experts * outputs * inputs
    call_native(rows.device, _native.experts_linear, (codec, "4/3x", entries_per_row(inputs)), weights, spans, (experts, tile), swiglu)
    return y


def _combine_cuda(rows, route, weights):
    if not has_kernels(rows.device) or rows.dtype != torch.bfloat16 or rows.shape[1] % 8 or weights.numel() == 0:
        return _combine(rows, route, weights)
    weights = weights if weights.dtype in (torch.bfloat16, torch.float32) else weights.float()
    y = rows.new_empty((weights.shape[0], rows.shape[1]))
    spans = [span(one) for one in (rows.contiguous(), route, weights.contiguous(), y)]
    call_native(rows.device, _native.experts_combine, spans, weights.shape[1], weights.dtype == torch.bfloat16)
    return y


def gate(both, activation):
    """Returns activation(gates) * ups of rows that hold all gates, then all ups."""
    if activation == "silu" and both.is_cuda and both.shape[1] % 16 == 0 and 0 < both.shape[0] < 65536:
        out = both.new_empty((both.shape[0], both.shape[1] // 2))
        call_native(both.device, _native.decode_swiglu, span(both), span(out), both.shape[0])
        return out
    opened, up = both.chunk(2, -1)
    return ACTIVATIONS[activation](opened) * up


def interleave(w13):
    """Returns w13 with eight rows of gates alternating with eight up rows."""
    experts, rows, hidden = w13.shape
    return w13.view(experts, 2, rows // 16, 8, hidden).transpose(1, 2).reshape(w13.shape)


def join(both):
    """Returns silu(gates) * ups of rows that alternate between eight of each."""
    opened, up = both.unflatten(-1, (-1, 2, 8)).unbind(-2)
    return functional.silu(opened.flatten(-2)) * up.flatten(-2)


def _experts(x, weights, ids, w13, bias13, codec13, w2, bias2, codec2, experts, intermediate, activation):
    if activation not in (*ACTIVATIONS, "swiglu"):
        raise ValueError(f"experts have no activation {activation!r}; those known are {', '.join(ACTIVATIONS)}")
    hidden = x.shape[-1]
    route, rows = torch.ops.buddy.experts_route(x, ids, experts)
    both = _linear_cuda(rows, route, w13, bias13, codec13, experts, 2 * intermediate, hidden, activation == "swiglu")
    both = both if activation == "swiglu" else gate(both, activation)
    y = _linear_cuda(both, route, w2, bias2, codec2, experts, hidden, intermediate)
    return torch.ops.buddy.experts_combine(y, route, weights)


for _name, _cpu, _cuda in [("experts_route", _route, _route_cuda), ("experts_linear", _linear, _linear_cuda),
                           ("experts_combine", _combine, _combine_cuda), ("experts", _experts, _experts)]:
    LIBRARY.impl(_name, _cpu, "CPU")
    LIBRARY.impl(_name, _cuda, "CUDA")


@torch.library.register_fake("buddy::experts_route", lib=LIBRARY)
def _(x, ids, experts):
    assignments = ids.shape[0] * ids.shape[1]
    words = HEAD + 4 * route_groups(assignments, experts) + assignments
    return x.new_empty((words,), dtype=torch.int32), x.new_empty((assignments, x.shape[1]))


@torch.library.register_fake("buddy::experts_linear", lib=LIBRARY)
def _(rows, route, packed, bias, codec, experts, outputs, inputs):
    return rows.new_empty((rows.shape[0], outputs))


@torch.library.register_fake("buddy::experts_combine", lib=LIBRARY)
def _(rows, route, weights):
    return rows.new_empty((weights.shape[0], rows.shape[1]))


@torch.library.register_fake("buddy::experts", lib=LIBRARY)
def _(x, weights, ids, w13, bias13, codec13, w2, bias2, codec2, experts, intermediate, activation):
    return torch.empty_like(x)
