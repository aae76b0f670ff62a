"""LoRA in vLLM over packed layers: vLLM's own wrappers and its CPU kernels."""

import pathlib
import sys

import pytest

pytest.importorskip("vllm")
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import block
import torch
from block import Block
from buddy.vllm import register
from vllm.config import LoRAConfig
from vllm.lora.layers import LoRAMapping
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.lora.utils import from_layer

register()
from buddy.vllm.config import BuddyConfig, Options
from buddy.vllm.linear import BuddyLinearMethod

IDS = torch.arange(11) * 37 % block.VOCABULARY
LORA = LoRAConfig(max_lora_rank=8, max_loras=2, lora_dtype=torch.bfloat16)
PACKED_MODULES = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


@pytest.fixture(scope="module", autouse=True)
def group():
    block.join_group()


def adapted(config):
    """Returns a block whose linear layers vLLM wrapped, with two adapters of random weights."""
    weights = block.checkpoint()
    model = block.build(config, Block, lambda model: model.load_weights(weights.items()), lora_config=LORA)
    wrapper = PunicaWrapperCPU(64, max_batches=8, device="cpu")
    torch.manual_seed(9)
    for name, module in list(model.named_modules()):
        last = name.rpartition(".")[2]
        if not last.endswith("_proj"):
            continue
        new = from_layer(module, LORA.max_loras, LORA, PACKED_MODULES.get(last, [last]), None)
        assert new is not module, name
        for slot in range(LORA.max_loras):
            parts = [(torch.randn(8, a.shape[-1]).bfloat16() / 16, torch.randn(b.shape[-2], 8).bfloat16() / 4)
                     for a, b in zip(new.lora_a_stacked, new.lora_b_stacked)]
            one = parts[0] if len(parts) == 1 else tuple(map(list, zip(*parts)))
            new.set_lora(slot, *one)
        new.set_mapping(wrapper)
        model.get_submodule(name.rpartition(".")[0]).__setattr__(last, new)
    return model, wrapper


def run(model, wrapper, index, is_prefill):
    """Runs the tokens, each with an adapter (0: none)."""
    mapping = LoRAMapping(index_mapping=tuple(index), prompt_mapping=tuple(dict.fromkeys(index)) if is_prefill else tuple(index), is_prefill=is_prefill)
    wrapper.update_metadata(mapping, [1, 2], LORA.max_loras, block.VOCABULARY)
    with torch.no_grad():
        return model(IDS)


@pytest.mark.parametrize("is_prefill", [True, False])
def test_lora_over_packed_layers_gives_what_it_gives_over_plain_ones(is_prefill, monkeypatch):
    monkeypatch.setattr("vllm.utils.torch_utils.PIN_MEMORY", False)  # needs a driver
    (plain, plain_wrapper), (packed, wrapper) = adapted(None), adapted(BuddyConfig(Options()))
    assert all(isinstance(one.base_layer.quant_method, BuddyLinearMethod) for one in [packed.qkv_proj, packed.o_proj, packed.mlp.down_proj])
    assert packed.embed_tokens.weight.dtype == packed.lm_head.weight.dtype == torch.bfloat16, "vLLM's LoRA reads both"
    assert not packed.mlp.gate_up_proj.base_layer.buddy_swiglu, "an adapter adds to gate and up before the activation"
    outputs = []
    # vLLM 0.26's kernel for the CPU takes no adapter for the last one while decoding.
    cases = [[1] * 11, [2] * 11, [1] * 5 + [2] * 6] + ([[0] * 11] if is_prefill else [])
    for index in cases:
        wanted = run(plain, plain_wrapper, index, is_prefill)
        assert torch.equal(run(packed, wrapper, index, is_prefill), wanted)
        outputs.append(wanted)
    assert len({one.float().sum().item() for one in outputs}) == len(cases), "each choice of adapters gives something else"
