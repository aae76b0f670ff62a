"""Training data of the networks: crops of natural photographs, or random words with the frequencies
of a language.

The photographs are those of scikit-image that are in the public domain or under CC0
(`PHOTOGRAPHS`). Each crop is rounded to 256 levels, like a decoded image, and normalised with
ImageNet's mean and deviation.
"""

import importlib.util
import pathlib

import numpy as np
import torch

PHOTOGRAPHS = ["astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "camera.png", "brick.png", "grass.png",
               "gravel.png", "hubble_deep_field.jpg"]
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def find_photographs(folder):
    """Returns the given folder, or that of an installed scikit-image."""
    if folder is None:
        found = importlib.util.find_spec("skimage")
        if found is None:
            raise SystemExit("no photographs: install scikit-image, or give its folder `data` with --images")
        folder = pathlib.Path(found.origin).parent / "data"
    return pathlib.Path(folder)


class Photographs:
    """Batches of square crops. The label is the photograph and the quarter of it that the crop
    leans to."""

    def __init__(self, folder, size, device):
        from PIL import Image

        images = [Image.open(folder / name).convert("RGB").resize((512, 512)) for name in PHOTOGRAPHS]
        stack = np.stack([np.asarray(image).transpose(2, 0, 1) for image in images])
        self.images = torch.tensor(stack, device=device).float()
        self.size, self.device = size, device
        self.mean = 255 * torch.tensor(MEAN, device=device).view(3, 1, 1)
        self.deviation = 255 * torch.tensor(DEVIATION, device=device).view(3, 1, 1)

    def batch(self, count):
        which = torch.randint(len(self.images), (count,), device=self.device)
        parts = [self.crops(part) for part in which.split(64)]
        return torch.cat([crops for crops, _ in parts]), torch.cat([labels for _, labels in parts])

    def crops(self, which):
        """Returns crops of 45 to 100 percent of the side, half of them mirrored."""
        count = len(which)
        scale = torch.empty(count, device=self.device).uniform_(0.45, 1.0)
        place = torch.rand(count, 2, device=self.device)
        shift = (2 * place - 1) * (1 - scale).unsqueeze(1)
        mirror = torch.randint(2, (count,), device=self.device) * 2.0 - 1
        zero = torch.zeros_like(scale)
        affine = torch.stack([scale * mirror, zero, shift[:, 0], zero, scale, shift[:, 1]], 1).view(count, 2, 3)
        shape = (count, 3, self.size, self.size)
        grid = torch.nn.functional.affine_grid(affine, shape, align_corners=False)
        crops = torch.nn.functional.grid_sample(self.images[which], grid, padding_mode="reflection", align_corners=False)
        right, lower = (place > 0.5).long().unbind(1)
        labels = which * 4 + right * 2 + lower
        return (crops.round() - self.mean) / self.deviation, labels


class Words:
    """Batches of tokens, word k with frequency 1/k; the label is the next token."""

    def __init__(self, vocabulary, length, device):
        weights = 1 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
        self.edges = torch.cumsum(weights / weights.sum(), 0).to(device)
        self.length, self.device = length, device

    def batch(self, count):
        draws = torch.rand(count, self.length + 1, dtype=torch.float64, device=self.device)
        tokens = torch.searchsorted(self.edges, draws).clamp_(max=len(self.edges) - 1)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
