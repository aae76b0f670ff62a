"""Reports the blocks of PyTorch's allocator to ``buddy watch``, which otherwise sees segments that
hold many tensors.

    buddy watch --out train.json -- python -m buddy.torch train.py --epochs 1

runs a script unchanged; a program can call ``buddy.torch.watch_blocks()`` instead. A block is named
after the line of Python that allocated it.
"""

import atexit
import ctypes
import os

import torch

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
_Tell = ctypes.CFUNCTYPE(None)


def watch_blocks() -> bool:
    """Makes ``buddy watch`` split the allocator's segments at its blocks, from the next snapshot
    on.

    Returns whether a watcher is present; without one this does nothing.
    """
    if not os.environ.get("CUDA_INJECTION64_PATH") or not torch.cuda.is_available():
        return False
    # CUDA loads the watching library at initialisation.
    torch.cuda.init()
    try:
        library = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"], mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        pieces_from, piece_is = library.buddy_watch_pieces_from, library.buddy_watch_piece_is
    except (OSError, AttributeError):
        return False
    piece_is.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p]
    # Live blocks and Python frames only: the rest costs more.
    torch.cuda.memory._record_memory_history("state", context="alloc", stacks="python")

    def tell() -> None:
        for address, size, name in blocks(torch.cuda.memory._snapshot()["segments"]):
            piece_is(address, size, name and name.encode())

    watch_blocks.tell = _Tell(tell)  # holds the callback for the life of the process
    pieces_from(watch_blocks.tell)
    atexit.register(pieces_from, None)
    return True


def blocks(segments):
    """Yields address, bytes and name of every block of a memory snapshot; a free block has no
    name."""
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            yield address, block["size"], name_of(block) if block["state"] == "active_allocated" else None
            address += block["size"]


def name_of(block) -> str:
    """Returns the innermost line outside PyTorch and this package, or ``pytorch`` (backward
    pass)."""
    for frame in block.get("frames") or ():
        file = frame["filename"]
        if not file.startswith((_TORCH, _OWN, "<frozen")) and frame["line"]:
            return f"{os.path.basename(file)}:{frame['line']}"
    return "pytorch"
