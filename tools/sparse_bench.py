#!/usr/bin/env python3
"""Measures packed sparse matrices beside plain ones in the same run.

    tools/sparse_bench.py speed  [--only KIND ...]   twelve generated matrices: memory, a vector, eight columns; results compared
    tools/sparse_bench.py krylov                     conjugate gradients with the packed and the plain matrix: iterations, residuals
    tools/sparse_bench.py large  [--times 1.5]       conjugate gradients with a plain matrix of 1.5 times the card, packed by slabs

The plain product is cuSPARSE's through torch.sparse, on a CPU PyTorch's own. Needs the package and PyTorch; a GPU unless `--device cpu`. `--elements` sets the size of the matrices. Prints one JSON object per line;
`--out FILE` keeps them. The last line of `speed` has the geometric means.
"""

import argparse
import json
import statistics
import time

import numpy as np
import torch

import buddy

RESULTS = []


def tell(**values):
    RESULTS.append({key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in values.items()})
    print(json.dumps(RESULTS[-1]), flush=True)


# Matrices: data, indices, starts, shape.


def from_table(columns, inside, values, count=None):
    """A matrix from arrays of rows x places; those outside are left out, columns sorted by row."""
    order = np.argsort(np.where(inside, columns, np.iinfo(np.int64).max), axis=1, kind="stable")
    columns, inside, values = (np.take_along_axis(array, order, 1) for array in (columns, inside, np.broadcast_to(values, columns.shape)))
    starts = np.concatenate([[0], np.cumsum(inside.sum(1))])
    return values[inside], columns[inside].astype(np.int32), starts, (len(columns), count or len(columns))


def from_pairs(rows, columns, values, count):
    order = np.argsort(rows * count + columns, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
    return values[order], columns[order].astype(np.int32), starts, (count, count)


def neighbours(sides, offsets):
    """Columns of a grid's cells at offsets in each axis, and whether they are inside."""
    cells = np.arange(int(np.prod(sides)), dtype=np.int64)
    columns, inside = np.zeros((len(cells), len(offsets)), np.int64), np.ones((len(cells), len(offsets)), bool)
    step = 1
    for axis, side in enumerate(sides):
        place = (cells // step % side)[:, None] + np.array([offset[axis] for offset in offsets])
        inside &= (place >= 0) & (place < side)
        columns += place * step
        step *= side
    return columns, inside


def star(axes):
    units = [tuple(sign * (a == axis) for a in range(axes)) for axis in range(axes) for sign in (-1, 1)]
    return [*units, (0,) * axes]


def box(axes):
    return [tuple(at - 1 for at in place) for place in np.ndindex(*[3] * axes)]


def stencil(elements, axes, offsets):
    side = int((elements / len(offsets)) ** (1 / axes))
    columns, inside = neighbours([side] * axes, offsets)
    center = columns == np.arange(len(columns))[:, None]
    return from_table(columns, inside, np.where(center, len(offsets) - 1.0, -1.0))


def heterogeneous(elements, random):
    """Seven points with the harmonic means of a random conductivity."""
    side = int((elements / 7) ** (1 / 3))
    columns, inside = neighbours([side] * 3, star(3))
    k = np.exp(random.standard_normal(side**3))
    there = k[np.where(inside, columns, 0)]
    values = np.where(inside, -2 * k[:, None] * there / (k[:, None] + there), 0)
    values[:, 6] = 0
    values[:, 6] = -values.sum(1) + 1e-3
    return from_table(columns, inside, values)


def renumber(columns, inside, values, random, window=1024):
    """Numbers the nodes in random order within windows, as mesh generators roughly do."""
    count = len(columns)
    place = np.argsort(np.arange(count) // window + random.random(count), kind="stable")
    number = np.empty(count, np.int64)
    number[place] = np.arange(count)
    return from_table(np.where(inside, number[np.where(inside, columns, 0)], -1)[place], inside[place], values[place])


def mesh(elements, axes, offsets, random):
    """The stiffness of linear elements on a grid of displaced nodes: distances give the values."""
    side = int((elements / len(offsets)) ** (1 / axes))
    columns, inside = neighbours([side] * axes, offsets)
    shift = random.uniform(-0.3, 0.3, (side**axes, axes))
    other = shift[np.where(inside, columns, 0)]
    distance = np.sqrt(((np.array(offsets) + other - shift[:, None]) ** 2).sum(2))
    center = offsets.index((0,) * axes)
    values = np.where(inside, -1 / np.maximum(distance, 0.1), 0)
    values[:, center] = 0
    values[:, center] = -values.sum(1)
    return renumber(columns, inside, values, random)


def elasticity(elements, random):
    """Three unknowns to a node, 27 nodes, a stiffness that varies by node: 81 elements to a row."""
    side = int((elements / 243) ** (1 / 3))
    columns, inside = neighbours([side] * 3, box(3))
    block = random.standard_normal((27, 3, 3))
    stiffness = np.exp(0.3 * random.standard_normal(side**3))
    weight = (stiffness[:, None] + stiffness[np.where(inside, columns, 0)]) / 2
    values = np.einsum("nk,kij->nikj", weight, block).reshape(3 * side**3, 81)
    wide = np.repeat(columns[:, :, None] * 3 + np.arange(3), 1, 2).reshape(len(columns), 81)
    return from_table(np.repeat(wide, 3, 0), np.repeat(np.repeat(inside, 3, 1), 3, 0), values)


def banded(elements, random):
    """Twenty elements at random within 500 of the diagonal, normal values."""
    count = elements // 20
    columns = np.arange(count)[:, None] + np.sort(random.integers(-500, 501, (count, 20)), 1)
    inside = (columns >= 0) & (columns < count) & np.concatenate([np.ones((count, 1), bool), np.diff(columns, axis=1) > 0], 1)
    return from_table(columns, inside, random.standard_normal((count, 20)))


def power_law(elements, random, weights):
    """An R-MAT graph of 16 edges to a node: its pattern, or the transition matrix of PageRank."""
    bits = max(int(np.log2(elements / 16)), 4)
    count, edges = 1 << bits, 16 << bits
    rows, columns = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    for _ in range(bits):
        quarter = np.searchsorted([0.57, 0.76, 0.95], random.random(edges))
        rows, columns = 2 * rows + quarter // 2, 2 * columns + quarter % 2
    pairs = np.unique(rows * count + columns)
    rows, columns = pairs // count, pairs % count
    degrees = np.bincount(columns, minlength=count)
    values = 1 / degrees[columns] if weights else np.ones(len(pairs))
    return from_pairs(rows, columns, values, count)


def circuit(elements, random):
    """Conductances of the E24 series between near and some far nodes, and two supply nets."""
    count, series = elements // 5, np.round(10 ** (np.arange(24) / 24), 1)
    near = np.arange(count)
    rows = np.concatenate([near, near[: count // 2], random.integers(0, count, count // 8), near[::40]])
    reach = np.concatenate([near + random.integers(1, 20, count), near[: count // 2] + random.integers(20, 2000, count // 2),
                            random.integers(0, count, count // 8), np.where(near[::40] % 80 < 40, 0, count - 1)])
    columns = np.minimum(reach, count - 1)
    rows, columns = rows[rows != columns], columns[rows != columns]
    pairs = np.unique(np.minimum(rows, columns) * count + np.maximum(rows, columns))
    rows, columns = pairs // count, pairs % count
    values = -1 / (random.choice(series, len(pairs)) * 10.0 ** random.integers(2, 5, len(pairs)))
    sums = np.bincount(rows, -values, count) + np.bincount(columns, -values, count)
    return from_pairs(*(np.concatenate(parts) for parts in [(rows, columns, near), (columns, rows, near), (values, values, sums + 1e-9)]), count)


def roads(elements, random):
    """Roads between crossings of a plane, lengths in whole metres."""
    side = int((elements / 2.6) ** 0.5)
    columns, inside = neighbours([side] * 2, star(2)[:4])
    east, north = random.random((2, side * side)) < 0.65
    lengths = random.integers(20, 3000, (2, side * side)).astype(float)
    there = np.where(inside, columns, 0)
    keep = np.stack([east[there[:, 0]], east, north[there[:, 2]], north], 1) & inside
    values = np.stack([lengths[0][there[:, 0]], lengths[0], lengths[1][there[:, 2]], lengths[1]], 1)
    return renumber(columns, keep, values, random)


KINDS = {
    "5 points": lambda n, random: stencil(n, 2, star(2)),
    "7 points": lambda n, random: stencil(n, 3, star(3)),
    "27 points": lambda n, random: stencil(n, 3, box(3)),
    "7 points, varying": heterogeneous,
    "mesh, triangles": lambda n, random: mesh(n, 2, [*star(2), (1, 1), (-1, -1)], random),
    "mesh, tetrahedra": lambda n, random: mesh(n, 3, [o for o in box(3) if min(o) >= 0 or max(o) <= 0], random),
    "elasticity": elasticity,
    "banded": banded,
    "graph, pattern": lambda n, random: power_law(n, random, False),
    "graph, PageRank": lambda n, random: power_law(n, random, True),
    "circuit": circuit,
    "roads": roads,
}


# Measurements.


def plain_matrix(arrays, device):
    data, indices, starts, shape = arrays
    starts = torch.from_numpy(starts.astype(np.int32)).to(device)
    return torch.sparse_csr_tensor(starts, torch.from_numpy(indices).to(device), torch.from_numpy(data).to(device), shape, check_invariants=False)


def microseconds(call, device, rounds=7):
    """The median of rounds of as many calls as take about 20 ms."""
    def round_of(calls):
        if device.type == "cpu":
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            return 1e6 * (time.perf_counter() - begin) / calls
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / calls
    round_of(3)
    calls = min(max(int(20000 / max(round_of(3), 1)), 1), 200)
    return statistics.median(round_of(calls) for _ in range(rounds))


def measure(kind, device, elements):
    arrays = KINDS[kind](elements, np.random.default_rng(1))
    data, indices, starts, shape = arrays
    begin = time.perf_counter()
    host = buddy.sparse.csr((data, indices, starts), shape=shape)
    seconds = time.perf_counter() - begin
    packed, plain = host.to(device), plain_matrix(arrays, device)
    bytes_plain = data.nbytes + indices.nbytes + 4 * len(starts)
    found = dict(kind=kind, rows=shape[0], elements=len(data), plain_bytes=bytes_plain, packed_bytes=packed.nbytes,
                 memory=bytes_plain / packed.nbytes, pack_millions_per_s=len(data) / seconds / 1e6)
    for columns in (1, 8):
        x = torch.from_numpy(np.random.default_rng(2).standard_normal((shape[1], columns)[: columns]).squeeze()).to(device)
        y, expected = packed @ x, plain @ x
        same = bool((y.cpu() == host @ x.cpu()).all()) if device.type == "cuda" else True
        size = plain_matrix((np.abs(data), indices, starts, shape), device) @ x.abs()
        wrong = float(((y - expected).abs() / size.clamp_min(1e-300)).max())
        ours, theirs = (microseconds(lambda: matrix @ x, device) for matrix in (packed, plain))
        found |= {f"packed_us_{columns}": ours, f"plain_us_{columns}": theirs, f"speed_{columns}": theirs / ours,
                  f"equals_cpu_{columns}": same, f"difference_{columns}": wrong}
        if not same or wrong > 1e-12:
            raise SystemExit(f"{kind}: the packed product is wrong: equal to the CPU's {same}, apart by {wrong}")
    tell(**found)
    return found


def speed(device, elements, only):
    found = [measure(kind, device, elements) for kind in only or KINDS]
    tell(kind="geometric mean", **{key: statistics.geometric_mean(row[key] for row in found) for key in ("memory", "speed_1", "speed_8")})


def conjugate_gradients(multiply, b, tolerance, most=1000):
    """Returns x, the iterations, the relative residual and seconds per iteration."""
    x, r, p = torch.zeros_like(b), b.clone(), b.clone()
    rr, norm, done = float(r @ r), float(b @ b), 0
    begin = time.perf_counter()
    while rr > tolerance**2 * norm and done < most:
        q = multiply(p)
        a = rr / float(p @ q)
        x, r = x.add_(p, alpha=a), r.sub_(q, alpha=a)
        before, rr = rr, float(r @ r)
        p, done = r + p * (rr / before), done + 1
    return x, done, (rr / norm) ** 0.5, (time.perf_counter() - begin) / max(done, 1)


def krylov(device, elements):
    arrays = stencil(elements, 3, box(3))
    packed, plain = buddy.sparse.csr(arrays[:3], shape=arrays[3]).to(device), plain_matrix(arrays, device)
    b = torch.from_numpy(np.random.default_rng(3).standard_normal(arrays[3][0])).to(device)
    for name, matrix in [("plain", plain), ("packed", packed)]:
        x, iterations, residual, seconds = conjugate_gradients(lambda p: matrix @ p, b, 1e-8)
        tell(matrix=name, elements=len(arrays[0]), iterations=iterations, residual=residual, ms_per_iteration=1e3 * seconds,
             true_residual=float((b - plain @ x).norm() / b.norm()))


def slab(side, first, last, device):
    """Rows of planes first to last of a cube's 27-point matrix, made on the device."""
    cells = torch.arange(first * side * side, last * side * side, device=device)
    place = torch.stack([cells % side, cells // side % side, cells // (side * side)], 1)
    offsets = torch.tensor(sorted(box(3), key=lambda o: o[0] + 10 * o[1] + 100 * o[2]), device=device)
    there = place[:, None] + offsets
    inside = ((there >= 0) & (there < side)).all(2)
    columns = (there * torch.tensor([1, side, side * side], device=device)).sum(2)
    values = torch.where(columns == cells[:, None], 27.0, -1.0).double()
    starts = torch.cat([torch.zeros(1, dtype=torch.int64, device=device), inside.sum(1).cumsum(0)])
    return values[inside].cpu().numpy(), columns[inside].to(torch.int32).cpu().numpy(), starts.cpu().numpy()


def large(device, times, memory):
    """The matrix is packed by slabs; its product is theirs, one after the other."""
    side = int((times * memory / (27 * 12 + 4)) ** (1 / 3))
    begin, slabs, plain_bytes = time.perf_counter(), [], 0
    planes = max(1, int(2e7 / (27 * side * side)))
    for first in range(0, side, planes):
        last = min(first + planes, side)
        host = buddy.sparse.csr(slab(side, first, last, device), shape=((last - first) * side * side, side**3))
        slabs.append(host.to(device))
        plain_bytes += host.plain_nbytes
    seconds = time.perf_counter() - begin

    def multiply(p):
        return torch.cat([matrix @ p for matrix in slabs])

    b = torch.from_numpy(np.random.default_rng(4).standard_normal(side**3)).to(device)
    x, iterations, residual, each = conjugate_gradients(multiply, b, 1e-8)
    tell(side=side, plain_bytes=plain_bytes, packed_bytes=sum(matrix.nbytes for matrix in slabs), memory_bytes=memory, pack_seconds=seconds,
         iterations=iterations, residual=residual, true_residual=float((b - multiply(x)).norm() / b.norm()), ms_per_iteration=1e3 * each)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["speed", "krylov", "large"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--elements", type=int, default=1 << 25)
    parser.add_argument("--only", nargs="+", choices=list(KINDS))
    parser.add_argument("--times", type=float, default=1.5)
    parser.add_argument("--memory", type=int, help="bytes of the card, for `large`; by default the card's")
    parser.add_argument("--out")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        tell(gpu=torch.cuda.get_device_name(device), torch=torch.__version__, cuda=torch.version.cuda)
    if asked.verb == "speed":
        speed(device, asked.elements, asked.only)
    elif asked.verb == "krylov":
        krylov(device, asked.elements)
    else:
        large(device, asked.times, asked.memory or torch.cuda.get_device_properties(device).total_memory)
    if asked.out:
        with open(asked.out, "w") as file:
            json.dump(RESULTS, file, indent=1)


if __name__ == "__main__":
    main()
