"""Host side of linear layers and packing against a stub driver, in a process of its own so that no
other test loads the stub."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch")

HERE = pathlib.Path(__file__).parent


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the driver with")
@pytest.mark.parametrize("name", ["linear_plan", "packing", "serving", "experts", "cards", "attention", "decoder"])
def test_launches_get_the_right_arguments(name, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]), "BUDDY_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "fake" / f"{name}.py")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
