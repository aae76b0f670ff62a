"""Takes ten snapshots of a training step and makes its run record (docs/reference/snapshots.md)."""

import time

import numpy as np
import torch

from .tensors import KINDS

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64", torch.int32: "i32",
          torch.uint8: "u8", torch.bool: "bool", torch.float64: "f64"}
# Both readings of the paper's codec, and those that suit the type.
PAPER = ["bpc", "bpc-best"]
CODECS = {"f32": ["fp32", "zeros32"], "bf16": ["bf16", "zeros16"], "f16": ["fp16", "zeros16"],
          "i64": ["planes64"], "f64": ["planes64"]}
PLAIN = ["zeros16", "zeros32"]
ENTRY, PAGE = 128, 64
ROWS, ROWS_IN_ALL = 24, 2000


class Recorder:
    """Takes the snapshots of one step. The program stops only while a snapshot is counted; the
    counts are processed later."""

    def __init__(self, buddy, tensors, codecs, footprint):
        self.buddy, self.tensors, self.codecs = buddy, tensors, codecs
        self.pages_per_row = max(footprint // (ENTRY * PAGE) // ROWS_IN_ALL, 1)
        self.snapshots, self.shown = [], {}

    def snapshot(self, label, phase, name, tensor):
        allocated = torch.cuda.memory_allocated()
        torch.cuda.synchronize()
        start = time.perf_counter()
        rows = self.tensors.live(phase, name, tensor)
        stream = torch.cuda.current_stream().cuda_stream
        spans, places, at = [], [], 0
        classes = torch.empty(sum(entries(row) for row in rows), dtype=torch.uint8, device=self.tensors.device)
        for row in rows:
            for codec in self.trained(row, stream):
                spans.append((row.data, row.bytes, codec, classes.data_ptr() + at if codec == "bpc" else 0))
            places.append(self.pages_of(row) * PAGE + at)
            at += entries(row)
        counting = time.perf_counter()
        sizes = self.buddy.histograms(spans, stream)
        counted = time.perf_counter()
        digits = shown(classes, np.concatenate(places))
        end = time.perf_counter()
        self.snapshots.append({
            "label": label, "rows": rows, "sizes": sizes, "digits": digits, "bytes": sum(row.bytes for row in rows),
            "allocated": allocated, "count_ms": 1e3 * (counted - counting), "all_ms": 1e3 * (end - start),
        })

    def trained(self, row, stream):
        """Returns the codecs for a tensor. Parameters are trained once and kept in later steps."""
        if row.name not in self.codecs:
            learn = {"bf16"}.intersection(codecs_of(row))
            self.codecs[row.name] = [self.buddy.train(codec, row.data, row.bytes, stream) if codec in learn else codec
                                     for codec in codecs_of(row)]
        return self.codecs[row.name]

    def pages_of(self, row):
        """Returns the pages of a tensor to sample."""
        if row.name not in self.shown:
            pages = pages_in(row)
            count = min(max(pages // self.pages_per_row, 1), ROWS, pages)
            self.shown[row.name] = np.arange(count) * pages // count
        return self.shown[row.name]

    def found(self, snapshot):
        """Returns a snapshot's results: sizes of each tensor with each codec, and the sampled
        pages."""
        sizes, digits = iter(snapshot["sizes"]), iter((snapshot["digits"] + ord("0")).cpu().numpy())
        found, maps = {}, {}
        for row in snapshot["rows"]:
            found[row.name] = {codec: (one["classes"].tolist(), int(one["optimistic_bytes"]))
                               for codec, one in zip(codecs_of(row), sizes)}
            lengths = np.minimum(entries(row) - self.pages_of(row) * PAGE, PAGE)
            lines = [next(digits)[:length].tobytes().decode() for length in lengths]
            maps[row.name] = {"pages": pages_in(row), "rows": lines}
        return found, maps

    def record(self, program, parameters, tool, seed):
        """Returns the record, as described in docs/reference/snapshots.md."""
        infos = {row.name: row for one in self.snapshots for row in one["rows"]}
        all_found, all_pages = zip(*(self.found(one) for one in self.snapshots))
        order = {name: (KINDS.index(row.kind), self.tensors.place(name)) for name, row in infos.items()}
        names = sorted(infos, key=order.get)
        last = {name: index for index, found in enumerate(all_found) for name in found}
        kept = {name: unbeaten([found[name] for found in all_found if name in found]) for name in names}
        base, allocations = 0x7F00_0000_0000, []
        for name in names:
            row = infos[name]
            allocations.append({"name": name, "call_site": row.kind, "base": base, "bytes": row.bytes,
                                "dtype": DTYPES[row.dtype]})
            base += -(-row.bytes // 512) * 512
        sizes = []
        for index, (all_sizes, pages_shown) in enumerate(zip(all_found, all_pages)):
            row = []
            for name in names:
                found = all_sizes.get(name, {})
                histograms = {codec: {"classes": found[codec][0], "optimistic_bytes": found[codec][1]}
                              for codec in kept[name] if codec in found}
                pages = {"bpc": pages_shown[name]} if last[name] == index else None
                row.append({"histograms": histograms, **({"pages": pages} if pages else {})})
            sizes.append(row)
        run = {"version": 1, "program": program, "parameters": parameters, "allocations": allocations,
               "snapshots": [{"step": index, "label": one["label"]} for index, one in enumerate(self.snapshots)]}
        return {"kind": "run", "version": 1, "tool": tool, "seed": seed, "data": {"run": run, "sizes": sizes}}


def shown(classes, starts):
    """Returns the classes of the pages that start at these entries, still on the GPU; undefined
    past the end."""
    places = torch.from_numpy(np.minimum(starts[:, None] + np.arange(PAGE), len(classes) - 1))
    return classes[places.to(classes.device)]


def codecs_of(row):
    return PAPER + CODECS.get(DTYPES[row.dtype], PLAIN)


def entries(row):
    return -(-row.bytes // ENTRY)


def pages_in(row):
    return -(-entries(row) // PAGE)


def unbeaten(snapshots):
    """Returns both readings of the paper's codec, and those that no other codec matches or beats at
    every size in every snapshot. The second reading does not count as another codec."""
    def beats(left, right):
        sums = [(np.cumsum(one[left][0]), np.cumsum(one[right][0])) for one in snapshots]
        return all((a >= b).all() for a, b in sums)

    kept = ["bpc"]
    for codec in snapshots[0]:
        if codec not in PAPER and not any(beats(other, codec) for other in kept):
            kept = [other for other in kept if other == "bpc" or not beats(codec, other)] + [codec]
    return [*PAPER, *kept[1:]]
