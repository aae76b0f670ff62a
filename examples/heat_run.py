# Writes a run of three snapshots: heat that spreads over a plate, and the plate's material.
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file

out = pathlib.Path("run")
out.mkdir()
heat = np.zeros((48, 48))
heat[20:28, 20:28] = 100.0
material = np.ones((48, 48), np.uint8)
arrays = {"heat": heat, "material": material}
types = {"float64": "f64", "uint8": "u8"}

run = {
    "version": 1,
    "program": "heat",
    "parameters": {"size": 48},
    "allocations": [
        {"name": name, "call_site": "heat_run.py", "bytes": a.nbytes, "dtype": types[str(a.dtype)]}
        for name, a in arrays.items()
    ],
    "snapshots": [],
}
for step in range(21):
    if step % 10 == 0:
        file = f"snapshot-{step // 10}.safetensors"
        save_file(arrays, out / file)
        run["snapshots"].append({"step": step, "file": file})
        (out / "run.json").write_text(json.dumps(run, indent=2) + "\n")
    around = heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:]
    heat[1:-1, 1:-1] = 0.5 * heat[1:-1, 1:-1] + 0.125 * around
