#!/usr/bin/env python3
"""Checks the Python package on a GPU: bits equal to the CPU's, graphs, compilation, streams,
bit-exact training.

    pip install target/wheels/buddy_memory-*.whl
    tools/torch_check.py [WORD ...]     # only checks whose names hold one of the words

Needs PyTorch and a GPU. Each check prints a line; a failure prints its traceback and makes the exit
code 1. The checks are the functions `check_*` of `tools/torch_checks`.
"""

import pathlib
import sys
import time
import traceback

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python/tests"))

from torch_checks import activations, attention, pages, serving, tensors, training


def all_checks():
    """Yields every check with its name."""
    for module in [tensors, pages, serving, activations, attention, training]:
        for name, check in vars(module).items():
            if name.startswith("check_"):
                yield name.removeprefix("check_").replace("_", " "), check


def main():
    torch.use_deterministic_algorithms(True)
    failed = 0
    for name, check in all_checks():
        if not any(word.replace("_", " ") in name for word in sys.argv[1:] or [""]):
            continue
        torch.manual_seed(1)
        start = time.perf_counter()
        try:
            check()
            torch.cuda.synchronize()
            print(f"ok     {name} ({time.perf_counter() - start:.1f} s)", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {name}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
