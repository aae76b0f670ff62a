"""Buddy Compression: compressed GPU memory at fixed addresses.

    import buddy
    print(buddy.analyze("model.safetensors"))

Needs neither PyTorch nor a GPU. ``buddy.torch`` has packed tensors, operators and training,
``buddy.kv`` a host tier of keys and values; both import PyTorch. ``buddy.sparse`` has packed sparse
matrices, and imports NumPy. docs/guide/python.md is the guide.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from .analysis import Analysis, ArrayAnalysis, Fit, Outcome, analyze
from .models import CheckedModel, PackedModel, pack_model, unpack_model, verify_model
from .commands import AllocationTarget, Profile, Simulation, profile, simulate

try:
    __version__ = version("buddy-memory")
except PackageNotFoundError:  # from a source tree
    __version__ = "0"

__all__ = ["AllocationTarget", "Analysis", "ArrayAnalysis", "CheckedModel", "Fit", "Outcome", "PackedModel", "Profile", "Simulation", "analyze",
           "kv", "llm", "pack_model", "profile", "simulate", "sparse", "torch", "unpack_model", "verify_model"]


def __getattr__(name):
    # Imports PyTorch or NumPy on first use.
    if name in ("kv", "llm", "sparse", "torch"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'buddy' has no attribute {name!r}")
