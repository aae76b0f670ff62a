"""Writes every N-th page of the live tensors as a run (docs/reference/snapshots.md), for codecs
without kernels, and for machines without a GPU.

A run has every allocation in every snapshot. A tensor that is not alive is written as zeros, and
`alive` in the parameters lists the living ones, so that its sizes can be left out afterwards.
"""

import ctypes
import json

import numpy as np
import torch

PAGE_BYTES = 8192
TYPES = {"f32": "F32", "i64": "I64"}


class Pages:
    """The whole pages of a piece of device memory, as an array for PyTorch."""

    def __init__(self, row):
        shape = (row.bytes // PAGE_BYTES, PAGE_BYTES)
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "|u1", "data": (row.data, False), "version": 2}


def pages_of(row, device):
    """Returns the whole pages of a live tensor as rows, without a copy."""
    if device == "cuda":
        return torch.as_tensor(Pages(row), device=device)
    size = row.bytes // PAGE_BYTES * PAGE_BYTES
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(row.data), dtype=torch.uint8).view(-1, PAGE_BYTES)


class Samples:
    """The sampled pages of the snapshots of one step, in host memory until they are written."""

    def __init__(self, every, device):
        self.every, self.device = every, device
        self.snapshots, self.rows = [], {}

    def snapshot(self, label, rows):
        pages = {row.name: pages_of(row, self.device)[:: self.every].cpu().clone() for row in rows}
        self.snapshots.append((label, pages))
        self.rows.update({row.name: row for row in rows})

    def write(self, folder, program, parameters, dtypes):
        """Writes the run; types that no snapshot file has are written as bytes."""
        folder.mkdir(parents=True)
        last = {name: pages for _, found in self.snapshots for name, pages in found.items()}
        allocations, base = [], 0
        for name, pages in last.items():
            dtype = dtypes[self.rows[name].dtype]
            allocations.append({"name": name, "call_site": self.rows[name].kind, "base": base,
                                "bytes": pages.nbytes, "dtype": dtype if dtype in TYPES else "u8"})
            base += pages.nbytes
        described = []
        for index, (label, found) in enumerate(self.snapshots):
            file = f"snapshot-{index}.safetensors"
            described.append({"step": index, "label": label, "file": file})
            write_file(folder / file, allocations, lambda name: found.get(name, torch.zeros_like(last[name])).numpy())
        alive = [sorted(found) for _, found in self.snapshots]
        run = {"version": 1, "program": program, "parameters": {**parameters, "every": self.every, "alive": alive},
               "allocations": allocations, "snapshots": described}
        (folder / "run.json").write_text(json.dumps(run))


def write_file(path, allocations, pages_of):
    """Writes a safetensors file."""
    header, at = {}, 0
    for one in allocations:
        dtype = TYPES.get(one["dtype"], "U8")
        size = {"F32": 4, "I64": 8, "U8": 1}[dtype]
        header[one["name"]] = {"dtype": dtype, "shape": [one["bytes"] // size], "data_offsets": [at, at + one["bytes"]]}
        at += one["bytes"]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for one in allocations:
            np.ascontiguousarray(pages_of(one["name"])).tofile(file)


def to_record(profile):
    """Returns the run record of a profile of a sampled run, without the sizes of tensors that were
    not alive and without the list of the living."""
    run = dict(profile["data"]["run"])
    run["snapshots"] = [{key: value for key, value in one.items() if key != "file"} for one in run["snapshots"]]
    run["parameters"] = dict(run["parameters"])
    sizes = []
    for index, alive in enumerate(run["parameters"].pop("alive")):
        sizes.append([])
        for info, found in zip(run["allocations"], profile["data"]["allocations"]):
            living = info["name"] in alive
            sizes[-1].append({"histograms": {codec: all[index] for codec, all in found["histograms"].items()} if living else {}})
    return {"kind": "run", "version": 1, "tool": profile["tool"], "data": {"run": run, "sizes": sizes}}
