"""Ten looks at a training step, and the run record that they make (docs/snapshots.md)."""

import time

import numpy as np
import torch

from .tensors import KINDS

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64", torch.int32: "i32",
          torch.uint8: "u8", torch.bool: "bool", torch.float64: "f64"}
# The paper's codec, and those that suit the type.
CODECS = {"f32": ["bpc", "fp32", "zeros32"], "bf16": ["bpc", "bf16", "zeros16"], "f16": ["bpc", "fp16", "zeros16"],
          "i64": ["bpc", "planes64", "zeros64"], "f64": ["bpc", "planes64", "zeros64"]}
PLAIN = ["bpc", "zeros16", "zeros32"]
ENTRY, PAGE = 128, 64
# Tensors below this are left out, and counted.
SMALLEST = 64 * 1024
ROWS, ROWS_IN_ALL = 24, 2000


class Recorder:
    """Takes the snapshots of one step."""

    def __init__(self, buddy, tensors, codecs, footprint):
        self.buddy, self.tensors, self.codecs = buddy, tensors, codecs
        self.pages_per_row = max(footprint // (ENTRY * PAGE) // ROWS_IN_ALL, 1)
        self.snapshots, self.allocations, self.left_out = [], {}, {}

    def snapshot(self, label, phase, name, tensor):
        torch.cuda.synchronize()
        start = time.perf_counter()
        rows = [row for row in self.tensors.live(phase, name, tensor) if self.wanted(row)]
        stream = torch.cuda.current_stream().cuda_stream
        spans, at = [], 0
        classes = torch.empty(sum(entries(row) for row in rows), dtype=torch.uint8, device=self.tensors.device)
        for row in rows:
            for codec in self.trained(row, stream):
                spans.append((row.data, row.bytes, codec, classes.data_ptr() + at if codec == "bpc" else 0))
            at += entries(row)
        counting = time.perf_counter()
        sizes = self.buddy.histograms(spans, stream)
        counted = time.perf_counter()
        pages = self.page_maps(rows, classes)
        found = {row.name: {} for row in rows}
        for (row, codec), one in zip(((row, codec) for row in rows for codec in codecs_of(row)), sizes):
            found[row.name][codec] = (one["classes"].tolist(), int(one["optimistic_bytes"]))
        end = time.perf_counter()
        for row in rows:
            self.allocations.setdefault(row.name, (row.kind, row.bytes, DTYPES[row.dtype]))
        self.snapshots.append({
            "label": label, "found": found, "pages": pages, "bytes": sum(row.bytes for row in rows),
            "count_ms": 1e3 * (counted - counting), "all_ms": 1e3 * (end - start),
        })

    def wanted(self, row):
        if row.bytes < SMALLEST:
            self.left_out[row.name] = row.bytes
        return row.bytes >= SMALLEST

    def trained(self, row, stream):
        """The codecs for a tensor. What one learns of a tensor it keeps in later steps."""
        for codec in codecs_of(row):
            if codec == "bf16":
                if row.name not in self.codecs:
                    self.codecs[row.name] = self.buddy.train(codec, row.data, row.bytes, stream)
                codec = self.codecs[row.name]
            yield codec

    def page_maps(self, rows, classes):
        """Some pages of every tensor: one digit for each entry, copied in one piece."""
        if not rows:
            return {}
        starts, shapes, at = [], [], 0
        for row in rows:
            pages = -(-entries(row) // PAGE)
            count = min(max(pages // self.pages_per_row, 1), ROWS, pages)
            starts.append(at + PAGE * (np.arange(count) * pages // count))
            shapes.append((row.name, pages, count, entries(row), at))
            at += entries(row)
        places = np.concatenate(starts)[:, None] + np.arange(PAGE)
        places = torch.from_numpy(np.minimum(places, at - 1)).to(classes.device)
        digits = (classes[places] + ord("0")).cpu().numpy()
        maps, first = {}, 0
        for name, pages, count, length, start in shapes:
            cut = [min(length - (int(page) - start), PAGE) for page in starts[len(maps)]]
            lines = [digits[first + i, :cut[i]].tobytes().decode() for i in range(count)]
            maps[name] = {"pages": pages, "rows": lines}
            first += count
        return maps

    def record(self, program, parameters, step, tool, seed):
        """The record, as docs/snapshots.md describes it."""
        order = {name: (KINDS.index(row[0]), self.tensors.place(name)) for name, row in self.allocations.items()}
        names = sorted(self.allocations, key=order.get)
        last = {name: index for index, one in enumerate(self.snapshots) for name in one["found"]}
        kept = {name: unbeaten([one["found"][name] for one in self.snapshots if name in one["found"]]) for name in names}
        base, allocations = 0x7F00_0000_0000, []
        for name in names:
            kind, size, dtype = self.allocations[name]
            allocations.append({"name": name, "call_site": kind, "base": base, "bytes": size, "dtype": dtype})
            base += -(-size // 512) * 512
        sizes = []
        for index, one in enumerate(self.snapshots):
            row = []
            for name in names:
                found = one["found"].get(name, {})
                histograms = {codec: {"classes": found[codec][0], "optimistic_bytes": found[codec][1]}
                              for codec in kept[name] if codec in found}
                pages = {"bpc": one["pages"][name]} if last[name] == index else None
                row.append({"histograms": histograms, **({"pages": pages} if pages else {})})
            sizes.append(row)
        run = {"version": 1, "program": program, "parameters": parameters, "allocations": allocations,
               "snapshots": [{"step": step, "label": one["label"]} for one in self.snapshots]}
        return {"kind": "run", "version": 1, "tool": tool, "seed": seed, "data": {"run": run, "sizes": sizes}}


def codecs_of(row):
    return CODECS.get(DTYPES[row.dtype], PLAIN)


def entries(row):
    return -(-row.bytes // ENTRY)


def unbeaten(snapshots):
    """The paper's codec, and those that no other one matches or betters at every size in every snapshot."""
    def beats(left, right):
        sums = [(np.cumsum(one[left][0]), np.cumsum(one[right][0])) for one in snapshots]
        return all((a >= b).all() for a, b in sums)

    kept = ["bpc"]
    for codec in snapshots[0]:
        if codec != "bpc" and not any(beats(other, codec) for other in kept):
            kept = [other for other in kept if other == "bpc" or not beats(codec, other)] + [codec]
    return kept
