"""Blocks of PyTorch's allocator for ``buddy watch``, which otherwise sees its segments, pools of many tensors.

    buddy watch --out train.json -- python -m buddy.torch train.py --epochs 1

runs a script as it is; a program of one's own may call ``buddy.torch.watch_blocks()`` instead. A block is named by the line of
Python that asked for it.
"""

import atexit
import ctypes
import os

import torch

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
_Tell = ctypes.CFUNCTYPE(None)


def watch_blocks() -> bool:
    """Has ``buddy watch`` cut the segments of PyTorch's allocator at its blocks, from the next snapshot on.

    Whether anything watches: without it this does nothing."""
    if not os.environ.get("CUDA_INJECTION64_PATH") or not torch.cuda.is_available():
        return False
    # CUDA loads the library that watches when it starts.
    torch.cuda.init()
    try:
        library = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"], mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        pieces_from, piece_is = library.buddy_watch_pieces_from, library.buddy_watch_piece_is
    except (OSError, AttributeError):
        return False
    piece_is.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p]
    # Only of blocks that live, and of those the Python frames: what else there is to record costs more.
    torch.cuda.memory._record_memory_history("state", context="alloc", stacks="python")

    def tell() -> None:
        for address, size, name in blocks(torch.cuda.memory._snapshot()["segments"]):
            piece_is(address, size, name and name.encode())

    watch_blocks.tell = _Tell(tell)  # it must live as long as it may be called
    pieces_from(watch_blocks.tell)
    atexit.register(pieces_from, None)
    return True


def blocks(segments):
    """Address, bytes and name of every block of a memory snapshot; a block that is free has no name."""
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            yield address, block["size"], name_of(block) if block["state"] == "active_allocated" else None
            address += block["size"]


def name_of(block) -> str:
    """The innermost line that is neither PyTorch's nor ours; memory of the backward pass has none."""
    for frame in block.get("frames") or ():
        file = frame["filename"]
        if not file.startswith((_TORCH, _OWN, "<frozen")) and frame["line"]:
            return f"{os.path.basename(file)}:{frame['line']}"
    return "pytorch"
