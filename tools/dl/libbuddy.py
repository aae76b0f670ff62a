"""libbuddy.so through ctypes: how tensors on the GPU would compress, looked at in place."""

import ctypes

import numpy as np

# struct buddySpan and struct buddySizes of include/buddy.h.
SPAN = np.dtype([("data", np.uint64), ("bytes", np.uint64), ("codec", np.uint64), ("classes", np.uint64)])
SIZES = np.dtype([("classes", np.uint64, 6), ("optimistic_bytes", np.uint64)])


class Buddy:
    """The functions that a recording needs. Streams are numbers, as PyTorch gives them."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.library.buddyHistograms.argtypes = [pointer, size, pointer, pointer]
        self.library.buddyTrain.argtypes = [ctypes.c_char_p, ctypes.c_uint64, size, ctypes.c_char_p, size, pointer]
        self.library.buddyGetLastErrorMessage.restype = ctypes.c_char_p
        self.names = {}

    def check(self, code):
        if code != 0:
            raise RuntimeError(self.library.buddyGetLastErrorMessage().decode())

    def name(self, codec):
        """The address of a codec's name, which stays."""
        if codec not in self.names:
            self.names[codec] = ctypes.create_string_buffer(codec.encode())
        return ctypes.addressof(self.names[codec])

    def histograms(self, spans, stream):
        """Of rows (address, bytes, codec, address for classes or 0): an array of sizes."""
        rows = np.empty(len(spans), SPAN)
        data, sizes, codecs, classes = zip(*spans)
        rows["data"], rows["bytes"], rows["classes"] = data, sizes, classes
        rows["codec"] = [self.name(codec) for codec in codecs]
        found = np.zeros(len(rows), SIZES)
        self.check(self.library.buddyHistograms(rows.ctypes.data, len(rows), found.ctypes.data, stream))
        return found

    def train(self, codec, data, size, stream):
        """The codec with what it learns of a tensor."""
        trained = ctypes.create_string_buffer(16)
        self.check(self.library.buddyTrain(codec.encode(), data, size, trained, 16, stream))
        return trained.value.decode()
