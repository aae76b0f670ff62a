"""Sizes of frozen buffers (docs/reference/format.md) and the codecs of each dtype.

The arithmetic also works on symbolic shapes.
"""

import torch

ENTRY, SECTOR, PAGE, HEADER, TILE_ROWS = 128, 32, 64, 128, 16
# Device bytes of an entry by target.
DEVICE_BYTES = {"1x": 128, "4/3x": 96, "2x": 64, "4x": 32, "16x": 8}
# Bytes of an entry by size class: zero, b8, s1, s2, s3, raw.
CLASS_BYTES = [0, 8, 32, 64, 96, 128]
# Codecs with GPU kernels by dtype.
CODECS = {torch.bfloat16: ["bf16", "zeros16", "bpc"], torch.float16: ["fp16", "zeros16", "bpc"],
          torch.float32: ["fp32", "zeros32", "bpc"], torch.float64: ["planes64", "bpc"],
          torch.int64: ["planes64", "bpc"], torch.complex64: ["zeros32", "bpc"]}
DEFAULT_CODECS = ["bpc", "zeros16", "zeros32"]


def round_up(value, step):
    """Returns the next multiple of ``step``."""
    return (value + step - 1) // step * step


def padded_bytes(size):
    """Rounds a size up to whole entries."""
    return round_up(size, ENTRY)


def packed_bytes(target, row, size, sectors):
    """Returns the bytes of a buffer for ``size`` bytes of data with room for ``sectors``
    overflowing sectors.

    ``row`` is the number of entries in a matrix row, or 0.
    """
    places = round_up(size, ENTRY) // ENTRY
    places = round_up(places, TILE_ROWS * row) if row else places
    pages = (places + PAGE - 1) // PAGE
    parts = [pages * PAGE * DEVICE_BYTES[target], pages * PAGE // 2, (pages + 1) * 4, sectors * SECTOR]
    return HEADER + sum(round_up(part, HEADER) for part in parts)


def codecs_for(dtype):
    """Returns the codecs to try for a dtype."""
    return CODECS.get(dtype, DEFAULT_CODECS)


def count_overflow(classes, target):
    """Returns the entries that exceed a target and the sectors that overflow, from counts by size
    class."""
    fits, entries, sectors = DEVICE_BYTES[target], 0, 0
    for size, count in zip(CLASS_BYTES, classes):
        if size > max(fits, 8):
            entries += count
            sectors += count * ((size if fits == 8 else size - fits) // SECTOR)
    return entries, sectors


def max_overflow_sectors(target):
    """Returns the overflowing sectors of one incompressible entry."""
    return count_overflow([0] * (len(CLASS_BYTES) - 1) + [1], target)[1]
