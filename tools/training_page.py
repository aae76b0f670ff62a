#!/usr/bin/env python3
"""Writes the tables and the picture of docs/guide/training.md and docs/notes/training.md from a
record of tools/train_bench.py.

    tools/training_page.py          reads docs/records/training-h200-*.json, writes the pages and docs/img/training.svg
"""

import json
import re

from front_picture import BUDDY, DOCS, FAINT, INK, PLAIN, text

WAYS = {
    "plain": "plain",
    "packed 2x": "`compress_saved(model)`",
    "packed 2x device": '`compress_saved(model, overflow="device")`',
    "swapped packed 2x": "`swap_(model)`, `compress_saved(model)`",
    "swapped packed 2x device": 'the same, `overflow="device"`',
    "packed 4/3x": '`least="4/3x"`',
    "packed 4/3x 75%": '`least="4/3x", share=0.75`',
    "swapped packed 4/3x": '`swap_(model)`, `least="4/3x"`',
    "packed alone 4/3x": '`least="4/3x", recompute=()`: packed only',
    "packed alone 4/3x device": 'the same, `overflow="device"`',
    "selective": "selective checkpointing: products and attention are kept",
    "checkpoint": "checkpoint of every block",
    "save_on_cpu": "`save_on_cpu(pin_memory=True)`",
    "compiled 0.5": "compiled blocks, `activation_memory_budget = 0.5`",
    "compiled": "compiled blocks",
}
NETWORKS = {"gpt": "GPT", "gpt-relu2": "GPT, squared ReLU", "resnet50": "ResNet50"}
OURS = {"packed 2x": "default", "swapped packed 2x": "swapped", "packed 4/3x": "4/3x", "swapped packed 4/3x": "swapped, 4/3x",
        "packed alone 4/3x": "packed only"}
# In a CUDA graph, compared with plain in one; and with a limit on PyTorch's memory.
GRAPHED, LIMITED = re.compile("graphed ?(.*)"), re.compile("(.*) in ([0-9.]+)GB")


def share(value, plain):
    return f"{100 * (value / plain - 1):+.0f}%" if abs(value / plain - 1) >= 0.095 else f"{100 * (value / plain - 1):+.1f}%"


def way(mode):
    """Returns a mode's key, and its description."""
    if found := GRAPHED.fullmatch(mode):
        mode = found[1] or "plain"
    if found := LIMITED.fullmatch(mode):
        return found[1], f"{WAYS[found[1]]}, where PyTorch may take {found[2]} GB"
    return mode, WAYS[mode]


def table(rows, plain):
    """Renders steps and bytes, each with its difference from plain."""
    order = list(WAYS)
    lines = ["| way | step | least | allocated | reserved | driver |", "|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: order.index(way(row["mode"])[0])):
        cells = [f"{row['ms']:.1f} ms", f"{row['ms_least']:.1f} ms", *(f"{row[key] / 1e9:.2f} GB" for key in ["allocated", "reserved", "driver"])]
        if row is not plain:
            for i, key in enumerate(["ms", "ms_least", "allocated", "reserved", "driver"]):
                cells[i] += f" ({share(row[key], plain[key])})"
        lines.append(" | ".join([f"| {way(row['mode'])[1]}", *cells]) + " |")
    return "\n".join(lines)


def tables(by_network):
    """Yields the tables by name: single steps, and steps in graphs."""
    for name, rows in by_network.items():
        graphed = [row for row in rows if GRAPHED.fullmatch(row["mode"])]
        alone = [row for row in rows if row not in graphed]
        yield name, table(alone, next(row for row in alone if row["mode"] == "plain"))
        yield f"{name} in a graph", table(graphed, next(row for row in graphed if row["mode"] == "graphed"))


def panel(left, name, rows):
    """Draws memory over time of each way; plain is 100%."""
    plain = next(row for row in rows if row["mode"] == "plain")
    rows = [row for row in rows if row["mode"] in WAYS]
    shown = [(100 * row["ms_least"] / plain["ms_least"], 100 * row["driver"] / plain["driver"], row["mode"]) for row in rows]
    shown = [point for point in shown if point[0] <= 170]
    place = lambda time, memory: (left + 40 + (time - 90) * 3.1, 300 - (memory - 20) * 2.8)
    out = [text(left + 40, 24, NETWORKS[name], 15, weight="bold")]
    for percent in range(20, 120, 20):
        y = place(0, percent)[1]
        out += [f'<path d="M{left + 40} {y:.0f}H{left + 290}" stroke="{FAINT}"/>', text(left + 36, y + 4, f"{percent}%", 10, "end")]
    for percent in range(100, 171, 20):
        out.append(text(place(percent, 0)[0], 318, f"{percent}%", 10, "middle"))
    for time, memory, mode in shown:
        x, y = place(time, memory)
        fill = BUDDY if mode in OURS else PLAIN
        side = (x - 7, y + 4, OURS.get(mode, mode), 10, "end") if time > 140 else (x + 7, y + 4, OURS.get(mode, mode), 10)
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}"/>', text(*side, fill=fill if mode in OURS else INK)]
    return out


def picture(by_network):
    parts = [one for i, (name, rows) in enumerate(by_network.items()) for one in panel(300 * i, name, rows)]
    title = text(450, 340, "least time of a step; upwards: memory of the driver; plain is 100%, ours in blue, beyond 170% not shown", 11, "middle")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 350" width="900" height="350"><rect width="900" height="350" fill="white"/>'
            + "".join(parts) + title + "</svg>\n")


def main():
    record = json.loads(max(DOCS.glob("records/training-h200-*.json")).read_text())
    by_network = {name: [row for row in record["found"] if row["network"] == name] for name in NETWORKS}
    pages = {path: path.read_text() for path in [DOCS / "guide/training.md", DOCS / "notes/training.md"]}
    for name, lines in tables(by_network):
        pattern = re.compile(rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        found = [path for path, words in pages.items() for _ in pattern.finditer(words)]
        assert len(found) == 1, f"the pages of training have {len(found)} places for the table of {name}"
        pages[found[0]] = pattern.sub(lambda mark, lines=lines: f"{mark[1]}\n{lines}\n\n{mark[2]}", pages[found[0]])
    for path, words in pages.items():
        path.write_text(words)
    (DOCS / "img/training.svg").write_text(picture(by_network))


if __name__ == "__main__":
    main()
