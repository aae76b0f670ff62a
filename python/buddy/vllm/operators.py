"""The operators ``buddy::serve_linear``, ``buddy::serve_rows`` and ``buddy::add_norm`` of a served
model.

All of them are functional. Scratch memory and counters belong to a stream and are reused by every
layer on it: no call allocates them while a graph is captured, and every call leaves the counters
zero. The number of tokens chooses the kernel inside an operator, so one compiled graph serves all.
"""

from __future__ import annotations

import functools

import torch
from torch.nn import functional

from .. import _native
from ..torch.layout import HEADER, packed_bytes
from ..torch.ops import LIBRARY, TAGS, call_native, device_and_stream, entries_per_row, on_device, span

# Most tokens for which a kernel's epilogue can apply SwiGLU, and for which scratch memory is kept.
MOST_FUSED = 1536
# Most tokens for which packed weights are faster than a plain copy.
MOST_PACKED = 64

# x: (..., inputs). packed: a bf16 matrix (outputs, inputs) at 4/3x. plain: a plain copy of it for
# many tokens, or none. swiglu: rows alternate between eight gates and eight up rows, and the
# result is silu(gate) * up, half as wide.
LIBRARY.define("serve_linear(Tensor x, Tensor packed, Tensor? plain, Tensor? bias, SymInt outputs, SymInt inputs, bool swiglu) "
               "-> Tensor", tags=TAGS)
# entries: row index * entries per row + 0, 1, ..., int32: (rows, entries per row).
LIBRARY.define("serve_rows(Tensor entries, Tensor packed, SymInt rows) -> Tensor", tags=TAGS)
# Returns the RMS norm of x + residual, and the sum. Without a residual the sum is empty. Each is
# rounded once, as in the kernel that vLLM's compiler makes.
LIBRARY.define("add_norm(Tensor x, Tensor? residual, Tensor weight, float epsilon) -> (Tensor, Tensor)", tags=TAGS)

# Codec of a packed matrix by its address. A compiled graph must not hold codecs: it may be reused
# for other weights of the same shapes.
_CODECS: dict[int, str] = {}
# Scratch memory and counters by device and stream.
_WORKSPACES: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
# Workspaces that larger ones replaced: captured graphs hold their addresses.
_REPLACED: list[torch.Tensor] = []
# Bytes of counters that the layers of a device need.
_COUNTER_BYTES: dict[int, int] = {}


def remember(packed: torch.Tensor, codec: str) -> None:
    """Records the codec of a matrix, so that no call has to read its header."""
    _CODECS[packed.data_ptr()] = codec


def load_kernels(device: torch.device, layers: list[tuple[int, int, bool]], tokens: list[int]) -> None:
    """Compiles the kernels of layers (outputs, inputs, swiglu) for each number of tokens, many at a
    time. Blocks."""
    with torch.cuda.device(device):
        need = _native.linear_load((device.index, 0), layers, tokens)
    _COUNTER_BYTES[device.index] = max(need, _COUNTER_BYTES.get(device.index, 0))


def codec_of(packed: torch.Tensor) -> str:
    """Returns the codec of a packed matrix."""
    known = _CODECS.get(packed.data_ptr())
    if known is None:
        known = _CODECS[packed.data_ptr()] = _native.parse_header(span(packed[:HEADER].cpu()))[0]
    return known


@functools.cache
def is_hopper(index: int) -> bool:
    """Returns whether a GPU has compute capability 9.0."""
    return torch.cuda.get_device_capability(index) == (9, 0)


@functools.cache
def has_fused_kernels() -> bool:
    """Returns whether norms and SwiGLU have kernels: on the CPU, and on GPUs from compute capability
    9.0 on."""
    return not torch.cuda.is_available() or torch.cuda.get_device_capability() >= (9, 0)


_scratch_bytes = functools.lru_cache(1 << 16)(_native.linear_scratch_bytes)


def workspace(where: tuple[int, int], need: int, device: torch.device, is_kept: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns scratch memory and zeroed counters of a stream, at least as large as asked for."""
    counter_bytes = max(_COUNTER_BYTES.get(where[0], 0), 1 << 17)
    known = _WORKSPACES.get(where) or (torch.empty(0, dtype=torch.uint8, device=device),) * 2
    scratch, counters = known
    large = torch.empty(need, dtype=torch.uint8, device=device) if scratch.numel() < need else scratch
    if counters.numel() < counter_bytes:
        counters = torch.zeros(counter_bytes, dtype=torch.uint8, device=device)
    kept = large if is_kept else scratch, counters
    if kept[0] is not known[0] or kept[1] is not known[1]:
        _REPLACED.extend(known)
        _WORKSPACES[where] = kept
    return large, counters


def _packed_linear(x, packed, bias, outputs, inputs, swiglu):
    """Multiplies with the packed matrix; interleaved gates and up rows stay apart unless
    ``swiglu``."""
    tokens = x.numel() // inputs
    y = x.new_empty((*x.shape[:-1], outputs // 2 if swiglu else outputs))
    if tokens == 0:
        return y
    rows = x.contiguous()
    rows = rows.clone() if rows.data_ptr() % 16 else rows
    format, weight_bytes = (codec_of(packed), "4/3x", entries_per_row(inputs)), outputs * inputs * 2
    with on_device(x):
        where = device_and_stream(x)
        # No kernel of a graph writes weights, so they may be loaded before the one before has ended.
        prefetch = torch.cuda.is_current_stream_capturing()
        scratch, counters = workspace(where, _scratch_bytes((where[0], 0), format, weight_bytes, tokens), x.device, tokens <= MOST_FUSED)
        _native.linear(where, format, (span(packed), weight_bytes), span(rows), None if bias is None else span(bias), span(y),
                       span(scratch), span(counters), prefetch, swiglu)
    return y


def join_swiglu(y):
    """Returns silu(gate) * up for values that alternate between eight gates and eight up values."""
    out = y.new_empty((*y.shape[:-1], y.shape[-1] // 2))
    if y.numel():
        call_native(y.device, _native.decode_swiglu, span(y), span(out), y.numel() // y.shape[-1], True)
    return out


def _serve_linear(x, packed, plain, bias, outputs, inputs, swiglu):
    tokens = x.numel() // inputs
    if plain is not None and tokens > MOST_PACKED:
        y = functional.linear(x, plain, bias)
        return join_swiglu(y) if swiglu else y
    if swiglu and (tokens > MOST_FUSED or not is_hopper(x.device.index)):
        return join_swiglu(_packed_linear(x, packed, bias, outputs, inputs, False))
    return _packed_linear(x, packed, bias, outputs, inputs, swiglu)


def without_reserve(packed):
    """Returns the bytes of a matrix that its header counts, as the CPU's decoder takes them."""
    _, target, row, size, sectors = _native.parse_header(span(packed[:HEADER]))
    return packed[: packed_bytes(target, row, size, sectors)]


def _serve_linear_cpu(x, packed, plain, bias, outputs, inputs, swiglu):
    row = entries_per_row(inputs)
    weight = torch.ops.buddy.unpack(without_reserve(packed), codec_of(packed), "4/3x", row, (outputs, inputs), torch.bfloat16)
    y = functional.linear(x, weight.to(x.dtype), bias)
    if not swiglu:
        return y
    gate, up = y.unflatten(-1, (-1, 2, 8)).unbind(-2)
    return functional.silu(gate.flatten(-2)) * up.flatten(-2)


def _serve_rows(entries, packed, rows):
    row = entries.shape[-1]
    out = torch.empty((entries.shape[0], 64 * row), dtype=torch.bfloat16, device=packed.device)
    if entries.numel():
        weights = span(packed if packed.is_cuda else without_reserve(packed)), rows * row * 128
        call_native(packed.device, _native.gather, (codec_of(packed), "4/3x", row), weights, span(entries.contiguous()), span(out))
    return out


def _add_norm(x, residual, weight, epsilon):
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    added = None if residual is None else residual.contiguous()
    total = x.new_empty(0) if residual is None else torch.empty_like(out)
    if x.numel():
        spans = [span(x), None if added is None else span(added), span(weight), span(out), None if added is None else span(total)]
        call_native(x.device, _native.decode_norm, spans, epsilon, True)
    return out, total


def _add_norm_cpu(x, residual, weight, epsilon):
    wide = x.float() if residual is None else x.float() + residual.float()
    out = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon) * weight.float()
    return out.to(x.dtype), x.new_empty(0) if residual is None else wide.to(x.dtype)


for _name, _cpu, _cuda in [("serve_linear", _serve_linear_cpu, _serve_linear), ("serve_rows", _serve_rows, _serve_rows),
                           ("add_norm", _add_norm_cpu, _add_norm)]:
    LIBRARY.impl(_name, _cpu, "CPU")
    LIBRARY.impl(_name, _cuda, "CUDA")


@torch.library.register_fake("buddy::serve_linear", lib=LIBRARY)
def _(x, packed, plain, bias, outputs, inputs, swiglu):
    return x.new_empty((*x.shape[:-1], outputs // 2 if swiglu else outputs))


@torch.library.register_fake("buddy::serve_rows", lib=LIBRARY)
def _(entries, packed, rows):
    return packed.new_empty((entries.shape[0], 64 * entries.shape[-1]), dtype=torch.bfloat16)


@torch.library.register_fake("buddy::add_norm", lib=LIBRARY)
def _(x, residual, weight, epsilon):
    return x.new_empty(x.shape), x.new_empty(0 if residual is None else residual.shape)
