#!/usr/bin/env python3
"""Makes the files of this folder again: `python3 make.py` (needs numpy, h5py and torch)."""

import collections
import struct
import zlib

import h5py
import numpy as np
import torch

# Every way that HDF5 lays out a dataset, and some that are left out.
with h5py.File("fields.h5", "w") as file:
    steps = np.arange(600, dtype=np.float64).reshape(20, 30)
    file["contiguous"] = steps
    file.create_dataset("chunked", data=steps.astype(np.float32), chunks=(7, 11))
    file.create_dataset("flow/deflated", data=steps.astype(np.int32), chunks=(10, 10), compression="gzip", shuffle=True)
    file["flow/big_endian"] = np.arange(5, dtype=">i2")
    file["flow/deep/half"] = np.arange(4, dtype=np.float16)
    file["title"] = "text is no array of numbers"

# Links that double, and one that leads back: more ways than anybody can walk.
with h5py.File("links.h5", "w", libver="latest") as file:
    group = file
    for _ in range(28):
        below = group.create_group("a")
        group["b"] = below
        group = below
    group["back"] = file["/"]
    group["found"] = np.arange(5, dtype=np.int32)

# A training checkpoint: a state dictionary with a tied weight and a view, and an optimizer's state.
weight = torch.arange(12, dtype=torch.float32).reshape(3, 4).to(torch.bfloat16)
model = collections.OrderedDict(
    [("embed.weight", weight), ("head.weight", weight), ("head.bias", torch.arange(3, dtype=torch.float32))]
)
moments = torch.arange(24, dtype=torch.float32)
optimizer = {"state": {0: {"exp_avg": moments[:12].reshape(3, 4), "step": torch.tensor(7, dtype=torch.int64)}}}
torch.save({"model": model, "optimizer": optimizer, "epoch": 3}, "state.pt")
torch.save(torch.nn.Parameter(torch.ones(2, 2)), "parameter.pt")

# Nothing but a dataset of other datasets.
with h5py.File("virtual.h5", "w", libver="latest") as file:
    layout = h5py.VirtualLayout(shape=(12,), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "d", shape=(12,))
    file.create_virtual_dataset("d", layout)

# Thirty small datasets, each of which says that its values are at the start of the same chunk of 64 MiB.
elements = 1 << 23
deflated = zlib.compress(bytes(8 * elements), 9)
with h5py.File("shared.h5", "w") as file:
    for index in range(30):
        dataset = file.create_dataset(
            f"d{index}", (10,), "f8", maxshape=(None,), chunks=(elements,), compression="gzip", compression_opts=9
        )
        dataset.id.write_direct_chunk((0,), b"\x0b" * 11 if index else deflated)
    whole = file["d0"].id.get_chunk_info(0)
with open("shared.h5", "rb") as file:
    shared = bytearray(file.read())
key = struct.pack("<II", 11, 0) + bytes(16)
at = -1
while (at := shared.find(key, at + 1)) >= 0:
    struct.pack_into("<I", shared, at, whole.size)
    struct.pack_into("<Q", shared, at + 24, whole.byte_offset)
with open("shared.h5", "wb") as file:
    file.write(shared)
