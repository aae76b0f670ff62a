"""A GPU that runs nothing: the host's part of calls without a card."""

import ctypes
import pathlib
import subprocess

import torch
from torch import zeros

from buddy import _native
from buddy.torch import product as layers_product

SOURCE = pathlib.Path(__file__).with_name("driver.c")


def load(folder: pathlib.Path) -> ctypes.CDLL:
    """Builds driver and compiler and makes them those of this process, which must not have loaded others; tensors of the CPU are on
    "the GPU" from now on, its number is -1 as theirs, and its stream 5."""
    for name in ["libcuda.so", "libnvrtc.so"]:
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name, SOURCE], check=True)
        library = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
        driver = library if name == "libcuda.so" else driver
    # Builtins, as PyTorch's are.
    layers_product.current_device, layers_product.current_stream = (-1).__int__, {-1: 5}.get
    return driver


def product_of(store):
    """The product of a packed weight as a GPU would have it, its buffer aligned as a GPU's is."""
    store.data = aligned(store.data.numel()).copy_(store.data)
    ready, native = store.product, _native.Product(0, store.codec, *store.shape, store.data.numel())
    ready.device, ready.start, ready.count_bytes, ready.kept = -1, native.start, native.count_room(512), {}
    return ready


def aligned(size: int) -> torch.Tensor:
    """Zeros where a GPU's memory could begin."""
    memory = zeros(size + 128, dtype=torch.uint8)
    return memory[-memory.data_ptr() % 128 :][:size]


def scratch(size: int) -> tuple:
    """Scratch memory as it is kept for a stream."""
    memory = aligned(size)
    return memory, memory.data_ptr(), size
