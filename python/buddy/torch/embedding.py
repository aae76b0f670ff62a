"""The operator ``buddy::embedding``: rows of a packed matrix, bit for bit."""

import torch

from .. import _native
from .ops import ENTRY, LIBRARY, TAGS, call_native, check_packed, entries_per_row, span

# ids: row indices, any shape, int32 or int64. packed: a bf16 matrix (rows, columns) at 4/3x.
LIBRARY.define("embedding(Tensor ids, Tensor packed, str codec, SymInt rows, SymInt columns) -> Tensor", tags=TAGS)


def check_ids(ids, packed, rows):
    """Raises what ``nn.Embedding`` raises: for other dtypes, and for ids out of range. On a GPU the
    range is a device-side assert.

    PyTorch's own kernel does it, on a table that is one byte however many rows it has.
    """
    if ids.device != packed.device:
        raise RuntimeError(f"ids are on {ids.device}, the packed embedding on {packed.device}")
    torch.ops.aten.embedding(torch.zeros((1, 1), dtype=torch.uint8, device=ids.device).expand(rows, 1), ids)


def _embedding(ids, packed, codec, rows, columns):
    row = entries_per_row(columns)
    check_packed(packed, "4/3x", row, 2 * rows * columns)
    check_ids(ids, packed, rows)
    entries = ids.reshape(-1, 1).to(torch.int32) * row + torch.arange(row, dtype=torch.int32, device=ids.device)
    out = torch.empty((*ids.shape, columns), dtype=torch.bfloat16, device=packed.device)
    if ids.numel():
        weights = span(packed.contiguous()), rows * row * ENTRY
        call_native(packed.device, _native.gather, (codec, "4/3x", row), weights, span(entries.contiguous()), span(out))
    return out


LIBRARY.impl("embedding", _embedding, "CPU")
LIBRARY.impl("embedding", _embedding, "CUDA")


@torch.library.register_fake("buddy::embedding", lib=LIBRARY)
def _(ids, packed, codec, rows, columns):
    if ids.dtype not in (torch.int32, torch.int64):
        raise RuntimeError(f"ids of an embedding are int32 or int64, not {ids.dtype}")
    return packed.new_empty((*ids.shape, columns), dtype=torch.bfloat16)
