"""The host's part of products and of packing, with a driver that runs nothing: in a process of its own, since others must not find that
driver."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch")

HERE = pathlib.Path(__file__).parent


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the driver with")
@pytest.mark.parametrize("name", ["product", "packing"])
def test_what_the_gpu_is_given(name, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]), "BUDDY_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "fake" / f"{name}.py")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
