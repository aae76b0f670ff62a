import os

import pytest

# Some virtual machines name AMX among their instructions and stop a program that uses it. Read when
# PyTorch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(autouse=True)
def one_seed():
    """Every test draws the same numbers."""
    try:
        import torch
    except ImportError:
        return
    torch.manual_seed(1)
    torch.set_num_threads(1)
