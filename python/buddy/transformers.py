"""Hugging Face Transformers: models whose bf16 weights stay packed, and a cache of packed keys and values.

    from buddy.transformers import BuddyCache, BuddyConfig

    model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=BuddyConfig(), dtype="bfloat16", device_map="cuda")
    model.generate(**inputs, past_key_values=BuddyCache(model.config, capacity=8192))

The folder is plain, or one that ``buddy pack`` wrote, which needs no ``quantization_config``: importing this module is enough. Nothing
is quantised: weights, keys and values keep every bit.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.core_model_loading import ConversionOps
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from .torch import PackedTensor, pack, pack_weight, unpack
from .torch.compress import compress_, packed_like, replace
from .torch.layers import PackedMatrix

NAME = "buddy"
# Tokens that are packed together where keys and values do not lie in pages; values of a head that do on a GPU, and columns that
# attention in place takes.
BLOCK, PAGED_HEADS, MOST_COLUMNS = 64, (64, 128), 16


@register_quantization_config(NAME)
class BuddyConfig(QuantizationConfigMixin):
    """How weights are held. ``exact``: products unpack first, and are then equal to plain to the bit (``buddy.torch.compress_``).
    ``compiled``: ``generate`` keeps its cache at a fixed size, ``cache_implementation="static"``, which makes Transformers compile the step
    of a token on a GPU: the first call takes long, the others are not bound by the host."""

    def __init__(self, exact: bool = False, compiled: bool = False, **kwargs):
        self.quant_method, self.exact, self.compiled = NAME, exact, compiled


class Pack(ConversionOps):
    """Packs a weight as it is loaded, so that the plain model never has to fit."""

    def convert(self, input_dict, full_layer_name=None, **kwargs):
        (value,) = input_dict.values()
        value = value[0] if isinstance(value, list) else value
        return {full_layer_name: pack_weight(value).data}


@register_quantizer(NAME)
class BuddyQuantizer(HfQuantizer):
    """Loads plain or packed weights into packed layers."""

    requires_calibration = False

    def update_dtype(self, dtype):
        return torch.bfloat16 if dtype is None else dtype

    def param_needs_quantization(self, model, param_name, **kwargs):
        """True for weights to pack on load, and for all that a packed folder may hold as bytes.

        Transformers compares the shapes of all other weights. In a packed folder any matrix may be a vector of bytes, also
        those of layers that stay plain; ``check_shapes`` compares the shapes of the rest after loading."""
        if self.pre_quantized:
            return len(self.shapes.get(param_name, ())) >= 2
        path, _, name = param_name.rpartition(".")
        return name == "weight" and packs(model.get_submodule(path))

    def get_quantize_ops(self):
        return Pack()

    def _process_model_before_weight_loading(self, model, **kwargs):
        self.shapes = {name: tuple(one.shape) for name, one in model.named_parameters(remove_duplicate=False)}

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
        """Layers that hold the bytes of packed weights become packed layers, tied ones together, and plain ones are packed now.
        What no packed layer can hold, such as the experts of a layer in one tensor, is unpacked, with what is tied to it."""
        self.check_shapes(model)
        exact, packed = self.quantization_config.exact, {}
        for name, shape in self.shapes.items():
            path, _, last = name.rpartition(".")
            module = model.get_submodule(path)
            weight = getattr(module, last)
            if weight.dtype == torch.uint8 and tuple(weight.shape) != shape:
                packed.setdefault(id(weight), []).append((path, last, module, shape))
        for tied in packed.values():
            _, last, module, shape = tied[0]
            data = getattr(module, last).data
            if all(last == "weight" and type(module) in (nn.Linear, nn.Embedding) for _, last, module, _ in tied):
                matrix = PackedMatrix(shape)
                matrix.pack(data)
                for path, _, module, _ in tied:
                    replace(model, path, packed_like(module, matrix, exact).train(module.training))
            else:
                plain = nn.Parameter(PackedTensor.read(data, shape, torch.bfloat16).unpack(), requires_grad=False)
                for _, last, module, _ in tied:
                    setattr(module, last, plain)
        if self.quantization_config.compiled and model.can_generate():
            model.generation_config.cache_implementation = "static"
        return compress_(model, exact=exact)

    def is_serializable(self):
        return True

    @property
    def is_trainable(self):
        return False

    @property
    def is_compileable(self):
        return True


def packs(module: nn.Module) -> bool:
    """Whether a layer's weight is packed as it is loaded; it may not be there yet."""
    plain = type(module) is nn.Linear or (type(module) is nn.Embedding and module.max_norm is None)
    return plain and module.weight.shape[1] % 64 == 0 and module.weight.dtype == torch.bfloat16


class BuddyCacheLayer(CacheLayerMixin):
    """Keys and values of a layer, packed. On a GPU of compute capability 9.0 heads of 64 and 128 values lie in pages and can be
    attended to in place; elsewhere whole blocks of tokens are packed."""

    is_sliding = False

    def __init__(self, capacity: int, in_place: bool, layers: int):
        super().__init__()
        self.capacity, self.in_place, self.layers, self.length = capacity, in_place, layers, 0

    def lazy_initialization(self, key_states, value_states):
        self.dtype, self.device = key_states.dtype, key_states.device
        if self.dtype != torch.bfloat16:
            raise ValueError(f"BuddyCache holds bfloat16, not {self.dtype}: load the model with dtype='bfloat16'")
        self.pages, self.blocks, self.tail = None, [], None
        sequences, heads, _, head = key_states.shape
        if key_states.is_cuda and head in PAGED_HEADS and torch.cuda.get_device_capability(key_states.device) >= (9, 0):
            from .llm.cache import SMALL, PagedCache

            self.pages = PagedCache(1, heads, head, sequences, self.capacity, key_states.device, SMALL / self.layers)
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        first, count = self.length, key_states.shape[-2]
        if first + count > self.capacity:
            raise ValueError(f"{first + count} tokens in a BuddyCache for {self.capacity}: make it with a larger capacity")
        self.length += count
        if self.pages is None:
            return self.update_blocks(key_states, value_states)
        self.pages.append(0, key_states.transpose(1, 2), value_states.transpose(1, 2), first)
        self.pages.lengths.fill_(self.length)
        if self.in_place and first > 0 and count <= MOST_COLUMNS:
            key_states = key_states.view_as(key_states)
            key_states.buddy_layer = self  # for `attend`, on an object of its own
            return key_states, value_states
        return (key_states, value_states) if first == 0 else self.read()

    def read(self):
        """All keys and values, as they were."""
        return tuple(one.transpose(1, 2) for one in self.pages.read(0, self.length))

    def update_blocks(self, keys, values):
        fresh = torch.stack([keys, values])
        self.tail = fresh if self.tail is None else torch.cat([self.tail, fresh], -2)
        while self.tail.shape[-2] >= BLOCK:
            self.blocks.append(pack(self.tail[..., :BLOCK, :].contiguous(), codec="bf16", target="4/3x"))
            self.tail = self.tail[..., BLOCK:, :].contiguous()
        whole = torch.cat([*(unpack(block) for block in self.blocks), self.tail], -2)
        return whole[0], whole[1]

    def get_mask_sizes(self, query_length):
        return self.length + query_length, 0

    def get_seq_length(self):
        return self.length

    def get_max_length(self):
        return self.capacity

    get_max_cache_shape = get_max_length  # the name in older versions of Transformers

    def reset(self):
        self.is_initialized, self.length = False, 0

    def reorder_cache(self, beam_idx):
        raise NotImplementedError("BuddyCache has no beam search: its pages belong to their sequences")


class BuddyCache(Cache):
    """Keys and values in compressed memory, bit for bit: 4/3 of the tokens in the same memory, where that is more than a small part of the card's.

    ``capacity`` tokens of each sequence have room. With ``attn_implementation="buddy"`` a few tokens at a time are attended to in
    place, on a GPU of compute capability 9.0; otherwise, and for long prompts, keys and values are unpacked for each step. Layers with
    a sliding window keep all tokens. ``generate`` does not compile with it.
    """

    def __init__(self, config, capacity: int = 8192):
        text = config.get_text_config(decoder=True)
        in_place = getattr(text, "_attn_implementation", None) == NAME
        layers = text.num_hidden_layers
        super().__init__(layers=[BuddyCacheLayer(capacity, in_place, layers) for _ in range(layers)])


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """Attention that reads a :class:`BuddyCache` in place where it can, and is PyTorch's everywhere else."""
    layer = getattr(key, "buddy_layer", None)
    if layer is not None and (attention_mask is not None or query.shape[1] // key.shape[1] * query.shape[2] > MOST_COLUMNS):
        layer, (key, value) = None, layer.read()
    if layer is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
    sequences, heads, tokens, head = query.shape
    rows = query.transpose(1, 2).contiguous().view(sequences, tokens, heads * head)
    out = torch.empty_like(rows)
    layer.pages.attend(0, rows, out, scaling if scaling is not None else head**-0.5, tokens)
    return out.view(sequences, tokens, heads, head), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
