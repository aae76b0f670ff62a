"""Writes HDF5 dumps of a diffusion program every hundred steps: chunked, with gzip and shuffle.

    dumps.py FOLDER
"""

import pathlib
import sys

import h5py
import numpy

SIDE, DUMPS = 64, 6


def step(rho):
    around = numpy.pad(rho, 1, mode="edge")
    sides = [around[2:, 1:-1, 1:-1], around[:-2, 1:-1, 1:-1], around[1:-1, 2:, 1:-1], around[1:-1, :-2, 1:-1],
             around[1:-1, 1:-1, 2:], around[1:-1, 1:-1, :-2]]
    return rho + 0.15 * (sum(sides) - 6 * rho)


def dump(path, time, rho):
    packed = {"chunks": (16, 32, 64), "compression": "gzip", "compression_opts": 1, "shuffle": True}
    with h5py.File(path, "w") as file:
        file["time"] = time
        file.create_dataset("fields/rho", data=rho, **packed)
        file.create_dataset("fields/pressure", data=(0.4 * rho).astype(numpy.float32), **packed)
        file.create_dataset("mesh/level", data=(rho > 0.01).astype(numpy.int32))
        file.create_dataset("mesh/x", data=numpy.linspace(-1, 1, SIDE))


def main(folder):
    folder.mkdir()
    rho = numpy.zeros((SIDE, SIDE, SIDE))
    rho[28:36, 28:36, 28:36] = 1
    for number in range(DUMPS):
        dump(folder / f"blast_{100 * number:05}.h5", 0.01 * number, rho)
        for _ in range(4):
            rho = step(rho)


main(pathlib.Path(sys.argv[1]))
