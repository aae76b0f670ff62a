"""Charts of a record of ``python -m buddy.bench decode`` as SVG: tokens per second, memory and
speedup."""

from __future__ import annotations

import json
import pathlib
import sys

WIDTH, BAR, GAP, LEFT, TOP = 720, 20, 22, 150, 46
COLOURS = {"plain, eager in a graph": "#b8b8b8", "plain, compiled": "#7a7a7a", "Buddy": "#1f6fb2"}
FACE = 'font-family="sans-serif" font-size="13"'


def label(case: dict) -> str:
    return f"{case['sequences']} x {case['context']:,} tokens"


def bars(title: str, groups: list[tuple[str, dict[str, float]]], unit: str, digits: int, mark: float | None = None) -> str:
    """Draws groups of bars, and a line at ``mark``."""
    most = max(value for _, values in groups for value in values.values())
    out, y = [], TOP
    for name, values in groups:
        out.append(f'<text x="{LEFT - 10}" y="{y + BAR * len(values) / 2 + 5:.0f}" text-anchor="end" {FACE}>{name}</text>')
        for kind, value in values.items():
            width = (WIDTH - LEFT - 110) * value / most
            out.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{COLOURS[kind]}"/>')
            out.append(f'<text x="{LEFT + width + 6:.1f}" y="{y + 14}" {FACE}>{value:,.{digits}f} {unit}</text>')
            y += BAR
        y += GAP
    if mark is not None:
        at = LEFT + (WIDTH - LEFT - 110) * mark / most
        out.append(f'<line x1="{at:.1f}" y1="{TOP - 4}" x2="{at:.1f}" y2="{y - GAP + 4}" stroke="#333" stroke-dasharray="4 3"/>')
    legend, x = [], LEFT
    for kind in dict.fromkeys(kind for _, values in groups for kind in values):
        legend.append(f'<rect x="{x}" y="26" width="12" height="12" fill="{COLOURS[kind]}"/><text x="{x + 17}" y="36" {FACE}>{kind}</text>')
        x += 40 + 8 * len(kind)
    head = f'<text x="8" y="18" font-weight="bold" {FACE}>{title}</text>'
    size = f'width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>{head}{"".join(legend + out)}</svg>\n'


def speed(record: dict) -> str:
    names = {"plain_eager_tokens_s": "plain, eager in a graph", "plain_compiled_tokens_s": "plain, compiled", "buddy_tokens_s": "Buddy"}
    groups = [(label(case), {names[key]: case[key] for key in names if key in case}) for case in record["cases"]]
    return bars(f"{record['shape']}, bf16, {record['gpu']}: tokens a second", groups, "/s", 0)


def memory(record: dict) -> str:
    groups = []
    for case in record["cases"]:
        plain = record["plain_weights"] + case["plain_cache"]
        groups.append((label(case), {"plain, compiled": plain / 1e9, "Buddy": (case["weights"] + case["cache"]) / 1e9}))
    return bars(f"{record['shape']}, bf16: weights, keys and values in device memory", groups, "GB", 1)


def gain(record: dict) -> str:
    """Draws the speedup over compiled PyTorch, and of a prompt over plain."""
    groups = [(label(case), {"Buddy": case["buddy_tokens_s"] / case["plain_compiled_tokens_s"]})
              for case in record["cases"] if "plain_compiled_tokens_s" in case]
    if "plain_s" in record.get("prefill", {}):
        prefill = record["prefill"]
        groups.append((f"a prompt of {prefill['prefill']:,}", {"Buddy": prefill["plain_s"] / prefill["buddy_s"]}))
    return bars(f"{record['shape']}, bf16, {record['gpu']}: times the speed of compiled PyTorch on plain memory", groups, "x", 2, 1)


def table(record: dict) -> str:
    """Returns the cases as a Markdown table."""
    lines = ["| sequences x tokens | plain, eager in a graph | plain, compiled | Buddy | over compiled | the bytes' bound |", "|---|---|---|---|---|---|"]
    for case in record["cases"]:
        rate = lambda key: f"{case[key]:.0f}" if key in case else "-"
        over = f"{case['buddy_tokens_s'] / case['plain_compiled_tokens_s']:.2f}x" if "plain_compiled_tokens_s" in case else "-"
        bound = case["sequences"] / case["buddy_bound_s"]
        lines.append(f"| {label(case)} | {rate('plain_eager_tokens_s')} | {rate('plain_compiled_tokens_s')} | "
                     f"**{rate('buddy_tokens_s')}** | {over} | {bound:.0f} |")
    return "\n".join(lines) + "\n"


def joined(records: list[dict]) -> dict:
    """Joins records; each case is taken from the first record that has it."""
    cases = {(case["sequences"], case["context"]): case for record in reversed(records) for case in record["cases"]}
    whole = {key: value for record in reversed(records) for key, value in record.items()}
    return whole | {"cases": sorted(cases.values(), key=lambda case: (case["context"], case["sequences"]))}


def main(arguments: list[str]) -> int:
    """``python -m buddy.llm.pictures FOLDER RECORD...``: writes the charts and prints the table."""
    folder, record = pathlib.Path(arguments[0]), joined([json.loads(pathlib.Path(one).read_text()) for one in arguments[1:]])
    for name, draw in [("speed", speed), ("memory", memory), ("gain", gain)]:
        (folder / f"llm-{name}-{record['shape']}.svg").write_text(draw(record))
    print(table(record), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
