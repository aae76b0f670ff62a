"""Surveys tensors on the GPU in place through the Python package."""

import numpy as np
import torch

from buddy import _native
from buddy.libraries import load_compiler

SIZES = np.dtype([("classes", np.uint64, 6), ("optimistic_bytes", np.uint64)])


class Buddy:
    """Surveys on the current GPU. Streams are PyTorch's handles; the caller holds the tensors."""

    def __init__(self):
        load_compiler()
        self.number = torch.cuda.current_device()

    def histograms(self, spans, stream):
        """Returns an array of sizes for rows of address, bytes, codec, and address for size classes
        or 0."""
        rows = [(_native.Span(self, data, size), codec, _native.Span(self, classes, -(-size // 128)) if classes else None)
                for data, size, codec, classes in spans]
        return np.array(_native.survey((self.number, stream), rows), SIZES)

    def train(self, codec, data, size, stream):
        """Returns the codec trained on a tensor."""
        return _native.train((self.number, stream), codec, _native.Span(self, data, size))
