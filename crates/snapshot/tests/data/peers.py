#!/usr/bin/env python3
"""Makes the files of peers/ and the verdicts of their own readers: `python3 peers.py [FLIPS]`.

Needs numpy, h5py, torch, gguf and safetensors. Each file is written once, then read by its peer as it is, cut
short, and with single bits flipped. `verdicts.json` holds what the peer found: for each array the CRC-32 of its
bytes, or null where it refuses. `tests/peers.rs` holds our readers against it.
"""

import io
import json
import multiprocessing
import os
import random
import struct
import sys
import warnings
import zlib

import gguf
import h5py
import numpy as np
import safetensors
import safetensors.numpy
import torch

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
FLIPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
STEPS = np.arange(240, dtype=np.float64).reshape(12, 20)


def hdf5_files():
    """Chunk indexes, layouts and types, each in a file of its own."""

    def chunked(name, libver, **options):
        with h5py.File(f"{name}.h5", "w", libver=libver) as file:
            file.create_dataset("d", data=STEPS.astype(np.float32), **options)

    chunked("tree1", "earliest", chunks=(5, 7))
    chunked("tree2", "latest", chunks=(5, 7), maxshape=(None, None))
    chunked("fixed", "latest", chunks=(5, 7))
    chunked("extensible", "latest", chunks=(5, 7), maxshape=(None, 20))
    chunked("single", "latest", chunks=(12, 20), compression="gzip")
    chunked("filters", "latest", chunks=(5, 7), compression="gzip", shuffle=True, fletcher32=True)
    chunked("scaled", "earliest", chunks=(5, 7), scaleoffset=2)
    chunked("contiguous", "earliest")
    with h5py.File("pages.h5", "w", libver="latest") as file:
        # Both arrays in pages, of which most were never written.
        fixed = file.create_dataset("fixed", (3000,), "u1", chunks=(1,), fillvalue=7)
        fixed[5], fixed[2100] = 1, 2
        long = file.create_dataset("extensible", (20000,), "u1", chunks=(1,), maxshape=(None,))
        long[3], long[1500], long[19999] = 1, 2, 3
    with h5py.File("types.h5", "w") as file:
        file["bool"] = np.array([True, False, True])
        file["complex"] = np.arange(4, dtype=np.complex64)
        file["big_complex"] = np.arange(4, dtype=">c16")
        record = np.dtype([("t", "<f8"), ("v", ">i2", (3,)), ("name", "S5"), ("in", [("a", "u1"), ("ok", "?")])])
        file["records"] = np.zeros(4, record)
        file["records"][1] = (2.5, (1, 2, 3), b"name", (9, True))
        file["array"] = np.zeros(2, np.dtype(("<u2", (2, 2))))
        file.create_dataset("enum", data=[0, 5], dtype=h5py.enum_dtype({"A": 0, "B": 5}, "i2"))
        file["text"] = np.array([b"ab", b"cd"])
        file["texts"] = ["a", "bcd"]
        file["link"] = h5py.SoftLink("/bool")
        file["other"] = h5py.ExternalLink("other.h5", "/d")
        file["again"] = file["bool"]
        file["empty"] = h5py.Empty("f4")
        file["none"] = np.zeros((0, 3), "f4")
        file["scalar"] = 3.5
        file["opaque"] = np.arange(3).astype("M8[s]").astype(h5py.opaque_dtype(np.dtype("M8[s]")))
        file.create_dataset("lzf", data=STEPS, compression="lzf")
        layout = h5py.VirtualLayout(shape=(12,), dtype="f8")
        layout[:] = h5py.VirtualSource(".", "scalar", shape=(12,))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("fill", (5,), "i4", fillvalue=-3)
    with h5py.File("bits.h5", "w") as file:
        for name, filters in [("plain", False), ("nbit", True)]:
            kind = h5py.h5t.STD_I32LE.copy()
            kind.set_precision(17)
            kind.set_offset(3)
            creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            creation.set_chunk((30,))
            if filters:
                creation.set_filter(h5py.h5z.FILTER_NBIT)
            space = h5py.h5s.create_simple((60,))
            dataset = h5py.h5d.create(file.id, name.encode(), kind, space, creation)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(-30, 30, dtype=np.int32))
    with h5py.File("groups.h5", "w", libver="latest") as file:
        for index in range(30):
            file[f"many/d{index}"] = np.full(3, index, np.int32)
        file["a/b/c/deep"] = np.arange(6, dtype=">f4")
    with h5py.File("block.h5", "w", userblock_size=512) as file:
        file["d"] = STEPS[0]


def torch_files():
    weight = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    base = torch.arange(40, dtype=torch.int64)
    state = {"w": weight.to(torch.bfloat16), "view": base[4:20:2], "all": base, "h": weight.half()}
    nested = {"model": state, "list": [torch.ones(3), torch.zeros(2, dtype=torch.bool)], "n": 3}
    torch.save(nested, "nested.pt")
    torch.save({"a": torch.zeros(4, dtype=torch.uint16), "f8": torch.zeros(5, dtype=torch.float8_e5m2)}, "new.pt")


def gguf_files():
    writer = gguf.GGUFWriter("model.gguf", "llama")
    writer.add_uint32("answer", 42)
    writer.add_array("tokens", ["a", "b"])
    writer.add_tensor("norm", np.arange(8, dtype=np.float32))
    writer.add_tensor("w", np.arange(64, dtype=np.float16).reshape(8, 8))
    q8 = gguf.quants.quantize(np.arange(64, dtype=np.float32).reshape(2, 32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def safetensors_files():
    tensors = {"a": STEPS.astype(np.float32), "b": np.arange(7, dtype=np.int8), "c": np.zeros((0, 4))}
    safetensors.numpy.save_file(tensors, "tensors.safetensors", {"format": "np"})


def crc(array):
    array = np.ascontiguousarray(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return zlib.crc32(array.tobytes())


def columns(name, array, found):
    """Adds the columns of numbers of an array."""
    if array.dtype.names:
        for field in array.dtype.names:
            columns(f"{name}.{field}", array[field], found)
    elif array.dtype.kind in "biufcVMm":
        found[name] = crc(array)


def read_hdf5(path):
    found = {}

    def visit(name, item):
        if not isinstance(item, h5py.Dataset):
            return
        try:
            if item.shape is None or item.is_virtual or item.compression == "lzf" or item.external:
                return
            if item.dtype.hasobject:
                return
            value = np.asarray(item[()])
            columns(name, value, found)
        except Exception:
            found[name] = None

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return found


def read_torch(path):
    value = torch.load(path, weights_only=True, map_location="cpu")
    found = {}

    def walk(value):
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found[storage.data_ptr()] = zlib.crc32(bytes(storage))
        elif isinstance(value, dict):
            [walk(item) for item in value.values()]
        elif isinstance(value, (list, tuple)):
            [walk(item) for item in value]

    walk(value)
    # Names of storages differ between readers, so their bytes are compared in order.
    return {str(index): sum for index, sum in enumerate(sorted(found.values()))}


def read_gguf(path):
    tensors = gguf.GGUFReader(path).tensors
    names = [tensor.name for tensor in tensors]
    assert len(set(names)) == len(names)
    return {tensor.name: zlib.crc32(tensor.data.tobytes()) for tensor in tensors}


def read_safetensors(path):
    with open(path, "rb") as file:
        return {name: zlib.crc32(info["data"]) for name, info in safetensors.deserialize(file.read())}


READERS = {"h5": read_hdf5, "pt": read_torch, "gguf": read_gguf, "safetensors": read_safetensors}


def verdict(path, pipe):
    warnings.simplefilter("ignore")
    sys.stderr = io.StringIO()
    try:
        pipe.send(READERS[path.rsplit(".", 1)[1]](path))
    except BaseException:
        pipe.send(None)


def judge(path):
    """Returns the verdict of the peer, which runs in its own process: it may crash or hang."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.Process(target=verdict, args=(path, theirs))
    child.start()
    theirs.close()
    found = "crash"
    if ours.poll(20):
        try:
            found = ours.recv()
        except EOFError:
            pass
    child.kill()
    child.join()
    return found


def main():
    os.makedirs(FOLDER, exist_ok=True)
    os.chdir(FOLDER)
    for make in [hdf5_files, torch_files, gguf_files, safetensors_files]:
        make()
    multiprocessing.set_start_method("fork")
    cases = []
    for name in sorted(os.listdir(".")):
        extension = name.rsplit(".", 1)[-1]
        if extension not in READERS or name.startswith("spoiled"):
            continue
        whole = open(name, "rb").read()
        changes = random.Random(name)
        damages = [[]] + [["cut", changes.randrange(len(whole))] for _ in range(6)]
        # Most bytes of a file are padding or values: structure is where bytes are not zero.
        places = [at for at in range(len(whole)) if whole[at]] or [0]
        damages += [["flip", changes.choice(places), changes.randrange(8)] for _ in range(FLIPS)]
        for damage in damages:
            spoiled = bytearray(whole)
            if damage and damage[0] == "cut":
                del spoiled[damage[1] :]
            elif damage:
                spoiled[damage[1]] ^= 1 << damage[2]
            path = f"spoiled.{extension}"
            with open(path, "wb") as file:
                file.write(spoiled)
            found = judge(path)
            os.remove(path)
            if found != "crash":
                cases.append([name, damage, found])
    with open("verdicts.json", "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
