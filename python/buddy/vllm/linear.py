"""``BuddyLinearMethod``: the packed weight of a linear layer, an embedding or a head."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch
from torch.nn import Parameter
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.linear import LinearBase, LinearMethodBase, register_weight_loader_v2_supported_method
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info, initialize_online_processing
from vllm.model_executor.parameter import ModelWeightParameter
from vllm.model_executor.utils import set_weight_attrs

from ..torch.layout import SECTOR, TILE_ROWS, packed_bytes
from ..torch.ops import entries_per_row
from ..torch.packed import PackedTensor, pack, pack_weight
from . import operators
from .fusion import GROUP, interleave, skip

if TYPE_CHECKING:
    from .config import BuddyConfig


def why_plain(outputs: int, inputs: int, dtype: torch.dtype) -> str | None:
    """Returns why a weight stays plain; None if it can be packed."""
    if dtype != torch.bfloat16:
        return str(dtype).removeprefix("torch.")
    if inputs % 64:
        return f"{inputs} inputs on a rank, no multiple of 64"
    return f"{outputs} outputs on a rank, fewer than {TILE_ROWS}" if outputs < TILE_ROWS else None


@register_weight_loader_v2_supported_method
class BuddyLinearMethod(LinearMethodBase):
    """Packs a layer's plain weight once all of it is loaded, after tensor-parallel sharding.

    The plain weight exists while its layer is loaded (``uses_meta_device``), the packed one takes
    its name. vLLM's reload copies new packed weights over the old ones: both have the same bytes.
    """

    uses_meta_device = True

    def __init__(self, config: BuddyConfig, name: str):
        self.config, self.name = config, name
        # Set by `fusion` once the layer's activation is known.
        self.activation: torch.nn.Module | None = None

    def create_weights(self, layer, input_size_per_partition, output_partition_sizes, input_size, output_size, params_dtype,
                       **extra_weight_attrs):
        outputs, inputs = sum(output_partition_sizes), input_size_per_partition
        why = why_plain(outputs, inputs, params_dtype)
        if why is not None:
            from .config import plain_method

            self.config.progress.plain[self.name] = why
            layer.quant_method = plain_method(layer)
            layer.quant_method.create_weights(layer, inputs, output_partition_sizes, input_size, output_size, params_dtype, **extra_weight_attrs)
            return
        layer.buddy_shape, layer.buddy_parts = (outputs, inputs), list(output_partition_sizes)
        data = torch.empty(outputs, inputs, dtype=params_dtype, device="meta")
        if isinstance(layer, LinearBase):
            weight = ModelWeightParameter(data=data, input_dim=1, output_dim=0, weight_loader=extra_weight_attrs.pop("weight_loader"))
        else:
            weight = Parameter(data, requires_grad=False)
            set_weight_attrs(weight, {"input_dim": 1, "output_dim": 0})
        layer.register_parameter("weight", weight)
        set_weight_attrs(weight, extra_weight_attrs)
        initialize_online_processing(layer)
        self.config.progress.layers[id(layer)] = (self, (outputs, inputs))

    def tie_weights(self, layer, embed_tokens):
        """Lets a head use the embedding's packed weight."""
        if not isinstance(embed_tokens.quant_method, BuddyLinearMethod):
            layer.quant_method = embed_tokens.quant_method
            return layer.quant_method.tie_weights(layer, embed_tokens)
        # In a tuple: the embedding is no submodule of the head.
        layer.buddy_tied = (embed_tokens,)
        del layer._parameters["weight"]
        get_layerwise_info(layer).reset()
        del self.config.progress.layers[id(layer)]
        return layer

    def process_weights_after_loading(self, layer):
        if getattr(layer, "_already_called_process_weights_after_loading", False) or hasattr(layer, "buddy_tied"):
            return
        layer._already_called_process_weights_after_loading = True
        weight = layer.weight.data
        is_first = not hasattr(layer, "buddy_codec")
        if is_first:
            self.load_kernels(weight.device)
            layer.buddy_swiglu = self.joins(layer.buddy_shape)
        plain = interleave(weight) if layer.buddy_swiglu else weight
        packed = self.pack(layer, plain)
        layer.weight = Parameter(packed.data, requires_grad=False)
        operators.remember(layer.weight, packed.codec)
        if is_first:
            layer.buddy_codec, layer.buddy_copied = packed.codec, self.keeps_copy(layer, weight)
        if layer.buddy_copied:
            layer.plain_copy = Parameter(plain, requires_grad=False)
        if not is_first:
            return
        if layer.buddy_swiglu:
            skip(self.activation)
        self.config.count(weight.nbytes, packed.nbytes)

    def joins(self, shape: tuple[int, int]) -> bool:
        """Returns whether the layer's kernel applies SwiGLU."""
        return self.activation is not None and shape[0] % (2 * GROUP) == 0

    def pack(self, layer, plain: torch.Tensor) -> PackedTensor:
        """Packs a weight with the reserve, or into the room that the layer's first weights were
        given."""
        if not hasattr(layer, "buddy_codec"):
            if not self.config.options.reserve:
                return pack_weight(plain)
            measured = pack_weight(plain)
            row, size = entries_per_row(plain.shape[1]), measured.plain_bytes
            needed = (measured.nbytes - packed_bytes("4/3x", row, size, 0)) // SECTOR
            layer.buddy_room = needed + int(self.config.options.reserve * size / 128)
            return pack(plain, codec=measured.codec, target="4/3x", matrix=True, sectors=layer.buddy_room)
        room = getattr(layer, "buddy_room", None)
        if room is None:
            raise ValueError(f"{self.name}: new weights need a reserve; load the model with the option reserve (say 0.01) of buddy")
        packed = pack(plain, codec=layer.buddy_codec, target="4/3x", matrix=True, sectors=room)
        if not packed.fits():
            raise ValueError(f"{self.name}: the reserve of {room} sectors is full; load the model again, or with a larger option reserve of buddy")
        return packed

    def keeps_copy(self, layer, weight: torch.Tensor) -> bool:
        """Returns whether the layer keeps a plain copy for many tokens, as long as the option
        allows."""
        progress = self.config.progress
        if not isinstance(layer, LinearBase) or progress.copies + weight.nbytes > 1e9 * self.config.options.plain_copies_gb:
            return False
        progress.copies += weight.nbytes
        return True

    def load_kernels(self, device: torch.device) -> None:
        """Begins to compile all kernels of the model beside loading, at its first layer."""
        progress = self.config.progress
        if progress.kernels is not None or device.type != "cuda":
            return
        config = get_current_vllm_config()
        most = config.scheduler_config.max_num_batched_tokens
        tokens = sorted({1, 2, 3, 4, 5, 8, most, *(config.compilation_config.cudagraph_capture_sizes or [])})
        shapes = sorted({(*shape, method.joins(shape)) for method, shape in progress.layers.values() if shape})
        progress.kernels = threading.Thread(target=operators.load_kernels, args=(device, shapes, tokens))
        progress.kernels.start()

    def apply(self, layer, x, bias=None):
        source = layer.buddy_tied[0] if hasattr(layer, "buddy_tied") else layer
        outputs, inputs = source.buddy_shape
        plain = source.plain_copy if source.buddy_copied else None
        return torch.ops.buddy.serve_linear(x, source.weight, plain, bias, outputs, inputs, source.buddy_swiglu)

    def embedding(self, layer, input_):
        rows, columns = layer.buddy_shape
        row = columns // 64
        entries = input_.reshape(-1, 1).to(torch.int32) * row + torch.arange(row, dtype=torch.int32, device=input_.device)
        return torch.ops.buddy.serve_rows(entries, layer.weight, rows).view(*input_.shape, columns)
