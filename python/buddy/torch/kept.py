"""One piece of memory that autograd keeps: packed once, whatever views of it are saved, and unpacked when one is asked for.

The unit is the storage, all of it: what is saved of it, transposed, expanded or at an odd offset, is type, size, strides and offset
over the same bytes. Plain memory is let go only when the GPU has said that what overflowed had room; until then, and if it had not,
the plain memory is what is read. So no one waits, and nothing is ever lost.
"""

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _native
from .layout import padded, room
from .ops import on_device, place, span

# What stands where a GPU will say how many sectors overflow.
UNTOLD = -1
# Where a buffer's header has the number of sectors that overflow.
AT_SECTORS = slice(48, 52)


def over(storage, dtype, size, stride, offset):
    """A tensor over a storage."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)


class Kept:
    """A storage as it was when autograd saved it. ``tensor`` is what was saved first, cut off from the graph."""

    __slots__ = ("tensor", "storage", "address", "version", "size", "device", "packed", "how", "capacity", "sectors", "site",
                 "stream", "told", "restored", "held", "at", "given", "uses", "__weakref__")

    def __init__(self, tensor, site):
        storage = tensor.untyped_storage()
        self.tensor, self.version, self.site = tensor, tensor._version, site
        # While the weak reference lives, no other storage has this one's identity.
        self.storage, self.address, self.size = StorageWeakRef(storage), storage.data_ptr(), storage.nbytes()
        self.device, self.packed, self.sectors, self.restored = tensor.device, None, 0, None
        self.stream = self.told = self.held = self.at = self.given = None
        self.uses = 0

    def is_of(self, tensor, storage):
        """Whether a tensor's memory is this one, unchanged. Its storage is alive, and so is the identity compared here."""
        return (not self.storage.expired() and tensor._version == self.version
                and (storage.data_ptr(), storage.nbytes()) == (self.address, self.size))

    def pack(self, site, told, take):
        """Packs it, when the stream gets there, into bytes that ``take(size, device)`` gives. On a GPU ``told``, pinned memory, then holds
        how many sectors overflow."""
        flat = over(self.tensor.untyped_storage(), torch.uint8, (self.size,), (1,), 0)
        if self.size != padded(self.size) or self.address % 16:
            filled = flat.new_zeros(padded(self.size))
            filled[: self.size] = flat
            flat = filled
        self.how, self.capacity, self.told = (site.codec, site.target, 0), site.sectors, told
        self.packed = take(room(site.target, 0, flat.numel(), site.sectors), self.device)
        with on_device(flat):
            where = place(flat)
            _native.freeze(where, self.how, span(flat), span(self.packed), told.data_ptr() if told is not None else 0)
            if told is not None:
                self.stream = torch.cuda.current_stream(self.device)
                # Should the plain memory go before the kernel has read it, the allocator waits for this stream.
                self.tensor.record_stream(self.stream)

    def settle(self):
        """The answer is there: lets go of the plain memory, or of the packed if it had no room. Returns whether it had."""
        self.sectors = int(self.packed[AT_SECTORS].view(torch.int32)[0] if self.told is None else self.told)
        self.told = None
        if self.sectors > self.capacity:
            self.packed = None
            return False
        self.tensor = None
        return True

    def plain(self):
        """The storage as PyTorch keeps it, if that is still there and unchanged; raises if it is all there is and was changed."""
        if self.tensor is None:
            return None
        if self.tensor._version != self.version:
            if self.packed is None:
                raise changed(self.tensor, self.version)
            return None
        return self.tensor.untyped_storage()

    def restore(self, hold=False):
        """A storage with the bytes as they were; if ``hold``, it is there for the next time too."""
        if (storage := self.plain()) is not None:
            return storage
        storage, self.held = self.held, None
        storage = storage or self._read()
        if hold:
            self.held = storage
        return storage

    def _read(self):
        if self.told is not None:
            # Changed in place while it was being packed: now the answer counts.
            torch.cuda.synchronize(self.device)
            if not self.settle():
                raise changed(self.tensor, self.version)
        if self.restored is not None and not self.restored.expired():
            # Another view of it is in use: the same memory, as without packing.
            if (storage := torch.UntypedStorage._new_with_weak_ptr(self.restored.cdata)) is not None:
                return storage
        whole = torch.empty(padded(self.size), dtype=torch.uint8, device=self.device)
        with on_device(whole):
            where = place(whole)
            if self.stream is not None and where[1] != self.stream.cuda_stream:
                current = torch.cuda.current_stream(self.device)
                current.wait_stream(self.stream)
                self.packed.record_stream(current)
            _native.read_frozen(where, self.how, span(self.packed), span(whole))
        storage = whole.untyped_storage()
        self.restored = StorageWeakRef(storage)
        return storage


def changed(tensor, version):
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version} instead")


class Part:
    """A saved tensor: which part of which memory, a ``Kept`` or an ``Again``."""

    __slots__ = ("kept", "dtype", "size", "stride", "offset", "first")

    def __init__(self, kept, tensor):
        self.kept, self.dtype, self.size = kept, tensor.dtype, tensor.size()
        self.stride, self.offset = tensor.stride(), tensor.storage_offset()
        # Whether it is all that a Kept is of: while that is plain, the tensor itself is given back.
        self.first = kept is not None and kept.tensor is tensor

    def of(self, kept):
        """The same part of this memory."""
        part = object.__new__(Part)
        part.kept, part.dtype, part.size, part.stride, part.offset = kept, self.dtype, self.size, self.stride, self.offset
        part.first = False
        return part

    def unpack(self, hold=False):
        if self.first and self.kept.tensor is not None and self.kept.plain() is not None:
            return self.kept.tensor
        return over(self.kept.restore(hold), self.dtype, self.size, self.stride, self.offset)


class Passed:
    """A saved tensor that is passed through."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor):
        self.tensor, self.version = tensor, None if tensor.is_inference() else tensor._version

    def unpack(self):
        if self.version is not None and self.tensor._version != self.version:
            raise changed(self.tensor, self.version)
        return self.tensor
