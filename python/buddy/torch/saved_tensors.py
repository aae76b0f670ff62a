"""Storages that autograd saves: packed once for all their views, and unpacked on demand.

The unit is a whole storage. A saved tensor is a view: dtype, size, strides and offset. Plain memory
is released only when the overflow is known to have room; until then, and if it has none, the plain
memory is used. So the host never waits and no data is lost.
"""

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _native
from .layout import ENTRY, padded_bytes
from .ops import call_native, raw_stream, span, stream_of


def view_of(storage, dtype, size, stride, offset):
    """Returns a tensor over a storage."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)


class SavedStorage:
    """A storage as autograd saved it. Users that hold it at the same time share one restored
    copy."""

    __slots__ = ("storage", "address", "size", "version", "uses", "restored", "held", "__weakref__")
    # The tensor that was saved first, while it is plain.
    tensor = None

    def __init__(self, tensor, storage, weak):
        # While the weak reference or the tensor lives, no other storage has this one's identity.
        self.storage, self.address, self.size = weak, storage.data_ptr(), storage.nbytes()
        self.version, self.uses, self.restored, self.held = tensor._version, 0, None, None

    def matches(self, tensor, storage):
        """Returns whether a tensor with the same storage identity has the saved version."""
        return (tensor._version == self.version and storage.data_ptr() == self.address and storage.nbytes() == self.size
                and (self.storage is None or not self.storage.expired()))

    def restore(self, view, hold):
        """Returns a view with the saved bytes. ``hold`` keeps the storage for the next call."""
        storage, self.held, tensor = self.held, None, None
        if storage is None:
            storage = self._in_use()
        if storage is None:
            tensor = self.make(view)
            storage = tensor.untyped_storage()
            if self.uses:
                self.restored = StorageWeakRef(storage)
        if hold:
            self.held = storage
        return tensor if tensor is not None and view.is_like(tensor) else view.over(storage)

    def _in_use(self):
        """Returns the restored storage if another view of it is alive."""
        if self.restored is None or self.restored.expired():
            return None
        return torch.UntypedStorage._new_with_weak_ptr(self.restored.cdata)


class PackedStorage(SavedStorage):
    """A storage that is packed, or stays plain. ``tensor`` is the first saved tensor, detached,
    while it is plain."""

    __slots__ = ("tensor", "device", "packed", "format", "sectors", "site", "stream", "status", "pinned", "saved_at", "restored_at")

    def __init__(self, tensor, storage, site):
        super().__init__(tensor, storage, None)
        self.tensor, self.site, self.device, self.packed, self.sectors = tensor, site, tensor.device, None, 0
        self.stream = self.status = self.pinned = self.saved_at = self.restored_at = None

    def begin(self, take, status, pinned):
        """Allocates the packed form with ``take(size, device)``. A GPU writes the overflowing
        sectors to ``status``; overflow goes to the block ``pinned``, or to the end of the packed
        form."""
        site = self.site
        self.storage, self.format, self.status, self.pinned = StorageWeakRef(self.tensor.untyped_storage()), site.format, status, pinned
        self.packed, self.stream = take(site.packed_bytes, self.device), raw_stream(self.device)
        if pinned is not None:
            pinned.wait(self.device)

    def overflow(self):
        return self.pinned.span() if self.pinned is not None else None

    def pack(self, take, status, pinned):
        """Enqueues packing."""
        self.begin(take, status, pinned)
        if self.size % ENTRY or self.address % 16:
            filled = torch.zeros(padded_bytes(self.size), dtype=torch.uint8, device=self.device)
            filled[: self.size] = view_of(self.tensor.untyped_storage(), torch.uint8, (self.size,), (1,), 0)
            source = span(filled)
        else:
            source = _native.Span(self.tensor, self.address, self.size)
        address = status.address if status is not None else 0
        self.sectors = call_native(self.device, _native.pack, self.format, source, self.packed.span(), address, self.overflow(),
                                   self.packed.counters) or 0

    def settle(self, sectors):
        """Releases the plain memory, or the packed memory if ``sectors`` of overflow exceed its
        room. Returns whether they fit."""
        self.sectors, self.status = sectors, None
        if self.pinned is None and sectors > self.site.sectors:
            self.packed = None
            return False
        self.tensor = None
        return True

    def release(self):
        """Releases the plain memory while packing is in flight; only if packing cannot fail."""
        if self.tensor.is_cuda:
            self.tensor.record_stream(stream_of(self.stream, self.device))
        self.tensor = self.status = None

    def __del__(self):
        # Packing may be in flight: the allocator must wait for the stream.
        if self.status is not None and self.tensor is not None and self.tensor.is_cuda:
            self.tensor.record_stream(stream_of(self.stream, self.device))
        if self.pinned is not None and not self.pinned.in_graph:
            self.site.free_blocks.append(self.pinned)

    def is_plain(self):
        """Returns whether the plain tensor is usable. Raises if it was modified in place and there
        is no packed form."""
        if self.tensor is None:
            return False
        if self.tensor._version != self.version:
            if self.packed is None:
                raise version_error(self.tensor, self.version)
            return False
        return True

    def restore(self, view, hold):
        if self.is_plain():
            return self.tensor if view.is_first else view.over(self.tensor.untyped_storage())
        return super().restore(view, hold)

    def make(self, view):
        """Unpacks the storage, with the layout of ``view`` if that covers all of it."""
        if self.status is not None and self.tensor is not None:
            # Modified in place while packing was in flight: the result decides.
            torch.cuda.synchronize(self.device)
            if not self.settle(self.status.value):
                raise version_error(self.tensor, self.version)
        whole = view.empty(self.device, self.size)
        if whole is None:
            whole = torch.empty(padded_bytes(self.size), dtype=torch.uint8, device=self.device)
        self.wait()
        to = _native.Span(whole, whole.data_ptr(), padded_bytes(self.size))
        call_native(self.device, _native.unpack, self.format, self.packed.span(), to, self.overflow())
        self.done()
        return whole

    def wait(self):
        """Makes the current stream wait for the stream that packed."""
        if self.stream != raw_stream(self.device):
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(stream_of(self.stream, self.device))
            self.packed.slab.record_stream(current)

    def done(self):
        """After a read on the current stream: the next writer of the pinned block must wait for
        it."""
        if self.pinned is not None and self.stream != raw_stream(self.device):
            stream_of(self.stream, self.device).wait_stream(torch.cuda.current_stream(self.device))


def version_error(tensor, version):
    """Returns autograd's own error for a saved tensor that was modified in place."""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version} instead")


class SavedView:
    """A saved tensor: a view of a saved storage."""

    __slots__ = ("saved", "dtype", "size", "stride", "offset", "is_first")

    def __init__(self, saved, tensor):
        self.saved, self.dtype, self.size = saved, tensor.dtype, tensor.size()
        self.stride, self.offset = tensor.stride(), tensor.storage_offset()
        # The tensor that a PackedStorage holds while it is plain is returned as it is.
        self.is_first = saved is not None and saved.tensor is tensor

    def of(self, saved):
        """Returns the same view of another storage."""
        view = object.__new__(SavedView)
        view.saved, view.dtype, view.size, view.stride, view.offset = saved, self.dtype, self.size, self.stride, self.offset
        view.is_first = False
        return view

    def empty(self, device, size):
        """Returns an empty tensor with this layout if it takes exactly ``size`` bytes, whole
        entries; else None."""
        if self.offset or size % ENTRY or self.size.numel() * self.dtype.itemsize != size:
            return None
        tensor = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=device)
        return tensor if tensor.untyped_storage().nbytes() == size else None

    def is_like(self, tensor):
        """Returns whether a tensor has this layout."""
        return (self.offset == 0 and tensor.dtype == self.dtype and tensor.size() == self.size and tensor.stride() == self.stride
                and tensor.storage_offset() == 0)

    def over(self, storage):
        return view_of(storage, self.dtype, self.size, self.stride, self.offset)

    def unpack(self, hold=False):
        return self.saved.restore(self, hold)
