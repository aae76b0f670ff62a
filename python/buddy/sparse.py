"""Sparse matrices packed for products.

    A = buddy.sparse.csr(matrix)       # from SciPy, CuPy or PyTorch
    y = A @ x                          # a vector or columns, on the matrix's device
    x, info = scipy.sparse.linalg.cg(A, b)

Every bit of the matrix is kept. Needs NumPy; PyTorch and CuPy are imported only for their arrays.
"""

import sys

import numpy

from . import _native
from .libraries import load_compiler

__all__ = ["Csr", "csr"]

_HOST = -1
_CPU = (_HOST, 0)
_WIDTH = 8
"""Columns of one product."""


def csr(matrix, shape=None, device=None) -> "Csr":
    """Packs a sparse matrix of float32 or float64 values.

    ``matrix``: any sparse matrix of SciPy or CuPy, a tensor of PyTorch, or the arrays ``(data,
    indices, indptr)`` with ``shape``. ``device``: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or the number
    of a GPU; by default the device of ``matrix``. Packing runs on the CPU.
    """
    (data, indices, indptr), shape, found = _arrays(matrix, shape)
    return Csr(_pack(data, indices, indptr, shape)).to(found if device is None else device)


class Csr:
    """A packed sparse matrix, a linear operator for the solvers of SciPy and CuPy.

    Rows of at most 64 elements are added in their order without fused operations, longer rows by
    segments; the CPU and the GPU give the same bits. A matrix on a GPU also keeps the packed matrix
    in host memory, for ``to`` and ``arrays``.
    """

    ndim = 2
    # NumPy's arrays leave `x @ A` and the like to this class.
    __array_ufunc__ = None

    def __init__(self, host, native=None, index=_HOST):
        self._host, self._native, self._device = host, native or host, index
        native = self._native
        self.shape = (native.rows, native.columns)
        self.dtype = numpy.dtype("float32" if native.value_bytes == 4 else "float64")
        self.nnz, self.nbytes, self.plain_nbytes = native.elements, native.nbytes, native.plain_nbytes

    @property
    def device(self) -> str:
        """``"cpu"``, or a GPU: ``"cuda:0"``."""
        return "cpu" if self._device < 0 else f"cuda:{self._device}"

    def __repr__(self):
        rows, columns = self.shape
        return (f"<packed sparse matrix {rows} x {columns}, {self.nnz} elements of {self.dtype}, {self.nbytes} bytes "
                f"({self.plain_nbytes / max(self.nbytes, 1):.2f}x) on {self.device}>")

    def to(self, device) -> "Csr":
        """Returns the matrix on a device: this one if it is there, else a copy."""
        index = _index(device)
        if index == self._device:
            return self
        if index == _HOST:
            return Csr(self._host)
        load_compiler()
        return Csr(self._host, self._host.to((index, 0)), index)

    def __matmul__(self, x):
        """Multiplies a vector or a matrix of columns, an array of NumPy, PyTorch or CuPy."""
        library = _library(x)
        if len(x.shape) not in (1, 2) or x.shape[0] != self.shape[1]:
            raise ValueError(f"a matrix of {self.shape[0]} x {self.shape[1]} does not take x of shape {tuple(x.shape)}")
        if len(x.shape) == 1:
            return self._multiply(library, library.dense(x, self.dtype), (self.shape[0],))
        if x.shape[1] <= _WIDTH:
            return self._multiply(library, library.dense(x, self.dtype), (self.shape[0], x.shape[1]))
        out = library.empty(x, (self.shape[0], x.shape[1]), self.dtype)
        for at in range(0, x.shape[1], _WIDTH):
            out[:, at:at + _WIDTH] = self @ x[:, at:at + _WIDTH]
        return out

    def matvec(self, x):
        """Multiplies a vector; the method that solvers call."""
        return self @ x

    dot = matmat = _matvec = _matmat = matvec

    def rmatvec(self, x):
        """Multiplies a vector by the transposed matrix. On the CPU only, with one thread."""
        if self._device >= 0:
            raise NotImplementedError("the transposed product runs on the CPU only: A.to('cpu').rmatvec(x), or pack the transposed matrix")
        library = _library(x)
        if tuple(x.shape) not in [(self.shape[0],), (self.shape[0], 1)]:
            raise ValueError(f"the transposed matrix takes a vector of {self.shape[0]} elements, not of shape {tuple(x.shape)}")
        x = library.dense(x, self.dtype)
        y = library.empty(x, (self.shape[1], *x.shape[1:]), self.dtype)
        self._on_device(library, x)
        self._native.multiply_transposed(library.span(x), library.span(y))
        return y

    _rmatvec = rmatvec

    def arrays(self):
        """Returns ``(data, indices, indptr)`` of the plain matrix as NumPy arrays."""
        starts, indices = numpy.empty(self.shape[0] + 1, numpy.uint64), numpy.empty(self.nnz, numpy.uint32)
        data = numpy.empty(self.nnz, self.dtype)
        self._host.unpack(*map(_Numpy.span, [starts, indices, data]))
        narrow = max(self.nnz, *self.shape) < 1 << 31
        index = numpy.int32 if narrow else numpy.int64
        return data, indices.astype(index), starts.astype(index)

    def _multiply(self, library, x, shape):
        y = library.empty(x, shape, self.dtype)
        device = self._on_device(library, x)
        columns = shape[1] if len(shape) == 2 else 1
        if columns:
            self._native.multiply(device, library.span(x), library.span(y), columns)
        return y

    def _on_device(self, library, x):
        device = library.device(x)
        if device[0] != self._device:
            found = "the CPU" if device[0] < 0 else f"cuda:{device[0]}"
            raise ValueError(f"the matrix is on {self.device}, x on {found}; A.to(device) copies the matrix")
        return device


def _pack(data, indices, indptr, shape):
    rows, columns = shape
    if data.dtype not in (numpy.float32, numpy.float64):
        raise TypeError(f"values are {data.dtype}; convert the matrix to float32 or float64")
    for name, array in [("indices", indices), ("indptr", indptr)]:
        # Integers only: a fraction would be cut off. Empty lists become float64.
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"{name} are {array.dtype}; give integers")
    if not data.ndim == indices.ndim == indptr.ndim == 1:
        raise ValueError("data, indices and indptr have one dimension each")
    if len(indptr) != rows + 1:
        raise ValueError(f"{len(indptr)} starts of rows for {rows} rows")
    if not 0 <= columns < 1 << 32:
        raise ValueError(f"{columns} columns; a packed matrix has fewer than 2^32")
    if len(indices) and (indices.min() < 0 or indices.max() >= columns):
        raise ValueError(f"columns from {indices.min()} to {indices.max()} in a matrix with {columns}")
    if len(indptr) and indptr.min() < 0:
        raise ValueError("starts of rows are negative")
    starts, indices = numpy.ascontiguousarray(indptr, numpy.uint64), numpy.ascontiguousarray(indices, numpy.uint32)
    data = numpy.ascontiguousarray(data)
    return _native.CsrPacked(columns, *map(_Numpy.span, [starts, indices, data]), data.itemsize)


def _arrays(matrix, shape):
    """The arrays of a matrix in host memory, its shape, and the number of its GPU or -1."""
    if isinstance(matrix, tuple):
        if shape is None:
            raise ValueError("the arrays (data, indices, indptr) need shape=(rows, columns)")
        return tuple(map(numpy.asarray, matrix)), tuple(shape), _HOST
    module = type(matrix).__module__.partition(".")[0]
    if module == "torch":
        torch = sys.modules["torch"]
        matrix = matrix.detach()
        matrix = matrix if matrix.layout == torch.sparse_csr else matrix.to_sparse_csr()
        parts = matrix.values(), matrix.col_indices(), matrix.crow_indices()
        return tuple(part.cpu().numpy() for part in parts), tuple(matrix.shape), _Torch.device(parts[0])[0]
    if not hasattr(matrix, "tocsr"):
        raise TypeError(f"{type(matrix).__name__} is no sparse matrix of SciPy, CuPy or PyTorch")
    index = _HOST
    if module.startswith("cupy"):
        index = matrix.device.id if hasattr(matrix, "device") else matrix.data.device.id
        matrix = matrix.tocsr().get()
    matrix = matrix.tocsr()
    return (matrix.data, matrix.indices, matrix.indptr), matrix.shape, index


def _index(device) -> int:
    if isinstance(device, int):
        if device < _HOST:
            raise ValueError(f"device {device}; GPUs are counted from 0")
        return device
    kind, _, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise ValueError(f"device {str(device)!r}; valid are 'cpu', 'cuda' and 'cuda:1'")
    return _HOST if kind == "cpu" else int(number or 0)


def _check_cast(found, dtype):
    if not numpy.can_cast(found, dtype, "safe"):
        raise TypeError(f"x is {found}, the matrix {dtype}; convert one of them")


class _Numpy:
    @staticmethod
    def dense(x, dtype):
        _check_cast(x.dtype, dtype)
        return numpy.ascontiguousarray(x, dtype)

    @staticmethod
    def empty(x, shape, dtype):
        return numpy.empty(shape, dtype)

    @staticmethod
    def span(x):
        return _native.Span(x, x.ctypes.data, x.nbytes)

    @staticmethod
    def device(x):
        return _CPU


class _Torch:
    @staticmethod
    def dense(x, dtype):
        torch = sys.modules["torch"]
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError("products have no gradient; pass x.detach()")
        _check_cast(str(x.dtype).removeprefix("torch."), dtype)
        return x.detach().to(getattr(torch, dtype.name)).contiguous()

    @staticmethod
    def empty(x, shape, dtype):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=x.device)

    @staticmethod
    def span(x):
        return _native.Span(x, x.data_ptr(), x.numel() * x.element_size())

    @staticmethod
    def device(x):
        if x.device.type != "cuda":
            return _CPU
        return x.device.index, sys.modules["torch"].cuda.current_stream(x.device).cuda_stream


class _Cupy:
    @staticmethod
    def dense(x, dtype):
        _check_cast(x.dtype, dtype)
        return sys.modules["cupy"].ascontiguousarray(x, dtype)

    @staticmethod
    def empty(x, shape, dtype):
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(x.device.id):
            return cupy.empty(shape, dtype)

    @staticmethod
    def span(x):
        return _native.Span(x, x.data.ptr, x.nbytes)

    @staticmethod
    def device(x):
        return x.device.id, sys.modules["cupy"].cuda.get_current_stream(x.device.id).ptr


def _library(x):
    """The library of an array."""
    for kind in type(x).__mro__:
        match kind.__module__.partition(".")[0]:
            case "torch":
                return _Torch
            case "cupy":
                return _Cupy
            case "numpy":
                return _Numpy
    raise TypeError(f"x is a {type(x).__name__}; give an array of NumPy, PyTorch or CuPy")
