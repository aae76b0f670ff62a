"""Models with packed weights keep every bit, and compute bit-equal results on the CPU and with
``exact``."""

import io
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from buddy.llm.decoder import interleave_gate_up, split_gate_up
from buddy.torch import PackedEmbedding, PackedLinear, compress_


class Net(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.inner = nn.Sequential(nn.Linear(64, 192), nn.SiLU(), nn.Linear(192, 64, bias=False))
        self.odd = nn.Linear(33, 64)
        self.head = nn.Linear(64, 100, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.inner(self.embed(ids)))


def made(tied=False):
    torch.manual_seed(3)
    return Net(tied).to(torch.bfloat16).eval()


def same_states(left, right):
    left, right = left.state_dict(), right.state_dict()
    assert set(left) == set(right)
    for name, one in left.items():
        assert torch.equal(one.view(torch.int16), right[name].view(torch.int16)), name


IDS = torch.tensor([[1, 99, 0], [5, 5, 7]])


@pytest.mark.parametrize("tied", [False, True])
def test_packed_models_compute_and_save_the_same(tied):
    plain, packed = made(tied), compress_(made(tied))
    assert isinstance(packed.embed, PackedEmbedding) and isinstance(packed.inner[0], PackedLinear)
    assert type(packed.odd) is nn.Linear, "rows that are not whole entries stay plain"
    assert torch.equal(packed(IDS), plain(IDS))
    same_states(packed, plain)
    assert (packed.head.matrix is packed.embed.matrix) == tied


def test_tied_weights_share_memory_on_every_device():
    packed = compress_(made(tied=True)).to("cpu")
    assert packed.head.matrix.data.data_ptr() == packed.embed.matrix.data.data_ptr()
    moved = packed.to("meta")
    assert moved.head.matrix.data is moved.embed.matrix.data


def test_plain_states_load_into_packed_layers_and_back():
    torch.manual_seed(4)
    other = Net().to(torch.bfloat16)
    packed = compress_(made())
    packed.load_state_dict(other.state_dict())
    same_states(packed, other)
    back = made()
    back.load_state_dict(packed.state_dict())
    same_states(back, other)


def test_wrong_states_are_refused_with_the_name():
    packed = compress_(made())
    state = packed.state_dict()
    state["head.weight"] = torch.zeros(7, 64, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="head.weight"):
        packed.load_state_dict(state)
    del state["head.weight"]
    with pytest.raises(RuntimeError, match="head.weight"):
        packed.load_state_dict(state)


def test_packed_models_pickle_and_save():
    packed = compress_(made())
    same_states(pickle.loads(pickle.dumps(packed)), made())
    file = io.BytesIO()
    torch.save(packed, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(IDS), made()(IDS))


def test_only_selected_modules_are_packed():
    packed = compress_(made(), only=lambda name, module: name.startswith("inner"))
    assert type(packed.head) is nn.Linear and isinstance(packed.inner[2], PackedLinear)
    with pytest.raises(ValueError, match="the model itself"):
        compress_(nn.Linear(64, 64, dtype=torch.bfloat16))


def test_other_dtypes_stay_plain():
    plain = Net()
    assert compress_(plain) is plain and type(plain.head) is nn.Linear


def test_gradients_flow_to_the_input():
    x = torch.randn(3, 64, dtype=torch.bfloat16, requires_grad=True)
    packed, plain = compress_(made()).inner, made().inner
    packed(x).sum().backward()
    found, x.grad = x.grad, None
    plain(x).sum().backward()
    assert torch.equal(found, x.grad)


def test_packed_models_compile_as_one_graph():
    packed = compress_(made())
    compiled = torch.compile(packed, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(IDS), made()(IDS))


def test_interleaved_gate_and_up_rows_split_again():
    weight, x = torch.randn(2 * 24, 16), torch.randn(5, 16)
    gates, values = split_gate_up(x @ interleave_gate_up(weight).t())
    wanted = (x @ weight.t()).chunk(2, -1)
    torch.testing.assert_close((gates, values), wanted)
    assert torch.equal(interleave_gate_up(weight)[:8], weight[:8]) and torch.equal(interleave_gate_up(weight)[8:16], weight[24:32])


def test_layers_of_fewer_rows_than_a_tile_stay_plain():
    model = compress_(nn.Sequential(nn.Linear(64, 16), nn.Linear(64, 15), nn.Linear(64, 1)).bfloat16())
    assert [type(one) for one in model] == [PackedLinear, nn.Linear, nn.Linear]


def test_layers_tied_to_a_plain_weight_stay_plain():
    class Scaled(nn.Embedding):
        def forward(self, ids):
            return super().forward(ids) * 2

    model = nn.Sequential(Scaled(100, 64), nn.Linear(64, 64), nn.Linear(64, 100, bias=False)).bfloat16()
    model[2].weight = model[0].weight
    compress_(model)
    assert isinstance(model[1], PackedLinear) and model[2].weight is model[0].weight
