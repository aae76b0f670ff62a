"""First-use journeys of five kinds of users, with the expected output."""

import filecmp
import json

OWN_GPU = """\
base = "h200"
name = "half"

[core]
sms = 66
"""

PLAN = """\
name = "links"

[axes]
trace = "trace"
gpu = ["h200", "half.toml"]
mode = ["ideal", "buddy"]
targets = "2x"
link = "50..150 step 50"

[[skip]]
mode = "ideal"
link = "> 50"
"""


def models(me):
    """An engineer with a sharded bf16 model."""
    me.make("model", "Llama-mini")
    me.run("buddy analyze Llama-mini --html model.html --json model.json", r"bf16", r"lm_head\.weight", r"1\.33x")
    ratio = json.loads((me.folder / "model.json").read_text())["data"]["auto"]["ratio"]
    me.expect(1.32 < ratio < 1.34, f"the model's ratio is {ratio}")
    me.run("buddy analyze Llama-mini/config.json", code=1)
    me.run("buddy pack Llama-mini --out packed --verify", r"75\.\d%", r"verified")
    me.run("buddy verify packed", r"checked \d+ files")
    me.run("buddy unpack packed --out back")
    names = sorted(path.name for path in (me.folder / "Llama-mini").iterdir())
    same, _, _ = filecmp.cmpfiles(me.folder / "Llama-mini", me.folder / "back", names, shallow=False)
    me.expect(sorted(same) == names, f"unpacked files differ: {sorted(set(names) - set(same))}")


def hpc(me):
    """An engineer with HDF5 dumps over time."""
    me.make("dumps", "dumps")
    me.run("buddy analyze dumps/blast_00500.h5", r"fields/rho .*2\.0 MiB", r"mesh/level .*1\.0 MiB")
    me.run("buddy profile dumps --targets targets.toml --html dumps.html --verify", r"6 snapshots", r"read back bit for bit")
    me.expect('name = "fields/rho"' in (me.folder / "targets.toml").read_text(), "targets.toml names no fields/rho")
    me.run("buddy profile dumps --device-memory 2MiB --spec h200 --link pcie5", r"of 2\.0 MiB")
    me.run("buddy profile dumps --device-memory 100KiB", code=1)


def architect(me):
    """An architect with a trace, a GPU of their own and a sweep."""
    me.make("trace", "trace")
    me.write("half.toml", OWN_GPU)
    me.write("links.toml", PLAN)
    me.run("buddy trace info trace/kernel-1.traceg", r"warp instructions 114 688")
    me.run("buddy specs show half.toml", r'name = "half"', r"sms = 66")
    me.run("buddy simulate trace --spec half.toml --mode buddy --targets 2x --html run.html", r"half")
    me.run("buddy sweep links.toml --dry-run", r"8 points")
    me.run("buddy sweep links.toml", r"8")
    me.run("buddy sweep table links.toml --columns spec,mode,link,speed,capacity", r"half\.toml buddy 150")
    me.run("buddy sweep page links.toml")
    me.expect((me.folder / "links.html").exists(), "buddy sweep page wrote no links.html")


def reader(me):
    """A reader of the paper."""
    me.run("buddy reproduce --quick --only fig3 --out out", r"Eight sizes, HPC mean 2\.51x", r"1 figure in out/index\.html")
    me.run("buddy simulate cg --scale 4MB --sweep mode=ideal,buddy", r"ideal", r"buddy")


def notebook(me):
    """A user of a notebook."""
    me.make("model", "Llama-mini")
    me.make("dumps", "dumps")
    me.bring("notebook.ipynb")
    # A notebook is not a terminal: its cells scroll.
    me.run(f"python {me.here}/execute.py notebook.ipynb done.ipynb", r"\(1\.33, '4/3x'\)", r"a page of \d+ characters", r"fields/rho", r"bf16",
           columns=400)


JOURNEYS = [models, hpc, architect, reader, notebook]
