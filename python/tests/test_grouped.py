"""The operators of packed experts give each token the sum of its experts' results."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional

from buddy.torch import PackedExperts, grouped
from buddy.torch.experts import pack_experts, pack_experts_
from buddy.torch.grouped import HEAD, groups_of, route_groups, tile_tokens

EXPERTS, HIDDEN, INTERMEDIATE, TOP = 6, 128, 64, 2
ACTIVATIONS = {"silu": functional.silu, "gelu": functional.gelu, "relu": functional.relu,
               "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh")}


def made(tokens, experts=EXPERTS):
    x = torch.randn(tokens, HIDDEN).bfloat16()
    ids = torch.stack([torch.randperm(experts)[:TOP] for _ in range(tokens)]) if tokens else torch.zeros((0, TOP), dtype=torch.int64)
    w13, w2 = (torch.randn(experts, *size).mul(0.05).bfloat16() for size in ((2 * INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE)))
    return x, torch.rand(tokens, TOP), ids, w13, w2


def wanted(x, weights, ids, w13, w2, bias13, bias2, activation):
    """Returns the sums in fp32, one token and expert after the other."""
    out = torch.zeros(x.shape)
    for token in range(x.shape[0]):
        for weight, expert in zip(weights[token], ids[token].tolist()):
            if 0 <= expert < w13.shape[0]:
                gate, up = (w13[expert].float() @ x[token].float() + bias13[expert].float()).chunk(2)
                y = w2[expert].float() @ (ACTIVATIONS[activation](gate) * up) + bias2[expert].float()
                out[token] += weight * y
    return out


def call(x, weights, ids, w13, w2, bias13=None, bias2=None, activation="silu"):
    first, second = pack_experts(w13), pack_experts(w2)
    return torch.ops.buddy.experts(x, weights, ids, first.data, bias13, first.codec, second.data, bias2, second.codec,
                                   w13.shape[0], w2.shape[2], activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_tokens_get_the_sum_of_their_experts(activation):
    x, weights, ids, w13, w2 = made(9)
    ids[3, 0], ids[5] = EXPERTS, -1  # experts of another device, and none
    bias13, bias2 = torch.randn(EXPERTS, 2 * INTERMEDIATE).bfloat16(), torch.randn(EXPERTS, HIDDEN).bfloat16()
    for one in (ids, ids.int()):
        y = call(x, weights, one, w13, w2, bias13, bias2, activation)
        torch.testing.assert_close(y.float(), wanted(x, weights, ids, w13, w2, bias13, bias2, activation), rtol=0.03, atol=0.03)
    assert not y[5].any()


def test_interleaved_gates_give_the_same_tokens():
    x, weights, ids, w13, w2 = made(9)
    first, second = pack_experts(grouped.interleave(w13)), pack_experts(w2)
    y = torch.ops.buddy.experts(x, weights, ids, first.data, None, first.codec, second.data, None, second.codec, EXPERTS, INTERMEDIATE, "swiglu")
    assert torch.equal(y, call(x, weights, ids, w13, w2))


def test_a_route_sorts_assignments_by_expert_in_groups_of_a_tile():
    x, _, ids, _, _ = made(60)
    ids[:50, 0], ids[7, 1] = 2, EXPERTS
    route, rows = torch.ops.buddy.experts_route(x, ids, EXPERTS)
    tile, positions = tile_tokens(ids.numel(), EXPERTS), route[-ids.numel():].view(ids.shape)
    assert route.numel() == HEAD + 4 * route_groups(ids.numel(), EXPERTS) + ids.numel()
    assert sorted(positions.flatten().tolist()) == list(range(ids.numel()))
    assert torch.equal(rows[positions.long()], x.unsqueeze(1).expand(-1, TOP, -1))
    found = {}
    for expert, first, last in groups_of(route):
        assert 0 < last - first <= tile
        found.update(dict.fromkeys(range(first, last), expert))
    assert [found.get(at) for at in positions.flatten().tolist()] == [one if one < EXPERTS else None for one in ids.flatten().tolist()]
    assert int(route[1]) == len(found) == ids.numel() - int((ids == EXPERTS).sum())


def test_no_token_no_result_and_wrong_arguments_are_refused():
    x, weights, ids, w13, w2 = made(0)
    assert call(x, weights, ids, w13, w2).shape == (0, HIDDEN)
    x, weights, ids, w13, w2 = made(3)
    with pytest.raises(ValueError, match="no activation 'swish'"):
        call(x, weights, ids, w13, w2, activation="swish")
    with pytest.raises(ValueError, match="both have a row for each token"):
        call(x, weights, ids[:2], w13, w2)
    with pytest.raises(ValueError, match="bfloat16 inputs"):
        call(x.float(), weights, ids, w13, w2)


def test_operators_have_the_shapes_of_their_fakes():
    x, weights, ids, w13, w2 = made(5)
    first, second = pack_experts(w13), pack_experts(w2)
    arguments = x, weights, ids, first.data, None, first.codec, second.data, None, second.codec, EXPERTS, INTERMEDIATE, "silu"
    torch.library.opcheck(torch.ops.buddy.experts.default, arguments, test_utils=("test_schema", "test_faketensor"))
    compiled = torch.compile(lambda *more: torch.ops.buddy.experts(*more), backend="eager", fullgraph=True)
    assert torch.equal(compiled(*arguments), torch.ops.buddy.experts(*arguments))


class Experts(nn.Module):
    """Experts that follow Transformers' interface."""

    has_bias = has_post_expert_norm = is_transposed = False

    def __init__(self, w13, w2):
        super().__init__()
        self.num_experts, self.has_gate, self.is_transposed, self.act_fn = w13.shape[0], True, False, nn.SiLU()
        self.gate_up_proj, self.down_proj = nn.Parameter(w13), nn.Parameter(w2)

    def _apply_gate(self, both):
        gate, up = both.chunk(2, -1)
        return self.act_fn(gate) * up

    def forward(self, x, index, weights):
        raise AssertionError("the grouped operators replace this")


def test_a_packed_module_uses_the_grouped_operators(monkeypatch):
    x, weights, ids, w13, w2 = made(9)
    module = Experts(w13, w2)
    pack_experts_(module, {"gate_up_proj": w13, "down_proj": w2}, {"gate_up_proj": tuple(w13.shape), "down_proj": tuple(w2.shape)})
    assert not module._multiplies_in_place(x, ids, weights), "the CPU has no kernels"
    monkeypatch.setattr(PackedExperts, "_multiplies_in_place", lambda *_: True)
    assert torch.equal(module(x, ids, weights), call(x, weights, ids, w13, w2))
