"""The operators ``buddy::pack``, ``buddy::unpack`` and ``buddy::linear``.

They take plain tensors, words and numbers: a packed tensor is one tensor of bytes, a frozen buffer (docs/reference/format.md), and the words
say what its header says too, so that nothing has to be read back from the GPU. The CPU's go through the Rust codec, the GPU's
through its kernels, in PyTorch's memory and on its current stream; both write the same bits.
"""

import contextlib
import functools

import torch
from torch.nn import functional

from .. import _native
from ..libraries import load_compiler
from .layout import ENTRY, padded, room

LIBRARY = torch.library.Library("buddy", "DEF")
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
# data: any tensor, taken as its bytes in order, filled up with zeros to whole entries. codec: `bpc`, or with what it learned
# `bf16:112`. target: `4/3x`. row: entries of a row if it is a matrix for `linear`, else 0. sectors: room for what overflows; if that
# is not enough, the buffer does not begin as one (`fits`).
LIBRARY.define("pack(Tensor data, str codec, str target, SymInt row, SymInt sectors) -> Tensor", tags=TAGS)
LIBRARY.define("unpack(Tensor packed, str codec, str target, SymInt row, SymInt[] size, ScalarType dtype) -> Tensor", tags=TAGS)
# x: (..., inputs). packed: a matrix of bf16 at 4/3x. scratch: zeros, `linear_room` of them, which layers that do not run at the same
# time share; or fewer, a layer's own counts (`counts_for`), which graphs of it share; or none. exact: unpack and multiply as PyTorch
# does.
LIBRARY.define("linear(Tensor x, Tensor packed, Tensor? bias, Tensor? scratch, str codec, SymInt outputs, bool exact) -> Tensor",
               tags=TAGS)


@functools.cache
def compiler():
    """Loads the compiler of kernels, once."""
    load_compiler()


def place(tensor):
    """Where a tensor is, as the native module wants it: the GPU's number and its current stream."""
    if tensor.device.type == "cpu":
        return -1, 0
    if tensor.device.type != "cuda":
        raise ValueError(f"tensors on the CPU or on an NVIDIA GPU, not on {tensor.device}")
    compiler()
    return tensor.device.index, torch._C._cuda_getCurrentRawStream(tensor.device.index)


def on_device(tensor):
    """Makes a tensor's GPU the current one, as it must be while the native module works there."""
    if tensor.device.type == "cpu" or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


def raw_stream(device):
    """The address of a GPU's current stream; 0 for the CPU."""
    return 0 if device.type == "cpu" else torch._C._cuda_getCurrentRawStream(device.index)


def stream_of(raw, device):
    """The stream at an address."""
    if raw == torch._C._cuda_getCurrentRawStream(device.index):
        return torch.cuda.current_stream(device)
    return torch.cuda.ExternalStream(raw, device=device) if raw else torch.cuda.default_stream(device)


def call_on(device, function, *arguments):
    """A function of the native module, told where it works: on the CPU, or on a GPU's current stream, with that GPU as the current one."""
    if device.type == "cpu":
        return function((-1, 0), *arguments)
    compiler()
    index = device.index
    if index == torch._C._cuda_getDevice():
        return function((index, torch._C._cuda_getCurrentRawStream(index)), *arguments)
    with torch.cuda.device(device):
        return function((index, torch._C._cuda_getCurrentRawStream(index)), *arguments)


def span(tensor):
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def flat_bytes(tensor):
    """A tensor's bytes in order, whole entries of them, aligned as kernels want them."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if flat.numel() % ENTRY == 0 and flat.data_ptr() % 16 == 0:
        return flat
    filled = flat.new_zeros(padded(flat.numel()))
    filled[: flat.numel()] = flat
    return filled


def _pack(data, codec, target, row, sectors):
    flat = flat_bytes(data)
    if flat.numel() == 0 and data.device.type != "cpu":
        # A kernel without blocks would write no header.
        return _pack(data.cpu(), codec, target, row, sectors).to(data.device)
    # Zeros where nothing is written, so that the GPU's bytes are the CPU's, all of them.
    packed = torch.zeros(room(target, row, flat.numel(), sectors), dtype=torch.uint8, device=data.device)
    with on_device(data):
        _native.freeze(place(data), (codec, target, row), span(flat), span(packed), 0)
    return packed


def _unpack(packed, codec, target, row, size, dtype):
    numel = 1
    for one in size:
        numel *= one
    whole = torch.empty(padded(numel * dtype.itemsize), dtype=torch.uint8, device=packed.device)
    if numel:
        with on_device(packed):
            _native.read_frozen(place(packed), (codec, target, row), span(packed.contiguous()), span(whole))
    return whole[: numel * dtype.itemsize].view(dtype).view(size)


def row_of(inputs):
    """Entries of a row of bf16 weights."""
    if inputs * 2 % ENTRY:
        raise ValueError(f"weights for `linear` have a multiple of 64 inputs, not {inputs}")
    return inputs * 2 // ENTRY


def _unpacked_linear(x, packed, bias, codec, outputs):
    weight = _unpack(packed, codec, "4/3x", row_of(x.shape[-1]), (outputs, x.shape[-1]), torch.bfloat16)
    return functional.linear(x, weight.to(x.dtype), bias)


def _linear_cpu(x, packed, bias, scratch, codec, outputs, exact):
    return _unpacked_linear(x, packed, bias, codec, outputs)


# Scratch memory of layers that run one after the other, by their GPU and shape, then by stream: the tensor, its address, its bytes. Each
# leaves its counts as it found them, zeros.
_SCRATCH = {}
# Room that is kept, at most: more is for many tokens, where it is no matter to clear it.
_MOST_KEPT = 8 << 20


# A layer asks with the same few numbers of tokens again and again.
_linear_room = functools.lru_cache(4096)(_native.linear_room)


def kept_scratch(device, outputs, inputs):
    """The scratch memory that is kept for layers of a shape, by stream."""
    return _SCRATCH.setdefault((device, outputs, inputs), {})


def _zeros(kept, stream, need, device):
    found, _, size = kept.get(stream, (None, 0, 0)) if kept is not None else (None, 0, 0)
    if size < need:
        found = torch.zeros(need, dtype=torch.uint8, device=device)
        if kept is not None and need <= _MOST_KEPT:
            kept[stream] = found, found.data_ptr(), need
    return found


def _linear_cuda(x, packed, bias, scratch, codec, outputs, exact, kept=None):
    if exact or x.dtype != torch.bfloat16 or (bias is not None and bias.dtype != torch.bfloat16):
        return _unpacked_linear(x, packed, bias, codec, outputs)
    inputs = x.shape[-1]
    rows = x.contiguous()
    rows = rows.clone() if rows.data_ptr() % 16 else rows
    y = x.new_empty((*x.shape[:-1], outputs))
    how, weight_bytes = (codec, "4/3x", row_of(inputs)), outputs * inputs * 2
    with on_device(x):
        where = place(x)
        need, counts, ahead = _linear_room(where, how, weight_bytes, rows.numel() // inputs), (0, 0), False
        if scratch is not None and scratch.numel() < need and torch.cuda.is_current_stream_capturing():
            # A compiled model's layer: nothing is cleared, and its weights, which no kernel of a graph writes, come at once.
            scratch, counts, ahead = torch.empty(need, dtype=torch.uint8, device=x.device), span(scratch), True
        elif scratch is None or scratch.numel() < need:
            scratch = _zeros(kept, where[1], need, x.device)
        biased = span(bias.contiguous()) if bias is not None else (0, 0)
        _native.linear(where, how, (span(packed), weight_bytes), span(rows), biased, span(y), span(scratch), counts, ahead)
    return y


def linear_now(x, packed, bias, codec, outputs, exact):
    """``linear`` on a GPU at once, outside of operators, with scratch memory that is kept. A captured graph has its own: it may run beside
    anything."""
    kept = None if torch.cuda.is_current_stream_capturing() else kept_scratch(x.device.index, outputs, x.shape[-1])
    return _linear_cuda(x, packed, bias, None, codec, outputs, exact, kept)


for _name, _cpu, _cuda in [("pack", _pack, _pack), ("unpack", _unpack, _unpack), ("linear", _linear_cpu, _linear_cuda)]:
    LIBRARY.impl(_name, _cpu, "CPU")
    LIBRARY.impl(_name, _cuda, "CUDA")


@torch.library.register_fake("buddy::pack", lib=LIBRARY)
def _(data, codec, target, row, sectors):
    size = padded(data.numel() * data.element_size())
    return data.new_empty((room(target, row, size, sectors),), dtype=torch.uint8)


@torch.library.register_fake("buddy::unpack", lib=LIBRARY)
def _(packed, codec, target, row, size, dtype):
    return packed.new_empty(size, dtype=dtype)


@torch.library.register_fake("buddy::linear", lib=LIBRARY)
def _(x, packed, bias, scratch, codec, outputs, exact):
    return x.new_empty((*x.shape[:-1], outputs))


def _keep(ctx, inputs, output):
    x, packed, bias, _, ctx.codec, ctx.outputs, _ = inputs
    ctx.inputs, ctx.biased = x.shape[-1], bias is not None
    ctx.save_for_backward(packed)


def _linear_backward(ctx, grad):
    (packed,) = ctx.saved_tensors
    of_x = of_bias = None
    if ctx.needs_input_grad[0]:
        row = ctx.inputs * 2 // ENTRY
        weight = torch.ops.buddy.unpack(packed, ctx.codec, "4/3x", row, [ctx.outputs, ctx.inputs], torch.bfloat16)
        of_x = grad.matmul(weight.to(grad.dtype))
    if ctx.biased and ctx.needs_input_grad[2]:
        of_bias = grad.reshape(-1, ctx.outputs).sum(0)
    return of_x, None, of_bias, None, None, None, None


torch.library.register_autograd("buddy::linear", _linear_backward, setup_context=_keep, lib=LIBRARY)
