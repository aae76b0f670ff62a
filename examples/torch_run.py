"""Writes snapshots of tensors as a run for `buddy profile` (docs/reference/snapshots.md)."""

import json
import pathlib

import torch
from safetensors.torch import save_file

TYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64"}


class Run:
    def __init__(self, path, program):
        self.path = pathlib.Path(path)
        self.path.mkdir()
        self.info = {"version": 1, "program": program, "allocations": [], "snapshots": []}

    def snapshot(self, step, tensors):
        self.info["allocations"] = [
            {"name": name, "base": t.data_ptr(), "bytes": t.nbytes, "dtype": TYPES[t.dtype]}
            for name, t in tensors.items()
        ]
        file = f"snapshot-{len(self.info['snapshots'])}.safetensors"
        save_file({name: t.detach().contiguous().cpu() for name, t in tensors.items()}, self.path / file)
        self.info["snapshots"].append({"step": step, "file": file})
        (self.path / "run.json").write_text(json.dumps(self.info, indent=2))


run = Run("run", "training")
# in the training loop:
#     run.snapshot(step, dict(model.named_parameters()))
