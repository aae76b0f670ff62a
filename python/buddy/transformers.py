"""Hugging Face Transformers: models with packed bf16 weights, and a packed KV cache.

    from buddy.transformers import BuddyCache, BuddyConfig

    model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=BuddyConfig(), dtype="bfloat16", device_map="cuda")
    model.generate(**inputs, past_key_values=BuddyCache(model.config, capacity=8192))

The folder is plain, or written by ``buddy pack``; the latter needs no ``quantization_config``, only
the import of this module. Nothing is quantised: weights, keys and values keep every bit.
"""

from __future__ import annotations

import functools
import os
import pathlib
import tempfile
import types

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedModel, cache_utils, modeling_utils
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface
from transformers.quantizers import HfQuantizer, auto, register_quantization_config, register_quantizer
from transformers.utils import logging
from transformers.utils.quantization_config import QuantizationConfigMixin

from . import _native
from .models import FileCheck, PackedModel, pack_model
from .packed_models import METHODS, report
from .torch import PackedTensor, pack, unpack
from .torch.compress import compress_, decompress_, fills_tiles, has_packed_form, packed_like, replace
from .torch.experts import expert_weights, pack_experts, pack_experts_
from .torch.layers import PackedLayer, PackedMatrix
from .torch.ops import device_and_stream, span
from .torch.packed import read_tight

NAME = "buddy"
# Tokens per packed block without pages; head dimensions with paged caches; most query columns of
# in-place attention.
BLOCK, PAGED_HEADS, MAX_COLUMNS = 64, (64, 128), 16
# Bytes of a packed bf16 value, with metadata and a little overflow.
PACKED_ELEMENT = 1.51
logger = logging.get_logger(__name__)


@register_quantization_config(NAME)
class BuddyConfig(QuantizationConfigMixin):
    """Options for packed weights. Unknown ones raise ``ValueError``.

    ``exact``: layers unpack and multiply with PyTorch's kernel, bit-equal to the plain model
    (``buddy.torch.compress_``). ``compiled``: ``generate`` uses ``cache_implementation="static"``,
    so Transformers compiles the decode step on a GPU; the first call takes long, later ones are not
    bound by the host. ``modules_to_not_convert``: names of modules that stay plain, whole or as
    path components (``lm_head``, ``model.layers.0``). All of them may be given for packed folders
    too.
    """

    METHOD = NAME

    def __init__(self, exact: bool = False, compiled: bool = False, modules_to_not_convert: list[str] | None = None,
                 quant_method: str = NAME, **unknown):
        if unknown:
            known = "exact, compiled, modules_to_not_convert"
            raise ValueError(f"BuddyConfig has no option {', '.join(map(repr, sorted(unknown)))}; those known are {known}")
        self.quant_method, self.exact, self.compiled = self.METHOD, exact, compiled
        self.modules_to_not_convert = modules_to_not_convert

    def get_loading_attributes(self):
        """Options that override those of a packed folder."""
        return {"exact": self.exact, "compiled": self.compiled, "modules_to_not_convert": self.modules_to_not_convert}

    def converts(self, name: str) -> bool:
        """Returns whether the module of a name may be packed."""
        return not any(f".{one}." in f".{name}." for one in self.modules_to_not_convert or ())


# Types whose options may be given for a converted folder.
auto.LOADING_ATTRIBUTES_CONFIG_TYPES = (*auto.LOADING_ATTRIBUTES_CONFIG_TYPES, BuddyConfig)


class Pack(ConversionOps):
    """Packs a weight while it is loaded, so the plain model never has to fit."""

    def convert(self, input_dict, **kwargs):
        first = {name: one[0] if isinstance(one, list) else one for name, one in input_dict.items()}
        return {name: pack_experts(one).data if is_matrix(one) else one for name, one in first.items()}

    @property
    def reverse_op(self):
        return Keep()


class Unpack(ConversionOps):
    """Unpacks the matrices of a packed folder that Transformers merges into one weight, such as
    those of experts."""

    def convert(self, input_dict, **kwargs):
        return {name: [unpacked(one) for one in value] if isinstance(value, list) else unpacked(value)
                for name, value in input_dict.items()}

    @property
    def reverse_op(self):
        return Keep()


class Keep(ConversionOps):
    """Changes nothing: saved weights are plain."""

    def convert(self, input_dict, **kwargs):
        return input_dict


def is_matrix(weight: torch.Tensor) -> bool:
    """Returns whether a weight can be packed as the matrix of its rows."""
    return weight.dtype == torch.bfloat16 and weight.dim() in (2, 3) and fills_tiles(weight)


def unpacked(weight: torch.Tensor) -> torch.Tensor:
    """Returns the plain form of a weight that may be the bytes of a packed matrix; its header holds
    the shape."""
    if weight.dtype != torch.uint8 or weight.dim() != 1:
        return weight
    if (plain := read_tight(weight)) is not None:
        return plain.to(weight.device)
    _, _, row, size, _ = _native.parse_header(span(weight[:128].cpu().contiguous()))
    return PackedTensor.read(weight, (size // (128 * row), 64 * row), torch.bfloat16).unpack()


@register_quantizer(NAME)
class BuddyQuantizer(HfQuantizer):
    """Loads plain or packed weights into packed layers."""

    requires_calibration = False

    def update_dtype(self, dtype):
        return torch.bfloat16 if dtype is None else dtype

    def param_needs_quantization(self, model, param_name, **kwargs):
        """True for weights to pack on load, and for all that a packed folder may hold as bytes.

        Transformers compares the shapes of all other weights. In a packed folder any matrix may be
        a vector of bytes, also those of layers that stay plain; ``check_shapes`` compares the
        shapes of the rest after loading."""
        if self.pre_quantized:
            return len(self.shapes.get(param_name, ())) >= 2
        path, _, name = param_name.rpartition(".")
        module = model.get_submodule(path)
        return (name == "weight" and packs(module) or name in expert_weights(module)) and self.quantization_config.converts(path)

    def param_element_size(self, model, param_name, param):
        """Returns the bytes of an element on the device. Transformers reserves them before it loads
        anything."""
        packed = is_matrix(param) and self.param_needs_quantization(model, param_name)
        return PACKED_ELEMENT if packed else param.element_size()

    def get_quantize_ops(self):
        return Pack()

    def update_weight_conversions(self, weight_conversions, model):
        """Lets Transformers merge the matrices of a packed folder: they are unpacked, merged and
        packed again, a layer at a time."""
        for converter in weight_conversions:
            if self.pre_quantized and isinstance(converter, WeightConverter):
                converter.operations = [Unpack(), *converter.operations, Pack()]
        return weight_conversions

    def _process_model_before_weight_loading(self, model, checkpoint_files=None, **kwargs):
        self.shapes = {name: tuple(one.shape) for name, one in model.named_parameters(remove_duplicate=False)}
        # Compares the files with their checksums while they are loaded.
        self.check = FileCheck(checkpoint_files) if self.pre_quantized and checkpoint_files else None
        # Transformers initialises and ties weights before this class replaces layers. Until then
        # packed weights are vectors of bytes.
        model._initialize_missing_keys = functools.partial(self.initialize_missing, model)
        model._adjust_bias = keep_bias
        self.validate_environment(device_map=kwargs.get("device_map"))

    def validate_environment(self, *args, device_map=None, **kwargs):
        """Raises ValueError if a device map offloads weights that would be packed: accelerate would
        bring them to the GPU as plain ones."""
        if not isinstance(device_map, dict) or not hasattr(self, "shapes"):
            return
        places = {path: str(device) for path, device in device_map.items()}
        offloaded = {"disk"} if set(places.values()) <= {"cpu", "disk"} else {"cpu", "disk"}
        for path, device in places.items():
            for name, shape in self.shapes.items():
                inside = not path or name == path or name.startswith(f"{path}.")
                if device in offloaded and inside and len(shape) > 1 and self.quantization_config.converts(name.rpartition(".")[0]):
                    raise ValueError(
                        f"device_map offloads {path or 'the model'} to {device}, and packed weights cannot be offloaded: use more GPUs, "
                        "raise max_memory, or name the offloaded modules in BuddyConfig(modules_to_not_convert=[...])"
                    )

    def initialize_missing(self, model, *args, **kwargs):
        """Initialises the weights that the checkpoint lacks. Stand-ins of the plain shapes take the
        place of packed weights meanwhile: some models compute initial values from a shape."""
        held = []
        for name, shape in self.shapes.items():
            path, _, last = name.rpartition(".")
            parameters = model.get_submodule(path)._parameters
            if parameters[last].dtype == torch.uint8 and tuple(parameters[last].shape) != shape:
                held.append((parameters, last, parameters[last]))
                parameters[last] = nn.Parameter(torch.empty(shape, dtype=torch.bfloat16, device="meta"), requires_grad=False)
                parameters[last]._is_hf_initialized = True
        try:
            type(model)._initialize_missing_keys(model, *args, **kwargs)
        finally:
            for parameters, last, weight in held:
                parameters[last] = weight

    def check_shapes(self, model):
        """Raises ValueError if a plain weight has another shape than the model's."""
        for name, shape in self.shapes.items():
            weight = model.get_parameter(name)
            if weight.dtype != torch.uint8 and tuple(weight.shape) != shape:
                raise ValueError(
                    f"{name} has shape {tuple(weight.shape)} in the checkpoint and {shape} in the model: "
                    "config.json belongs to another model"
                )

    def _process_model_after_weight_loading(self, model, **kwargs):
        """Replaces layers and experts by packed ones, tied layers together. Packed weights that no
        packed layer can hold, and weights tied to them, are unpacked."""
        del model._initialize_missing_keys, model._adjust_bias
        self.check_shapes(model)
        if self.check is not None and (unchecked := self.check.finish()):
            logger.warning(f"{unchecked} files were packed without checksums and are not checked: pack the original again to add them")
        config, packed = self.quantization_config, {}
        plain_bytes = sum(2 * torch.Size(self.shapes[name]).numel() if one.dtype == torch.uint8 else one.nbytes
                          for name, one in model.named_parameters())
        for name, shape in self.shapes.items():
            path, _, last = name.rpartition(".")
            module = model.get_submodule(path)
            weight = getattr(module, last)
            if weight.dtype == torch.uint8 and tuple(weight.shape) != shape:
                packed.setdefault(id(weight), []).append((path, last, module, shape))
        experts = {}
        for tied in packed.values():
            path, last, module, shape = tied[0]
            if len(tied) == 1 and config.converts(path) and holds_experts(module, shape):
                experts.setdefault(path, {})[last] = shape
                continue
            data = getattr(module, last).data
            if all(last == "weight" and has_packed_form(module) and config.converts(path) for path, last, module, _ in tied):
                matrix = PackedMatrix(shape)
                matrix.pack(data)
                for path, _, module, _ in tied:
                    replace(model, path, packed_like(module, matrix, config.exact).train(module.training))
            else:
                plain = nn.Parameter(PackedTensor.read(data, shape, torch.bfloat16).unpack(), requires_grad=False)
                for _, last, module, _ in tied:
                    setattr(module, last, plain)
        for path, shapes in experts.items():
            module = model.get_submodule(path)
            pack_experts_(module, {name: getattr(module, name).data for name in shapes}, shapes, config.exact)
        if config.compiled and model.can_generate():
            model.generation_config.cache_implementation = "static"
            model.generation_config.__class__ = StaticGenerationConfig
        compress_(model, exact=config.exact, only=lambda name, module: config.converts(name))
        for name, method in METHODS.items():
            setattr(model, name, types.MethodType(method, model))
        # Saved folders hold plain weights.
        del model.config.quantization_config
        report(model, plain_bytes)
        return model

    def _dequantize(self, model, dtype=None):
        for name in METHODS:
            model.__dict__.pop(name, None)
        return decompress_(model)

    def get_state_dict_and_metadata(self, model):
        """Returns the plain weights to save; tied layers share one tensor, which is written
        once."""
        state, plain = model.state_dict(), {}
        for name, module in model.named_modules(remove_duplicate=False):
            if isinstance(module, PackedLayer):
                key = f"{name}.weight"
                state[key] = plain.setdefault(id(module.matrix), state[key])
        return state, {}

    def is_serializable(self):
        return True

    @property
    def is_trainable(self):
        """True: adapters train, packed weights do not."""
        return True

    @property
    def is_compileable(self):
        return True


class StaticGenerationConfig(GenerationConfig):
    """A generation config whose static cache is not saved."""

    def save_pretrained(self, *args, **kwargs):
        cache, self.cache_implementation = self.cache_implementation, None
        try:
            super().save_pretrained(*args, **kwargs)
        finally:
            self.cache_implementation = cache


def save_packed(model: PreTrainedModel, folder: str | os.PathLike, **kwargs) -> PackedModel:
    """Saves a model as a packed folder, as ``save_pretrained`` and ``buddy pack`` do one after the
    other. ``kwargs`` are those of ``save_pretrained``.

    The plain files are written next to ``folder`` first and removed at the end.
    """
    out = pathlib.Path(folder)
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty: save_packed writes a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{out.name}-plain-", dir=out.parent) as plain:
        model.save_pretrained(plain, **kwargs)
        return pack_model(plain, out)


def holds_experts(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Returns whether a weight of this shape, whose bytes are packed, is that of a module's
    experts."""
    return len(shape) == 3 and ("expert" in type(module).__name__.lower() or hasattr(module, "num_experts"))


def keep_bias(output_embeddings, input_embeddings):
    """Takes the place of ``PreTrainedModel._adjust_bias``, which pads a head's bias to the first
    dimension of a tied weight."""


def packs(module: nn.Module) -> bool:
    """Returns whether a layer's weight is packed while it is loaded; it may still be on the meta
    device."""
    return has_packed_form(module) and fills_tiles(module.weight) and module.weight.dtype == torch.bfloat16


class BuddyCacheLayer(CacheLayerMixin):
    """The packed KV cache of a layer. On a GPU whose shared memory holds a CTA of attention (compute
    capability 9.0; 10.0 has as much, and was never tried), head dimensions of 64 and 128 are paged
    and can be attended to in place; elsewhere whole blocks of tokens are packed."""

    is_sliding, is_croppable = False, True

    def __init__(self, capacity: int, in_place: bool, layers: int):
        super().__init__()
        self.capacity, self.in_place, self.layers, self.length = capacity, in_place, layers, 0

    def lazy_initialization(self, key_states, value_states):
        self.dtype, self.device = key_states.dtype, key_states.device
        if self.dtype != torch.bfloat16:
            raise ValueError(f"BuddyCache holds bfloat16, not {self.dtype}: load the model with dtype='bfloat16'")
        self.pages, self.blocks, self.tail = None, [], None
        sequences, heads, _, head = key_states.shape
        paged = head in PAGED_HEADS and value_states.shape == key_states.shape
        if key_states.is_cuda and paged and _native.kv_attends(device_and_stream(key_states)):
            from .llm.cache import SMALL, PagedCache

            self.pages = PagedCache(1, heads, head, sequences, self.capacity, key_states.device, SMALL / self.layers)
        self.is_initialized = True

    @torch.compiler.disable(reason="BuddyCache packs outside compiled graphs: compile without fullgraph, or use a static cache")
    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if torch.is_grad_enabled() and (key_states.requires_grad or value_states.requires_grad):
            raise RuntimeError("BuddyCache carries no gradients: call the model under torch.no_grad(), or without a cache to train")
        first, count = self.length, key_states.shape[-2]
        if first + count > self.capacity:
            raise ValueError(f"{first + count} tokens in a BuddyCache for {self.capacity}: make it with a larger capacity")
        self.length += count
        if self.pages is None:
            return self.update_blocks(key_states, value_states)
        self.pages.append(0, key_states.transpose(1, 2), value_states.transpose(1, 2), first)
        self.pages.lengths.fill_(self.length)
        if self.in_place and first > 0 and count <= MAX_COLUMNS:
            key_states = key_states.view_as(key_states)
            key_states.buddy_layer = self  # for `attend`, on a separate tensor object
            return key_states, value_states
        return (key_states, value_states) if first == 0 else self.read()

    def read(self):
        """Unpacks all keys and values."""
        return tuple(one.transpose(1, 2) for one in self.pages.read(0, self.length))

    def update_blocks(self, keys, values):
        # Heads of keys and values may differ in size (multi-head latent attention).
        self.tail = [fresh if self.tail is None else torch.cat([tail, fresh], -2) for tail, fresh in zip(self.tail or [None] * 2, [keys, values])]
        while self.tail[0].shape[-2] >= BLOCK:
            self.blocks.append([pack(one[..., :BLOCK, :].contiguous(), codec="bf16", target="4/3x") for one in self.tail])
            self.tail = [one[..., BLOCK:, :].contiguous() for one in self.tail]
        return tuple(torch.cat([*(unpack(block[i]) for block in self.blocks), tail], -2) for i, tail in enumerate(self.tail))

    def get_mask_sizes(self, query_length):
        return self.length + query_length, 0

    def get_seq_length(self):
        return self.length

    def get_max_length(self):
        return self.capacity

    get_max_cache_shape = get_max_length  # the name in older versions of Transformers

    def reset(self):
        self.is_initialized, self.length = False, 0

    def crop(self, tokens: int):
        """Removes the last ``-tokens`` tokens. A positive number is the length to keep, as older
        versions of Transformers pass it."""
        length = min(tokens if tokens > 0 else self.length + tokens, self.length)
        if length < 0:
            raise ValueError(f"{-tokens} tokens cannot be removed from a cache of {self.length}")
        if length == self.length or not self.is_initialized:
            return
        if self.pages is not None:
            self.pages.lengths.fill_(length)  # later tokens overwrite their slots
        elif length < BLOCK * len(self.blocks):
            whole, rest = divmod(length, BLOCK)
            self.tail = [unpack(one)[..., :rest, :] for one in self.blocks[whole]]
            del self.blocks[whole:]
        else:
            self.tail = [one[..., : length - BLOCK * len(self.blocks), :] for one in self.tail]
        self.length = length

    def reorder_cache(self, beam_idx):
        """Raises ``NotImplementedError``, as every change of the sequences does."""
        raise NotImplementedError("BuddyCache has no beam search: its pages belong to their sequences. Leave out past_key_values, "
                                  "or set num_beams=1")

    batch_repeat_interleave = batch_select_indices = reorder_cache


# Kinds of layers that a BuddyCache packs.
PACKED_KINDS = (cache_utils.DynamicLayer, cache_utils.DynamicSlidingWindowLayer)


def plain_cache_layers(text) -> list:
    """Returns Transformers' cache layers of a text model. Raises ValueError for layers that its
    version has no general cache for."""
    types = set(getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ())
    known = {"full_attention", "sliding_attention", "chunked_attention", "attention"}
    if not types <= known and not hasattr(cache_utils, "LinearAttentionLayer"):
        raise ValueError(f"BuddyCache has no layers of {', '.join(sorted(types - known))} with this version of Transformers: leave out "
                         "past_key_values, or use a newer version")
    return cache_utils.DynamicCache(config=text).layers or [cache_utils.DynamicLayer() for _ in range(text.num_hidden_layers)]


class BuddyCache(Cache):
    """A compressed KV cache, bit for bit: 4/3 of the tokens in the same memory, once it is more
    than a small part of the GPU's.

    Each sequence has room for ``capacity`` tokens. With ``attn_implementation="buddy"`` a few
    tokens at a time are attended to in place, on a GPU of compute capability 9.0; otherwise, and
    for long prompts, keys and values are unpacked for each step. Sliding-window layers keep all
    tokens. Layers without keys and values for each token (linear attention, convolutions) keep
    Transformers' cache, which is plain. ``generate`` does not compile with it, and compiled models
    run it outside their graphs. Assisted decoding and prompt lookup work, beam search raises
    ``NotImplementedError``. Under autograd it raises ``RuntimeError``.
    """

    def __init__(self, config, capacity: int = 8192):
        text = config.get_text_config(decoder=True)
        in_place = getattr(text, "_attn_implementation", None) == NAME
        kinds = plain_cache_layers(text)
        packed = sum(type(one) in PACKED_KINDS for one in kinds)
        super().__init__(layers=[BuddyCacheLayer(capacity, in_place, packed) if type(one) in PACKED_KINDS else one for one in kinds])


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """Computes attention from a :class:`BuddyCache` in place where possible, and with PyTorch's
    kernel elsewhere."""
    layer = getattr(key, "buddy_layer", None)
    if layer is not None and (attention_mask is not None or query.shape[1] // key.shape[1] * query.shape[2] > MAX_COLUMNS):
        layer, (key, value) = None, layer.read()
    if layer is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
    sequences, heads, tokens, head = query.shape
    rows = query.transpose(1, 2).contiguous().view(sequences, tokens, heads * head)
    out = torch.empty_like(rows)
    layer.pages.attend(0, rows, out, scaling if scaling is not None else head**-0.5, tokens)
    return out.view(sequences, tokens, heads, head), None


if not hasattr(HfQuantizer, "update_weight_conversions"):
    # Older versions let a quantizer add conversions, but not change those of the model.
    _conversion_mapping = modeling_utils.get_model_conversion_mapping

    def _updated_conversions(model, key_mapping=None, hf_quantizer=None, **kwargs):
        found = _conversion_mapping(model, key_mapping, hf_quantizer, **kwargs)
        return hf_quantizer.update_weight_conversions(found, model) if isinstance(hf_quantizer, BuddyQuantizer) else found

    modeling_utils.get_model_conversion_mapping = _updated_conversions

AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
