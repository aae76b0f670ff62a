"""One piece of memory that autograd keeps: packed once, whatever views of it are saved, and unpacked when one is asked for.

The unit is the storage, all of it: what is saved of it, transposed, expanded or at an odd offset, is type, size, strides and offset
over the same bytes. Plain memory is let go only when it is known that what overflows has room; until then, and if it has not,
the plain memory is what is read. So no one waits, and nothing is ever lost.
"""

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _native
from .layout import ENTRY, padded
from .ops import call_on, raw_stream, span, stream_of


def over(storage, dtype, size, stride, offset):
    """A tensor over a storage."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)


class Memory:
    """A storage as it was when autograd saved it, which is made again when it is asked for; all who have it at a time share it."""

    __slots__ = ("storage", "address", "size", "version", "uses", "restored", "held", "__weakref__")
    # What was saved first, while that is there.
    tensor = None

    def __init__(self, tensor, storage, weak):
        # While the weak reference lives, no other storage has this one's identity. Nor while the tensor itself is held.
        self.storage, self.address, self.size = weak, storage.data_ptr(), storage.nbytes()
        self.version, self.uses, self.restored, self.held = tensor._version, 0, None, None

    def is_of(self, tensor, storage):
        """Whether a tensor's memory is this one, unchanged. Its storage is alive, and so is the identity compared here."""
        return (tensor._version == self.version and storage.data_ptr() == self.address and storage.nbytes() == self.size
                and (self.storage is None or not self.storage.expired()))

    def give(self, part, hold):
        """A part of it, with the bytes as they were; if ``hold``, the memory is there for the next time too."""
        storage, self.held, tensor = self.held, None, None
        if storage is None:
            storage = self._in_use()
        if storage is None:
            tensor = self.make(part)
            storage = tensor.untyped_storage()
            # Unless no one else will ask.
            if self.uses:
                self.restored = StorageWeakRef(storage)
        if hold:
            self.held = storage
        return tensor if tensor is not None and part.is_like(tensor) else part.over(storage)

    def _in_use(self):
        """The storage, if another view of it is in use: the same memory, as without packing."""
        if self.restored is None or self.restored.expired():
            return None
        return torch.UntypedStorage._new_with_weak_ptr(self.restored.cdata)


class Kept(Memory):
    """Memory that is packed, or stays as it is. ``tensor`` is what was saved first, cut off from the graph, while it is plain."""

    __slots__ = ("tensor", "device", "packed", "how", "sectors", "site", "stream", "told", "beside", "at", "given")

    def __init__(self, tensor, storage, site):
        super().__init__(tensor, storage, None)
        self.tensor, self.site, self.device, self.packed, self.sectors = tensor, site, tensor.device, None, 0
        self.stream = self.told = self.beside = self.at = self.given = None

    def begin(self, take, told, beside):
        """Takes bytes by ``take(size, device)`` for the packed form. On a GPU ``told`` will hold how many sectors overflow; what does
        lies at the end of these bytes, or in the piece ``beside``."""
        site = self.site
        self.storage, self.how, self.told, self.beside = StorageWeakRef(self.tensor.untyped_storage()), site.how, told, beside
        self.packed, self.stream = take(site.room, self.device), raw_stream(self.device)
        if beside is not None:
            beside.ready(self.device)

    def overflow(self):
        return self.beside.span() if self.beside is not None else (0, 0)

    def pack(self, take, told, beside):
        """Packs it, when the stream gets there."""
        self.begin(take, told, beside)
        source = (self.address, self.size)
        if self.size % ENTRY or self.address % 16:
            filled = torch.zeros(padded(self.size), dtype=torch.uint8, device=self.device)
            filled[: self.size] = over(self.tensor.untyped_storage(), torch.uint8, (self.size,), (1,), 0)
            source = span(filled)
        address = told.address if told is not None else 0
        self.sectors = call_on(self.device, _native.freeze, self.how, source, self.packed.span(), address, self.overflow(),
                               self.packed.sums) or 0

    def settle(self, sectors):
        """So many sectors overflow: lets go of the plain memory, or of the packed if it had no room. Returns whether it had."""
        self.sectors, self.told = sectors, None
        if self.beside is None and sectors > self.site.sectors:
            self.packed = None
            return False
        self.tensor = None
        return True

    def let_go(self):
        """Lets go of the plain memory while it is being packed, which cannot fail."""
        if self.tensor.is_cuda:
            self.tensor.record_stream(stream_of(self.stream, self.device))
        self.tensor = self.told = None

    def __del__(self):
        # Before it was packed: the allocator waits for the stream.
        if self.told is not None and self.tensor is not None and self.tensor.is_cuda:
            self.tensor.record_stream(stream_of(self.stream, self.device))
        if self.beside is not None and not self.beside.is_graphs:
            self.site.pieces.append(self.beside)

    def plain(self):
        """Whether it is there as PyTorch keeps it, unchanged; raises if that is all there is and was changed."""
        if self.tensor is None:
            return False
        if self.tensor._version != self.version:
            if self.packed is None:
                raise changed(self.tensor, self.version)
            return False
        return True

    def give(self, part, hold):
        if self.plain():
            return self.tensor if part.first else part.over(self.tensor.untyped_storage())
        return super().give(part, hold)

    def make(self, part):
        """Unpacks it, as this part if that is all of it."""
        if self.told is not None and self.tensor is not None:
            # Changed in place while it was being packed: now the answer counts.
            torch.cuda.synchronize(self.device)
            if not self.settle(self.told.value):
                raise changed(self.tensor, self.version)
        whole = part.empty(self.device, self.size)
        if whole is None:
            whole = torch.empty(padded(self.size), dtype=torch.uint8, device=self.device)
        self.wait()
        call_on(self.device, _native.read_frozen, self.how, self.packed.span(), (whole.data_ptr(), padded(self.size)), self.overflow())
        self.done()
        return whole

    def wait(self):
        """The current stream waits for the one that packed it."""
        if self.stream != raw_stream(self.device):
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(stream_of(self.stream, self.device))
            self.packed.slab.record_stream(current)

    def done(self):
        """Read on the current stream: who writes to the piece beside next must wait for that."""
        if self.beside is not None and self.stream != raw_stream(self.device):
            stream_of(self.stream, self.device).wait_stream(torch.cuda.current_stream(self.device))


def changed(tensor, version):
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version} instead")


class Part:
    """A saved tensor: which part of which memory."""

    __slots__ = ("kept", "dtype", "size", "stride", "offset", "first")

    def __init__(self, kept, tensor):
        self.kept, self.dtype, self.size = kept, tensor.dtype, tensor.size()
        self.stride, self.offset = tensor.stride(), tensor.storage_offset()
        # Whether it is the tensor that a Kept has while it is plain: then that is given back.
        self.first = kept is not None and kept.tensor is tensor

    def of(self, kept):
        """The same part of this memory."""
        part = object.__new__(Part)
        part.kept, part.dtype, part.size, part.stride, part.offset = kept, self.dtype, self.size, self.stride, self.offset
        part.first = False
        return part

    def empty(self, device, size):
        """A tensor like this part over memory of so many bytes, whole entries of them, if it takes all of them."""
        if self.offset or size % ENTRY or self.size.numel() * self.dtype.itemsize != size:
            return None
        tensor = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=device)
        return tensor if tensor.untyped_storage().nbytes() == size else None

    def is_like(self, tensor):
        """Whether a tensor over all of the memory is this part."""
        return (self.offset == 0 and tensor.dtype == self.dtype and tensor.size() == self.size and tensor.stride() == self.stride
                and tensor.storage_offset() == 0)

    def over(self, storage):
        return over(storage, self.dtype, self.size, self.stride, self.offset)

    def unpack(self, hold=False):
        return self.kept.give(self, hold)
