"""The operators ``buddy::pack``, ``buddy::unpack`` and ``buddy::linear``, and the calls of native
functions.

The operators take plain tensors, strings and numbers. A packed tensor is one byte tensor, a frozen
buffer (docs/reference/format.md); codec, target and row repeat its header, so nothing has to be
read back from the GPU. The CPU runs the Rust codec, the GPU its kernels on PyTorch's memory and
current stream. Both write the same bits.
"""

import contextlib
import functools

import torch
from torch.nn import functional

from .. import _native
from ..libraries import load_compiler
from .layout import ENTRY, packed_bytes, padded_bytes

LIBRARY = torch.library.Library("buddy", "DEF")
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
# data: any tensor, packed as its contiguous bytes, zero-padded to whole entries. codec: `bpc`, or
# with parameters `bf16:112`. target: `4/3x`. row: entries per row of a matrix for `linear`, else 0.
# sectors: room for overflow; if it is too small, the result has no magic number
# (`PackedTensor.fits`).
LIBRARY.define("pack(Tensor data, str codec, str target, SymInt row, SymInt sectors) -> Tensor", tags=TAGS)
LIBRARY.define("unpack(Tensor packed, str codec, str target, SymInt row, SymInt[] size, ScalarType dtype) -> Tensor", tags=TAGS)
# x: (..., inputs). packed: a bf16 matrix (outputs, inputs) at 4/3x. scratch: zeros,
# `linear_scratch_bytes` of them, shared by layers that do not run concurrently; or the layer's own,
# smaller counters, shared by its captured graphs; or none. exact: unpack and multiply with
# PyTorch's kernel.
LIBRARY.define("linear(Tensor x, Tensor packed, Tensor? bias, Tensor? scratch, str codec, SymInt outputs, SymInt inputs, bool exact) "
               "-> Tensor", tags=TAGS)


@functools.cache
def load_nvrtc():
    """Loads NVIDIA's run-time compiler once."""
    load_compiler()


def device_and_stream(tensor):
    """Returns a tensor's GPU index and current stream as native functions take them; (-1, 0) for
    the CPU."""
    if tensor.device.type == "cpu":
        return -1, 0
    if tensor.device.type != "cuda":
        raise ValueError(f"tensors must be on the CPU or an NVIDIA GPU, not on {tensor.device}")
    load_nvrtc()
    return tensor.device.index, torch._C._cuda_getCurrentRawStream(tensor.device.index)


def on_device(tensor):
    """Context in which a tensor's GPU is the current device, as native functions require."""
    if tensor.device.type == "cpu" or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


def raw_stream(device):
    """Returns the handle of a GPU's current stream; 0 for the CPU."""
    return 0 if device.type == "cpu" else torch._C._cuda_getCurrentRawStream(device.index)


def stream_of(raw, device):
    """Returns the stream with a handle."""
    if raw == torch._C._cuda_getCurrentRawStream(device.index):
        return torch.cuda.current_stream(device)
    return torch.cuda.ExternalStream(raw, device=device) if raw else torch.cuda.default_stream(device)


def call_native(device, function, *arguments):
    """Calls a native function with a device and its current stream as first argument, on that
    device."""
    if device.type == "cpu":
        return function((-1, 0), *arguments)
    load_nvrtc()
    index = device.index
    if index == torch._C._cuda_getDevice():
        return function((index, torch._C._cuda_getCurrentRawStream(index)), *arguments)
    with torch.cuda.device(device):
        return function((index, torch._C._cuda_getCurrentRawStream(index)), *arguments)


def is_dense(tensor):
    """Returns whether a tensor fills a range of memory without gaps or overlap, in any order of
    dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def span(tensor):
    """Returns the memory of a dense tensor for a native call. The span holds the tensor, so a
    temporary is safe."""
    if not tensor.is_contiguous() and not is_dense(tensor):
        raise ValueError(f"a tensor of {tuple(tensor.shape)} with strides {tensor.stride()} is not dense: pass contiguous memory")
    return _native.Span(tensor, tensor.data_ptr(), tensor.numel() * tensor.element_size())


def flat_bytes(tensor):
    """Returns a tensor's contiguous bytes, padded to whole entries and aligned to 16 bytes."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if flat.numel() % ENTRY == 0 and flat.data_ptr() % 16 == 0:
        return flat
    filled = flat.new_zeros(padded_bytes(flat.numel()))
    filled[: flat.numel()] = flat
    return filled


def check_packed(packed, target, row, size):
    """Raises ``ValueError`` unless a byte tensor can hold ``size`` bytes of data, packed."""
    if packed.dtype != torch.uint8 or packed.dim() != 1:
        raise ValueError(f"packed data is one dimension of uint8, not {tuple(packed.shape)} of {packed.dtype}")
    least = packed_bytes(target, row, padded_bytes(size), 0)
    if packed.numel() < least:
        raise ValueError(f"{packed.numel()} packed bytes cannot hold {size} bytes at {target}, which take at least {least}")


def check_linear(x, packed, bias, scratch, outputs, inputs):
    """Raises ``ValueError`` unless the arguments of ``linear`` fit together. Every implementation
    calls this first."""
    if not x.is_floating_point():
        raise ValueError(f"x must be floating point, not {x.dtype}")
    if x.dim() == 0 or x.shape[-1] != inputs:
        raise ValueError(f"x of {tuple(x.shape)} on weights with {inputs} inputs")
    for name, tensor in (("the packed weights", packed), ("the bias", bias), ("the scratch memory", scratch)):
        if tensor is not None and tensor.device != x.device:
            raise ValueError(f"x is on {x.device}, {name} on {tensor.device}")
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise ValueError(f"a bias of {tuple(bias.shape)} on weights with {outputs} outputs")
    check_packed(packed, "4/3x", entries_per_row(inputs), 2 * outputs * inputs)


def _pack(data, codec, target, row, sectors):
    flat = flat_bytes(data)
    if flat.numel() == 0 and data.device.type != "cpu":
        # A kernel without blocks would write no header.
        return _pack(data.cpu(), codec, target, row, sectors).to(data.device)
    # Zero-filled, so that the GPU's bytes equal the CPU's in the padding too.
    packed = torch.zeros(packed_bytes(target, row, flat.numel(), sectors), dtype=torch.uint8, device=data.device)
    call_native(data.device, _native.pack, (codec, target, row), span(flat), span(packed), 0)
    return packed


def _unpack(packed, codec, target, row, size, dtype):
    numel = 1
    for one in size:
        if one < 0:
            raise ValueError(f"a shape of {list(size)}; sizes are not negative")
        numel *= one
    check_packed(packed, target, row, numel * dtype.itemsize)
    whole = torch.empty(padded_bytes(numel * dtype.itemsize), dtype=torch.uint8, device=packed.device)
    if numel:
        call_native(packed.device, _native.unpack, (codec, target, row), span(packed.contiguous()), span(whole))
    return whole[: numel * dtype.itemsize].view(dtype).view(size)


def entries_per_row(inputs):
    """Returns the entries of a row of bf16 weights."""
    if inputs * 2 % ENTRY:
        raise ValueError(f"weights for `linear` have a multiple of 64 inputs, not {inputs}")
    return inputs * 2 // ENTRY


def _unpacked_linear(x, packed, bias, codec, outputs, inputs):
    weight = _unpack(packed, codec, "4/3x", entries_per_row(inputs), (outputs, inputs), torch.bfloat16)
    return functional.linear(x, weight.to(x.dtype), bias)


def _linear_cpu(x, packed, bias, scratch, codec, outputs, inputs, exact):
    check_linear(x, packed, bias, scratch, outputs, inputs)
    return _unpacked_linear(x, packed, bias, codec, outputs, inputs)


# Scratch memory of layers that run one after another, by GPU and shape, then by stream: tensor,
# address, bytes. Each layer leaves its counters zero.
_SCRATCH = {}
# Largest scratch memory that is kept. More is needed for many tokens only; of that, only the
# counters must be zero, and these are kept.
_MAX_REUSED = 8 << 20
# Most tokens for which counters differ; with more, weights are unpacked and none are needed.
MAX_COUNTED_TOKENS = 1536


# A layer asks for the same few numbers of tokens again and again.
_scratch_bytes = functools.lru_cache(4096)(_native.linear_scratch_bytes)
_counter_bytes = functools.lru_cache(4096)(_native.linear_counter_bytes)


def scratch_pool(device, outputs, inputs):
    """Returns the reusable scratch memory of layers of a shape, by stream."""
    return _SCRATCH.setdefault((device, outputs, inputs), {})


def _zeros(pool, stream, need, device):
    found, _, size = pool.get(stream, (None, 0, 0)) if pool is not None else (None, 0, 0)
    if size < need:
        found = torch.zeros(need, dtype=torch.uint8, device=device)
        if pool is not None and need <= _MAX_REUSED:
            pool[stream] = found, found.data_ptr(), need
    return found


def _linear_cuda(x, packed, bias, scratch, codec, outputs, inputs, exact, pool=None):
    check_linear(x, packed, bias, scratch, outputs, inputs)
    if exact or x.dtype != torch.bfloat16 or (bias is not None and bias.dtype != torch.bfloat16):
        return _unpacked_linear(x, packed, bias, codec, outputs, inputs)
    rows = x.contiguous()
    rows = rows.clone() if rows.data_ptr() % 16 else rows
    y = x.new_empty((*x.shape[:-1], outputs))
    format, weight_bytes = (codec, "4/3x", entries_per_row(inputs)), outputs * inputs * 2
    with on_device(x):
        where = device_and_stream(x)
        need, counters, prefetch = _scratch_bytes(where, format, weight_bytes, rows.numel() // inputs), None, False
        if scratch is not None and scratch.numel() < need and torch.cuda.is_current_stream_capturing():
            # A layer of a compiled model: nothing is cleared, and no kernel of the graph writes its
            # weights.
            scratch, counters, prefetch = torch.empty(need, dtype=torch.uint8, device=x.device), span(scratch), True
        elif scratch is None or scratch.numel() < need:
            kept = need
            if pool is not None and need > _MAX_REUSED:
                kept = _counter_bytes(where, format, weight_bytes, MAX_COUNTED_TOKENS)
            scratch = _zeros(pool, where[1], kept, x.device)
            if scratch.numel() < need:
                scratch, counters = torch.empty(need, dtype=torch.uint8, device=x.device), span(scratch)
        biased = span(bias.contiguous()) if bias is not None else None
        weights = span(packed.contiguous()), weight_bytes
        _native.linear(where, format, weights, span(rows), biased, span(y), span(scratch), counters, prefetch)
    return y


def linear_eager(x, packed, bias, codec, outputs, inputs, exact):
    """Runs ``linear`` on a GPU without the dispatcher, on reused scratch memory. A captured graph
    gets its own, as it may run concurrently with anything."""
    pool = None if torch.cuda.is_current_stream_capturing() else scratch_pool(x.device.index, outputs, inputs)
    return _linear_cuda(x, packed, bias, None, codec, outputs, inputs, exact, pool)


for _name, _cpu, _cuda in [("pack", _pack, _pack), ("unpack", _unpack, _unpack), ("linear", _linear_cpu, _linear_cuda)]:
    LIBRARY.impl(_name, _cpu, "CPU")
    LIBRARY.impl(_name, _cuda, "CUDA")


@torch.library.register_fake("buddy::pack", lib=LIBRARY)
def _(data, codec, target, row, sectors):
    size = padded_bytes(data.numel() * data.element_size())
    return data.new_empty((packed_bytes(target, row, size, sectors),), dtype=torch.uint8)


@torch.library.register_fake("buddy::unpack", lib=LIBRARY)
def _(packed, codec, target, row, size, dtype):
    return packed.new_empty(size, dtype=dtype)


@torch.library.register_fake("buddy::linear", lib=LIBRARY)
def _(x, packed, bias, scratch, codec, outputs, inputs, exact):
    check_linear(x, packed, bias, scratch, outputs, inputs)
    return x.new_empty((*x.shape[:-1], outputs))


def _setup_context(ctx, inputs, output):
    _, packed, bias, _, ctx.codec, ctx.outputs, ctx.inputs, _ = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(packed)


def _linear_backward(ctx, grad):
    (packed,) = ctx.saved_tensors
    grad_x = grad_bias = None
    if ctx.needs_input_grad[0]:
        row = ctx.inputs * 2 // ENTRY
        weight = torch.ops.buddy.unpack(packed, ctx.codec, "4/3x", row, [ctx.outputs, ctx.inputs], torch.bfloat16)
        grad_x = grad.matmul(weight.to(grad.dtype))
    if ctx.has_bias and ctx.needs_input_grad[2]:
        grad_bias = grad.reshape(-1, ctx.outputs).sum(0)
    return grad_x, None, grad_bias, None, None, None, None, None


torch.library.register_autograd("buddy::linear", _linear_backward, setup_context=_setup_context, lib=LIBRARY)
