"""Time to load a model file to the GPU, plain and packed: ``python -m buddy.bench load``."""

from __future__ import annotations

import json
import pathlib
import tempfile
import time

import torch

from ..models import FileCheck, pack_model
from ..torch import PackedTensor

SIZE = (4096, 4096)


def write_model(path: pathlib.Path, count: int) -> None:
    """Writes a safetensors file of ``count`` matrices with normal weights."""
    size = 2 * SIZE[0] * SIZE[1]
    header = {f"{i}.weight": {"dtype": "BF16", "shape": SIZE, "data_offsets": [i * size, (i + 1) * size]} for i in range(count)}
    text = json.dumps(header).encode()
    generator = torch.Generator(device="cuda").manual_seed(1)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(count):
            weight = (torch.randn(SIZE, generator=generator, device="cuda") * 0.02).bfloat16()
            file.write(weight.view(torch.uint8).cpu().numpy().tobytes())


def to_gpu(path: pathlib.Path, check: bool = False) -> tuple[dict[str, torch.Tensor], float]:
    """Copies every tensor of a mapped file to the GPU; returns the bytes and the seconds. ``check``
    compares the file with its checksums meanwhile, as ``from_pretrained`` does."""
    started = time.perf_counter()
    checking = FileCheck([path]) if check else None
    raw = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
    first = 8 + int.from_bytes(bytes(raw[:8].tolist()), "little")
    header = json.loads(bytes(raw[8:first].numpy()))
    header.pop("__metadata__", None)
    found = {name: raw[slice(*(first + at for at in one["data_offsets"]))].to("cuda") for name, one in header.items()}
    if checking is not None:
        checking.finish()
    torch.cuda.synchronize()
    return found, time.perf_counter() - started


def measure(count: int) -> dict:
    """Loads a file of ``count`` matrices of 33.6 MB from the page cache, plain, packed, and packed with its
    checksums compared; the fastest of three."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: pathlib.Path(folder, f"{name}.safetensors") for name in ["plain", "packed"]}
        write_model(files["plain"], count)
        pack_model(files["plain"], files["packed"])
        seconds = {f"{name}_s": min(to_gpu(path)[1] for _ in range(3)) for name, path in files.items()}
        seconds["checked_s"] = min(to_gpu(files["packed"], check=True)[1] for _ in range(3))
        tensors, there = (to_gpu(path)[0] for path in files.values())
        for name, bytes_ in tensors.items():
            unpacked = PackedTensor.read(there[name], SIZE, torch.bfloat16).unpack()
            assert torch.equal(unpacked.view(torch.uint8), bytes_.view(SIZE[0], -1)), name
        sizes = {f"{name}_bytes": path.stat().st_size for name, path in files.items()}
    return {"load": count} | seconds | sizes
