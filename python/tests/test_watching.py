"""Blocks of PyTorch's allocator as `buddy watch` receives them (buddy.torch.watching), from a
recorded snapshot."""

import os
import subprocess
import sys

import torch

from buddy.torch import watch_blocks
from buddy.torch.watching import blocks

TORCH = os.path.dirname(torch.__file__)


def frame(filename, line, name="forward"):
    return {"filename": filename, "line": line, "name": name}


SEGMENTS = [
    {"address": 0x7F0000000000, "total_size": 2097152, "segment_type": "small", "blocks": [
        {"size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": [
            frame(f"{TORCH}/nn/functional.py", 2000, "linear"), frame("/anywhere/model.py", 42), frame("/anywhere/train.py", 7)]},
        {"size": 512, "requested_size": 512, "state": "active_pending_free", "frames": [frame("/anywhere/model.py", 43)]},
        {"size": 2095616, "requested_size": 0, "state": "inactive", "frames": []},
    ]},
    {"address": 0x7F0000200000, "total_size": 20971520, "segment_type": "large", "blocks": [
        {"size": 20971520, "requested_size": 20971520, "state": "active_allocated", "frames": []},
    ]},
    {"address": 0x7F0002000000, "total_size": 4096, "segment_type": "small", "blocks": [
        {"size": 4096, "requested_size": 4096, "state": "active_allocated"},
    ]},
]


def test_blocks_follow_each_other_and_have_the_callers_line():
    assert list(blocks(SEGMENTS)) == [
        (0x7F0000000000, 1024, "model.py:42"), (0x7F0000000400, 512, None), (0x7F0000000600, 2095616, None),
        (0x7F0000200000, 20971520, "pytorch"), (0x7F0002000000, 4096, "pytorch"),
    ]


def test_without_a_watcher_nothing_happens(monkeypatch):
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
    assert watch_blocks() is False


def test_a_script_runs_unchanged(tmp_path):
    (tmp_path / "sibling.py").write_text("WORD = 'sibling'\n")
    script = tmp_path / "train.py"
    script.write_text("import sys, sibling\nprint(__name__, sys.argv[1:], sibling.WORD)\nsys.exit(3)\n")
    done = subprocess.run([sys.executable, "-m", "buddy.torch", str(script), "--epochs", "1"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "__main__ ['--epochs', '1'] sibling\n")
    assert "Warning" not in done.stderr
