"""DDP and FSDP2 on two processes of the CPU: gradients with and without packing are equal to the
bit."""

import copy
import datetime
import os
import tempfile
import time

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn

from buddy.torch import compress_saved
from networks import ALL, Block, equal, gradients


def full(gradient):
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def train(rank, wrap, rendezvous):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=300))
    model = nn.Sequential(Block(activation=nn.ReLU()), Block())
    # As they are before they are sharded.
    whole = copy.deepcopy(model)
    plain, packed = WRAPS[wrap](copy.deepcopy(model)), WRAPS[wrap](model)
    torch.manual_seed(2 + rank)
    for _ in range(2):
        batch = torch.randn(2, 16, 64)
        wanted = [full(one) for one in gradients(plain, batch)]
        with compress_saved(packed, **ALL) as mem:
            found = [full(one) for one in gradients(packed, batch)]
        equal(found, wanted)
        report = mem.report()
        assert report.tensors > 0 and report.skipped["a parameter or a buffer"][1] > 0
        # No gathered weight was packed or surveyed. They alone are 64 x 192, 64 x 64 and 64 x 256.
        weights = {one.numel() * 4 for one in whole.parameters() if one.dim() == 2}
        assert len(weights) == 3 and not weights & {size for _, size, _ in mem._sites.keys()}
    leave(rank, rendezvous)


def leave(rank, rendezvous):
    """Ends the process when both are done, without PyTorch's own end: threads of a group abort it
    now and then ("terminate called without an active exception"), long after everything was
    compared."""
    open(f"{rendezvous}.{rank}", "w").close()
    end = time.monotonic() + 300
    while not os.path.exists(f"{rendezvous}.{1 - rank}"):
        if time.monotonic() > end:
            os._exit(1)
        time.sleep(0.01)
    os._exit(0)


def ddp(model):
    return nn.parallel.DistributedDataParallel(model)


def fsdp(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


WRAPS = {"ddp": ddp, "fsdp2": fsdp}


@pytest.mark.parametrize("wrap", WRAPS)
def test_two_processes(wrap):
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(train, (wrap, folder + "/meet"), nprocs=2)
        assert {"meet.0", "meet.1"} <= set(os.listdir(folder))
