"""A stub driver: the host side of GPU calls without a GPU."""

import ctypes
import pathlib
import subprocess

import torch
from torch import zeros

from buddy import _native
from buddy.torch import linear_plan as buddy_plan

SOURCE = pathlib.Path(__file__).with_name("driver.c")


def load(folder: pathlib.Path) -> ctypes.CDLL:
    """Builds the stub driver and compiler and loads them; the process must not have loaded others.
    CPU tensors then count as GPU tensors, with device index -1 and stream 5."""
    for name in ["libcuda.so", "libnvrtc.so"]:
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name, SOURCE], check=True)
        library = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
        driver = library if name == "libcuda.so" else driver
    # Builtins, as PyTorch's are.
    buddy_plan.current_device, buddy_plan.current_stream = (-1).__int__, {-1: 5}.get
    buddy_plan.empty = lambda size, **_: aligned(size).fill_(1)
    return driver


def plan_of(matrix, gpu: int = 0):
    """Returns the plan of a packed matrix as on a GPU of `driver.c`, with an aligned buffer."""
    matrix.data = aligned(matrix.data.numel()).copy_(matrix.data)
    plan, native = matrix.plan, _native.LinearPlan(gpu, matrix.codec, *matrix.shape, matrix.data.numel())
    plan.scratch_bytes = native.scratch_bytes
    plan.device, plan.enqueue, plan.counter_bytes, plan.scratch = -1, native.enqueue, native.counter_bytes(512), {}
    return plan


def aligned(size: int) -> torch.Tensor:
    """Returns zeros at the alignment of GPU memory."""
    memory = zeros(size + 128, dtype=torch.uint8)
    return memory[-memory.data_ptr() % 128 :][:size]


def scratch(size: int) -> tuple:
    """Returns scratch memory as a stream's pool holds it."""
    memory = aligned(size)
    return memory, memory.data_ptr(), size
