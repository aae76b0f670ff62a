"""A decode loop with compressed weights and KV cache: one CUDA graph, captured once and replayed
for every token.

Seven launches per layer, and two for norms of queries and keys. Each overlaps the end of the
previous one, and linear layers prefetch their weights.
"""

from __future__ import annotations

from typing import Iterable

import torch
from torch.nn import functional

from .. import _native
from ..torch import PackedTensor, linear_scratch_bytes, pack_weight
from ..torch.ops import device_and_stream, span
from . import shapes
from .cache import PagedCache
from .shapes import Shape

MATRICES = ("qkv", "o", "gate_up", "down")


# Gate rows and up rows alternate in groups of this size, so that the linear kernel's epilogue can
# apply SwiGLU.
GROUP = 8


def interleaves(inner: int) -> bool:
    """Returns whether the rows of gate and up can alternate."""
    return inner % GROUP == 0


def interleave_gate_up(gate_up: torch.Tensor) -> torch.Tensor:
    """Interleaves the rows of a matrix that holds all gate rows, then all up rows."""
    return gate_up.view(2, -1, GROUP, gate_up.shape[-1]).transpose(0, 1).reshape(gate_up.shape)


def split_gate_up(gate_up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Splits the output of interleaved rows into gate and up."""
    gate, up = gate_up.view(*gate_up.shape[:-1], -1, 2, GROUP).unbind(-2)
    return gate.flatten(-2), up.flatten(-2)


def packed_layer(layer: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | PackedTensor]:
    """Packs the matrices of a layer, gate and up interleaved."""
    layer = layer | {"gate_up": interleave_gate_up(layer["gate_up"])}
    return {name: pack_weight(one) if name in MATRICES else one for name, one in layer.items()}


class Decoder:
    """Decoding of a model on one GPU, greedy unless another chooses from ``logits``.

    A layer holds the matrices of ``packed_layer`` with their biases (``qkv_bias``, ``o_bias``,
    ``down_bias``) and, as in Qwen3, ``q_norm`` and ``k_norm``. ``rope`` is a table as that of
    ``rope_table``, which is the default.
    """

    def __init__(self, shape: Shape, layers: Iterable[dict], embedding: PackedTensor, head: PackedTensor, norm: torch.Tensor,
                 cache: PagedCache, rope: torch.Tensor | None = None):
        self.shape, self.cache = shape, cache
        self.layers, self.embedding, self.head, self.norm = list(layers), embedding, head, norm
        device, rows = cache.device, cache.sequences
        zeros = lambda *size, dtype=torch.bfloat16: torch.zeros(*size, dtype=dtype, device=device)
        self.stream, self.x, self.y = (zeros(rows, shape.hidden) for _ in range(3))
        self.qkv = zeros(rows, shape.matrices["qkv"][0])
        self.attended, self.inner = zeros(rows, shape.heads * shape.head), zeros(rows, shape.inner)
        self.logits = zeros(rows, shape.vocabulary)
        self.history = zeros(rows, cache.capacity, dtype=torch.int32)
        self.entries = zeros(rows, shape.hidden // 64, dtype=torch.int32)
        self.rope = shapes.rope_table(shape, cache.capacity, device) if rope is None else rope
        # Layers of one shape can share scratch memory, others cannot.
        kinds = {one.shape: one for one in [*(self.layers[0][name] for name in MATRICES), head]}
        self.scratch = {shape: zeros(linear_scratch_bytes(one, rows), dtype=torch.uint8) for shape, one in kinds.items()}
        self.graph = None

    @property
    def weight_bytes(self) -> int:
        """Packed bytes of the weights with the embedding."""
        matrices = [layer[name] for layer in self.layers for name in MATRICES] + [self.embedding, self.head]
        return sum(one.nbytes for one in {id(one): one for one in matrices}.values())

    def linear(self, weight: PackedTensor, x: torch.Tensor, y: torch.Tensor, swiglu: bool = False, bias: torch.Tensor | None = None) -> None:
        format, weights, scratch = (weight.codec, weight.target, weight.row), (span(weight.data), weight.plain_bytes), span(self.scratch[weight.shape])
        if bias is None:
            _native.linear_prefetched(self.where, format, weights, span(x), span(y), scratch, swiglu)
        else:
            _native.linear(self.where, format, weights, span(x), span(bias), span(y), scratch, None, True, swiglu)

    def normalise(self, added: torch.Tensor | None, weight: torch.Tensor) -> None:
        stream = span(self.stream)
        spans = [stream, None if added is None else span(added), span(weight), span(self.x), stream]
        _native.decode_norm(self.where, spans, self.shape.epsilon)

    def normalise_heads(self, first: int, count: int, weight: torch.Tensor) -> None:
        """Applies RMSNorm to each of these heads of ``qkv``, in place."""
        heads = self.qkv.view(len(self.qkv), -1, self.shape.head)[:, first : first + count]
        if len(heads) == 1:
            there = span(heads)
            _native.decode_norm(self.where, [there, None, span(weight), there, there], self.shape.epsilon)
        else:  # the rows of several sequences are apart
            heads.copy_(weight * functional.rms_norm(heads.float(), (self.shape.head,), None, self.shape.epsilon).to(heads.dtype))

    def step(self) -> None:
        """Enqueues one step: reads the tokens in ``entries``, selects the next ones and increments
        the lengths."""
        self.forward()
        spans = [span(one) for one in [self.logits, self.history, self.cache.lengths, self.entries]]
        _native.decode_argmax(self.where, spans)

    def forward(self) -> None:
        """Enqueues the logits of the tokens in ``entries``."""
        self.where, shape, cache = device_and_stream(self.x), self.shape, self.cache
        format = (self.embedding.codec, self.embedding.target, self.embedding.row)
        _native.gather(self.where, format, (span(self.embedding.data), self.embedding.plain_bytes), span(self.entries),
                              span(self.stream))
        added = None
        for number, layer in enumerate(self.layers):
            self.normalise(added, layer["norm"])
            self.linear(layer["qkv"], self.x, self.qkv, bias=layer.get("qkv_bias"))
            if "q_norm" in layer:
                self.normalise_heads(0, shape.heads, layer["q_norm"])
                self.normalise_heads(shape.heads, shape.kv_heads, layer["k_norm"])
            cache.append_attend(number, self.qkv, self.rope, self.attended, shape.head**-0.5)
            self.linear(layer["o"], self.attended, self.y, bias=layer.get("o_bias"))
            self.normalise(self.y, layer["inner_norm"])
            self.linear(layer["gate_up"], self.x, self.inner, swiglu=True)
            self.linear(layer["down"], self.inner, self.y, bias=layer.get("down_bias"))
            added = self.y
        self.normalise(added, self.norm)
        self.linear(self.head, self.x, self.logits)

    def ask(self, tokens: torch.Tensor) -> None:
        """Sets the input tokens of the next step, one per sequence, and appends them to the
        sequences."""
        row = self.shape.hidden // 64
        self.entries.copy_(tokens.view(-1, 1) * row + torch.arange(row, device=tokens.device))
        self.cache.lengths += 1

    def capture(self) -> None:
        """Captures a step in a CUDA graph, compiling kernels as needed. The state does not
        change."""
        before = [one.clone() for one in [self.cache.lengths, self.entries, self.history]]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        for one, was in zip([self.cache.lengths, self.entries, self.history], before):
            one.copy_(was)

    def write(self, count: int) -> None:
        """Generates ``count`` tokens; never blocks."""
        if self.graph is None:
            self.capture()
        for _ in range(count):
            self.graph.replay()
