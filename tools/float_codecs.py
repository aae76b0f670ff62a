#!/usr/bin/env python3
"""Compares our ratios on floating-point fields with those of other lossless compressors
(docs/notes/float-codecs.md).

    float_codecs.py run RECORD [--mib 16] [--seed 1] [--fpcompress FOLDER] [--only NAME ...]
    float_codecs.py table RECORD

`run` makes the fields, profiles each with `buddy` ($BUDDY or on the path), compresses it with every
other compressor, compares what each decompresses with the field, and writes the ratios. `table`
prints them as Markdown. `run` needs the packages of PEERS, and reads public fields from the wheels of
PUBLIC, whose code it does not use:

    pip install numpy scipy zfpy fpzip pcodec blosc2 lz4 zstandard
    pip install --no-deps eofs==2.0.0 scikit-image==0.26.0 obspy==1.5.1

FOLDER is a clone of github.com/burtscher/FPcompress after its compile.py.
"""

import argparse
import gzip
import importlib.metadata
import importlib.util
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

ENTRY, PAGE, LIMIT = 128, 8192, 0.01
# Device bytes of an entry by target.
TARGETS = np.array([8, 32, 64, 96, 128])
PEERS = ["zfpy", "fpzip", "pcodec", "blosc2", "lz4", "zstandard", "numpy"]
PUBLIC = ["eofs", "scikit-image", "obspy"]
# Columns of the two tables: key, title, bytes that are decoded for one value.
ENTRIES = [
    ("ours", "ours", "128"),
    ("paper", "paper's design, 30%", "128"),
    ("entry_zfp", "zfp", "128"),
    ("entry_lz4", "lz4", "128"),
    ("entry_zstd", "zstd", "128"),
]
LARGER = [
    ("ours", "ours", "128"),
    ("fpc_speed", "SPspeed, DPspeed", "16 Ki"),
    ("fpc_ratio", "SPratio, DPratio", "16 Ki; DP all"),
    ("block_lz4", "lz4", "64 Ki"),
    ("block_zstd", "zstd", "64 Ki"),
    ("blosc2", "Blosc2", "a block"),
    ("zstd", "zstd", "all"),
    ("zfp", "zfp", "all"),
    ("fpzip", "fpzip", "all"),
    ("pco", "pco", "all"),
]


# Fields. Every maker returns name -> array of about `count` bytes.


def waves(random, shape, slope, cutoff=0.35):
    """Returns a periodic Gaussian field with the spectrum k^slope up to a smooth cutoff, variance 1."""
    grids = np.meshgrid(*[np.fft.fftfreq(side) * side for side in shape[:-1]], np.arange(shape[-1] // 2 + 1), indexing="ij")
    length = np.sqrt(sum(grid**2 for grid in grids))
    # Energy by shell becomes an amplitude by mode.
    amplitude = np.where(length > 0, np.maximum(length, 1) ** ((slope - len(shape) + 1) / 2), 0)
    amplitude *= np.exp(-((length / (cutoff * max(shape))) ** 2))
    field = np.fft.irfftn(np.fft.rfftn(random.normal(size=shape)) * amplitude, s=shape, axes=range(len(shape)))
    return field / field.std()


def cube(count, width):
    return (round((count / width) ** (1 / 3) / 16) * 16,) * 3


def turbulence(random, count):
    single, double = cube(count, 4), cube(count, 8)
    return {
        "turbulence, velocity": (12.0 * waves(random, single, -5 / 3)).astype(np.float32),
        "turbulence, velocity, fp64": 12.0 * waves(random, double, -5 / 3),
    }


def climate(random, count):
    rows = max(round(math.sqrt(count / 8) / 64), 1) * 64
    shape = (rows, 2 * rows)
    latitude = np.linspace(-np.pi / 2, np.pi / 2, rows)[:, None]
    land = waves(random, shape, -2.5) > 0.4
    temperature = 299.0 - 45.0 * np.sin(latitude) ** 2 + 2.5 * waves(random, shape, -3)
    cloud = np.clip(0.35 + 0.4 * waves(random, shape, -2.2), 0, 1)
    return {
        "climate, sea temperature, land 1e20": np.where(land, 1e20, temperature).astype(np.float32),
        "climate, cloud fraction": cloud.astype(np.float32),
    }


def particles(random, count):
    side = round((count / 4) ** (1 / 3) / 16) * 16
    shape = (side,) * 3
    potential = np.fft.rfftn(waves(random, shape, -2.5))
    numbers = np.fft.fftfreq(side)[:, None, None] * np.ones((side, side, side // 2 + 1))
    # Zel'dovich: displacement is a gradient, velocity is proportional to it.
    moved = np.fft.irfftn(potential * 2j * np.pi * numbers, s=shape, axes=range(3))
    moved *= 3.0 / moved.std()
    lattice = np.broadcast_to(np.arange(side)[:, None, None] + 0.5, shape)
    position = ((lattice + moved) % side).ravel()
    # Ranks keep their own cells together; inside a cell the order is arbitrary.
    cell = np.add.outer(np.add.outer(np.arange(side) // 16 * 64, np.arange(side) // 16 * 8), np.arange(side) // 16).ravel()
    order = np.lexsort((random.random(side**3), cell))
    atoms = round((count / 24) ** (1 / 3) / 8) * 8
    place = np.stack(np.meshgrid(*[np.arange(atoms) * 3.615] * 3, indexing="ij"), -1) + random.normal(scale=0.09, size=(atoms,) * 3 + (3,))
    return {
        "particles, position": position[order].astype(np.float32),
        "particles, velocity": (150.0 * moved.ravel()[order]).astype(np.float32),
        "molecular dynamics, x y z, fp64": place.reshape(-1, 3),
    }


def cosmology(random, count):
    return {"cosmology, lognormal density": np.exp(1.6 * waves(random, cube(count, 4), -1.8)).astype(np.float32)}


def combustion(random, count):
    shape = cube(count, 8)
    depth = np.arange(shape[0])[:, None, None] - shape[0] / 2 - 9.0 * waves(random, shape[1:], -2.5)
    # Rounding errors of the solver, which constant regions have as well.
    noise = 1 + 4e-15 * random.normal(size=shape)
    radical = 0.02 * np.exp(-((depth / 2.5) ** 2)) * noise
    return {
        "combustion, temperature, fp64": (300 + 900 * (1 + np.tanh(depth / 3)) + 0.02 * waves(random, shape, -3)) * noise,
        "combustion, radical, fp64": np.where(radical < 1e-12, 0, radical),
    }


def observations(random, count):
    total = count // 8
    time = np.arange(total)
    drift = np.cumsum(random.normal(scale=0.02, size=total))
    drift -= np.linspace(0, drift[-1], total)
    celsius = 12 + 8 * np.sin(time / 1440 * 2 * np.pi) + drift % 6 + random.normal(scale=0.15, size=total)
    price = 150 * np.exp(np.cumsum(random.normal(scale=1e-4, size=total)))
    return {"sensor, tenths, fp64": np.round(celsius, 1), "price, hundredths, fp64": np.round(price, 2)}


def seismic(random, count):
    samples = 2048
    traces = count // 4 // samples
    time = np.arange(-64, 65) * 0.004
    ricker = (1 - 2 * (np.pi * 25 * time) ** 2) * np.exp(-((np.pi * 25 * time) ** 2))
    first = 60 + np.abs(np.arange(traces) % 512 - 256) * 3
    layers = np.where(random.random(samples) < 0.05, random.normal(size=samples), 0)
    gather = np.zeros((traces, samples))
    at = np.sqrt(np.arange(samples)[None, :] ** 2 + first[:, None] ** 2).astype(int)
    inside = at < samples
    np.add.at(gather, (np.nonzero(inside)[0], at[inside]), np.broadcast_to(layers, at.shape)[inside])
    size = 4096
    wave = np.fft.irfft(np.fft.rfft(gather, size) * np.fft.rfft(ricker, size), size)[:, 64 : 64 + samples]
    decay = np.exp(-np.arange(samples) / 600)
    wave = 1000 * wave * decay + random.normal(scale=0.5, size=wave.shape)
    wave[np.arange(samples)[None, :] < first[:, None]] = 0
    counts = np.round(2e4 * waves(random, (traces * samples,), -1.5, 0.05))
    return {"seismic, shot gather": wave.astype(np.float32), "seismometer, counts": counts.astype(np.float32)}


MAKERS = [turbulence, climate, particles, cosmology, combustion, observations, seismic]


def file_of(package, path):
    """Returns the path of a file of an installed wheel, or None."""
    found = importlib.util.find_spec(package)
    return pathlib.Path(found.submodule_search_locations[0]) / path if found else None


def public():
    """Returns the fields of the public packages that are installed."""
    fields = {}
    if path := file_of("eofs", "examples/example_data/hgt_djf.nc"):
        from scipy.io import netcdf_file

        with netcdf_file(path, mmap=False) as file:
            fields["eofs: geopotential height, fp64"] = file.variables["z"].data[:, 0].astype(np.float64)
    if path := file_of("skimage", "data/motorcycle_disp.npz"):
        fields["scikit-image: stereo disparity"] = np.load(path)["arr_0"]
        fields["scikit-image: faces, fp64"] = np.load(path.parent / "lfw_subset.npy")
    if path := file_of("obspy", "signal/tests/data/BW.KW1._.EHZ.D.2011.090_downsampled.asc.gz"):
        with gzip.open(path, "rt") as text:
            fields["obspy: seismometer, counts"] = np.loadtxt(text, dtype=np.float32)
    return fields


def whole_pages(array):
    """Returns an array without what is past its last whole page: rows, or values of one row."""
    if array.nbytes % PAGE == 0:
        return np.ascontiguousarray(array)
    rows = PAGE // math.gcd(PAGE, array[0].nbytes)
    if len(array) >= rows and len(array) // rows * rows >= 0.98 * len(array):
        return np.ascontiguousarray(array[: len(array) // rows * rows])
    return array.ravel()[: array.nbytes // PAGE * PAGE // array.itemsize]


# Compressors. Each returns compressed bytes and has compared what it decompresses.


def shuffled(data, width):
    """Returns bytes with those of equal rank in `width`-byte words together."""
    return np.frombuffer(data, np.uint8).reshape(-1, width).T.tobytes() if width > 1 else data


def check(name, same):
    if not same:
        sys.exit(f"{name} does not give back the field")


def dictionary(name, data, block, widths=(1, 2, 4, 8)):
    """Returns the bytes of each independent block, for the byte shuffle with the fewest in all."""
    import lz4.block
    import zstandard

    writer = zstandard.ZstdCompressor(level=3, write_content_size=False, write_checksum=False)
    reader = zstandard.ZstdDecompressor()
    best = None
    for width in widths:
        sizes = []
        for at in range(0, len(data), block):
            piece = shuffled(data[at : at + block], width)
            if name == "lz4":
                stored = lz4.block.compress(piece, store_size=False)
                again = lz4.block.decompress(stored, uncompressed_size=len(piece))
            else:
                stored = writer.compress(piece)
                again = reader.decompress(stored, max_output_size=len(piece))
            check(name, again == piece)
            # A frame's magic number says nothing here.
            sizes.append(min(len(stored) - 4 * (name == "zstd"), len(piece)))
        if best is None or sum(sizes) < sum(best):
            best = sizes
    return best


def zfp_entries(array):
    """Returns zfp's bytes of each entry, in reversible mode and without a header."""
    import zfpy

    kind = zfpy.dtype_to_ztype(array.dtype)
    sizes = []
    for entry in array.reshape(-1, ENTRY // array.itemsize):
        stored = zfpy.compress_numpy(entry, write_header=False)
        again = zfpy._decompress(stored, kind, entry.shape)
        check("zfp", again.tobytes() == entry.tobytes())
        sizes.append(len(stored))
    return sizes


def placed(data, sizes):
    """Returns the ratio of entries of these sizes with a target for each page, the best with at most
    `LIMIT` overflow in all and at most 4x in all: an upper bound of what our ranges of pages find."""
    sizes = np.array(sizes).reshape(-1, PAGE // ENTRY)
    zero = ~np.frombuffer(data, np.uint8).reshape(-1, PAGE // ENTRY, ENTRY).any(-1)
    sizes = np.where(zero, 0, sizes)
    over = np.stack([(sizes > target).sum(1) * (target < ENTRY) for target in TARGETS], 1)
    bytes_of = np.broadcast_to(TARGETS * (PAGE // ENTRY), over.shape)

    def choice(price):
        best = (bytes_of + price * over).argmin(1)[:, None]
        return np.take_along_axis(bytes_of, best, 1).sum(), np.take_along_axis(over, best, 1).sum()

    low, high = 0.0, 1e6
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if choice(middle)[1] <= LIMIT * sizes.size else (middle, high)
    return min(len(data) / choice(high)[0], 4.0)


def whole(array):
    """Returns the ratios of the compressors that are given the whole array."""
    import blosc2
    import fpzip
    import zfpy
    from pcodec import ChunkConfig, standalone

    data, shape = array.tobytes(), array.shape
    stored = zfpy.compress_numpy(array)
    check("zfp", zfpy.decompress_numpy(stored).tobytes() == data)
    ratios = {"zfp": len(data) / len(stored)}
    stored = fpzip.compress(array.reshape((1,) * (4 - len(shape)) + shape) if len(shape) < 4 else array)
    check("fpzip", fpzip.decompress(stored).tobytes() == data)
    ratios["fpzip"] = len(data) / len(stored)
    stored = standalone.simple_compress(array.ravel(), ChunkConfig())
    check("pco", standalone.simple_decompress(stored).tobytes() == data)
    ratios["pco"] = len(data) / len(stored)
    best = 0
    for filters in (blosc2.Filter.SHUFFLE, blosc2.Filter.BITSHUFFLE):
        stored = blosc2.compress2(data, typesize=array.itemsize, codec=blosc2.Codec.ZSTD, clevel=5, filters=[filters], filters_meta=[0], nthreads=1)
        check("Blosc2", blosc2.decompress2(stored) == data)
        best = max(best, len(data) / len(stored))
    return ratios | {"blosc2": best}


def fpcompress(folder, array):
    """Returns the ratios of FPcompress's programs, which write the same bytes as its GPU kernels."""
    kind, ratios = "single" if array.itemsize == 4 else "double", {}
    with tempfile.TemporaryDirectory() as work:
        plain, stored, again = (os.path.join(work, name) for name in ("plain", "stored", "again"))
        array.tofile(plain)
        for mode in ("speed", "ratio"):
            programs = pathlib.Path(folder) / f"{kind}_src"
            for action, source, target in (("compress", plain, stored), ("decompress", stored, again)):
                command = [programs / f"{mode}-cpu-{action}.exe", source, target]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            check(f"FPcompress {mode}", pathlib.Path(again).read_bytes() == array.tobytes())
            ratios[f"fpc_{mode}"] = array.nbytes / os.path.getsize(stored)
    return ratios


def profile(array, *options):
    """Returns the policies of `buddy profile` and the chosen codecs."""
    buddy = os.environ.get("BUDDY", "buddy")
    if shutil.which(buddy) is None:
        sys.exit(f"cannot find '{buddy}': set BUDDY to the path of buddy")
    with tempfile.TemporaryDirectory() as work:
        np.save(os.path.join(work, "field.npy"), array)
        done = subprocess.run([buddy, "profile", os.path.join(work, "field.npy"), *options, "--json", "-"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)["data"]


def policy(found, name, codec):
    return next(one for one in found["policies"] if (one["policy"], one["codec"]) == (name, codec))


def ours(array):
    """Returns our ratios: targets by page within `LIMIT`, and the paper's design at 30%."""
    found = profile(array, "--policy", "page", "--codec", "auto", "--threshold", str(LIMIT))
    page = policy(found, "page", "auto")
    if page["worst_overflow"] > LIMIT:
        sys.exit(f"overflow of {page['worst_overflow']}")
    paper = policy(profile(array, "--policy", "allocation-16x", "--codec", "bpc"), "allocation-16x", "bpc")
    codec = found["targets"]["allocation"][0]["codec"]
    return {"ours": page["ratio"], "codec": codec, "overflow": page["worst_overflow"], "paper": paper["ratio"], "paper_overflow": paper["worst_overflow"]}


def measure(name, array, options):
    array = whole_pages(array)
    data = array.tobytes()
    sizes = {"entry_zfp": zfp_entries(array)}
    for peer in ("lz4", "zstd"):
        sizes[f"entry_{peer}"] = dictionary(peer, data, ENTRY)
    ratios = ours(array) | {key: placed(data, one) for key, one in sizes.items()}
    for peer in ("lz4", "zstd"):
        ratios[f"block_{peer}"] = len(data) / sum(dictionary(peer, data, 64 << 10))
    ratios["zstd"] = len(data) / sum(dictionary("zstd", data, len(data)))
    ratios |= whole(array)
    if options.fpcompress:
        ratios |= fpcompress(options.fpcompress, array)
    ratios = {key: round(value, 4) if isinstance(value, float) else value for key, value in ratios.items()}
    return {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "bytes": len(data)} | ratios


def run(options):
    record = {"kind": "float codecs", "seed": options.seed, "mib": options.mib, "versions": {name: importlib.metadata.version(name) for name in PEERS}, "generated": [], "public": []}
    if options.fpcompress:
        commit = ["git", "-C", options.fpcompress, "rev-parse", "HEAD"]
        record["versions"]["FPcompress"] = subprocess.run(commit, check=True, capture_output=True, text=True).stdout.strip()
    for package in PUBLIC:
        try:
            record["versions"][package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            print(f"NOT RUN: {package} is not installed", file=sys.stderr)
    for index, make in enumerate(MAKERS):
        for name, array in make(np.random.default_rng([options.seed, index]), options.mib << 20).items():
            if not options.only or any(part in name for part in options.only):
                record["generated"].append(measure(name, array, options))
                print(json.dumps(record["generated"][-1]), file=sys.stderr, flush=True)
    for name, array in public().items():
        if not options.only or any(part in name for part in options.only):
            record["public"].append(measure(name, array, options))
    pathlib.Path(options.record).write_text(json.dumps(record, indent=1) + "\n")


def table(options):
    """Prints both tables: a row for each field, and geometric means."""
    record = json.loads(pathlib.Path(options.record).read_text())
    single = [row for row in record["generated"] if row["dtype"] == "float32"]
    double = [row for row in record["generated"] if row["dtype"] == "float64"]
    groups = (("geometric mean, fp32", single), ("geometric mean, fp64", double), ("geometric mean, public", record["public"]))
    for columns in (ENTRIES, LARGER):
        print("\n| field | " + " | ".join(title for _, title, _ in columns) + " |")
        print("|---|" + "---:|" * len(columns))
        print("| *bytes decoded for one value* | " + " | ".join(access for _, _, access in columns) + " |")
        for title, rows in groups:
            for row in rows:
                print(f"| {row['name']} | " + " | ".join(cell(row, key) for key, _, _ in columns) + " |")
            print(f"| **{title}** | " + " | ".join(f"**{mean(rows, key)}**" for key, _, _ in columns) + " |")


def cell(row, key):
    overflow = f", {100 * row['paper_overflow']:.1f}%" if key == "paper" and row["paper_overflow"] >= 0.0005 else ""
    return f"{row[key]:.2f}{overflow}" if key in row else ""


def mean(rows, key):
    return f"{math.exp(sum(math.log(row[key]) for row in rows) / len(rows)):.2f}" if all(key in row for row in rows) else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("run")
    one.add_argument("record")
    one.add_argument("--mib", type=int, default=16, help="size of a generated field")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--fpcompress", help="a compiled clone of FPcompress")
    one.add_argument("--only", nargs="*", help="fields whose names contain one of these")
    one.set_defaults(verb=run)
    one = verbs.add_parser("table")
    one.add_argument("record")
    one.set_defaults(verb=table)
    options = parser.parse_args()
    options.verb(options)
