"""The examples of docs/guide/python.md run as they stand."""

import pathlib
import re

import pytest

torch = pytest.importorskip("torch")

from torch import nn

ROOT = pathlib.Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide/python.md").read_text(), re.DOTALL)


def test_the_examples_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    model = nn.Sequential(nn.Linear(128, 128), nn.ReLU())
    names = {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "data": [torch.randn(4, 128)] * 2,
             "tensor": torch.randn(64, 64), "weight": torch.randn(128, 128).bfloat16(), "x": torch.randn(4, 128).bfloat16(),
             "bias": torch.zeros(128).bfloat16(), "matrix": torch.eye(64).to_sparse_csr(), "vector": torch.ones(64)}
    ran = 0
    for block in BLOCKS:
        code = compile(block.replace('"model.safetensors"', '"examples/run/snapshot-2.safetensors"'), "docs/guide/python.md", "exec")
        # Graphs need a GPU; tools/torch_check.py captures steps there.
        if "CUDAGraph" not in block:
            exec(code, names)
            ran += 1
    assert ran >= 6 and names["found"].ratio > 1 and names["mem"].step == 2
