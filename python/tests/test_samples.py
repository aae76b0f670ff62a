"""Runs of sampled pages (tools/dl/samples.py)."""

import json
import pathlib
import sys
from types import SimpleNamespace

import torch

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools"))

from dl.samples import Samples, to_record  # noqa: E402


def test_every_nth_page_is_taken_without_the_rest_of_the_last(tmp_path):
    data = torch.arange(5 * 2048 + 100, dtype=torch.int32)
    row = SimpleNamespace(name="weights/a", kind="weights", data=data.data_ptr(), bytes=data.nbytes, dtype=data.dtype)
    samples = Samples(2, "cpu")
    samples.snapshot("start", [row])
    [(_, pages)] = samples.snapshots
    assert pages["weights/a"].view(torch.int32)[:, 0].tolist() == [0, 4096, 8192]


def test_a_sampled_run_has_every_tensor_and_lists_the_living(tmp_path):
    samples = Samples(8, "cpu")
    a, b = torch.full((2, 8192), 7, dtype=torch.uint8), torch.full((1, 8192), 9, dtype=torch.uint8)
    row = lambda kind: SimpleNamespace(kind=kind, dtype=torch.float32)  # noqa: E731
    samples.rows = {"weights/a": row("weights"), "activations/b": row("activations")}
    samples.snapshots = [("start", {"weights/a": a}), ("end", {"weights/a": a, "activations/b": b})]
    samples.write(tmp_path / "run", "net", {"batch": 4}, {torch.float32: "f32"})
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert [(one["name"], one["bytes"], one["dtype"]) for one in run["allocations"]] == [
        ("weights/a", 16384, "f32"), ("activations/b", 8192, "f32")]
    for index, bytes_of_b in ((0, 0), (1, 9)):
        data = (tmp_path / f"run/snapshot-{index}.safetensors").read_bytes()
        length = 8 + int.from_bytes(data[:8], "little")
        assert set(data[length : length + 16384]) == {7} and set(data[length + 16384 :]) == {bytes_of_b}
    found = [{"histograms": {"bpc": ["a0", "a1"]}}, {"histograms": {"bpc": ["b0", "b1"]}}]
    data = to_record({"tool": "buddy", "data": {"run": run, "allocations": found}})["data"]
    assert data["sizes"] == [[{"histograms": {"bpc": "a0"}}, {"histograms": {}}],
                             [{"histograms": {"bpc": "a1"}}, {"histograms": {"bpc": "b1"}}]]
    assert "alive" not in data["run"]["parameters"] and "file" not in data["run"]["snapshots"][0]
