"""Shared by the checks of `tools/torch_check.py`."""

import torch

GPU = torch.device("cuda")


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def same(left, right):
    assert (left.shape, left.dtype) == (right.shape, right.dtype) and torch.equal(raw(left), raw(right))
