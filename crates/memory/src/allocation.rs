//! One allocation: its location, codec and traffic.

use std::fmt;

use buddy_codec::Codec;
use buddy_core::Extent;
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
    traffic::SharedTraffic,
};

/// Identifies an allocation. Handles are never reused, so a stale handle cannot access another
/// allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Handle(pub(crate) u64);

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) handle: Handle,
    pub(crate) bytes: u64,
    /// `None` if uncompressed.
    pub(crate) codec: Option<Codec>,
    /// First page; fixed for life. Only a retarget changes the space behind the pages.
    pub(crate) first_page: u64,
    /// Extents by range; empty once freed.
    extents: RwLock<Vec<Extent>>,
    pub(crate) traffic: SharedTraffic,
}

impl Allocation {
    pub(crate) fn new(
        handle: Handle,
        bytes: u64,
        codec: Option<Codec>,
        first_page: u64,
        extents: Vec<Extent>,
    ) -> Self {
        let extents = RwLock::new(extents);
        Self { handle, bytes, codec, first_page, extents, traffic: SharedTraffic::default() }
    }

    /// Locks the extents for use; they are neither freed nor moved meanwhile.
    pub(crate) fn shared(&self) -> Result<RwLockReadGuard<'_, Vec<Extent>>, Error> {
        let extents = self.extents.read().expect("an allocation's lock is never poisoned");
        if extents.is_empty() { Err(Error::Freed(self.handle)) } else { Ok(extents) }
    }

    /// Locks the extents exclusively.
    pub(crate) fn alone(&self) -> Result<RwLockWriteGuard<'_, Vec<Extent>>, Error> {
        let extents = self.extents.write().expect("an allocation's lock is never poisoned");
        if extents.is_empty() { Err(Error::Freed(self.handle)) } else { Ok(extents) }
    }

    /// Checks that a range is within the allocation.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(Error::OutOfRange { offset, len, bytes: self.bytes }),
        }
    }
}
