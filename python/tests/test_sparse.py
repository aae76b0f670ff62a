"""Packed sparse matrices on the CPU: every bit comes back, and products and Krylov solvers give what
SciPy's own matrices give."""

import sys
import types

import pytest

np = pytest.importorskip("numpy")

import buddy
from buddy import sparse as packed_sparse
from buddy.sparse import csr


def scipy():
    return pytest.importorskip("scipy", reason="SciPy is laid over the locked environment: python/requirements-scipy.txt")


def arrays(rows, columns, seed=1, most=12, dtype="float64"):
    """A matrix with rows of 0 to `most` elements."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, most + 1, rows)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return random.standard_normal(starts[-1]).astype(dtype), random.integers(0, columns, starts[-1], dtype=np.int32), starts


def plain_product(data, indices, starts, x):
    """Row by row, an addition after the other."""
    y = np.zeros((len(starts) - 1, *x.shape[1:]), data.dtype)
    for row in range(len(starts) - 1):
        for at in range(starts[row], starts[row + 1]):
            y[row] += data[at] * x[indices[at]]
    return y


def laplacian(n):
    sparse = scipy() and pytest.importorskip("scipy.sparse")
    line = sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    return sparse.kronsum(line, line).tocsr()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_come_back_and_products_are_those_of_a_plain_loop(dtype):
    parts = arrays(300, 200, dtype=dtype)
    packed = csr(parts, shape=(300, 200))
    assert packed.shape == (300, 200) and packed.dtype == dtype and packed.nnz == len(parts[0]) and packed.device == "cpu"
    for found, expected in zip(packed.arrays(), parts):
        assert found.dtype == expected.dtype and np.array_equal(found, expected)
    random = np.random.default_rng(2)
    for shape in [(200,), (200, 1), (200, 3), (200, 8), (200, 19), (200, 0)]:
        x = random.standard_normal(shape).astype(dtype)
        assert np.array_equal(packed @ x, plain_product(*parts, x)), shape


def test_a_stencil_takes_a_twelfth():
    n = 200
    row = np.arange(n * n)
    columns = np.stack([row - n, row - 1, row, row + 1, row + n], 1)
    inside = (columns >= 0) & (columns < n * n)
    starts = np.concatenate([[0], np.cumsum(inside.sum(1))])
    data = np.where(columns == row[:, None], 4.0, -1.0)[inside]
    packed = csr((data, columns[inside], starts), shape=(n * n, n * n))
    assert packed.nbytes * 12 < packed.plain_nbytes
    assert "40000 x 40000" in repr(packed) and "cpu" in repr(packed)


def test_rows_longer_than_a_tile_are_rows():
    parts = np.random.default_rng(3).standard_normal(30000), np.arange(30000), np.array([0, 0, 29000, 30000, 30000])
    packed = csr(parts, shape=(4, 30000))
    x = np.random.default_rng(4).standard_normal(30000)
    assert np.allclose(packed @ x, plain_product(*parts, x), rtol=1e-12)
    assert np.array_equal(packed.arrays()[0], parts[0])


def test_wrong_arguments_name_what_is_right():
    parts = arrays(30, 20)
    packed = csr(parts, shape=(30, 20))
    with pytest.raises(ValueError, match="shape"):
        csr(parts)
    with pytest.raises(TypeError, match="float32 or float64"):
        csr((parts[0].astype(complex), *parts[1:]), shape=(30, 20))
    with pytest.raises(ValueError, match="columns from"):
        csr(parts, shape=(30, 10))
    with pytest.raises(ValueError, match="starts of rows for 31"):
        csr(parts, shape=(31, 20))
    with pytest.raises(ValueError, match="must not decrease"):
        csr((parts[0], parts[1], parts[2][[0, 2, 1, *range(3, 31)]]), shape=(30, 20))
    with pytest.raises(TypeError, match="no sparse matrix"):
        csr([[1.0]])
    with pytest.raises(ValueError, match="does not take x"):
        packed @ np.zeros(30)
    with pytest.raises(TypeError, match="convert one"):
        csr((parts[0].astype(np.float32), *parts[1:]), shape=(30, 20)) @ np.zeros(20)
    with pytest.raises(TypeError, match="NumPy, PyTorch or CuPy"):
        packed @ [1.0]
    with pytest.raises(ValueError, match="valid are"):
        packed.to("gpu")
    with pytest.raises(ValueError, match="counted from 0"):
        packed.to(-2)
    with pytest.raises(TypeError, match="indices are float64; give integers"):
        csr((parts[0], parts[1] + 0.5, parts[2]), shape=(30, 20))
    with pytest.raises(TypeError, match="indptr are float64; give integers"):
        csr((parts[0], parts[1], parts[2] * 1.0), shape=(30, 20))
    with pytest.raises(ValueError, match="one dimension"):
        csr((parts[0][:, None], *parts[1:]), shape=(30, 20))
    with pytest.raises(ValueError, match="transposed"):
        packed.rmatvec(np.zeros(20))


def test_strided_and_integer_vectors_are_taken():
    parts = arrays(30, 20)
    packed = csr(parts, shape=(30, 20))
    wide = np.random.default_rng(5).standard_normal((40, 3))
    assert np.array_equal(packed @ wide[::2, 1], plain_product(*parts, wide[::2, 1]))
    assert np.array_equal(packed @ wide[::2], plain_product(*parts, wide[::2]))
    assert np.array_equal(packed @ np.arange(20), plain_product(*parts, np.arange(20.0)))


def test_pytorch_matrices_and_vectors():
    torch = pytest.importorskip("torch")
    data, indices, starts = arrays(30, 20)
    plain = torch.sparse_csr_tensor(torch.from_numpy(starts), torch.from_numpy(indices), torch.from_numpy(data), (30, 20))
    for matrix in [plain, plain.to_sparse_coo(), plain.to_dense()]:
        packed = csr(matrix)
        x = torch.randn(20, 2, dtype=torch.float64)
        y = packed @ x
        assert isinstance(y, torch.Tensor) and torch.allclose(y, plain.to_dense() @ x)
    with pytest.raises(ValueError, match="no gradient"):
        packed @ x.requires_grad_()


def test_scipy_products_are_equal_to_the_bit():
    scipy()
    sparse = pytest.importorskip("scipy.sparse")
    plain = sparse.random_array((500, 400), density=0.05, format="csr", rng=np.random.default_rng(6))
    x = np.random.default_rng(7).standard_normal((400, 5))
    for matrix in [plain, plain.tocoo(), plain.tocsc(), sparse.csr_matrix(plain)]:
        packed = csr(matrix)
        assert np.array_equal(packed @ x[:, 0], plain @ x[:, 0]) and np.allclose(packed @ x, plain @ x, rtol=1e-14)
    y = np.random.default_rng(8).standard_normal(500)
    assert np.allclose(packed.rmatvec(y), plain.T @ y, rtol=1e-13)


@pytest.mark.parametrize("solver", ["cg", "gmres", "bicgstab", "minres", "bicg"])
def test_krylov_solvers_take_the_same_steps(solver):
    scipy()
    linalg = pytest.importorskip("scipy.sparse.linalg")
    plain = laplacian(40)
    packed = csr(plain)
    assert linalg.aslinearoperator(packed).shape == plain.shape
    b = np.random.default_rng(9).standard_normal(plain.shape[0])
    x, info = getattr(linalg, solver)(packed, b, rtol=1e-8)
    expected, _ = getattr(linalg, solver)(plain, b, rtol=1e-8)
    assert info == 0 and np.linalg.norm(b - plain @ x) <= 1e-5 * np.linalg.norm(b)
    assert np.array_equal(x, expected)


class CupyArray:
    """A stand-in for `cupy.ndarray` whose device memory is host memory."""

    def __init__(self, array, device=0):
        self.array, self.device = array, types.SimpleNamespace(id=device)

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    nbytes = property(lambda self: self.array.nbytes)
    data = property(lambda self: types.SimpleNamespace(ptr=self.array.ctypes.data, device=self.device))

    def __getitem__(self, at):
        return CupyArray(self.array[at], self.device.id)

    def __setitem__(self, at, value):
        self.array[at] = value.array


CupyArray.__module__ = "cupy"


class CupyMatrix:
    """A stand-in for a CSR matrix of `cupyx.scipy.sparse` on the second GPU."""

    device = types.SimpleNamespace(id=1)

    def __init__(self, plain):
        self.plain = plain

    def tocsr(self):
        return self

    def get(self):
        return self.plain


CupyMatrix.__module__ = "cupyx.scipy.sparse"


class PlainMatrix:
    """The parts of a SciPy matrix that packing reads."""

    def __init__(self, data, indices, indptr, shape):
        self.data, self.indices, self.indptr, self.shape = data, indices, indptr, shape

    def tocsr(self):
        return self


@pytest.fixture
def gpus(monkeypatch):
    """GPUs whose memory is host memory, and CuPy for it. Lists the devices and streams of products."""
    products, made = [], []

    class OnGpu:
        def __init__(self, host, device):
            self.host, self.index = host, device[0]
            made.append(self.index)

        def __getattr__(self, name):
            assert name not in ("unpack", "multiply_transposed", "to"), f"{name} is of the host"
            return getattr(self.host, name)

        def multiply(self, device, x, y, columns):
            assert device[0] == self.index
            products.append((*device, columns))
            self.host.multiply((-1, 0), x, y, columns)

    class Host:
        def __init__(self, *arguments):
            self.native = native.CsrPacked(*arguments)

        def __getattr__(self, name):
            return getattr(self.native, name)

        def to(self, device):
            return OnGpu(self.native, device)

    native = packed_sparse._native
    monkeypatch.setattr(packed_sparse, "_native", types.SimpleNamespace(CsrPacked=Host, Span=native.Span))
    monkeypatch.setattr(packed_sparse, "load_compiler", lambda: None)
    cupy, current = types.ModuleType("cupy"), [0]

    class Device:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            current.append(self.index)

        def __exit__(self, *_):
            current.pop()

    cupy.cuda = types.SimpleNamespace(Device=Device, get_current_stream=lambda index: types.SimpleNamespace(ptr=70 + index))
    cupy.ascontiguousarray = lambda x, dtype: CupyArray(np.ascontiguousarray(x.array, dtype), x.device.id)
    cupy.empty = lambda shape, dtype: CupyArray(np.full(shape, np.nan, dtype), current[-1])
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return types.SimpleNamespace(products=products, made=made)


def test_cupy_arrays_are_multiplied_on_their_device_and_stream(gpus):
    parts = arrays(30, 20)
    packed = csr(CupyMatrix(PlainMatrix(*parts, (30, 20))))
    assert packed.device == "cuda:1" and gpus.made == [1]
    x = np.random.default_rng(10).standard_normal((40, 19))[::2]
    for columns in [x[:, 0], x[:, :3], x]:
        y = packed @ CupyArray(columns, 1)
        assert isinstance(y, CupyArray) and y.device.id == 1 and np.array_equal(y.array, plain_product(*parts, columns))
    assert gpus.products == [(1, 71, 1), (1, 71, 3), (1, 71, 8), (1, 71, 8), (1, 71, 3)]
    integers = packed.matvec(CupyArray(np.arange(20), 1))
    assert np.array_equal(integers.array, plain_product(*parts, np.arange(20.0)))
    with pytest.raises(ValueError, match="the matrix is on cuda:1, x on cuda:0"):
        packed @ CupyArray(x[:, 0], 0)
    with pytest.raises(ValueError, match="x on the CPU"):
        packed @ x[:, 0].copy()


def test_a_matrix_moves_between_devices(gpus):
    parts = arrays(30, 20)
    packed = csr(parts, shape=(30, 20), device="cuda")
    assert packed.device == "cuda:0" and packed.to("cuda") is packed and gpus.made == [0]
    other = packed.to("cuda:1")
    assert other.device == "cuda:1" and gpus.made == [0, 1]
    for found, expected in zip(other.arrays(), parts):
        assert np.array_equal(found, expected)
    back = other.to("cpu")
    assert back.device == "cpu" and back.to("cpu") is back and gpus.made == [0, 1]
    x, y = np.random.default_rng(11).standard_normal(20), np.random.default_rng(12).standard_normal(30)
    assert np.array_equal(back @ x, plain_product(*parts, x)) and gpus.products == []
    with pytest.raises(NotImplementedError, match="A.to"):
        other.rmatvec(y)
    assert np.array_equal(back.rmatvec(y), csr(parts, shape=(30, 20)).rmatvec(y))


def test_nothing_but_numpy_is_imported():
    import subprocess

    code = ("import sys, numpy, buddy; buddy.sparse.csr((numpy.ones(1), numpy.zeros(1, int), numpy.array([0, 1])), shape=(1, 1)); "
            "sys.exit(any(name in sys.modules for name in ['scipy', 'torch', 'cupy']))")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert buddy.sparse.csr is csr
