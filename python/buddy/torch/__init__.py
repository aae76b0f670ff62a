"""Compressed tensors for PyTorch, on the CPU and on NVIDIA GPUs.

    p = buddy.torch.pack(tensor)       # the same bits in fewer bytes
    tensor = buddy.torch.unpack(p)     # bit for bit
    y = buddy.torch.linear(x, p)       # from packed bf16 weights

The operators are ``torch.ops.buddy.pack``, ``unpack`` and ``linear``: they take plain tensors, work in ``torch.compile`` and in
CUDA graphs, and use PyTorch's memory and current stream.
"""

from . import ops as _ops
from .compress import compress_
from .layers import PackedEmbedding, PackedLinear
from .looking import Look, TensorLook, look
from .modules import BatchNorm1d, BatchNorm2d, BatchNorm3d, ReLU, SquaredReLU, SwiGLU
from .report import SavedReport
from .saved import SavedMemory, compress_saved
from .swap import swap_
from .packed import PackedTensor, linear, linear_room, pack, pack_weight, unpack
from .watching import watch_blocks

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Look", "PackedEmbedding", "PackedLinear", "PackedTensor", "ReLU", "SavedMemory",
           "SavedReport", "SquaredReLU", "SwiGLU", "TensorLook", "compress_", "compress_saved", "linear", "linear_room", "look", "pack",
           "pack_weight", "swap_", "unpack", "watch_blocks"]
