"""Loads NVRTC from the CUDA toolkit or from PyTorch's wheels."""

import ctypes
import importlib.util
import pathlib

NAMES = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]


def load_compiler() -> bool:
    """Loads NVRTC. Returns False if there is none: then only cached kernels can run."""
    return any(_loads(name) for name in [*NAMES, *map(str, _in_wheels())])


def _loads(name: str) -> bool:
    try:
        # Later loads by name resolve to this library.
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def _in_wheels() -> list[pathlib.Path]:
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations if found else None
    return [path for folder in folders or [] for path in sorted(pathlib.Path(folder).glob("*/lib/libnvrtc.so.*"), reverse=True)]
