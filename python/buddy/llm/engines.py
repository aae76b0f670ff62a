"""Engines write tokens of several sequences at once: ``KernelEngine`` with ``Decoder`` and its packed
keys and values, ``TorchEngine`` with PyTorch's operations, on any device.

On a GPU a step is a CUDA graph, and the host reads tokens a few steps late: the GPU never waits.
"""

from __future__ import annotations

import collections
from typing import Callable, Iterator

import torch

from .. import _native
from ..torch.layers import PackedEmbedding, PackedLinear
from ..torch.ops import device_and_stream, on_device
from .cache import PagedCache
from .decoder import MATRICES, Decoder
from .network import Rope, attention, embed, logits_of, run_layer, run_prompt
from .sampling import Sampler, Sampling
from .weights import Norm, Weights

# Steps that a GPU is ahead of the host.
AHEAD = 2
# Tokens that the attention of a captured step of `TorchEngine` reads: this, or twice, four times it.
ROOM = 256
# Head dimensions, and query heads for a KV head, of attention on packed pages.
HEADS, MOST_GROUP = (64, 128), 16


class Engine:
    """Writes tokens of ``sequences`` sequences of up to ``capacity`` tokens each."""

    def __init__(self, weights: Weights, sequences: int, capacity: int):
        self.weights, self.sequences, self.capacity, device = weights, sequences, capacity, weights.device
        self.sampler = Sampler(sequences, capacity, device)
        self.logits = torch.zeros(sequences, weights.shape.vocabulary, dtype=weights.dtype, device=device)
        self.chosen = torch.zeros(sequences, dtype=torch.int64, device=device)
        self.ropes: dict[str | None, Rope] = {layer.rope: weights.rope(layer.rope, capacity, weights.dtype) for layer in weights.layers}
        self.graphs: dict[tuple, torch.cuda.CUDAGraph] = {}
        self.ahead = AHEAD if device.type == "cuda" else 0
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.lengths: torch.Tensor
        self.longest = 0

    def write(self, prompts: list[list[int]], sampling: Sampling, count: int) -> Iterator[list[int]]:
        """Yields ``count`` tokens of each sequence, a step at a time."""
        self.start(prompts, sampling, count)
        pending = collections.deque([self.fetch()])
        for _ in range(count - 1):
            if len(pending) > self.ahead:
                yield pending.popleft()()
            self.advance()
            pending.append(self.fetch())
        while pending:
            yield pending.popleft()()

    def fetch(self) -> Callable[[], list[int]]:
        """Starts to copy the chosen tokens to the host; the result waits for them."""
        if not self.chosen.is_cuda:
            tokens = self.chosen.tolist()
            return lambda: tokens
        host = torch.empty(self.sequences, dtype=torch.int64, pin_memory=True)
        with on_device(self.chosen):
            host.copy_(self.chosen, non_blocking=True)
            done = torch.cuda.Event()
            done.record()

        def wait() -> list[int]:
            done.synchronize()
            return host.tolist()

        return wait

    @torch.no_grad()
    def start(self, prompts: list[list[int]], sampling: Sampling, count: int) -> None:
        """Runs the prompts, and chooses the first tokens."""
        with on_device(self.chosen):
            self.sampler.start(sampling, count)
            self.clear()
            self.longest = max(map(len, prompts))
            for number, ids in enumerate(prompts):
                self.logits[number] = self.prompt(number, torch.tensor(ids, device=self.weights.device))[0]
                self.lengths[number] = len(ids)
            self.chosen.copy_(self.sampler.choose(self.logits))
            self.ask()

    @torch.no_grad()
    def advance(self) -> None:
        """Runs a step; on a GPU its graph, which is captured at first."""
        self.longest += 1
        if not self.chosen.is_cuda:
            return self.step()
        key = *self.sampler.sampling.form, self.room
        with on_device(self.chosen):
            if key not in self.graphs:
                self.graphs[key] = self.capture()
            self.graphs[key].replay()

    def replace(self, tokens: torch.Tensor) -> None:
        """Takes these tokens (one per sequence) instead of those chosen last."""
        self.chosen.copy_(tokens)

    def capture(self) -> torch.cuda.CUDAGraph:
        """Captures a step, after one that loads its kernels. The state does not change."""
        before = [one.clone() for one in self.state]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.step()
        torch.cuda.current_stream().wait_stream(side)
        for one, was in zip(self.state, before):
            one.copy_(was)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):  # one graph runs at a time
            self.step()
        return graph

    @property
    def state(self) -> list[torch.Tensor]:
        """The tensors that a step changes, but for keys and values: the next step writes these again."""
        return [self.chosen, self.lengths, self.sampler.turn]

    @property
    def room(self) -> int:
        """Tokens of a sequence that attention reads; a captured graph depends on it."""
        return self.capacity

    def prompt(self, number: int, ids: torch.Tensor) -> torch.Tensor:
        """Runs the prompt of a sequence; returns the logits (1, vocabulary) of its last token."""
        return run_prompt(self.weights, ids, self.ropes, lambda layer, keys, values: self.keep(number, layer, keys, values))

    def clear(self) -> None:
        """Removes every token."""
        raise NotImplementedError

    def keep(self, number: int, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keeps the keys and values of a prompt."""
        raise NotImplementedError

    def ask(self) -> None:
        """Appends the chosen tokens to their sequences."""
        raise NotImplementedError

    def step(self) -> None:
        """Enqueues one step: reads the last tokens, chooses the next ones and appends them."""
        raise NotImplementedError


class TorchEngine(Engine):
    """Runs every supported model by PyTorch's operations, with plain keys and values."""

    def __init__(self, weights: Weights, sequences: int, capacity: int):
        super().__init__(weights, sequences, capacity)
        shape, device = weights.shape, weights.device
        size = (2, sequences, shape.kv_heads, capacity, shape.head)
        self.cache = [torch.zeros(size, dtype=weights.dtype, device=device) for _ in weights.layers]
        self.lengths = torch.zeros(sequences, dtype=torch.int64, device=device)
        self.rows, self.positions = (torch.arange(one, device=device) for one in (sequences, capacity))

    @property
    def room(self) -> int:
        if not self.chosen.is_cuda:
            return self.longest
        room = ROOM
        while room < self.longest:
            room *= 2
        return min(room, self.capacity)

    def clear(self) -> None:
        self.lengths.zero_()

    def keep(self, number: int, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        for half, one in enumerate((keys, values)):
            self.cache[layer][half, number, :, : len(one)] = one.transpose(0, 1)

    def ask(self) -> None:
        self.lengths += 1

    def step(self) -> None:
        weights, room, last = self.weights, self.room, self.lengths - 1
        group, positions = weights.shape.group, self.positions[:room]
        seen = positions <= last.unsqueeze(1)
        x = embed(weights, self.chosen)
        for number, layer in enumerate(weights.layers):
            cache = self.cache[number]
            mask = seen if layer.window is None else seen & (positions > (last - layer.window).unsqueeze(1))

            def attend(q, k, v):
                cache[0][self.rows, :, last] = k
                cache[1][self.rows, :, last] = v
                # The query heads of a KV head are as many queries at one position.
                queries = q.view(self.sequences, -1, group, q.shape[-1])
                visible = mask[:, None, None].expand(-1, -1, group, -1)
                out = attention(queries, cache[0][:, :, :room], cache[1][:, :, :room], visible, layer.scale, weights.attention_cap)
                return out.reshape(self.sequences, -1)

            cos, sin = self.ropes[layer.rope]
            x = run_layer(weights, layer, x, (cos[last], sin[last]), attend)
        self.logits.copy_(logits_of(weights, x))
        self.chosen.copy_(self.sampler.choose(self.logits))
        self.ask()


def decoder_layer(layer) -> dict:
    """Returns a layer as ``Decoder`` takes it."""
    found = {name: getattr(layer, name).matrix.packed() for name in MATRICES}
    found |= {f"{name}_bias": one.bias.data for name in MATRICES if (one := getattr(layer, name)).bias is not None}
    return found | {name: one.weight for name, one in vars(layer).items() if isinstance(one, Norm)}


def on_hopper(weight: torch.Tensor) -> bool:
    """Returns whether attention on packed pages runs where a weight is."""
    return weight.is_cuda and _native.kv_attends(device_and_stream(weight))


def refusal(weights: Weights, capacity: int) -> str | None:
    """Returns why ``KernelEngine`` does not run a model, or None if it does."""
    shape, layers = weights.shape, weights.layers
    matrices = [weights.head, *(getattr(layer, name) for layer in layers for name in MATRICES)]
    norms = [weights.norm, *(one for layer in layers for one in vars(layer).values() if isinstance(one, Norm))]
    if not isinstance(weights.embedding, PackedEmbedding) or not all(isinstance(one, PackedLinear) for one in matrices) or not weights.interleaved:
        return "its matrices are not all packed"
    if not weights.is_silu or any(one.less_one or one.weight.dtype != torch.bfloat16 for one in norms):
        return "the kernels have Llama's norms and SwiGLU"
    if any(layer.after_norm is not None or layer.gate_up.bias is not None for layer in layers) or weights.head.bias is not None:
        return "the kernels have no norm behind a layer, and no bias of gate, up and head"
    if weights.attention_cap is not None or weights.logit_cap is not None or any(layer.scale != shape.head**-0.5 for layer in layers):
        return "attention on packed pages has no soft cap, and scales by the head dimension"
    if any(layer.window is not None and layer.window < capacity for layer in layers):
        return "attention on packed pages has no window"
    if shape.head not in HEADS or shape.group > MOST_GROUP or shape.vocabulary % 8:
        return "attention on packed pages has heads of 64 or 128 values, and up to 16 for a KV head"
    if not on_hopper(weights.norm.weight):
        return "attention on packed pages needs Hopper"
    return None


class KernelEngine(Engine):
    """Runs models of the Llama family by ``Decoder``'s kernels, where ``refusal`` returns None."""

    def __init__(self, weights: Weights, sequences: int, capacity: int):
        super().__init__(weights, sequences, capacity)
        shape = weights.shape
        self.cache = PagedCache(shape.layers, shape.kv_heads, shape.head, sequences, capacity, weights.device)
        cos, sin = (one[:, : shape.head // 2] for one in weights.rope(None, self.cache.capacity, torch.float32))
        head, embedding = weights.head.matrix.packed(), weights.embedding.matrix.packed()
        self.decoder = Decoder(shape, map(decoder_layer, weights.layers), embedding, head, weights.norm.weight, self.cache,
                               torch.stack([cos, sin], -1).contiguous())
        self.logits, self.lengths = self.decoder.logits, self.cache.lengths

    @property
    def state(self) -> list[torch.Tensor]:
        return [*super().state, self.decoder.entries, self.decoder.history]

    def clear(self) -> None:
        self.cache.clear()

    def keep(self, number: int, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.cache.append(layer, keys.unsqueeze(0), values.unsqueeze(0), 0, number)

    def ask(self) -> None:
        self.decoder.ask(self.chosen)

    def replace(self, tokens: torch.Tensor) -> None:
        super().replace(tokens)
        self.cache.lengths -= 1  # `ask` counts them again
        self.ask()

    def step(self) -> None:
        decoder = self.decoder
        if not self.sampler.sampling.temperature:
            decoder.step()
            self.chosen.copy_(decoder.entries[:, 0] // (self.weights.shape.hidden // 64))
            return
        decoder.forward()
        self.chosen.copy_(self.sampler.choose(decoder.logits))
        self.ask()
