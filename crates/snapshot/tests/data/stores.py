#!/usr/bin/env python3
"""Writes stores.zip: Zarr stores of both versions, for tests/zarr.rs.

    pip install zarr==3.1.6 && python stores.py
"""

import os
import tempfile
import zipfile

import numcodecs
import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

HERE = os.path.dirname(os.path.abspath(__file__))
# Every test array has the values 0, 1, 2, ... of its type; chunks do not divide it.
SHAPE, CHUNK = (7, 10, 6), (3, 4, 6)


def ramp(dtype, shape=SHAPE):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def add(group, name, values, **settings):
    array = group.create_array(name, shape=values.shape, dtype=values.dtype, **settings)
    array[...] = values


def second(path):
    group = zarr.open_group(path, mode="w", zarr_format=2)
    blosc = lambda cname, shuffle: numcodecs.Blosc(cname=cname, clevel=5, shuffle=shuffle)
    packed = {
        "plain": None,
        "zlib": numcodecs.Zlib(5),
        "gzip": numcodecs.GZip(5),
        "zstd": numcodecs.Zstd(3),
        "lz4": numcodecs.LZ4(),
        "blosc_lz4": blosc("lz4", numcodecs.Blosc.SHUFFLE),
        "blosc_lz4hc": blosc("lz4hc", numcodecs.Blosc.NOSHUFFLE),
        "blosc_zstd": blosc("zstd", numcodecs.Blosc.BITSHUFFLE),
        "blosc_zlib": blosc("zlib", numcodecs.Blosc.SHUFFLE),
        "blosc_blosclz": blosc("blosclz", numcodecs.Blosc.SHUFFLE),
        "bz2": numcodecs.BZ2(),
    }
    for name, compressor in packed.items():
        add(group, name, ramp("<f8"), chunks=CHUNK, compressors=compressor)
    add(group, "columns", ramp("<i4"), chunks=CHUNK, order="F", compressors=None)
    add(group, "big", ramp(">i2"), chunks=CHUNK, compressors=numcodecs.Zlib(1))
    add(group, "complex", ramp("<c8"), chunks=CHUNK)
    add(group, "scalar", np.array(7.0), chunks=(), compressors=None)
    add(group, "text", np.array(["a", "bc"]), chunks=(2,), compressors=None)
    add(group, "filtered", ramp("<i4"), chunks=CHUNK, filters=[numcodecs.Delta("<i4")])
    # Enough for several blocks of Blosc and streams of blocks.
    for name, shuffle in [("long", 1), ("long_bits", 2)]:
        add(group, name, ramp("<u4", (70001,)), chunks=(60000,), compressors=numcodecs.Blosc("lz4", 5, shuffle, blocksize=32768))
    partly = group.create_array("partly", shape=SHAPE, dtype="<f4", chunks=CHUNK, fill_value=-1.5, config={"write_empty_chunks": False})
    partly[3:6, 4:8] = ramp("<f4")[3:6, 4:8]
    nested = group.create_group("group").create_group("below")
    nested.create_array("nested", shape=SHAPE, dtype="<i8", chunks=CHUNK, chunk_key_encoding={"name": "v2", "separator": "/"})[...] = ramp("<i8")


def third(path):
    group = zarr.open_group(path, mode="w", zarr_format=3)
    add(group, "usual", ramp("<f8"), chunks=CHUNK)
    add(group, "gzip", ramp("<f4"), chunks=CHUNK, compressors=GzipCodec(level=5))
    add(group, "zstd", ramp("<f4"), chunks=CHUNK, compressors=ZstdCodec(level=3, checksum=True))
    add(group, "sum", ramp("<u2"), chunks=CHUNK, compressors=[ZstdCodec(), Crc32cCodec()])
    add(group, "blosc", ramp("<i4"), chunks=CHUNK, compressors=BloscCodec(cname="lz4", shuffle="bitshuffle"))
    add(group, "turned", ramp("<i4"), chunks=CHUNK, filters=TransposeCodec(order=(1, 2, 0)))
    add(group, "big", ramp("<f8"), chunks=CHUNK, serializer=BytesCodec(endian="big"))
    add(group, "dots", ramp("uint8"), chunks=CHUNK, chunk_key_encoding={"name": "default", "separator": "."})
    add(group, "older", ramp("uint8"), chunks=CHUNK, chunk_key_encoding={"name": "v2", "separator": "."})
    add(group, "scalar", np.array(7.0), chunks=(), compressors=None)
    add(group, "shards", ramp("<i4"), chunks=(3, 4, 6), shards=(6, 8, 6))
    missing = group.create_array("missing", shape=SHAPE, dtype="<f4", chunks=CHUNK, fill_value=float("nan"))
    missing[0:3, 0:4] = ramp("<f4")[0:3, 0:4]


with tempfile.TemporaryDirectory() as folder:
    second(os.path.join(folder, "second.zarr"))
    third(os.path.join(folder, "third.zarr"))
    # An array without a group.
    alone = zarr.create_array(os.path.join(folder, "alone.zarr"), shape=(5,), dtype="<f8", chunks=(2,), zarr_format=3)
    alone[...] = ramp("<f8", (5,))
    with zipfile.ZipFile(os.path.join(HERE, "stores.zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for root, folders, files in os.walk(folder):
            folders.sort()
            for file in sorted(files):
                path = os.path.join(root, file)
                entry = zipfile.ZipInfo(os.path.relpath(path, folder), (2026, 1, 1, 0, 0, 0))
                archive.writestr(entry, open(path, "rb").read(), zipfile.ZIP_DEFLATED)
