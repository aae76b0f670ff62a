"""Compressed tensors for PyTorch, on the CPU and on NVIDIA GPUs.

    p = buddy.torch.pack(tensor)
    tensor = buddy.torch.unpack(p)     # bit for bit
    y = buddy.torch.linear(x, buddy.torch.pack_weight(w))

The operators ``torch.ops.buddy.pack``, ``unpack``, ``linear`` and ``embedding`` take plain tensors,
work in ``torch.compile`` and CUDA graphs, and use PyTorch's allocator and current stream.
"""

from . import ops as _ops
from .compress import compress_, decompress_
from .experts import PackedExperts
from .layers import PackedEmbedding, PackedLinear, PackedMatrix
from .modules import BatchNorm1d, BatchNorm2d, BatchNorm3d, ReLU, SquaredReLU, SwiGLU
from .report import SavedReport
from .saved import SavedMemory, compress_saved
from .survey import Look, TensorLook, look
from .swap import swap_
from .packed import PackedTensor, linear, linear_room, linear_scratch_bytes, pack, pack_weight, unpack
from .watching import watch_blocks

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Look", "PackedEmbedding", "PackedExperts", "PackedLinear", "PackedMatrix", "PackedTensor",
           "ReLU", "SavedMemory", "SavedReport", "SquaredReLU", "SwiGLU", "TensorLook", "compress_", "compress_saved", "decompress_", "linear", "linear_room",
           "linear_scratch_bytes", "look", "pack", "pack_weight", "swap_", "unpack", "watch_blocks"]
