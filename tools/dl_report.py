#!/usr/bin/env python3
"""Writes the tables and plots of docs/deep-learning.md again from data/recorded.

    tools/dl_report.py

Needs nothing but Python. Tables stand between `<!-- NAME -->` and `<!-- end -->`; plots are docs/img/dl-*.svg.
"""

import base64
import json
import pathlib
import re
import statistics
from collections import defaultdict
from html import escape

from heatmaps import colours, png

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/deep-learning.md"
FP32 = ["alexnet", "inception_v2", "squeezenet", "vgg16", "resnet50", "biglstm"]
BF16 = ["resnet50_bf16", "vgg16_bf16", "vit_b16_bf16", "gpt12_bf16"]
# Device bytes of an entry at each target, and the sectors of each class: zero, b8, s1, s2, s3, raw.
TARGETS = {"16x": 8, "4x": 32, "2x": 64, "4/3x": 96, "1x": 128}
SECTORS = [0, 1, 1, 2, 3, 4]
LINKS = {"PCIe 5": 55.0, "NVLink-C2C": 450.0}
THRESHOLD = 0.30


def copy_speed():
    """GB/s of a copy on the GPU, bytes read and written, as `buddy gpu bench` measured it."""
    rows = json.loads((ROOT / "docs/records/gpu-bench-h200-2026-11-15.json").read_text())["data"]["rows"]
    return rows[0]["gb_per_s"]


def slot_bytes(classes, target):
    """Bytes over the link when every entry is read once."""
    room = TARGETS[target] // 32
    if target == "16x":
        return 32 * sum(SECTORS[c] * classes[c] for c in range(2, 6))
    return 32 * sum(max(SECTORS[c] - room, 0) * classes[c] for c in range(6))


def overflow(classes, target):
    """The share of entries with bytes in buddy memory."""
    first = {"16x": 2, "4x": 3, "2x": 4, "4/3x": 5, "1x": 6}[target]
    return sum(classes[first:]) / max(sum(classes), 1)


class Tensor:
    """One allocation of a record, while it is alive."""

    def __init__(self, info, snapshots):
        self.name, self.kind, self.bytes, self.dtype = info["name"], info["call_site"], info["bytes"], info["dtype"]
        self.alive = [bool(one["histograms"]) for one in snapshots]
        alive = [one["histograms"] for one in snapshots if one["histograms"]]
        self.codecs = {codec: [one[codec]["classes"] for one in alive] for codec in alive[0]}
        self.optimistic = [sum(one["bpc"]["optimistic_bytes"] for one in alive), 128 * sum(map(sum, self.codecs["bpc"]))]

    def choose(self, allowed, codecs=None):
        """The codec and target that take the least device memory, and of equals overflow least."""
        offers = [(TARGETS[target], self.overflow(codec, target), codec, target)
                  for codec in codecs or self.codecs for target in TARGETS if allowed(self, codec, target)]
        return min(offers)[2:]

    def overflow(self, codec, target):
        return max(overflow(classes, target) for classes in self.codecs[codec])

    def mostly_zero(self, codec):
        return all(classes[0] > 0.5 * sum(classes) for classes in self.codecs[codec])


def by_threshold(tensor, codec, target):
    """The paper's rule, at its threshold."""
    zeros = target != "16x" or tensor.mostly_zero(codec)
    return zeros and (target == "1x" or tensor.overflow(codec, target) <= THRESHOLD)


def by_link(gb_per_s):
    """A pass over the tensor takes the link no longer than the device memory takes for the plain bytes."""
    def allowed(tensor, codec, target):
        slowest = max(slot_bytes(classes, target) / sum(classes) for classes in tensor.codecs[codec])
        return target == "1x" or slowest / gb_per_s <= 128 / SPEED

    return allowed


SPEED = copy_speed()
RULES = {"bpc, 30%": (by_threshold, ["bpc"]), "best codec, 30%": (by_threshold, None),
         **{f"best codec, {name}": (by_link(speed), None) for name, speed in LINKS.items()}}


def load(name):
    data = json.loads((ROOT / f"data/recorded/{name}.json").read_text())["data"]
    columns = zip(*data["sizes"])
    return data["run"], [Tensor(info, column) for info, column in zip(data["run"]["allocations"], columns)]


def footprint_ratio(tensors, rule):
    """The largest footprint over the largest footprint in device memory; and the mean share of entries that overflow."""
    allowed, codecs = RULES[rule]
    chosen = [(tensor, *tensor.choose(allowed, codecs)) for tensor in tensors]
    plain, device, shares = 0, 0, []
    for snapshot in range(len(tensors[0].alive)):
        alive = [one for one in chosen if one[0].alive[snapshot]]
        plain = max(plain, sum(tensor.bytes for tensor, *_ in alive))
        device = max(device, sum(tensor.bytes * TARGETS[target] / 128 for tensor, _, target in alive))
        over = 0
        for tensor, codec, target in alive:
            classes = tensor.codecs[codec][sum(tensor.alive[:snapshot])]
            over += overflow(classes, target) * tensor.bytes
        shares.append(over / sum(tensor.bytes for tensor, *_ in alive))
    return plain / device, sum(shares) / len(shares)


NORMALISED = {"inception_v2", "resnet50", "resnet50_bf16"}


def role(network, tensor):
    """What a tensor is, finer than its kind."""
    leaf = tensor.name.split(".")[-1].split("/")[-1]
    if tensor.kind == "weights":
        return "weights" if tensor.dtype == "f32" else "weights, copied for a product"
    if tensor.kind == "gradients":
        return "gradients of activations" if leaf == "output" else "gradients of weights"
    if tensor.kind == "optimizer":
        return {"momentum_buffer": "momentum (SGD)", "exp_avg": "mean (AdamW)", "exp_avg_sq": "mean of squares (AdamW)"}[leaf]
    if tensor.kind == "input":
        return "input"
    if tensor.dtype == "i64":
        return "indices of max pools"
    if tensor.dtype == "bool":
        return "masks of dropout"
    if re.search(r"(norm\d)", tensor.name):
        return "local response normalisation"
    if re.search(r"(^|[./])(bn|relu)\d*$", tensor.name):
        return "after batch normalisation and ReLU"
    if re.search(r"conv|expand|squeeze|downsample", tensor.name) and ".saved" not in tensor.name:
        return "before batch normalisation" if network in NORMALISED else "after ReLU"
    if "lstm" in tensor.name:
        return "LSTM gates and states"
    if re.search(r"block|\bln|patch|embedding", tensor.name):
        return "transformer layers"
    return "other activations"


def table(header, rows):
    align = "|" + "|".join("---" if i == 0 else "---:" for i in range(len(header))) + "|"
    return "\n".join(["| " + " | ".join(header) + " |", align] + ["| " + " | ".join(row) + " |" for row in rows])


def percent(share):
    return "-" if share == 0 else "<0.1%" if share < 0.001 else f"{100 * share:.1f}%"


def networks_table(records):
    rows = []
    for group in (FP32, BF16):
        found = {name: [optimistic(records[name][1]), *(footprint_ratio(records[name][1], rule) for rule in RULES)]
                 for name in group}
        for name in group:
            parameters, tensors = records[name][0]["parameters"], records[name][1]
            live = max(sum(t.bytes for t in tensors if t.alive[s]) for s in range(10))
            cells = [f"{found[name][0]:.2f}x"] + [f"{ratio:.2f}x, {percent(share)}" for ratio, share in found[name][1:]]
            sizes = [str(parameters["batch"]), f"{parameters['footprint_bytes'] / 1e9:.2f}", f"{live / 1e9:.2f}"]
            rows.append([name, *sizes, *cells])
        rows.append(["**mean**", "", "", "", *means(found.values())])
    return table(["network", "batch", "footprint, GB", "recorded, GB", "optimistic, bpc", *RULES], rows)


def optimistic(tensors):
    """The ratio if each entry had the best of the paper's eight sizes, in all snapshots together."""
    return sum(tensor.optimistic[1] for tensor in tensors) / sum(tensor.optimistic[0] for tensor in tensors)


def means(rows):
    """Of ratios the geometric mean, as in the paper; of overflow the plain one."""
    first, *others = zip(*rows)
    cells = [f"{statistics.geometric_mean(first):.2f}x"]
    for column in others:
        ratios, shares = zip(*column)
        cells.append(f"{statistics.geometric_mean(ratios):.2f}x, {percent(statistics.mean(shares))}")
    return cells


def share_of(tensors, rule):
    """Ratio, worst overflow and the commonest choice of some tensors."""
    allowed, codecs = RULES[rule]
    total = sum(tensor.bytes for tensor in tensors)
    device, over, choices = 0, 0, defaultdict(float)
    for tensor in tensors:
        codec, target = tensor.choose(allowed, codecs)
        device += tensor.bytes * TARGETS[target] / 128
        over += tensor.bytes * tensor.overflow(codec, target)
        choices[(codec if target != "1x" else "none", target)] += tensor.bytes
    (codec, target), most = max(choices.items(), key=lambda one: one[1])
    return total / device, over / total, f"{codec} {target}" if target != "1x" else "1x", most / total


def roles_of(records, names):
    groups = defaultdict(list)
    for name in names:
        for tensor in records[name][1]:
            groups[(role(name, tensor), tensor.dtype)].append(tensor)
    return dict(sorted(groups.items(), key=lambda item: -sum(t.bytes for t in item[1])))


def roles_table(records, names):
    rows = []
    for (what, dtype), tensors in roles_of(records, names).items():
        size = sum(tensor.bytes for tensor in tensors)
        if size < 20e6:
            continue
        cells = []
        for rule in list(RULES)[1:]:
            ratio, over, choice, most = share_of(tensors, rule)
            cells.append(f"{ratio:.2f}x, {percent(over)}: {choice} ({100 * most:.0f}%)")
        ratio, over, _, _ = share_of(tensors, "bpc, 30%")
        rows.append([what, dtype, f"{size / 1e9:.2f}", f"{ratio:.2f}x", *cells])
    return table(["what", "type", "GB", "bpc, 30%", *list(RULES)[1:]], rows)


def snapshot_table(records):
    rows = []
    for name in FP32 + BF16:
        run, tensors = records[name]
        cost = run["parameters"]["snapshot_ms_per_gb"]
        rows.append([name, str(len(tensors)), f"{cost['all']:.2f}", f"{cost['counting']:.2f}"])
    return table(["network", "tensors", "ms per GB", "of it in buddyHistograms"], rows)


# Colours that keep apart in grey too.
INK, GRID = "#333", "#ddd"
SERIES = ["#9aa5b1", "#2a6f97", "#e07a5f", "#81b29a"]
KINDS = {"weights": "#2a6f97", "gradients": "#e07a5f", "optimizer": "#f2cc8f", "activations": "#81b29a", "input": "#9aa5b1"}


def svg(width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="12" fill="{INK}">'
            f'<rect width="{width}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n')


def legend(names, x, y, step):
    parts = []
    for i, (name, colour) in enumerate(names):
        parts.append(f'<rect x="{x + i * step}" y="{y}" width="12" height="12" fill="{colour}"/>'
                     f'<text x="{x + i * step + 17}" y="{y + 10}">{escape(name)}</text>')
    return parts


def ratios_plot(records):
    """Bars of the ratio of each network by each rule."""
    names, left, top, group, height = FP32 + BF16, 44, 46, 88, 220
    width = left + group * len(names) + 10
    high = 2.0
    parts = legend(zip(RULES, SERIES), left, 12, 190)
    for tick in (0, 0.5, 1, 1.5, 2):
        y = top + height * (1 - tick / high)
        parts.append(f'<path d="M{left} {y:.1f}H{width - 10}" stroke="{GRID}"/><text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick}x</text>')
    for i, name in enumerate(names):
        for j, rule in enumerate(RULES):
            ratio, _ = footprint_ratio(records[name][1], rule)
            x, bar = left + i * group + 8 + j * 18, height * min(ratio, high) / high
            parts.append(f'<rect x="{x}" y="{top + height - bar:.1f}" width="16" height="{bar:.1f}" fill="{SERIES[j]}"><title>{name}, {rule}: {ratio:.2f}x</title></rect>')
        parts.append(f'<text x="{left + i * group + group / 2}" y="{top + height + 16}" text-anchor="middle" font-size="11">{name}</text>')
    return svg(width, top + height + 28, parts)


def memory_plot(records):
    """Live memory by kind over the ten snapshots of each network."""
    names, panel, height, left, top = FP32 + BF16, 150, 130, 40, 40
    parts, columns = legend(KINDS.items(), left, 10, 110), 5
    for i, name in enumerate(names):
        run, tensors = records[name]
        x0, y0 = left + i % columns * (panel + 34), top + i // columns * (height + 50)
        totals = [{kind: sum(t.bytes for t in tensors if t.kind == kind and t.alive[s]) for kind in KINDS} for s in range(10)]
        high = max(sum(one.values()) for one in totals)
        parts.append(f'<text x="{x0}" y="{y0 + 10}">{name}</text>')
        parts.append(f'<text x="{x0 - 4}" y="{y0 + 26}" text-anchor="end" font-size="10">{high / 1e9:.1f}</text>'
                     f'<text x="{x0 - 4}" y="{y0 + height + 16}" text-anchor="end" font-size="10">0 GB</text>')
        for s, one in enumerate(totals):
            y = y0 + height + 16
            for kind, colour in KINDS.items():
                bar = height * one[kind] / high
                y -= bar
                parts.append(f'<rect x="{x0 + s * panel / 10:.1f}" y="{y:.1f}" width="{panel / 10 - 2:.1f}" height="{bar:.1f}" fill="{colour}"/>')
    return svg(left + columns * (panel + 34), top + 2 * (height + 50) + 4, parts)


def classes_plot(records):
    """Size classes by role, with the codec that is best at the threshold."""
    rows = []
    for label, names in (("fp32 training", FP32), ("bf16 training", BF16)):
        rows.append((label, None, None))
        for (what, dtype), tensors in roles_of(records, names).items():
            size = sum(tensor.bytes for tensor in tensors)
            if size < 20e6:
                continue
            sums = [0.0] * 6
            for tensor in tensors:
                codec, _ = tensor.choose(by_threshold)
                for classes in tensor.codecs[codec]:
                    for c in range(6):
                        sums[c] += classes[c] / len(tensor.codecs[codec])
            rows.append((f"{what}, {dtype}", size, [one / sum(sums) for one in sums]))
    left, width, line, top = 300, 460, 20, 34
    meaning = ["zero", "8 B", "32 B", "64 B", "96 B", "128 B"]
    parts = legend(zip(meaning, colours()), left, 8, 76)
    for i, (label, size, shares) in enumerate(rows):
        y = top + i * line
        if shares is None:
            parts.append(f'<text x="8" y="{y + 13}" font-weight="bold">{label}</text>')
            continue
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>')
        x = left
        for colour, share in zip(colours(), shares):
            parts.append(f'<rect x="{x:.1f}" y="{y + 2}" width="{share * width:.1f}" height="{line - 5}" fill="{colour}"/>')
            x += share * width
        parts.append(f'<text x="{left + width + 8}" y="{y + 13}" font-size="11">{size / 1e9:.2f} GB</text>')
    return svg(left + width + 80, top + len(rows) * line + 8, parts)


def heat_plot(records):
    """The memory of each network, page below page in the order of its record, with BPC; at the left the kind."""
    names, panel, height, rows, top = FP32 + BF16, 84, 300, 300, 64
    parts = legend(zip(["zero", "8 B", "32 B", "64 B", "96 B", "128 B"], colours()), 8, 8, 76) + legend(KINDS.items(), 8, 28, 110)
    for i, name in enumerate(names):
        x, y = 8 + i * (panel + 14), top
        lines, kinds = stacked(name, rows)
        data = base64.b64encode(png(lines)).decode()
        parts.append(f'<text x="{x}" y="{y - 5}" font-size="11">{name}</text>'
                     f'<image x="{x + 8}" y="{y}" width="{panel - 8}" height="{height}" preserveAspectRatio="none" '
                     f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>')
        for row, kind in enumerate(kinds):
            parts.append(f'<rect x="{x}" y="{y + row * height / rows:.1f}" width="6" height="{height / rows:.1f}" fill="{KINDS[kind]}"/>')
    return svg(8 + len(names) * (panel + 14), top + height + 8, parts)


def stacked(name, rows):
    """Rows evenly spread over the pages of a network, each in the last snapshot of its tensor, and their kinds."""
    data = json.loads((ROOT / f"data/recorded/{name}.json").read_text())["data"]
    maps = [next(one["pages"]["bpc"] for one in reversed(column) if "pages" in one) for column in zip(*data["sizes"])]
    total, lines, kinds = sum(one["pages"] for one in maps), [], []
    for row in range(rows):
        page = row * total // rows
        for info, one in zip(data["run"]["allocations"], maps):
            if page < one["pages"]:
                lines.append(one["rows"][page * len(one["rows"]) // one["pages"]])
                kinds.append(info["call_site"])
                break
            page -= one["pages"]
    return lines, kinds


def fill(page, name, text):
    pattern = rf"(<!-- {name} -->\n).*?(\n<!-- end -->)"
    found, count = re.subn(pattern, lambda match: match[1] + text + match[2], page, flags=re.S)
    if count != 1:
        raise SystemExit(f"{PAGE}: no place for the table '{name}'")
    return found


def main():
    records = {name: load(name) for name in FP32 + BF16}
    page = PAGE.read_text()
    page = fill(page, "networks", networks_table(records))
    page = fill(page, "fp32", roles_table(records, FP32))
    page = fill(page, "bf16", roles_table(records, BF16))
    page = fill(page, "snapshots", snapshot_table(records))
    PAGE.write_text(page)
    for name, plot in (("ratios", ratios_plot), ("memory", memory_plot), ("classes", classes_plot), ("heat", heat_plot)):
        (ROOT / f"docs/img/dl-{name}.svg").write_text(plot(records))


if __name__ == "__main__":
    main()
