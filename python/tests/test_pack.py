"""Packing, unpacking and linear layers are bit-exact, eager and compiled, and pass PyTorch's
operator checks."""

import pickle

import pytest

torch = pytest.importorskip("torch")

import buddy
from buddy import _native
from buddy.torch import PackedTensor, linear, pack, pack_weight, unpack
from buddy.torch.layout import CODECS, DEFAULT_CODECS, DEVICE_BYTES, packed_bytes
from buddy.torch.ops import span
from buddy.torch.packed import choose

TYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool,
         torch.complex64]


def made(dtype, *shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(shape, generator=generator).relu() * 3
    return (numbers > 0) if dtype == torch.bool else numbers.to(dtype)


def same(left, right):
    """Returns whether two tensors are bit-equal, NaNs included."""
    assert (left.shape, left.dtype) == (right.shape, right.dtype)
    return torch.equal(left.contiguous().reshape(-1).view(torch.uint8), right.contiguous().reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("dtype", TYPES)
def test_every_dtype_round_trips(dtype):
    for shape in [(100, 64), (7,), (1,), (0, 3), ()]:
        tensor = made(dtype, *shape)
        packed = pack(tensor)
        assert same(unpack(packed), tensor) and packed.fits()
        assert packed.plain_bytes == tensor.numel() * tensor.element_size()


def test_every_16_bit_pattern_round_trips():
    words = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    for dtype in [torch.bfloat16, torch.float16]:
        assert same(unpack(pack(words.view(dtype))), words.view(dtype))


def test_views_round_trip():
    base = made(torch.bfloat16, 40, 96)
    for view in [base.t(), base[3:, 5::2], base[0].expand(9, 96), base.flatten()[1:], base[:0]]:
        assert same(unpack(pack(view)), view)


def test_python_and_native_sizes_agree_for_every_target():
    tensor = made(torch.bfloat16, 33, 128)
    for target in DEVICE_BYTES:
        for matrix in [False, True]:
            packed = pack(tensor, codec="bf16", target=target, matrix=matrix)
            *_, sectors = _native.parse_header(span(packed.data[:128]))
            format = (packed.codec, target, packed.row)
            assert packed.nbytes == packed_bytes(target, packed.row, 33 * 256, sectors) == _native.packed_bytes(format, 33 * 256, sectors)
            assert same(packed.unpack(), tensor)


def test_codecs_tried_are_those_that_frozen_buffers_can_have():
    tried = {codec for codecs in [*CODECS.values(), DEFAULT_CODECS] for codec in codecs}
    assert "bf16" in tried <= set(_native.frozen_codecs())


def test_the_smallest_buffer_within_the_overflow_is_chosen():
    counts = {"bpc": [0, 0, 0, 0, 6400, 0], "zeros16": [0, 0, 0, 6080, 0, 320]}
    size = 128 * 6400
    assert choose(counts, size)[1:] == ("zeros16", "2x", 640)
    assert choose(counts, size, most_overflow=0.04) == (packed_bytes("4/3x", 0, size, 0), "bpc", "4/3x", 0)
    assert choose(counts, size, target="4x")[1:] == ("zeros16", "4x", 6080 + 3 * 320)


def test_zeros_and_weights_get_their_targets():
    assert pack(torch.zeros(1 << 16)).target == "16x"
    weights = torch.randn(512, 512, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16) * 0.02
    packed = pack(weights)
    assert (packed.codec.split(":")[0], packed.target) == ("bf16", "4/3x") and packed.ratio > 1.3


def test_overflow_without_room_is_reported_and_refused():
    noise = torch.randint(0, 256, (128 * 64,), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    packed = pack(noise, codec="bpc", target="2x", sectors=5)
    assert not packed.fits()
    with pytest.raises(ValueError, match="not a frozen buffer"):
        unpack(packed)


def test_packed_tensors_read_move_and_pickle():
    tensor = made(torch.float32, 50, 50)
    packed = pack(tensor)
    again = PackedTensor.read(packed.data, (50, 50), torch.float32)
    assert again == packed or again.codec == packed.codec
    assert same(pickle.loads(pickle.dumps(packed)).to("cpu").unpack(), tensor)
    assert "50x50" in repr(packed)
    with pytest.raises(ValueError, match="not a tensor of"):
        PackedTensor.read(packed.data, (50, 60), torch.float32)


def layer(rows=5, inputs=128, outputs=48):
    weight = made(torch.bfloat16, outputs, inputs, seed=4) - 1
    bias, x = made(torch.bfloat16, outputs, seed=5), made(torch.bfloat16, 2, rows, inputs, seed=6)
    return x.requires_grad_(), weight, bias.requires_grad_()


def test_linear_and_its_gradients_equal_pytorch():
    x, weight, bias = layer()
    packed = pack_weight(weight)
    for exact in [False, True]:
        found = linear(x, packed, bias, exact=exact)
        wanted = torch.nn.functional.linear(x, weight, bias)
        assert same(found, wanted)
        grads = torch.autograd.grad(found.float().square().sum(), [x, bias])
        for one, other in zip(grads, torch.autograd.grad(wanted.float().square().sum(), [x, bias])):
            assert same(one, other)
    with pytest.raises(ValueError, match="use pack_weight"):
        linear(x, pack(weight))
    with pytest.raises(ValueError, match="multiple of 64 inputs"):
        pack_weight(weight[:, :100])


def test_operators_pass_opcheck():
    x, weight, bias = layer()
    packed = pack_weight(weight)
    ops = torch.ops.buddy
    cases = [(ops.pack.default, (weight, packed.codec, "4/3x", packed.row, 64)),
             (ops.unpack.default, (packed.data, packed.codec, "4/3x", packed.row, list(weight.shape), weight.dtype)),
             (ops.linear.default, (x, packed.data, bias, None, packed.codec, 48, 128, False))]
    for op, arguments in cases:
        torch.library.opcheck(op, arguments)


def test_pack_unpack_and_linear_compile_into_one_graph():
    x, weight, bias = layer()
    packed = pack_weight(weight)

    def step(x):
        saved = pack(x, codec="bf16:112", target="2x", sectors=4096)
        return linear(unpack(saved).relu(), packed, bias) + 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert same(compiled(x), step(x))
    wide = made(torch.bfloat16, 3, 11, 128)
    assert same(torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=True)(wide), step(wide))


def sealed_file(tmp_path):
    """Returns the path of a packed file of one matrix, and the matrix."""
    save_file = pytest.importorskip("safetensors.torch").save_file
    weight = made(torch.bfloat16, 64, 128)
    save_file({"w": weight}, tmp_path / "plain.safetensors")
    buddy.pack_model(tmp_path / "plain.safetensors", tmp_path / "packed.safetensors")
    return tmp_path / "packed.safetensors", weight


def test_packed_bytes_of_a_file_are_compared_with_their_checksum(tmp_path):
    load_file = pytest.importorskip("safetensors.torch").load_file
    path, weight = sealed_file(tmp_path)
    data = load_file(path)["w"]
    assert _native.check_packed(span(data)) and same(PackedTensor.read(data, (64, 128), torch.bfloat16).unpack(), weight)
    layer = buddy.torch.PackedLinear(128, 64)
    layer.load_state_dict({"weight": data})
    for at in range(0, data.numel(), data.numel() // 60):
        flipped = data.clone()
        flipped[at] ^= 1 << at % 8
        with pytest.raises(ValueError):
            PackedTensor.read(flipped, (64, 128), torch.bfloat16)
        with pytest.raises(RuntimeError):
            layer.load_state_dict({"weight": flipped})
    unsealed = pack_weight(weight).data
    assert not _native.check_packed(span(unsealed))


def test_verify_model_checks_a_packed_file(tmp_path):
    path, _ = sealed_file(tmp_path)
    assert buddy.verify_model(path) == buddy.CheckedModel(1, path.stat().st_size, 0)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        buddy.verify_model(path)


def test_a_scalar_is_no_matrix():
    with pytest.raises(ValueError, match="no matrix"):
        pack(torch.tensor(1.0, dtype=torch.bfloat16), matrix=True)


def test_sizes_beyond_the_format_are_an_error():
    format = ("bf16:112", "4/3x", 0)
    assert _native.packed_bytes(format, 128 * (2**32 - 1), 0) > 96 * (2**32 - 1)
    for size in [2**64 - 1, 2**64 - 128, 128 * 2**32]:
        with pytest.raises(ValueError, match="holds at most"):
            _native.packed_bytes(format, size, 0)


@pytest.fixture
def tight(tmp_path):
    """A matrix, and its bytes as ``buddy pack --tight`` writes them."""
    from safetensors.torch import load_file, save_file

    weight = (made(torch.float32, 96, 256) * 0.01 - 0.01).bfloat16()
    save_file({"weight": weight}, tmp_path / "plain.safetensors")
    assert _native.command(["buddy", "pack", str(tmp_path / "plain.safetensors"), "--tight", "--out", str(tmp_path / "tight.safetensors")]) == 0
    data = load_file(tmp_path / "tight.safetensors")["weight"]
    assert b"bf16-tight" in bytes(data[:128].tolist()) and data.numel() < 0.76 * weight.nbytes
    return weight, data


def test_a_tight_matrix_is_read_and_packed_again(tight):
    weight, data = tight
    for shape in [weight.shape, (3, 32, 256)]:
        packed = PackedTensor.read(data, shape, torch.bfloat16)
        assert same(unpack(packed), weight.view(shape)) and (packed.codec.split(":")[0], packed.target) == ("bf16", "4/3x")
    assert same(linear(weight[:3], PackedTensor.read(data, weight.shape, torch.bfloat16)), torch.nn.functional.linear(weight[:3], weight))


def test_a_damaged_tight_matrix_is_refused(tight):
    weight, data = tight
    for at in [*range(8, 128, 5), *range(128, data.numel(), 997)]:
        changed = data.clone()
        changed[at] ^= 4
        with pytest.raises(ValueError):
            PackedTensor.read(changed, weight.shape, torch.bfloat16)
    for changed, shape, dtype in [(data[:-1], weight.shape, torch.bfloat16), (data[:128], weight.shape, torch.bfloat16), (data, (96, 128), torch.bfloat16),
                                  (data, weight.shape, torch.float16)]:
        with pytest.raises(ValueError):
            PackedTensor.read(changed, shape, dtype)
