#!/usr/bin/env python3
"""Measures memory and time of a training step in one run: plain, with checkpointing variants, and
with packed activations.

    pip install target/wheels/buddy_memory-*.whl
    tools/train_bench.py gpt --out training.json

Needs PyTorch and a GPU. Results: docs/guide/training.md.
"""

import argparse
import contextlib
import gc
import json
import pathlib
import re
import statistics
import time
import traceback

import torch
from torch import nn
from torch.utils import checkpoint as checkpoints

from dl import networks

from buddy.torch import SquaredReLU, compress_saved, swap_

GPU = torch.device("cuda")


def gpt(activation=None, width=1024, layers=24, batch=32, length=1024):
    model = networks.Gpt(width=width, layers=layers, length=length)
    for block in model.blocks:
        block.gelu = activation() if activation else block.gelu
    tokens = torch.randint(0, model.vocabulary, (batch, length + 1), device=GPU)
    return model, tokens[:, :-1], tokens[:, 1:].flatten()


def images(make, batch, size=224):
    return make(), torch.randn(batch, 3, size, size, device=GPU).bfloat16(), torch.randint(0, 1000, (batch,), device=GPU)


NETWORKS = {
    "gpt": gpt, "gpt-relu": lambda: gpt(nn.ReLU), "gpt-relu2": lambda: gpt(SquaredReLU),
    "resnet50": lambda: images(networks.resnet50, 256), "vit": lambda: images(networks.vit_b16, 256),
    "gpt-small": lambda: gpt(width=512, layers=6, batch=8, length=512),
    "gpt-relu2-small": lambda: gpt(SquaredReLU, width=512, layers=6, batch=8, length=512),
    "vit-small": lambda: images(networks.vit_b16, 16), "resnet-small": lambda: images(networks.resnet50, 32),
}


def blocks(model):
    return [module for module in model.modules() if isinstance(module, (networks.Block, networks.Bottleneck))]


def checkpointed(model, **how):
    # These blocks have no dropout, whose random state would have to be saved.
    how |= {"use_reentrant": False, "preserve_rng_state": False}
    for block in blocks(model):
        block.forward = lambda *inputs, run=block.forward: checkpoints.checkpoint(run, *inputs, **how)


def selective():
    """Saves products and attention, and recomputes the rest."""
    aten = torch.ops.aten
    kept = [aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default,
            aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_cudnn_attention.default,
            aten._scaled_dot_product_efficient_attention.default]
    return checkpoints.create_selective_checkpoint_contexts(kept)


def budget(model, share):
    import torch._functorch.config

    torch._functorch.config.activation_memory_budget = share
    for block in blocks(model):
        block.compile()


@contextlib.contextmanager
def mode(name, model):
    """Sets a model up; returns the context of a forward pass."""
    around, name = contextlib.nullcontext, name.removeprefix("graphed ")
    if name.startswith("checkpoint"):
        checkpointed(model)
    if name.startswith("selective"):
        checkpointed(model, context_fn=selective)
    if name == "save_on_cpu":
        around = lambda: torch.autograd.graph.save_on_cpu(pin_memory=True)
    if name.startswith("compiled"):
        budget(model, float(name.partition(" ")[2] or 1))
    if "swapped" in name:
        swap_(model)
    if "packed" in name:
        around = lambda: compress_saved(model, **packed_options(name))
    yield around


def packed_options(name):
    """`packed alone` packs without recomputation; `swapped packed` uses activations that pack their
    saved tensors; `device` keeps overflow on the device; `70%` packs that share of dense
    tensors."""
    options = {"least": "4/3x" if "4/3x" in name else "2x", "overflow": "device" if "device" in name else "host"}
    if "alone" in name:
        options["recompute"] = ()
    if found := re.search(r"(\d+)%", name):
        options["share"] = int(found[1]) / 100
    return options


def forget(most):
    """Frees the memory of the first steps; from now on PyTorch may take at most `most` of the GPU's
    memory."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_per_process_memory_fraction(most)


def eager(step, warm_up, steps, most):
    """Returns the times of steps after the warm-up, in which codecs are trained."""
    times = []
    for number in range(warm_up + steps):
        if number == warm_up:
            forget(most)
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return times[warm_up:], loss


def graphed(step, warm_up, steps, most):
    """Like `eager`, for a step that is captured once and replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            step()
    torch.cuda.current_stream().wait_stream(side)
    forget(most)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    times = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return times[1:], loss


def limit(name):
    """Parses `in 32.1GB`: the share of the GPU's memory that PyTorch may take."""
    found, total = re.search(r"in ([\d.]+)GB", name), torch.cuda.get_device_properties(GPU).total_memory
    return min(1.0, float(found[1]) * 1e9 / total) if found else 1.0


def measure(network, name, steps, warm_up, profile):
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.manual_seed(1)
    with GPU:
        model, inputs, labels = NETWORKS[network]()
    model = networks.initialise(model).to(torch.bfloat16).train()
    if inputs.dim() == 4:
        model, inputs = model.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable="graphed" in name)
    if name == "save_on_cpu":
        # Takes long, the same in every step.
        steps = 2
    if "packed" not in name:
        # Nothing to train.
        warm_up = 2 if "compiled" in name or "graphed" in name else 1
    with mode(name, model) as around:
        def step():
            optimizer.zero_grad(set_to_none=True)
            with around():
                loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            return loss.detach()

        times, loss = (graphed if "graphed" in name else eager)(step, warm_up, steps, limit(name))
        if profile:
            with torch.profiler.profile() as profiler:
                step()
                torch.cuda.synchronize()
            print(profiler.key_averages().table(sort_by="self_device_time_total", row_limit=14, max_name_column_width=40))
        report = compress_saved(model, **packed_options(name)).report() if "packed" in name else None
    free, total = torch.cuda.mem_get_info()
    found = {"network": network, "mode": name, "ms": statistics.median(times), "ms_least": min(times), "ms_most": max(times),
             "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(), "driver": total - free,
             "loss": loss.item(), "report": report and report.to_dict()}
    print(f"{network:10} {name:22} {found['ms']:8.1f} ms  {found['allocated'] / 1e9:7.2f} GB allocated "
          f"{found['reserved'] / 1e9:7.2f} reserved {found['driver'] / 1e9:7.2f} driver  loss {found['loss']:.6f}", flush=True)
    if report:
        print("    " + str(report).replace("\n", "\n    "), flush=True)
    torch.compiler.reset()
    return found


def weights_after(network, steps, packed, least):
    torch.manual_seed(1)
    with GPU:
        model, inputs, labels = NETWORKS[network]()
    model = networks.initialise(model).to(torch.bfloat16).train()
    if packed:
        swap_(model)
    optimizer, generator = torch.optim.AdamW(model.parameters(), lr=3e-4), torch.Generator(GPU).manual_seed(2)
    for _ in range(steps):
        order = torch.randperm(len(inputs), generator=generator, device=GPU)
        batch = inputs[order]
        wanted = labels.view(len(inputs), -1)[order].flatten()
        with compress_saved(model, least=least) if packed else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(model(batch), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    tensors = compress_saved(model, least=least).report().tensors if packed else 0
    return [p.detach().cpu() for p in [*model.parameters(), *model.buffers()]], loss.item(), tensors


def equality(network, steps, least):
    """Checks that training with and without packing gives bit-identical weights."""
    torch.use_deterministic_algorithms(True)
    start = time.perf_counter()
    plain, loss, _ = weights_after(network, steps, False, least)
    packed, _, tensors = weights_after(network, steps, True, least)
    torch.use_deterministic_algorithms(False)
    equal = all(torch.equal(one.view(-1).view(torch.uint8), other.view(-1).view(torch.uint8)) for one, other in zip(plain, packed))
    print(f"{network}: {steps} steps at {least}, loss {loss:.6f}, {tensors} tensors packed a step: "
          f"{'weights bit-identical' if equal else 'WEIGHTS DIFFER'} ({time.perf_counter() - start:.1f} s)", flush=True)
    return {"network": network, "steps": steps, "least": least, "tensors": tensors, "loss": loss, "equal": equal}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="+", help=f"of {', '.join(NETWORKS)}; optionally with `=` and its own modes")
    parser.add_argument("--modes", default="plain,checkpoint,selective,save_on_cpu,compiled,compiled 0.5,packed alone 4/3x,packed 2x,packed 4/3x,"
                        "swapped packed 2x,swapped packed 4/3x", help="separated by commas; also checkpoint packed 4/3x, graphed, graphed swapped packed 2x, packed 4/3x 70%%, packed 2x device, "
                        "packed 4/3x in 26.5GB, a limit on PyTorch's memory after the first steps")
    parser.add_argument("--steps", type=int, default=6, help="warm-up included; fewer than ten, since the tenth step measures all tensors again")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print the kernels that take the most time")
    parser.add_argument("--equal", type=int, metavar="STEPS", help="train STEPS steps with and without packing, and compare the weights")
    parser.add_argument("--out", type=pathlib.Path, help="file for the record")
    options = parser.parse_args()
    found = []
    for network, _, modes in (one.partition("=") for one in options.networks):
        for name in (modes or options.modes).split(",") if not options.equal else ["4/3x"]:
            try:
                found.append(equality(network, options.equal, name) if options.equal
                             else measure(network, name, options.steps, options.warm_up, options.profile))
            except Exception:
                # The other modes may still succeed.
                traceback.print_exc()
            if options.out:
                record = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda, "found": found}
                options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
