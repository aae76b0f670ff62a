"""Where NVIDIA's compiler library lies: in the CUDA toolkit, or in the wheels that PyTorch brings."""

import ctypes
import importlib.util
import pathlib

NAMES = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]


def load_compiler() -> bool:
    """Loads NVRTC, so that kernels can be compiled; False if there is none, and then only cached kernels can be used."""
    return any(_loads(name) for name in [*NAMES, *map(str, _in_wheels())])


def _loads(name: str) -> bool:
    try:
        # Whoever asks for the library by its name later gets this one.
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def _in_wheels() -> list[pathlib.Path]:
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations if found else None
    return [path for folder in folders or [] for path in sorted(pathlib.Path(folder).glob("*/lib/libnvrtc.so.*"), reverse=True)]
