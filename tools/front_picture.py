#!/usr/bin/env python3
"""Draws pictures from measured records: the README's (a model, programs, and the simulator against a
GPU), and that of vLLM's guide.

    tools/front_picture.py          writes docs/img/front.svg and docs/img/vllm.svg

Its sources are docs/records/llm-decode-8b-*.json and vllm-*.json, the table of public programs in
docs/notes/public-programs.md and docs/records/correlation-h200-programs.json.
"""

import json
import math
import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
PLAIN, BUDDY, INK, FAINT = "#8f8f8f", "#1f6fb2", "#222222", "#dddddd"
WIDTH, HEIGHT, PANEL = 960, 330, 320


def text(x, y, words, size=12, anchor="start", weight="normal", fill=INK):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-family="sans-serif" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{fill}">{words}</text>')


def bar(x, y, width, height, fill):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'


def head(left, title, below):
    return [text(left, 22, title, 15, weight="bold"), *(text(left, 40 + 16 * i, line, fill="#555555") for i, line in enumerate(below))]


def model(left):
    """Draws memory and speed of one sequence, plain and with Buddy."""
    record = json.loads(next(DOCS.glob("records/llm-decode-8b-*.json")).read_text())
    case = record["cases"][0]
    memory = [(record["plain_weights"] + case["plain_cache"]) / 1e9, (case["weights"] + case["cache"]) / 1e9]
    speed = [case["plain_compiled_tokens_s"], case["buddy_tokens_s"]]
    out = head(left, "Models", ["Llama 3.1 8B shapes, bf16, 1 x 1,024 tokens,", "one H200; every bit of the weights as it was"])
    y = 90
    for title, unit, values, digits in [("memory", "GB", memory, 1), ("speed", "tokens/s", speed, 0)]:
        out.append(text(left, y, title, weight="bold"))
        for name, value, fill in zip(["PyTorch, compiled", "Buddy"], values, [PLAIN, BUDDY]):
            y += 26
            width = 112 * value / max(values)
            out += [text(left, y + 4, name), bar(left + 112, y - 10, width, 18, fill),
                    text(left + 116 + width, y + 4, f"{value:.{digits}f} {unit}")]
        y += 44
    return out


def programs(left):
    """Draws the ratio of each public CUDA program."""
    table = (DOCS / "notes/public-programs.md").read_text().split("<!-- table public -->")[1].split("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    ratios = {row[0]: float(row[5].rstrip("x")) for row in rows}
    mean = ratios.pop("mean")
    out = head(left, "HPC", [f"{len(ratios)} public CUDA programs, unmodified, watched on", f"an H200: data for each byte of memory, mean {mean:.2f}x"])
    top, bottom, step = 84, 244, 270 / len(ratios)
    height = (bottom - top) / 4
    for line in range(5):
        y = bottom - line * height
        out += [f'<path d="M{left + 22} {y:.1f}H{left + 292}" stroke="{INK if line == 1 else FAINT}"/>', text(left + 16, y + 4, f"{line}x", 11, "end")]
    for number, (name, ratio) in enumerate(sorted(ratios.items(), key=lambda row: -row[1])):
        x = left + 24 + number * step
        out.append(bar(x, bottom - ratio * height, step - 4, ratio * height, BUDDY))
        out.append(f'<g transform="translate({x + 8:.1f} {bottom + 8}) rotate(55)">{text(0, 0, name, 9)}</g>')
    return out


def simulator(left):
    """Draws simulated times over measured times."""
    rows = json.loads((DOCS / "records/correlation-h200-programs.json").read_text())["data"]["rows"]
    pairs = [(row["card_ns"] / 1e3, row["model_ns"] / 1e3) for row in rows]
    error = sum(abs(model / card - 1) for card, model in pairs) / len(pairs)
    out = head(left, "Architects", [f"{len(pairs)} kernels of public programs: time on the modelled",
                                    f"H200 beside the card's, mean error {100 * error:.1f}%"])
    top, bottom, side = 84, 274, 190
    least, most = 1, 10 ** math.ceil(math.log10(max(map(max, pairs))))
    place = lambda value: side * math.log(value / least) / math.log(most / least)
    x0 = left + 58
    for power in range(round(math.log10(most)) + 1):
        at, name = place(10 ** power), f"{10 ** power:,}"
        out += [f'<path d="M{x0 + at:.1f} {top}V{bottom}M{x0} {bottom - at:.1f}H{x0 + side}" stroke="{FAINT}"/>',
                text(x0 + at, bottom + 14, name, 10, "middle"), text(x0 - 5, bottom - at + 4, name, 10, "end")]
    out.append(f'<path d="M{x0} {bottom}L{x0 + side} {top}" stroke="{INK}" stroke-dasharray="4 3"/>')
    out += [f'<circle cx="{x0 + place(card):.1f}" cy="{bottom - place(model):.1f}" r="3.5" fill="{BUDDY}" fill-opacity="0.75"/>'
            for card, model in pairs]
    out.append(text(x0 + side / 2, bottom + 30, "card, µs", 11, "middle"))
    out.append(f'<g transform="translate({left + 12} {(top + bottom) / 2}) rotate(-90)">{text(0, 0, "model, µs", 11, "middle")}</g>')
    return out


def serving(left, shape, title):
    """Draws the speed of vLLM with packed weights relative to plain, by sequences."""
    newest = max(DOCS.glob(f"records/vllm-{shape}-*.json"), key=lambda path: path.name)  # names end with dates
    record = json.loads(newest.read_text())
    plain, packed = ({one["batch"]: one["tokens_s"] for one in variant["decode"]} for variant in record["results"].values())
    out = head(left, title, ["Decode in vLLM 0.26 on one H200 after 1,024", "tokens: speed of Buddy relative to plain bf16"])
    bottom, height, step = 250, 110, 44
    for line in [0, 0.5, 1]:
        y = bottom - line * height
        out += [f'<path d="M{left + 28} {y:.1f}H{left + 300}" stroke="{INK if line == 1 else FAINT}"/>', text(left + 22, y + 4, f"{line:g}", 11, "end")]
    for number, batch in enumerate(plain):
        x, ratio = left + 34 + number * step, packed[batch] / plain[batch]
        out += [bar(x, bottom - ratio * height, step - 12, ratio * height, BUDDY if ratio >= 1 else PLAIN),
                text(x + (step - 12) / 2, bottom - ratio * height + 15, f"{ratio:.2f}", 11, "middle", fill="white"), text(x + (step - 12) / 2, bottom + 16, batch, 11, "middle")]
    out.append(text(left + 160, bottom + 34, "sequences at once", 11, "middle"))
    return out


def write(name, width, height, panels):
    box = f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    picture = "\n".join([f"<svg {box}>", bar(0, 0, width, height, "white"), *panels, "</svg>"])
    (DOCS / "img" / name).write_text(picture + "\n")


def main():
    panels = [line for number, panel in enumerate([model, programs, simulator]) for line in panel(14 + PANEL * number)]
    write("front.svg", WIDTH, HEIGHT, panels)
    dense, experts = serving(14, "llama-8b", "Llama 3.1 8B's shapes"), serving(14 + PANEL, "qwen3-30b", "Qwen3 30B-A3B's shapes, packed experts")
    write("vllm.svg", 2 * PANEL, 300, dense + experts)


if __name__ == "__main__":
    main()
