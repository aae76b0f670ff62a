"""A small Llama of vLLM's modules on the CPU, plain and with ``quantization="buddy"``. A whole
engine of the CUDA wheel needs a GPU; its layers, its loaders and its compiled model do not."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from types import SimpleNamespace
from typing import Iterator

import torch
from safetensors.torch import save_file
from torch import nn
from vllm.config import CompilationConfig, CompilationMode, DeviceConfig, LoadConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import MergedColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

HIDDEN, INNER, VOCABULARY, HEADS, KV_HEADS = 256, 192, 512, 4, 2
STACKED = {"q_proj": ("qkv_proj", "q"), "k_proj": ("qkv_proj", "k"), "v_proj": ("qkv_proj", "v"),
           "gate_proj": ("gate_up_proj", 0), "up_proj": ("gate_up_proj", 1)}


class MLP(nn.Module):
    """vLLM's LlamaMLP, which imports without attention."""

    def __init__(self, quant_config, inner=INNER):
        super().__init__()
        self.gate_up_proj = MergedColumnParallelLinear(HIDDEN, [inner] * 2, bias=False, quant_config=quant_config, prefix="mlp.gate_up_proj")
        self.down_proj = RowParallelLinear(inner, HIDDEN, bias=False, quant_config=quant_config, prefix="mlp.down_proj")
        self.act_fn = SiluAndMul()

    def forward(self, x):
        x, _ = self.gate_up_proj(x)
        x = self.act_fn(x)
        x, _ = self.down_proj(x)
        return x


class Block(nn.Module):
    """Everything of a decoder but attention, rope and cache."""

    def __init__(self, quant_config, inner=INNER):
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(VOCABULARY, HIDDEN, quant_config=quant_config)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(HIDDEN), RMSNorm(HIDDEN)
        self.qkv_proj = QKVParallelLinear(HIDDEN, HIDDEN // HEADS, HEADS, KV_HEADS, bias=True, quant_config=quant_config, prefix="qkv_proj")
        self.o_proj = RowParallelLinear(HIDDEN, HIDDEN, bias=False, quant_config=quant_config, prefix="o_proj")
        self.heads_columns = self.o_proj.input_size_per_partition
        self.mlp = MLP(quant_config, inner)
        self.lm_head = ParallelLMHead(VOCABULARY, HIDDEN, quant_config=quant_config, prefix="lm_head")

    def forward(self, ids):
        x = self.embed_tokens(ids)
        residual = x
        x = self.input_layernorm(x)
        qkv, _ = self.qkv_proj(x)
        x, _ = self.o_proj(qkv[:, : self.heads_columns].contiguous())
        x, residual = self.post_attention_layernorm(x, residual)
        return residual + self.mlp(x)

    def logits(self, x):
        return self.lm_head.quant_method.apply(self.lm_head, x)

    def load_weights(self, weights):
        parameters = dict(self.named_parameters())
        for name, weight in weights:
            shard = next((one for one in STACKED if one in name), None)
            if shard is None:
                parameter = parameters[name]
                load = getattr(parameter, "weight_loader", None)
                load(parameter, weight) if load else parameter.data.copy_(weight)
            else:
                merged, number = STACKED[shard]
                parameter = parameters[name.replace(shard, merged)]
                parameter.weight_loader(parameter, weight, number)


def checkpoint(inner: int = INNER) -> dict[str, torch.Tensor]:
    """Returns the weights of a block as a checkpoint names them."""
    torch.manual_seed(3)
    width = HIDDEN // HEADS
    shapes = {"embed_tokens": (VOCABULARY, HIDDEN), "qkv_proj.q": (HIDDEN, HIDDEN), "qkv_proj.k": (KV_HEADS * width, HIDDEN),
              "qkv_proj.v": (KV_HEADS * width, HIDDEN), "o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (inner, HIDDEN),
              "mlp.up_proj": (inner, HIDDEN), "mlp.down_proj": (HIDDEN, inner), "lm_head": (VOCABULARY, HIDDEN)}
    names = {name: f"{name.split('.')[1]}_proj" if name.startswith("qkv") else name for name in shapes}
    found = {f"{names[name]}.weight": (torch.randn(shape) / shape[1] ** 0.5).bfloat16() for name, shape in shapes.items()}
    found |= {f"{one}_proj.bias": torch.randn(shapes[f"qkv_proj.{one}"][0]).bfloat16() for one in "qkv"}
    return found | {f"{one}.weight": (1 + 0.1 * torch.randn(HIDDEN)).bfloat16() for one in ["input_layernorm", "post_attention_layernorm"]}


def write_folder(folder: pathlib.Path, weights: dict[str, torch.Tensor]) -> pathlib.Path:
    """Writes a model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    save_file(weights, folder / "model.safetensors")
    return folder


def weights_of(folder: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Returns what vLLM's loader gives to a model with ``quantization="buddy"`` for a folder or a Hub id."""
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    config = SimpleNamespace(model=folder, revision=None, quantization="buddy")
    return DefaultModelLoader(LoadConfig(use_tqdm_on_load=False)).get_all_weights(config, nn.Module())


def vllm_config(quant_config=None, lora_config=None, **more) -> VllmConfig:
    """Returns a configuration without a model."""
    compilation = CompilationConfig(mode=CompilationMode.NONE, custom_ops=["none"])
    found = VllmConfig(device_config=DeviceConfig(device="cpu"), compilation_config=compilation, load_config=LoadConfig(), **more)
    # Without the checks of its constructor, which need a model.
    object.__setattr__(found, "lora_config", lora_config)
    found.quant_config = quant_config
    return found


def join_group(rank: int = 0, size: int = 1, rendezvous: str | None = None) -> None:
    """Starts vLLM's groups on gloo, once in a process."""
    if torch.distributed.is_initialized():
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rendezvous = rendezvous or tempfile.mktemp()
    with set_current_vllm_config(vllm_config()):
        init_distributed_environment(size, rank, f"file://{rendezvous}", rank, "gloo")
        initialize_model_parallel(size)


def build(quant_config, make=Block, load=None, **more):
    """Builds a module as vLLM's loader does, and loads it with ``load``."""
    from vllm.model_executor.model_loader.reload import finalize_layerwise_processing, record_metadata_for_reloading
    from vllm.model_executor.model_loader.utils import process_weights_after_loading

    config = vllm_config(quant_config, **more)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with set_current_vllm_config(config):
            model = make(quant_config)
            record_metadata_for_reloading(model)
            load(model)
            if quant_config is not None:
                finalize_layerwise_processing(model, None)
            process_weights_after_loading(model, _ModelConfig(), torch.device("cpu"))
    finally:
        torch.set_default_dtype(before)
    return model.eval()


def loaded(config, weights=None, make=Block):
    """Builds a module and loads a checkpoint's weights."""
    weights = weights or checkpoint()
    return build(config, make, lambda model: model.load_weights(weights.items()))


class _ModelConfig:
    quantization, dtype, word_embeddings_untied_by_checkpoint = None, torch.bfloat16, False
