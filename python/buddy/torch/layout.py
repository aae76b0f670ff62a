"""Sizes of frozen buffers (docs/reference/format.md), in arithmetic that symbolic shapes go through, and codecs by type."""

import torch

ENTRY, SECTOR, PAGE, HEADER, TILE_ROWS = 128, 32, 64, 128, 16
# Device bytes of an entry, by target.
DEVICE = {"1x": 128, "4/3x": 96, "2x": 64, "4x": 32, "16x": 8}
# Bytes of an entry by size class: zero, b8, s1, s2, s3, raw.
CLASSES = [0, 8, 32, 64, 96, 128]
# The codecs that suit a type, those with kernels.
CODECS = {torch.bfloat16: ["bf16", "zeros16", "bpc"], torch.float16: ["fp16", "zeros16", "bpc"],
          torch.float32: ["fp32", "zeros32", "bpc"], torch.float64: ["planes64", "zeros64", "bpc"],
          torch.int64: ["planes64", "zeros64", "bpc"], torch.complex64: ["zeros32", "bpc"]}
OTHERS = ["bpc", "zeros16", "zeros32"]


def up(value, step):
    """The next multiple."""
    return (value + step - 1) // step * step


def padded(size):
    """Bytes of whole entries."""
    return up(size, ENTRY)


def room(target, row, size, sectors):
    """Bytes of a buffer for so many bytes of data of which so many sectors overflow; ``row`` as for ``pack``."""
    places = up(size, ENTRY) // ENTRY
    places = up(places, TILE_ROWS * row) if row else places
    pages = (places + PAGE - 1) // PAGE
    parts = [pages * PAGE * DEVICE[target], pages * PAGE // 2, (pages + 1) * 4, sectors * SECTOR]
    return HEADER + sum(up(part, HEADER) for part in parts)


def codecs_for(dtype):
    return CODECS.get(dtype, OTHERS)


def overflow(classes, target):
    """Of entries by class: how many do not fit the target, and how many sectors of them overflow."""
    kept, entries, sectors = DEVICE[target], 0, 0
    for size, count in zip(CLASSES, classes):
        if size > max(kept, 8):
            entries += count
            sectors += count * ((size if kept == 8 else size - kept) // SECTOR)
    return entries, sectors


def most_sectors(target):
    """Sectors that overflow of an entry that does not compress at all."""
    return overflow([0] * (len(CLASSES) - 1) + [1], target)[1]
