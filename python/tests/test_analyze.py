"""Analysis of files and arrays without PyTorch."""

import ast
import json
import pathlib
import subprocess
import sys

import pytest

import buddy
import buddy._native
from buddy import libraries

numpy = pytest.importorskip("numpy")
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples/run/snapshot-2.safetensors"


def test_importing_and_analysing_needs_no_pytorch(tmp_path):
    raw = tmp_path / "zeros.bin"
    raw.write_bytes(bytes(128 * 100))
    code = f"import sys, buddy; print(buddy.analyze({str(raw)!r}).ratio); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "16.0\n"


def test_a_file_is_analysed_as_the_command_does(tmp_path, monkeypatch):
    found = buddy.analyze(EXAMPLE)
    wanted = tmp_path / "wanted.json"
    command = [sys.executable, "-m", "buddy", "analyze", EXAMPLE, "--json", wanted]
    monkeypatch.delenv("COLUMNS", raising=False)
    texts = [str(found)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == texts[0]
    # A narrow terminal gets fewer columns, as from the command.
    monkeypatch.setenv("COLUMNS", "50")
    texts.append(str(found))
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == texts[1] != texts[0]
    wanted = json.loads(wanted.read_text())["data"]
    for array in found.to_dict()["data"]["arrays"] + wanted["arrays"]:
        array["file"] = pathlib.Path(array["file"]).name
    assert found.data["auto"] == wanted["auto"] and len(found.arrays) == len(wanted["arrays"])


def test_arrays_have_names_types_and_targets():
    zeros, noise = numpy.zeros((64, 32), numpy.float32), numpy.random.default_rng(1).integers(0, 1 << 62, 4096)
    found = buddy.analyze({"zeros": zeros, "noise": noise})
    one, two = found.arrays
    assert (one.name, one.dtype, one.shape, one.bytes) == ("zeros", "f32", (64, 32), 8192)
    assert one.auto.target == "16x" and one.auto.fit.histogram["zero"] == 64
    assert two.auto.target == "1x" and two.auto.fit.ratio == 1
    # A strided view is analysed in its logical order.
    assert buddy.analyze(noise[::2]).arrays[0].bytes == noise.nbytes // 2


def test_the_stubs_have_what_the_native_module_has():
    stubs = ast.parse(pathlib.Path(buddy._native.__file__).with_name("_native.pyi").read_text())
    named = {one.name for one in stubs.body if isinstance(one, (ast.ClassDef, ast.FunctionDef))}
    assert named == {name for name in dir(buddy._native) if not name.startswith("_")}


def test_a_notebook_shows_the_page():
    shown = buddy.analyze(numpy.zeros(1000))._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "&lt;svg" in shown


def test_invalid_arguments_raise_with_the_reason(tmp_path):
    with pytest.raises(ValueError, match="threshold is from 0 to 1"):
        buddy.analyze(numpy.zeros(3), threshold=2)
    with pytest.raises(TypeError, match="analyze takes paths, arrays and tensors"):
        buddy.analyze(3)
    with pytest.raises(ValueError, match="missing.npy"):
        buddy.analyze(tmp_path / "missing.npy")
    with pytest.raises(TypeError, match="elements of type object"):
        buddy.analyze(numpy.array([None]))


def test_the_command_is_in_the_package():
    run = lambda *arguments: subprocess.run([sys.executable, "-m", "buddy", *arguments], capture_output=True, text=True)
    assert run("--version").stdout.startswith("buddy 0.")
    assert run("analyze").returncode == 2
    assert run("analyze", "nowhere.bin").returncode == 1


def test_the_compiler_is_found_in_the_wheels(tmp_path, monkeypatch):
    for name in ["cu13/lib/libnvrtc.so.13", "cuda_nvrtc/lib/libnvrtc.so.12", "cu13/lib/libnvrtc-builtins.so.13.0"]:
        (tmp_path / "nvidia" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / name).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    found = {path.name for path in libraries._in_wheels()}
    assert found == {"libnvrtc.so.13", "libnvrtc.so.12"}
    # Files that are not libraries are skipped.
    monkeypatch.setattr(libraries, "NAMES", [])
    assert not libraries.load_compiler()
