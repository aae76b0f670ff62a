"""Two ranks of tensor parallelism on gloo: layers are packed after sharding, from plain and from packed
folders. First of the folder's tests: its processes are forked before this one has a group of its own."""

import os
import pathlib
import sys

import pytest

pytest.importorskip("vllm")
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import block
import torch
import torch.multiprocessing as processes
from block import Block, checkpoint, loaded
from buddy import pack_model
from buddy.vllm import register

register()
from buddy.vllm.config import BuddyConfig, Options

IDS = torch.arange(11) * 37 % block.VOCABULARY


def rank_of(rank, rendezvous):
    block.join_group(rank, 2, rendezvous)
    with torch.no_grad():
        # 192 rows of down on two ranks: 96 inputs each, which stay plain.
        for inner, packs in [(256, True), (192, False)]:
            make, weights = (lambda config: Block(config, inner)), checkpoint(inner)
            config = BuddyConfig(Options(fused=False))
            plain, packed = loaded(None, weights, make), loaded(config, weights, make)
            x = plain(IDS)
            assert torch.equal(packed(IDS), x) and torch.equal(packed.logits(x), plain.logits(x))
            assert (packed.mlp.down_proj.weight.dtype == torch.uint8) == packs
            fused = loaded(BuddyConfig(Options(fused=True)), weights, make)
            assert torch.equal(fused.mlp(x), plain.mlp(x))
            assert fused.embed_tokens.weight.dtype == torch.uint8
            folder = pathlib.Path(f"{rendezvous}.{inner}")
            if rank == 0:
                pack_model(block.write_folder(folder / "plain", weights), folder / "packed")
            torch.distributed.barrier()
            read = dict(block.weights_of(str(folder / "packed")))
            assert all(torch.equal(read[name], one) for name, one in weights.items())
            again, before = loaded(config, read, make).state_dict(), packed.state_dict()
            assert all(torch.equal(again[name].view(torch.uint8), one.view(torch.uint8)) for name, one in before.items())
            assert again.keys() == before.keys()
    pathlib.Path(f"{rendezvous}.{rank}").touch()
    while not os.path.exists(f"{rendezvous}.{1 - rank}"):
        pass
    os._exit(0)


def test_two_ranks_give_what_two_plain_ranks_give(tmp_path):
    # Forked, as importing vLLM again takes longer than everything else here.
    context = processes.start_processes(rank_of, (str(tmp_path / "group"),), 2, join=False, start_method="fork")
    while not context.join(timeout=300):
        pass
