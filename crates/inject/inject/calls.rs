//! The driver calls that are followed, by name, and their parameters. The layouts are those of the
//! driver's functions: each parameter in its order.

use std::ffi::c_void;

use crate::{
    book::{Event, How},
    library::Handle,
};

/// Effect of a driver call on the allocation table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Allocates; with the index of the stream parameter if the call is stream-ordered.
    Allocate(How, Option<usize>),
    /// Frees; with the index of the stream parameter likewise.
    Free(Option<usize>),
    Map,
    Unmap,
    SetAccess,
    /// Launches a kernel; with the indices of the kernel and its arguments among the parameters.
    Launch {
        kernel: usize,
        arguments: usize,
        packed: bool,
    },
    LaunchGraph,
    BeginCapture,
    EndCapture,
    /// Allocates memory that is not followed: texture arrays, and memory inside graphs.
    Unfollowed,
}

impl Call {
    /// Finds a call by its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        Some(match name {
            "cuMemAlloc_v2" => Self::Allocate(How::Plain, None),
            "cuMemAllocPitch_v2" => Self::Allocate(How::Pitched, None),
            "cuMemAllocManaged" => Self::Allocate(How::Managed, None),
            "cuMemAllocAsync" => Self::Allocate(How::Async, Some(2)),
            "cuMemAllocFromPoolAsync" => Self::Allocate(How::Async, Some(3)),
            "cuMemFree_v2" => Self::Free(None),
            "cuMemFreeAsync" => Self::Free(Some(1)),
            "cuMemMap" => Self::Map,
            "cuMemUnmap" => Self::Unmap,
            "cuMemSetAccess" => Self::SetAccess,
            // Grid, block and shared memory are seven 32-bit words, with four bytes of padding.
            "cuLaunchKernel" => Self::Launch { kernel: 0, arguments: 6, packed: true },
            "cuLaunchCooperativeKernel" => Self::Launch { kernel: 0, arguments: 6, packed: false },
            "cuLaunchKernelEx" => Self::Launch { kernel: 1, arguments: 2, packed: true },
            "cuGraphLaunch" => Self::LaunchGraph,
            "cuStreamBeginCapture" | "cuStreamBeginCapture_v2" | "cuStreamBeginCaptureToGraph" => {
                Self::BeginCapture
            }
            "cuStreamEndCapture" => Self::EndCapture,
            "cuGraphAddMemAllocNode"
            | "cuArrayCreate_v2"
            | "cuArray3DCreate_v2"
            | "cuMipmappedArrayCreate" => Self::Unfollowed,
            _ => return None,
        })
    }

    /// Returns true if the call counts at entry: memory about to be freed must not be read any
    /// more.
    pub(crate) fn at_entry(self) -> bool {
        matches!(self, Self::Free(_) | Self::Unmap)
    }
}

/// The parameters of a call, as 64-bit words.
#[derive(Clone, Copy)]
pub(crate) struct Parameters(*const u64);

impl Parameters {
    /// # Safety
    /// The parameters of a driver call, valid while this is used.
    pub(crate) unsafe fn new(parameters: *const c_void) -> Self {
        Self(parameters.cast())
    }

    /// # Safety
    /// The call has a parameter at this index.
    pub(crate) unsafe fn word(self, at: usize) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(at).read_unaligned() }
    }

    /// Reads the word a parameter points to; 0 for null.
    ///
    /// # Safety
    /// The parameter is null or points to an initialised number.
    unsafe fn pointed(self, at: usize) -> u64 {
        // SAFETY: the caller's promise.
        let place = unsafe { self.word(at) } as *const u64;
        // SAFETY: likewise.
        if place.is_null() { 0 } else { unsafe { place.read_unaligned() } }
    }

    /// Returns the stream of a stream-ordered call.
    ///
    /// # Safety
    /// The call has a parameter at this index.
    pub(crate) unsafe fn stream(self, at: usize) -> Handle {
        // SAFETY: the caller's promise.
        unsafe { self.word(at) as Handle }
    }

    /// Returns the event of an allocating, freeing or mapping call.
    ///
    /// # Safety
    /// These are the parameters of that call, which succeeded, or begins if it counts at its entry.
    pub(crate) unsafe fn event(self, call: Call, context: u64, site: u32) -> Option<Event> {
        // SAFETY: the places are those of the driver's functions.
        unsafe {
            Some(match call {
                Call::Allocate(how, _) => {
                    let pitched = how == How::Pitched;
                    let bytes = if pitched { self.pointed(1) * self.word(3) } else { self.word(1) };
                    Event::Allocated { address: self.pointed(0), bytes, how, context, site }
                }
                Call::Free(_) => Event::Freed { address: self.word(0) },
                Call::Map => Event::Allocated {
                    address: self.word(0),
                    bytes: self.word(1),
                    how: How::Mapped,
                    context,
                    site,
                },
                Call::Unmap => Event::Unmapped { address: self.word(0), bytes: self.word(1) },
                Call::SetAccess => {
                    let (address, bytes) = (self.word(0), self.word(1));
                    Event::Access { address, bytes, allowed: self.opens() }
                }
                Call::BeginCapture => Event::CaptureBegins,
                Call::EndCapture => Event::CaptureEnds,
                Call::Launch { .. } | Call::LaunchGraph | Call::Unfollowed => return None,
            })
        }
    }

    /// Returns true if `cuMemSetAccess` lets a GPU read. A descriptor is a location of two words,
    /// and flags.
    ///
    /// # Safety
    /// As for [`event`](Self::event).
    unsafe fn opens(self) -> bool {
        const DEVICE: u32 = 1;
        const READ: u32 = 1;
        // SAFETY: the third parameter points to as many descriptors as the fourth states.
        let (list, count) = unsafe { (self.word(2) as *const [u32; 3], self.word(3)) };
        // SAFETY: likewise.
        (0..count as usize).any(|at| unsafe {
            let [kind, _, flags] = list.add(at).read_unaligned();
            kind == DEVICE && flags & READ != 0
        })
    }
}
