//! One allocation: where it lies, how it is kept, what moved on its behalf.

use std::fmt;

use buddy_codec::Codec;
use buddy_core::Extent;
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
    traffic::SharedTraffic,
};

/// Names an allocation. No two allocations of a memory ever have the same handle, so that one that is kept after
/// a free never finds another's bytes.
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
    /// None where the bytes are kept as they are.
    pub(crate) codec: Option<Codec>,
    /// Its pages stay the same for life; only a retarget changes the room behind them.
    pub(crate) first_page: u64,
    /// Its room, range after range; none at all once it is freed.
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

    /// Its room, which nobody frees or moves while the guard lives.
    pub(crate) fn shared(&self) -> Result<RwLockReadGuard<'_, Vec<Extent>>, Error> {
        let extents = self.extents.read().expect("no holder of an allocation panics");
        if extents.is_empty() { Err(Error::Freed(self.handle)) } else { Ok(extents) }
    }

    /// Its room, which nobody uses while the guard lives.
    pub(crate) fn alone(&self) -> Result<RwLockWriteGuard<'_, Vec<Extent>>, Error> {
        let extents = self.extents.write().expect("no holder of an allocation panics");
        if extents.is_empty() { Err(Error::Freed(self.handle)) } else { Ok(extents) }
    }

    /// Refuses bytes past its end.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(Error::OutOfRange { offset, len, bytes: self.bytes }),
        }
    }
}
