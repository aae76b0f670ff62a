"""Reads a Transformers model of the Llama, Qwen or Gemma family as the layers of our decode loop.

Matrices that multiply the same input become one. Every other model is refused, with the reason.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

import torch
from torch import nn
from torch.nn import functional

from ..torch.compress import is_packable
from ..torch.layers import PackedEmbedding, PackedLinear, PackedMatrix
from .decoder import interleave_gate_up, interleaves
from .shapes import Shape

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text")
# RoPE whose frequencies do not change with the number of tokens.
ROPE = ("default", "linear", "llama3", "yarn")


class Unsupported(ValueError):
    """A model that ``buddy.llm`` does not run, with the reason."""


@dataclasses.dataclass
class Norm:
    """RMSNorm of Llama, which rounds before it scales; or of Gemma, with weights less one."""

    weight: torch.Tensor
    epsilon: float
    less_one: bool

    def __post_init__(self):
        self.scale = 1 + self.weight.float() if self.less_one else self.weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        row = x.shape[-1:]
        if self.less_one:
            return functional.rms_norm(x.float(), row, self.scale, self.epsilon).type_as(x)
        return self.scale * functional.rms_norm(x.float(), row, None, self.epsilon).type_as(x)


@dataclasses.dataclass
class Layer:
    """A decoder layer. ``window`` is the number of tokens that attention sees, or None for all;
    ``rope`` names its RoPE where a model has several."""

    qkv: nn.Module
    o: nn.Module
    gate_up: nn.Module
    down: nn.Module
    norm: Norm
    inner_norm: Norm
    after_norm: Norm | None
    after_inner_norm: Norm | None
    q_norm: Norm | None
    k_norm: Norm | None
    scale: float
    window: int | None
    rope: str | None


@dataclasses.dataclass
class Weights:
    """The layers of a model. ``embedding_scale`` and the soft caps are Gemma's; ``interleaved``:
    gate and up rows alternate as ``Decoder`` needs them."""

    shape: Shape
    layers: list[Layer]
    embedding: nn.Module
    head: nn.Module
    norm: Norm
    rotary: nn.Module
    activation: Any
    is_silu: bool
    embedding_scale: float | None
    attention_cap: float | None
    logit_cap: float | None
    interleaved: bool
    dtype: torch.dtype
    device: torch.device

    def rope(self, kind: str | None, positions: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the cosines and sines (positions, head dimension) of a RoPE, as the model computes
        them."""
        where = torch.arange(positions, device=self.device).unsqueeze(0)
        x = torch.empty(0, dtype=dtype, device=self.device)
        cos, sin = self.rotary(x, where, kind) if kind is not None else self.rotary(x, where)
        return cos[0], sin[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all weights, packed or not; tied ones count once."""
        modules = [self.embedding, self.head, *(one for layer in self.layers for one in (layer.qkv, layer.o, layer.gate_up, layer.down))]
        norms = [one.weight for layer in self.layers for one in vars(layer).values() if isinstance(one, Norm)] + [self.norm.weight]
        held = [one for module in modules for one in (*module.parameters(), *module.buffers())]
        return sum(one.nbytes for one in {one.data_ptr(): one for one in [*held, *norms]}.values())


def plain(module: nn.Module) -> torch.Tensor:
    """Returns a layer's weight, unpacked."""
    matrix = getattr(module, "matrix", None)
    return matrix.unpack() if isinstance(matrix, PackedMatrix) else module.weight.detach()


def check_linear(name: str, module: nn.Module) -> None:
    if type(module) not in (nn.Linear, PackedLinear):
        raise Unsupported(f"{name} is a {type(module).__name__}, not a plain or packed linear layer: merge adapters first, and load the model "
                          "without other quantisation")


def packed_matrix(weight: torch.Tensor) -> PackedMatrix:
    matrix = PackedMatrix(tuple(weight.shape))
    matrix.pack(weight)
    return matrix


def linear_of(weight: torch.Tensor, bias: torch.Tensor | None, pack: bool) -> nn.Module:
    """Returns a layer with a weight, packed if asked for and possible."""
    bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
    if pack and is_packable(weight):
        return PackedLinear(weight.shape[1], weight.shape[0], bias, matrix=packed_matrix(weight))
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight, layer.bias = nn.Parameter(weight, requires_grad=False), bias
    return layer


def shared(module: nn.Module, pack: bool) -> nn.Module:
    """Returns a layer that shares the memory of a module if it stays as it is, packed or plain."""
    if pack and isinstance(module, PackedLinear):
        return PackedLinear(module.in_features, module.out_features, module.bias, matrix=module.matrix)
    return linear_of(plain(module), module.bias, pack)


def read_ends(source: nn.Module, head: nn.Module, pack: bool) -> tuple[nn.Module, nn.Module]:
    """Returns embedding and head; tied ones share a weight. Only the rows are taken of an embedding
    that scales them."""
    matrix, of_head = (getattr(one, "matrix", None) for one in (source, head))
    tied = matrix is of_head if matrix is not None else of_head is None and head.weight is source.weight
    if pack and (matrix is not None or is_packable(source.weight)):
        matrix = packed_matrix(source.weight.detach()) if matrix is None else matrix
        rows, columns = matrix.shape
        return PackedEmbedding(rows, columns, None, matrix), PackedLinear(columns, rows, head.bias, matrix=matrix) if tied else shared(head, pack)
    weight = plain(source)
    return nn.Embedding.from_pretrained(weight), linear_of(weight, head.bias, False) if tied else shared(head, pack)


def merged(modules: Sequence[nn.Module], pack: bool, interleave: bool = False) -> nn.Module:
    """Returns one layer for several with the same input."""
    weight = torch.cat([plain(one) for one in modules])
    biases = [one.bias for one in modules]
    if any(one is None for one in biases) != all(one is None for one in biases):
        raise Unsupported("layers with the same input have a bias in part")
    bias = None if biases[0] is None else torch.cat(biases)
    if interleave:
        weight, bias = interleave_gate_up(weight), None if bias is None else interleave_gate_up(bias.view(-1, 1)).view(-1)
    return linear_of(weight, bias, pack)


def read_layer(text: Any, number: int, layer: nn.Module, pack: bool, interleave: bool) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    parts = {name: getattr(attention, name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    parts |= {name: getattr(mlp, name) for name in ("gate_proj", "up_proj", "down_proj")}
    for name, module in parts.items():
        check_linear(f"layer {number}'s {name}", module)
    gemma, epsilon = text.model_type.startswith("gemma"), text.rms_norm_eps
    norm = lambda one: None if one is None else Norm(one.weight.detach(), epsilon, gemma)
    after = hasattr(layer, "pre_feedforward_layernorm")
    types = getattr(text, "layer_types", None)
    slides = types[number] == "sliding_attention" if types else text.model_type == "mistral"
    return Layer(
        qkv=merged([parts["q_proj"], parts["k_proj"], parts["v_proj"]], pack), o=shared(parts["o_proj"], pack),
        gate_up=merged([parts["gate_proj"], parts["up_proj"]], pack, interleave), down=shared(parts["down_proj"], pack),
        norm=norm(layer.input_layernorm), inner_norm=norm(layer.pre_feedforward_layernorm if after else layer.post_attention_layernorm),
        after_norm=norm(layer.post_attention_layernorm) if after else None,
        after_inner_norm=norm(layer.post_feedforward_layernorm) if after else None,
        q_norm=norm(getattr(attention, "q_norm", None)), k_norm=norm(getattr(attention, "k_norm", None)), scale=float(attention.scaling),
        window=getattr(text, "sliding_window", None) if slides else None, rope=types[number] if text.model_type == "gemma3_text" else None)


def check_config(text: Any) -> None:
    """Raises ``Unsupported`` for models that the loop would not compute as Transformers does."""
    if text.model_type not in FAMILIES:
        raise Unsupported(f"buddy.llm runs {', '.join(FAMILIES)}, not {text.model_type}: use the model's own generate, with BuddyConfig")
    if getattr(text, "use_bidirectional_attention", False):
        raise Unsupported("a model with bidirectional attention does not write text token by token")
    types = getattr(text, "layer_types", None) or []
    if unknown := set(types) - {"full_attention", "sliding_attention"}:
        raise Unsupported(f"layers of {', '.join(sorted(unknown))} are not supported")
    rope = text.rope_parameters
    for one in [rope] if "rope_type" in rope else [value for value in rope.values() if value is not None]:
        if one["rope_type"] not in ROPE or one.get("partial_rotary_factor", 1) != 1:
            raise Unsupported(f"RoPE {one} is not supported: buddy.llm knows {', '.join(ROPE)} over whole heads")


def check_model(model: nn.Module) -> None:
    """Raises ``Unsupported`` for a loaded model without a head, or on several devices."""
    if model.get_output_embeddings() is None:
        raise Unsupported(f"{type(model).__name__} has no head of logits: load it with AutoModelForCausalLM")
    places = {one.device for one in model.get_decoder().parameters()} | {one.device for one in model.get_decoder().buffers()}
    if len(places) > 1:
        raise Unsupported(f"the model is spread over {', '.join(sorted(map(str, places)))}: buddy.llm runs on one device")


@torch.no_grad()
def read(model: nn.Module, pack: bool, kernels: bool = False, release: bool = False) -> Weights:
    """Reads a Transformers model. ``pack``: matrices of bf16 become packed. ``kernels``: gate and up
    are laid out for ``Decoder`` where it can run the model. ``release`` empties the model layer by
    layer, so that no weight is held twice."""
    text = model.config.get_text_config(decoder=True)
    check_config(text)
    check_model(model)
    decoder, source = model.get_decoder(), model.get_input_embeddings()
    head, gemma = model.get_output_embeddings(), text.model_type.startswith("gemma")
    check_linear("the head", head)
    name = getattr(text, "hidden_activation", None) or text.hidden_act
    heads = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    shape = Shape(text.num_hidden_layers, text.hidden_size, text.num_attention_heads, text.num_key_value_heads, heads, text.intermediate_size,
                  source.num_embeddings, text.rms_norm_eps)
    embedding, head = read_ends(source, head, pack)
    held = embedding.matrix.data if isinstance(embedding, PackedEmbedding) else embedding.weight
    activation = decoder.layers[0].mlp.act_fn
    interleave = kernels and pack and interleaves(shape.inner)
    layers = []
    for number in range(text.num_hidden_layers):
        layers.append(read_layer(text, number, decoder.layers[number], pack, interleave))
        if release:
            decoder.layers[number] = nn.Identity()
    return Weights(
        shape=shape, layers=layers, embedding=embedding, head=head, norm=Norm(decoder.norm.weight.detach(), text.rms_norm_eps, gemma),
        rotary=decoder.rotary_emb, activation=activation, is_silu=name == "silu", embedding_scale=text.hidden_size**0.5 if gemma else None,
        attention_cap=getattr(text, "attn_logit_softcapping", None), logit_cap=getattr(text, "final_logit_softcapping", None),
        interleaved=interleave, dtype=torch.bfloat16 if held.dtype == torch.uint8 else held.dtype, device=held.device)
