"""Native calls hold the memory they use, and wrong shapes, dtypes, devices and lengths are errors
before any kernel runs."""

import gc

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from buddy import _native
from buddy.torch import PackedLinear, compress_, linear_scratch_bytes, pack, pack_weight
from buddy.torch.layers import PackedMatrix
from buddy.torch.ops import span


def weights(outputs=48, inputs=128):
    return (torch.randn(outputs, inputs) * 0.02).bfloat16()


def test_a_span_holds_its_tensor():
    tensor = torch.zeros(1024, dtype=torch.uint8)
    held = span(tensor)
    assert held.owner is tensor and (held.address, held.nbytes) == (tensor.data_ptr(), 1024)
    del tensor
    gc.collect()
    assert isinstance(held.owner, torch.Tensor)


def test_bare_addresses_are_refused():
    tensor = torch.zeros(1024, dtype=torch.uint8)
    with pytest.raises(TypeError, match="holds its owner"):
        _native.train((-1, 0), "bf16", (tensor.data_ptr(), 1024))
    with pytest.raises(ValueError, match="not a range of memory"):
        _native.Span(None, 0, 4)


def test_strided_memory_is_refused():
    with pytest.raises(ValueError, match="not dense"):
        span(torch.zeros(8, 8)[:, ::2])
    assert span(torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)).nbytes == 480


def test_packed_bytes_in_a_column_unpack():
    plain = (torch.randn(1 << 20) * 0.02).bfloat16()
    packed = pack(plain, codec="bf16", target="4/3x")
    column = torch.stack([packed.data, packed.data], 1)[:, 0]
    assert not column.is_contiguous()
    found = torch.ops.buddy.unpack(column, packed.codec, packed.target, packed.row, list(plain.shape), plain.dtype)
    assert torch.equal(found.view(torch.int16), plain.view(torch.int16))


def test_inputs_of_another_width_are_an_error():
    layer = compress_(nn.Sequential(nn.Linear(128, 48, dtype=torch.bfloat16)))[0]
    for width in [64, 192, 100]:
        with pytest.raises(ValueError, match="inputs"):
            layer(torch.zeros(3, width, dtype=torch.bfloat16))
    packed = pack_weight(weights())
    with pytest.raises(ValueError, match="inputs"):
        torch.ops.buddy.linear(torch.zeros(3, 64).bfloat16(), packed.data, None, None, packed.codec, 48, 128, False)


def test_other_devices_dtypes_and_lengths_are_an_error():
    packed, x = pack_weight(weights()), torch.zeros(3, 128).bfloat16()

    def run(x=x, data=packed.data, bias=None):
        return torch.ops.buddy.linear(x, data, bias, None, packed.codec, 48, 128, False)

    with pytest.raises(ValueError, match="x is on meta, the packed weights on cpu"):
        run(x=x.to("meta"))
    with pytest.raises(ValueError, match="the bias on meta"):
        run(bias=torch.zeros(48, device="meta").bfloat16())
    with pytest.raises(ValueError, match="a bias of"):
        run(bias=torch.zeros(7).bfloat16())
    with pytest.raises(ValueError, match="floating point"):
        run(x=torch.zeros(3, 128, dtype=torch.int32))
    with pytest.raises(ValueError, match="cannot hold"):
        run(data=packed.data[:4096])
    with pytest.raises(ValueError, match="uint8"):
        run(data=packed.data.view(torch.int32))
    with pytest.raises(ValueError, match="cannot hold"):
        torch.ops.buddy.unpack(packed.data, packed.codec, "4/3x", 2, [480, 128], torch.bfloat16)
    empty = pack(torch.zeros(3, 0), codec="fp32", target="1x", sectors=0)
    with pytest.raises(ValueError, match="not negative"):
        torch.ops.buddy.unpack(empty.data, "fp32", "1x", 0, [-1], torch.float32)


def wrong_states():
    plain = weights()
    good = pack_weight(plain).data
    yield "another target", pack(plain, codec="bf16", target="2x", matrix=True).data
    yield "no matrix layout", pack(plain, codec="bf16", target="4/3x").data
    yield "another row", pack_weight(plain.view(96, 64)).data
    yield "another codec", pack(plain, codec="bpc", target="4/3x", matrix=True).data
    yield "truncated", good[:-128]
    yield "padded", torch.cat([good, torch.zeros(128, dtype=torch.uint8)])
    yield "shorter than a header", good[:64]


@pytest.mark.parametrize("name, data", [pytest.param(name, data, id=name) for name, data in wrong_states()])
def test_packed_bytes_that_do_not_fit_are_refused_on_load(name, data):
    layer = PackedLinear(128, 48)
    with pytest.raises(RuntimeError, match="weight"):
        layer.load_state_dict({"weight": data})
    good = pack_weight(weights()).data
    layer.load_state_dict({"weight": good})
    assert torch.equal(layer.matrix.data, good)


def test_old_names_work_and_warn():
    from buddy.torch import layers, linear_room

    with pytest.warns(DeprecationWarning, match="PackedMatrix"):
        assert layers.PackedWeight is PackedMatrix
    with pytest.warns(DeprecationWarning, match="linear_scratch_bytes"), pytest.raises(ValueError, match="GPU"):
        linear_room(pack_weight(weights()), 1)
    with pytest.raises(ValueError, match="GPU"):
        linear_scratch_bytes(pack_weight(weights()), 1)


def embeddings(rows=100, columns=64):
    model = nn.Sequential(nn.Embedding(rows, columns).bfloat16())
    return nn.Sequential(nn.Embedding.from_pretrained(model[0].weight.detach().clone())), compress_(model)


@pytest.mark.parametrize("ids", [torch.tensor([2**32 + 5]), torch.tensor([100]), torch.tensor([-1]), torch.tensor([1.7]),
                                 torch.tensor([True]), torch.tensor([1], dtype=torch.int16)], ids=str)
def test_ids_raise_what_an_embedding_raises(ids):
    plain, packed = embeddings()
    with pytest.raises((RuntimeError, IndexError)) as wanted:
        plain(ids)
    with pytest.raises(type(wanted.value)):
        packed(ids)


def test_valid_ids_of_both_types_and_any_shape_give_the_rows():
    plain, packed = embeddings()
    for ids in [torch.tensor([[0, 99], [5, 5]]), torch.tensor(7, dtype=torch.int32), torch.zeros(0, dtype=torch.int64)]:
        assert torch.equal(packed(ids), plain(ids))


@pytest.mark.parametrize("write", [
    lambda w: w.data.add_(1), lambda w: w.mul_(2), lambda w: nn.init.normal_(w), lambda w: w[3].zero_(),
    lambda w: w.view(-1)[::2].fill_(3), lambda w: w.__setitem__((slice(None), 0), 5), lambda w: w.t().copy_(torch.ones(64, 48)),
    lambda w: torch.add(w, 1, out=w)], ids=["data", "mul_", "init", "row", "view", "setitem", "transposed", "out"])
@pytest.mark.parametrize("inference", [False, True])
def test_writes_to_the_weight_are_packed(write, inference):
    plain = nn.Linear(64, 48, dtype=torch.bfloat16).requires_grad_(False)
    layer = compress_(nn.Sequential(nn.Linear(64, 48, dtype=torch.bfloat16)))[0]
    layer.load_state_dict(plain.state_dict())
    with torch.inference_mode(inference), torch.no_grad():
        torch.manual_seed(3)
        write(layer.weight)
        torch.manual_seed(3)
        write(plain.weight)
        assert torch.equal(layer.weight, plain.weight)
    x = torch.randn(2, 64).bfloat16()
    assert torch.equal(layer(x), plain(x))


def test_assigned_weights_are_packed_and_reads_stay_plain_tensors():
    layer = compress_(nn.Sequential(nn.Linear(64, 48, dtype=torch.bfloat16)))[0]
    new = torch.randn(48, 64).bfloat16()
    weight = layer.weight
    weight.data = new
    assert torch.equal(layer.weight, new)
    weight = layer.weight
    weight.data += 1
    assert torch.equal(layer.weight, new + 1)
    layer.weight = nn.Parameter(new)
    assert torch.equal(layer.weight, new) and "weight" not in layer._parameters
    assert type(layer.weight + 1) is torch.Tensor and type(layer.state_dict()["weight"]) is torch.Tensor
    assert type(layer.weight.detach().clone()) is torch.Tensor
    with pytest.raises(ValueError, match="is needed"):
        layer.weight = new[:5]
