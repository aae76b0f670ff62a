"""How tensors on the GPU would compress, looked at in place through the Python package."""

import numpy as np
import torch

from buddy import _native
from buddy.libraries import load_compiler

SIZES = np.dtype([("classes", np.uint64, 6), ("optimistic_bytes", np.uint64)])


class Buddy:
    """What a recording needs, on the current GPU. Streams are numbers, as PyTorch gives them."""

    def __init__(self):
        load_compiler()
        self.number = torch.cuda.current_device()

    def histograms(self, spans, stream):
        """Of rows (address, bytes, codec, address for classes or 0): an array of sizes."""
        rows = [((data, size), codec, classes) for data, size, codec, classes in spans]
        return np.array(_native.survey((self.number, stream), rows), SIZES)

    def train(self, codec, data, size, stream):
        """The codec with what it learns of a tensor."""
        return _native.train((self.number, stream), codec, (data, size))
