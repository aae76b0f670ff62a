"""The operator ``buddy::rows``: single rows of a packed matrix, as an embedding takes them, bit for bit."""

import torch

from .. import _native
from .ops import ENTRY, LIBRARY, TAGS, on_device, place, row_of, span

# ids: which rows, any shape. packed: a matrix of bf16 at 4/3x with so many rows and columns.
LIBRARY.define("rows(Tensor ids, Tensor packed, str codec, SymInt rows, SymInt columns) -> Tensor", tags=TAGS)


def _rows(ids, packed, codec, rows, columns):
    row = row_of(columns)
    entries = ids.reshape(-1, 1).to(torch.int32) * row + torch.arange(row, dtype=torch.int32, device=ids.device)
    out = torch.empty((*ids.shape, columns), dtype=torch.bfloat16, device=packed.device)
    if ids.numel():
        with on_device(packed):
            how, weights = (codec, "4/3x", row), (span(packed), rows * row * ENTRY)
            _native.gather_frozen(place(packed), how, weights, span(entries.contiguous()), span(out))
    return out


LIBRARY.impl("rows", _rows, "CPU")
LIBRARY.impl("rows", _rows, "CUDA")


@torch.library.register_fake("buddy::rows", lib=LIBRARY)
def _(ids, packed, codec, rows, columns):
    return packed.new_empty((*ids.shape, columns), dtype=torch.bfloat16)
