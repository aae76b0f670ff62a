"""A decode loop from compressed weights, keys and values: one graph, captured once and replayed for every token.

Seven launches a layer. Each begins while the one before it ends, and a product asks for its weights before its input is there, so
that memory hardly rests between them.
"""

from __future__ import annotations

from typing import Iterable

import torch

from .. import _native
from ..torch import PackedTensor, linear, linear_room, pack_weight
from ..torch.ops import place, span
from . import shapes
from .cache import PagedCache
from .shapes import Shape

MATRICES = ("qkv", "o", "gate_up", "down")


# Rows of gates, and as many of values, that take turns in the matrix of both: so the product's own end can gate.
TURN = 8


def in_turn(both: torch.Tensor) -> torch.Tensor:
    """Rows of gates and of values, first all of the one, in turn."""
    return both.view(2, -1, TURN, both.shape[-1]).transpose(0, 1).reshape(both.shape)


def gates_and_values(both: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Results of rows in turn, apart."""
    gates, values = both.view(*both.shape[:-1], -1, 2, TURN).unbind(-2)
    return gates.flatten(-2), values.flatten(-2)


def packed_layer(layer: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | PackedTensor]:
    """A layer with its matrices packed, gates and values in turn."""
    turned = layer | {"gate_up": in_turn(layer["gate_up"])}
    return {name: pack_weight(one) if name in MATRICES else one for name, one in turned.items()}


class Decoder:
    """A model on one GPU that writes the most likely tokens of some sequences."""

    def __init__(self, shape: Shape, layers: Iterable[dict], embedding: PackedTensor, head: PackedTensor, norm: torch.Tensor,
                 cache: PagedCache):
        self.shape, self.cache = shape, cache
        self.layers, self.embedding, self.head, self.norm = list(layers), embedding, head, norm
        device, rows = cache.device, cache.sequences
        made = lambda *size, dtype=torch.bfloat16: torch.zeros(*size, dtype=dtype, device=device)
        self.stream, self.x, self.y = (made(rows, shape.hidden) for _ in range(3))
        self.qkv = made(rows, shape.matrices["qkv"][0])
        self.attended, self.inner = made(rows, shape.heads * shape.head), made(rows, shape.inner)
        self.scores = made(rows, shape.vocabulary)
        self.history = made(rows, cache.capacity, dtype=torch.int32)
        self.entries = made(rows, shape.hidden // 64, dtype=torch.int32)
        self.turns = shapes.turns(shape, cache.capacity, device)
        # Layers of one shape leave their memory ready for one another, and for no other.
        kinds = {one.shape: one for one in [*(self.layers[0][name] for name in MATRICES), head]}
        self.scratch = {shape: made(linear_room(one, rows), dtype=torch.uint8) for shape, one in kinds.items()}
        self.graph = None

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed weights, with the embedding."""
        matrices = [layer[name] for layer in self.layers for name in MATRICES] + [self.embedding, self.head]
        return sum(one.nbytes for one in {id(one): one for one in matrices}.values())

    def multiply(self, weight: PackedTensor, x: torch.Tensor, y: torch.Tensor, gated: bool = False) -> None:
        how = (weight.codec, weight.target, weight.row)
        _native.linear_ahead(self.place, how, (span(weight.data), weight.plain_bytes), span(x), span(y),
                             span(self.scratch[weight.shape]), gated)

    def normalise(self, added: torch.Tensor | None, weight: torch.Tensor) -> None:
        spans = [span(self.stream), (0, 0) if added is None else span(added), span(weight), span(self.x)]
        _native.decode_norm(self.place, spans, self.shape.epsilon)

    def step(self) -> None:
        """Starts one step: the tokens that ``entries`` names go in, the next ones are chosen, sequences get one token longer."""
        self.place, shape, cache = place(self.x), self.shape, self.cache
        how = (self.embedding.codec, self.embedding.target, self.embedding.row)
        _native.gather_frozen(self.place, how, (span(self.embedding.data), self.embedding.plain_bytes), span(self.entries),
                              span(self.stream))
        added = None
        for number, layer in enumerate(self.layers):
            self.normalise(added, layer["norm"])
            self.multiply(layer["qkv"], self.x, self.qkv)
            cache.attend_fresh(number, self.qkv, self.turns, self.attended, shape.head**-0.5)
            self.multiply(layer["o"], self.attended, self.y)
            self.normalise(self.y, layer["inner_norm"])
            self.multiply(layer["gate_up"], self.x, self.inner, gated=True)
            self.multiply(layer["down"], self.inner, self.y)
            added = self.y
        self.normalise(added, self.norm)
        self.multiply(self.head, self.x, self.scores)
        spans = [span(one) for one in [self.scores, self.history, cache.lengths, self.entries]]
        _native.decode_pick(self.place, spans)

    def ask(self, tokens: torch.Tensor) -> None:
        """Makes these tokens, one of each sequence, the ones that the next step takes; they count as part of the sequences."""
        row = self.shape.hidden // 64
        self.entries.copy_(tokens.view(-1, 1) * row + torch.arange(row, device=tokens.device))
        self.cache.lengths += 1

    def capture(self) -> None:
        """Captures a step. Compiles what is not compiled yet; the state stays as it was."""
        kept = [one.clone() for one in [self.cache.lengths, self.entries, self.history]]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        for one, was in zip([self.cache.lengths, self.entries, self.history], kept):
            one.copy_(was)

    def write(self, count: int) -> None:
        """Writes so many tokens; waits for nothing."""
        if self.graph is None:
            self.capture()
        for _ in range(count):
            self.graph.replay()
