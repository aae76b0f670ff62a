#!/usr/bin/env python3
"""Trains networks on the GPU and records how their memory compresses, without copying it off the
GPU.

    pip install target/wheels/buddy_memory-*.whl        # docs/guide/python.md
    tools/record_dl.py                        # PyTorch's live tensors, to data/recorded
    tools/record_dl.py --layout caffe         # the paper's networks in Caffe's layout, to data/recorded/caffe
    tools/record_dl.py --layout bvlc          # the same with BVLC's batch normalisation, to data/recorded/bvlc
    tools/record_dl.py --train 2000 --out data/recorded/longer alexnet   # after 2000 steps at a small batch
    tools/record_dl.py --batch 161 --out data/recorded/small alexnet     # a quarter of the batch
    tools/record_dl.py --device cpu --batch 4 --warm-up 10 --samples DIR --every 8 resnet50   # without a GPU

On a CPU nothing is recorded but sampled pages, whose sizes the command `buddy` counts.

Needs the package, PyTorch, NumPy, Pillow and scikit-image (for its photographs). Writes one run
record per network. docs/notes/deep-learning.md explains the results, docs/reference/snapshots.md
the format.
"""

import argparse
import gc
import json
import pathlib
import re
import subprocess
import sys
import time
import traceback

import torch

from dl import networks
from dl.blobs import Blobs, BvlcBlobs
from dl.inputs import PHOTOGRAPHS, Photographs, Words, find_photographs
from dl.recorder import DTYPES, Recorder
from dl.samples import Samples, to_record
from dl.tensors import SMALLEST, Tensors

DEVICE, SEED, SNAPSHOTS, WARM_UP, TRAIN_BATCH = "cuda", 1, 10, 60, 32
# Name: model, image side or text length, the paper's footprint in GB or the batch size, optimizer
# and learning rate.
NETWORKS = {
    "alexnet": (networks.alexnet, 227, 8.85, "sgd", 0.01),
    "inception_v2": (networks.inception_v2, 224, 3.21, "sgd", 0.01),
    "squeezenet": (networks.squeezenet, 224, 2.03, "sgd", 0.01),
    "vgg16": (networks.vgg16, 224, 11.08, "sgd", 0.001),
    "resnet50": (networks.resnet50, 224, 4.50, "sgd", 0.01),
    "biglstm": (networks.BigLstm, 20, 2.71, "sgd", 0.01),
    "resnet50_bf16": (networks.resnet50, 224, 128, "adamw", 3e-4),
    "vgg16_bf16": (networks.vgg16, 224, 128, "adamw", 3e-4),
    "vit_b16_bf16": (networks.vit_b16, 224, 128, "adamw", 3e-4),
    "gpt12_bf16": (networks.Gpt, 1024, 8, "adamw", 3e-4),
}
# Codecs that the paper compares, with both readings of BPC.
CODECS = "bpc,bpc-best,bdi,fpc,fvc,cpack"
# The paper's networks with Caffe's blobs.
CAFFE = {name: row for name, row in NETWORKS.items() if row[3] == "sgd"}
CAFFE["biglstm"] = (networks.UnrolledBigLstm, *CAFFE["biglstm"][1:])
# Those with batch normalisation.
BVLC = {name: CAFFE[name] for name in ("inception_v2", "resnet50")}
LAYOUTS = {"pytorch": NETWORKS, "caffe": CAFFE, "bvlc": BVLC}
FOLLOWERS = {"pytorch": Tensors, "caffe": Blobs, "bvlc": BvlcBlobs}


class Training:
    """One network in training."""

    def __init__(self, name, layout, images):
        torch.manual_seed(SEED)
        make, size, self.wanted, optimizer, self.rate = LAYOUTS[layout][name]
        self.name, self.layout, self.autocast = name, layout, optimizer == "adamw"
        self.model = networks.initialise(make()).to(DEVICE).train()
        if hasattr(self.model, "vocabulary"):
            self.data = Words(self.model.vocabulary, size, DEVICE)
        else:
            self.data = Photographs(images, size, DEVICE)
        parameters = self.model.parameters()
        if optimizer == "sgd":
            self.optimizer = torch.optim.SGD(parameters, lr=self.rate, momentum=0.9, weight_decay=1e-4)
        else:
            self.optimizer = torch.optim.AdamW(parameters, lr=self.rate)
        self.loss = torch.nn.CrossEntropyLoss()
        self.tensors = FOLLOWERS[layout](self.model, self.loss, self.optimizer, self.event)
        self.listener, self.step = None, 0

    def event(self, phase, name, tensor):
        if self.listener:
            self.listener(phase, name, tensor)

    def iterate(self, batch, listener=None):
        """Runs one step; the listener is called for every module that ran, forward and backward."""
        inputs, labels = self.data.batch(batch)
        self.tensors.begin((inputs, labels))
        self.listener = listener
        self.event("start", "start", None)
        with self.tensors.hooks(), torch.autocast(DEVICE, torch.bfloat16, enabled=self.autocast):
            loss = self.loss(self.model(inputs), labels)
        loss.backward()
        self.event("end", "end", None)
        self.listener = None
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.layout == "pytorch")
        self.step += 1
        return loss.item()

    def footprint(self, batch):
        """Returns the peak bytes in use after a module has run: all tensors, without temporaries of
        single operations. Caffe's blobs always exist."""
        if self.layout != "pytorch":
            self.iterate(batch)
            self.iterate(batch)
            return self.tensors.footprint()
        most = 0

        def look(*_):
            nonlocal most
            most = max(most, torch.cuda.memory_allocated())

        self.iterate(batch)
        self.iterate(batch, look)
        return most

    def batch_for(self, wanted):
        """Returns the batch whose footprint is closest: doubles until it is reached, then
        interpolates linearly."""
        low, high = (2, self.footprint(2)), (4, self.footprint(4))
        while high[1] < wanted:
            low, high = high, (2 * high[0], self.footprint(2 * high[0]))
        for _ in range(2):
            share = (wanted - low[1]) / (high[1] - low[1])
            batch = min(max(round(low[0] + share * (high[0] - low[0])), low[0] + 1), high[0])
            found = (batch, self.footprint(batch))
            low, high = (found, high) if found[1] < wanted else (low, found)
            if high[0] - low[0] < 2:
                break
        return min(low, high, key=lambda one: abs(one[1] - wanted))[0]


def record(name, layout, buddy, images, options):
    start = time.perf_counter()
    # Nothing of the previous network may count as this one's.
    gc.collect()
    torch.cuda.empty_cache()
    on_gpu = DEVICE == "cuda"
    training = Training(name, layout, images)
    batch = options.batch or training.wanted
    if isinstance(batch, float):
        batch = training.batch_for(batch * 1e9)
    losses = [training.iterate(TRAIN_BATCH) for _ in range(options.train)]
    footprint = training.footprint(batch) if on_gpu else None
    losses += [training.iterate(batch) for _ in range(options.warm_up)]
    events = []
    training.iterate(batch, lambda *event: events.append(event[:2]))
    due = moments(events)
    codecs, samples, zeros = {}, Samples(options.every, DEVICE), Zeros(training.model)
    # A garbage collection would count as part of a snapshot's time.
    gc.collect()
    gc.disable()
    # Once to train codecs and compile kernels, once for the record.
    for _ in range(2 if on_gpu else 0):
        recorder, seen = Recorder(buddy, training.tensors, codecs, footprint), 0

        def listen(phase, layer, tensor):
            nonlocal seen
            if seen in due:
                recorder.snapshot(f"{phase} {layer}".removesuffix(f" {phase}"), phase, layer, tensor)
            seen += 1

        losses.append(training.iterate(batch, listen))
    if options.samples:
        seen = 0

        def keep(phase, layer, tensor):
            nonlocal seen
            if seen in due:
                samples.snapshot(f"{phase} {layer}", training.tensors.live(phase, layer, tensor))
            seen += 1

        losses.append(training.iterate(batch, keep))
        parameters = {**describe(training, batch, options), "warm_up_steps": options.warm_up, "steps": training.step,
                      "zeros_after_relu": zeros.share(), "loss_first": losses[0], "loss_last": losses[-1]}
        samples.write(options.samples / name, name, parameters, DTYPES)
    gc.enable()
    if not on_gpu:
        print(f"{name}: batch {batch}, loss {losses[0]:.2f} to {losses[-1]:.2f}, zeros after ReLU {zeros.share()}, "
              f"{time.perf_counter() - start:.1f} s", flush=True)
        return None
    small = training.tensors.small
    live = sum(one["bytes"] for one in recorder.snapshots) / 1e9
    all_ms, count_ms = (sum(one[key] for one in recorder.snapshots) / live for key in ("all_ms", "count_ms"))
    print(f"{name}: batch {batch}, {footprint / 1e9:.2f} GB, loss {losses[0]:.2f} to {losses[-1]:.2f}, "
          f"{len(codecs)} tensors, {all_ms:.2f} ms/GB ({count_ms:.2f} counting), "
          f"{time.perf_counter() - start:.1f} s", flush=True)
    return recorder.record(name, {
        **describe(training, batch, options), "footprint_bytes": footprint, "warm_up_steps": options.warm_up, "steps": training.step,
        **({"small_steps": options.train} if options.train else {}), "zeros_after_relu": zeros.share(),
        "loss_first": losses[0], "loss_last": losses[-1],
        "left_out": {"below_bytes": SMALLEST, "tensors": len(small), "bytes": sum(small.values())},
        **({} if layout != "pytorch" else {"allocated_bytes": [one["allocated"] for one in recorder.snapshots]}),
        "snapshot_ms_per_gb": {"all": round(all_ms, 3), "counting": round(count_ms, 3)},
    }, "tools/record_dl.py of buddy 0.1.0", SEED)


class Zeros:
    """Counts zeros in the outputs of all ReLUs."""

    def __init__(self, model):
        self.seen = []
        for module in model.modules():
            if isinstance(module, torch.nn.ReLU):
                module.register_forward_hook(lambda module, args, output: self.count(output.detach()))

    def count(self, output):
        self.seen.append(((output == 0).sum(), output.numel()))

    def share(self):
        """Returns the share of zeros; `None` without a ReLU."""
        elements = sum(count for _, count in self.seen)
        return round(sum(int(zeros) for zeros, _ in self.seen) / elements, 4) if elements else None


def moments(events):
    """Selects the events to record: half of the snapshots before the loss, half after."""
    turn = max(index for index, (phase, _) in enumerate(events) if phase == "forward")
    half, rest = SNAPSHOTS // 2, len(events) - 1 - turn
    forward = {round(i * turn / (half - 1)) for i in range(half)}
    return forward | {turn + round(i * rest / (SNAPSHOTS - half)) for i in range(1, SNAPSHOTS - half + 1)}


def describe(training, batch, options):
    """Describes the origin of a record."""
    words = isinstance(training.data, Words)
    products = "f32 (products in TF32)" if DEVICE == "cuda" else "f32"
    return {
        "network": training.name, "batch": batch,
        "optimizer": "AdamW" if training.autocast else "SGD, momentum 0.9", "learning_rate": training.rate,
        "dtype": "f32 with bf16 autocast" if training.autocast else products,
        "input": f"Zipf-distributed tokens, {training.data.length} of {training.model.vocabulary} words" if words
        else f"crops of {training.data.size} x {training.data.size} of scikit-image's {', '.join(PHOTOGRAPHS)}",
        **(gpu() if DEVICE == "cuda" else {"device": "CPU"}), "torch": torch.__version__,
        "command": command(training, options),
        **({"layout": training.layout} if training.layout != "pytorch" else {}),
    }


def command(training, options):
    """Returns the command line of a record, without its folders."""
    layout = training.layout if training.layout != "pytorch" else None
    given = [("--layout", layout), ("--device", DEVICE if DEVICE != "cuda" else None), ("--batch", options.batch),
             ("--warm-up", options.warm_up if options.warm_up != WARM_UP else None), ("--train", options.train or None),
             ("--every", options.every if options.samples else None)]
    words = [f"{name} {value}" for name, value in given if value is not None]
    return " ".join(["tools/record_dl.py", *words, training.name])


def gpu():
    return {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "driver": driver()}


def driver():
    path = pathlib.Path("/proc/driver/nvidia/version")
    found = re.search(r"\d+\.\d+(\.\d+)?", path.read_text()) if path.exists() else None
    return found.group() if found else "unknown"


def write(path, record):
    """Writes JSON with one line per allocation, so that records can be diffed."""
    text = json.dumps(record, separators=(",", ":"))
    for mark in ['{"name":', '{"histograms":', '"allocations":', '"snapshots":', '"sizes":', '"run":']:
        text = text.replace(mark, "\n" + mark)
    path.write_text(text + "\n")


def survey():
    """Returns the survey on the GPU, which needs the package with its kernels."""
    from dl.survey import Buddy

    return Buddy()


def compare(folder, out):
    """Measures sampled runs with the codecs that the paper compares, on the CPU."""
    out.mkdir(parents=True, exist_ok=True)
    for run in sorted(folder.iterdir()):
        found = subprocess.run(["buddy", "profile", run, "--codecs", CODECS, "--codec", "bpc",
                                "--policy", "allocation-16x", "--json", "-"], check=True, stdout=subprocess.PIPE).stdout
        write(out / f"{run.name}.json", to_record(json.loads(found)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--layout", choices=LAYOUTS, default="pytorch", help="memory layout: PyTorch's live tensors, or Caffe's blobs with cuDNN's or BVLC's batch normalisation")
    parser.add_argument("--images", help="folder with scikit-image's photographs")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the records")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, metavar="STEPS", help="steps before the recording")
    parser.add_argument("--batch", type=int, help="batch size, instead of the one with the paper's footprint")
    parser.add_argument("--train", type=int, default=0, metavar="STEPS", help=f"steps at a batch of {TRAIN_BATCH} before that")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--every", type=int, default=64, metavar="N", help="keep every N-th page in the samples")
    parser.add_argument("--samples", type=pathlib.Path, metavar="DIR", help="folder for runs of sampled pages (tools/dl/samples.py); their sizes with the codecs "
                        "that the paper compares go to OUT/codecs")
    options = parser.parse_args()
    global DEVICE
    DEVICE = options.device
    known = LAYOUTS[options.layout]
    out = options.out or pathlib.Path("data/recorded") / ("" if options.layout == "pytorch" else options.layout)
    unknown = set(options.networks) - set(known)
    if unknown:
        parser.error(f"unknown network {', '.join(unknown)}")
    if DEVICE == "cuda" and not torch.cuda.is_available():
        sys.exit("there is no GPU that PyTorch supports; --device cpu records sampled pages only")
    if DEVICE == "cpu" and not (options.batch and options.samples):
        parser.error("--device cpu needs --batch and --samples")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    buddy, images = survey() if DEVICE == "cuda" else None, find_photographs(options.images)
    out.mkdir(parents=True, exist_ok=True)
    torch.zeros(1, device=DEVICE)
    failed = []
    for name in options.networks or known:
        try:
            made = record(name, options.layout, buddy, images, options)
            if made:
                write(out / f"{name}.json", made)
        except Exception:
            # The other networks may still succeed.
            traceback.print_exc()
            failed.append(name)
    if options.samples:
        compare(options.samples, out / "codecs")
    if failed:
        sys.exit(f"not recorded: {', '.join(failed)}")


if __name__ == "__main__":
    main()
