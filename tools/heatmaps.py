#!/usr/bin/env python3
"""Draws the heat maps of docs/workloads.md again: tools/heatmaps.py [NAME...].

For each workload: a run at 2% of the paper's footprint, `buddy analyze` on three of its ten snapshots, and one
picture of them from the analyses, docs/img/NAME.png. Needs cargo, and chromium to turn an SVG into a PNG. The classes
are those of BPC; the colours are those of the page that `buddy analyze --html` writes.
"""

import base64
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from html import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCALE = "0.02"
SHOWN = [0, 4, 9]
ROWS, PANEL, GAP, LEFT, TOP = 360, 192, 16, 132, 26
WIDTH = LEFT + len(SHOWN) * (PANEL + GAP)
HEIGHT = TOP + ROWS + 34
MEANING = ["zero", "8 B", "32 B", "64 B", "96 B", "128 B"]


def buddy(*arguments):
    command = ["cargo", "run", "--quiet", "--release", "--package", "buddy", "--", *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def colours():
    """The colours of the classes in the light theme, which comes first in the style sheet."""
    css = (ROOT / "crates/report/src/page.css").read_text()
    return [re.search(rf"--c{i}:\s*(#[0-9a-f]{{6}})", css)[1] for i in range(6)]


def stack(arrays):
    """Rows evenly spread over the pages of all arrays, each the nearest page that the analysis has."""
    maps = [array["bpc"]["pages"] for array in arrays]
    total = sum(each["pages"] for each in maps)
    rows = []
    for row in range(ROWS):
        page = row * total // ROWS
        for each in maps:
            if page < each["pages"]:
                rows.append(each["rows"][page * len(each["rows"]) // each["pages"]])
                break
            page -= each["pages"]
    return rows


def png(rows):
    """The rows as an image with one pixel for each entry; white past the end of an array."""
    palette = b"".join(bytes.fromhex(colour[1:]) for colour in [*colours(), "#ffffff"])
    lines = b"".join(b"\0" + bytes(int(digit) for digit in row.ljust(64, "6")) for row in rows)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 64, len(rows), 8, 3, 0, 0, 0)
    parts = [(b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def labels(arrays):
    """A tick where each array begins, and the names of those with room for one."""
    total = sum(array["bpc"]["pages"]["pages"] for array in arrays)
    parts, page, free = [], 0, 0
    for array in arrays:
        y = TOP + ROWS * page / total
        page += array["bpc"]["pages"]["pages"]
        middle = (y + TOP + ROWS * page / total) / 2
        parts.append(f'<path d="M{LEFT - 7} {y:.1f}h5" stroke="#999"/>')
        if middle - 6 >= free:
            free = middle + 6
            parts.append(f'<text x="{LEFT - 10}" y="{middle + 4:.1f}" text-anchor="end">{escape(array["name"])}</text>')
    return parts


def svg(snapshots):
    parts = labels(snapshots[0])
    for i, arrays in enumerate(snapshots):
        x = LEFT + i * (PANEL + GAP)
        data = base64.b64encode(png(stack(arrays))).decode()
        parts.append(f'<text x="{x}" y="{TOP - 9}">snapshot {SHOWN[i] + 1} of 10</text>')
        parts.append(
            f'<image x="{x}" y="{TOP}" width="{PANEL}" height="{ROWS}" preserveAspectRatio="none" '
            f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
        )
    for i, (colour, meaning) in enumerate(zip(colours(), MEANING)):
        x = LEFT + i * 84
        parts.append(f'<rect x="{x}" y="{HEIGHT - 20}" width="12" height="12" fill="{colour}" stroke="#999"/>')
        parts.append(f'<text x="{x + 17}" y="{HEIGHT - 10}">{meaning}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="11" fill="#333">{"".join(parts)}</svg>'
    )


def draw(name, scratch):
    buddy("workload", "run", name, "--scale", SCALE, "--out", scratch / "run")
    allocations = json.loads((scratch / "run/run.json").read_text())["allocations"]
    place = {allocation["name"]: allocation["base"] for allocation in allocations}
    snapshots = []
    for snapshot in SHOWN:
        buddy("analyze", scratch / f"run/snapshot-{snapshot}.safetensors", "--json", scratch / "analysis.json")
        arrays = json.loads((scratch / "analysis.json").read_text())["data"]["arrays"]
        snapshots.append(sorted(arrays, key=lambda array: place[array["name"]]))
    page = scratch / "map.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><style>body{{margin:0}}</style>{svg(snapshots)}')
    picture = ROOT / "docs/img" / f"{name}.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"]
    shot = [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={picture}", page.as_uri()]
    subprocess.run(["chromium", *options, *shot], check=True, stderr=subprocess.DEVNULL)
    print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size} bytes")


def main():
    all_names = "palm ep cg seismic sp csp ilbdc bt hpgmg lulesh".split()
    for name in sys.argv[1:] or all_names:
        with tempfile.TemporaryDirectory() as scratch:
            draw(name, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
