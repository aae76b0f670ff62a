//! Types of a writable compressed [`Memory`](crate::Memory). The front page has an example.

pub use buddy_core::{TargetRange, Targets};
pub use buddy_memory::{
    AllocationReport, CacheSpec, Error, FreeSpace, Handle, MemoryReport, Request, Retargeted, Spec, Traffic,
    Usage,
};
