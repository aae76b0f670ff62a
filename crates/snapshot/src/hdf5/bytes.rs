//! The bytes of the file for `hdf5-reader`, with a limit on how often they are read: headers and
//! heaps of a hostile file can refer to the same bytes any number of times.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use hdf5_reader::{
    error::{Error, Result},
    storage::{Storage, StorageBuffer},
};

use crate::source::Source;

/// Times that every byte of a file may be read; object headers are parsed up to three times.
const MOST_READS: u64 = 8;

/// Bytes that may be read of any file.
const LEAST_BYTES: u64 = 16 << 20;

/// A file whose reads are counted.
pub(super) struct Metered {
    bytes: Arc<Bytes>,
    left: AtomicU64,
}

impl Metered {
    pub(super) fn new(source: &Arc<Source>) -> Self {
        let left = (source.bytes().len() as u64).saturating_mul(MOST_READS).saturating_add(LEAST_BYTES);
        Self { bytes: Arc::new(Bytes(Arc::clone(source))), left: left.into() }
    }
}

impl Storage for Metered {
    fn len(&self) -> u64 {
        self.bytes.0.bytes().len() as u64
    }

    fn read_range(&self, offset: u64, len: usize) -> Result<StorageBuffer> {
        let taken = |left: u64| left.checked_sub(len as u64);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_err() {
            return Err(Error::InvalidData("its blocks refer to the same bytes over and over".to_owned()));
        }
        let start = usize::try_from(offset).map_err(|_| Error::OffsetOutOfBounds(offset))?;
        StorageBuffer::from_shared_owner(Arc::clone(&self.bytes) as _, start, len)
    }
}

/// Gives the library the bytes without copying them.
struct Bytes(Arc<Source>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}
