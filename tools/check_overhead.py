#!/usr/bin/env python3
"""Measures on the CPU what checksums cost when a packed model is loaded and packed.

    tools/check_overhead.py [ROUNDS]     needs buddy, PyTorch and Transformers; RAYON_NUM_THREADS=1 for one core

Makes a Llama of 135 million random bf16 weights in a temporary folder. Loading with and without the
comparison takes turns. Transformers maps files on the CPU and reads nothing, so each tensor is then
copied once, as to a card. Prints processor seconds of all threads and elapsed seconds, the median of
all rounds.
"""

import pathlib
import statistics
import sys
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

import buddy.transformers
from buddy.models import FileCheck, pack_model, verify_model

CONFIG = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=16, vocab_size=16000)


class NoCheck:
    """Compares nothing."""

    def __init__(self, files):
        del files

    def finish(self):
        return 0


def timed(work):
    """Returns the processor and elapsed seconds of a call."""
    elapsed, processor = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - processor, time.perf_counter() - elapsed


def load(folder, check):
    buddy.transformers.FileCheck = check
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    packed = [module.matrix for module in model.modules() if hasattr(module, "matrix")]
    for tensor in [*packed, *model.parameters(), *model.buffers()]:
        tensor.data.clone()


def report(name, rows, plain=None):
    processor, elapsed = (statistics.median(column) for column in zip(*rows))
    share = f", {100 * processor / plain - 100:+.1f}% processor time" if plain else ""
    print(f"{name}: {processor:.3f} s processor, {elapsed:.3f} s elapsed{share}")
    return processor


def main(rounds):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = pathlib.Path(folder, "plain"), pathlib.Path(folder, "packed")
        LlamaForCausalLM(CONFIG).bfloat16().save_pretrained(plain, max_shard_size="100MB")
        found = {name: [] for name in ["load", "load and compare", "pack", "compare"]}
        for turn in range(rounds):
            for shard in packed.glob("*"):
                shard.unlink()
            found["pack"].append(timed(lambda: pack_model(plain, packed)))
            found["compare"].append(timed(lambda: verify_model(packed)))
            checks = [("load", NoCheck), ("load and compare", FileCheck)]
            for name, check in checks if turn % 2 else checks[::-1]:
                found[name].append(timed(lambda: load(packed, check)))
        print(f"{sum(one.stat().st_size for one in packed.iterdir()) / 1e6:.0f} MB packed, {rounds} rounds")
        plain_load = report("load and copy", found["load"])
        report("load and copy, compared in the background", found["load and compare"], plain_load)
        packing = report("pack, with checksums", found["pack"])
        comparing = report("compare every checksum", found["compare"])
        print(f"a comparison takes {100 * comparing / packing:.1f}% of packing, {100 * comparing / plain_load:.1f}% of loading")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
