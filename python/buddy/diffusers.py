"""Diffusers: pipelines with packed bf16 weights.

    from buddy.diffusers import BuddyConfig
    from diffusers import FluxPipeline, PipelineQuantizationConfig

    config = PipelineQuantizationConfig(quant_mapping={"transformer": BuddyConfig(), "text_encoder_2": BuddyConfig()})
    pipe = FluxPipeline.from_pretrained(folder, quantization_config=config, torch_dtype=torch.bfloat16)

Linear layers are packed while they are loaded, so the plain model never has to fit. Nothing is
quantised: weights keep every bit, and saved pipelines are plain.
"""

from __future__ import annotations

import enum
import sys
import types

import torch
from diffusers.configuration_utils import FrozenDict
from diffusers.quantizers import DiffusersQuantizer, auto
from diffusers.utils import logging
from torch import nn

from . import transformers as _transformers
from .packed_models import num_parameters
from .torch.compress import decompress_, fills_tiles, packed_like, replace
from .torch.layers import PackedLinear, PackedMatrix
from .torch.packed import pack_weight
from .torch.report import size_text

logger = logging.get_logger(__name__)


class Method(str, enum.Enum):
    """The name of the method, in the form that Diffusers reads."""

    BUDDY = _transformers.NAME


class BuddyConfig(_transformers.BuddyConfig):
    """Options for packed weights of a pipeline's models: those of
    :class:`buddy.transformers.BuddyConfig`, of which ``compiled`` has no effect on a diffusion
    model."""

    METHOD = Method.BUDDY


class BuddyQuantizer(DiffusersQuantizer):
    """Packs the linear layers of a diffusion model while they are loaded."""

    # Modules that a plain model keeps in fp32 stay so.
    use_keep_in_fp32_modules = True

    def update_torch_dtype(self, torch_dtype):
        return torch.bfloat16 if torch_dtype is None else torch_dtype

    def get_special_dtypes_update(self, model, torch_dtype):
        return {}

    @property
    def supports_parallel_loading(self):
        return False

    def check_if_quantized_param(self, model, param_value, param_name, state_dict, **kwargs):
        path, _, name = param_name.rpartition(".")
        module = model.get_submodule(path)
        return (name == "weight" and type(module) is nn.Linear and param_value.dtype == torch.bfloat16
                and fills_tiles(param_value) and self.quantization_config.converts(path))

    def create_quantized_param(self, model, param_value, param_name, target_device, *args, **kwargs):
        # The bytes are the layer's weight until all are loaded.
        packed = pack_weight(param_value.to(target_device))
        model.get_submodule(param_name.rpartition(".")[0]).weight = nn.Parameter(packed.data, requires_grad=False)

    def _process_model_before_weight_loading(self, model, **kwargs):
        self.plain_bytes = sum(2 * one.numel() for one in model.parameters())

    def _process_model_after_weight_loading(self, model, **kwargs):
        for name, module in list(model.named_modules()):
            if type(module) is not nn.Linear or module.weight.dtype != torch.uint8:
                continue
            shape = module.out_features, module.in_features
            matrix = PackedMatrix(shape)
            matrix.pack(module.weight.data)
            replace(model, name, packed_like(module, matrix, self.quantization_config.exact).train(module.training))
        # Saved folders hold plain weights.
        model._internal_dict = FrozenDict({key: one for key, one in model.config.items() if key != "quantization_config"})
        model.num_parameters = types.MethodType(num_parameters, model)
        report(model, self.plain_bytes)
        return model

    def _dequantize(self, model):
        model.__dict__.pop("num_parameters", None)
        return decompress_(model)

    def get_state_dict_and_metadata(self, state_dict, safe_serialization=False):
        return state_dict, {}

    @property
    def is_serializable(self):
        return True

    @property
    def is_trainable(self):
        """True: adapters train, packed weights do not."""
        return True

    @property
    def is_compileable(self):
        return True


def report(model: nn.Module, plain_bytes: int) -> None:
    """Writes one line on what was packed; warns if nothing was."""
    layers = {name: one for name, one in model.named_modules() if isinstance(one, nn.Linear)}
    left = [name for name, one in layers.items() if not isinstance(one, PackedLinear)]
    if len(left) == len(layers):
        logger.warning(f"BuddyConfig packed none of {len(layers)} linear layers: only bfloat16 matrices of 16 rows or more, with a multiple of 64 columns, are packed")
        return
    after = sum(one.nbytes for one in model.parameters()) + sum(one.data.nbytes for one in model.modules() if isinstance(one, PackedMatrix))
    rest = f"; left plain: {', '.join(left[:4])}{' and others' if len(left) > 4 else ''}" if left else ""
    line = f"{type(model).__name__}: {len(layers) - len(left)} of {len(layers)} linear layers packed, {size_text(plain_bytes)} to {size_text(after)}{rest}"
    print(line, file=sys.stderr) if logging.is_progress_bar_enabled() else logger.info(line)


auto.AUTO_QUANTIZATION_CONFIG_MAPPING[_transformers.NAME] = BuddyConfig
auto.AUTO_QUANTIZER_MAPPING[_transformers.NAME] = BuddyQuantizer
