//! The shape of a KV cache, and its memory.

use buddy_core::{ENTRY_BYTES, Target};

use crate::{DeviceSpan, Error};

/// Values of an entry: half a head of 128, or one of 64.
const ENTRY_VALUES: u32 = ENTRY_BYTES as u32 / 2;
/// Tokens of an mma tile; `kv.cuh` has the same.
pub(crate) const SIXTEEN: u32 = 16;
/// Alignment of the regions.
pub(crate) const ALIGN: u64 = 128;

/// The dimensions of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// Layers.
    pub layers: u32,
    /// Pages of each layer.
    pub pages: u32,
    /// KV heads.
    pub heads: u32,
    /// Head dimension: 64 or 128.
    pub head_values: u32,
    /// Tokens of a page: a power of two from 16 on.
    pub page_tokens: u32,
}

/// The sizes of a cache's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvBytes {
    /// Device memory: 96 bytes for each entry.
    pub entries: u64,
    /// A slot of 32 bytes for each entry, in pinned host memory or in device memory.
    pub overflow: u64,
    /// Device memory: four bits for each entry, the windows, and the fault.
    pub metadata: u64,
}

/// The memory of a cache. Each span is aligned to 128 bytes and at least as large as in
/// [`KvShape::bytes`].
#[derive(Debug, Clone, Copy)]
pub struct KvMemory<'a> {
    /// Device memory.
    pub entries: DeviceSpan<'a>,
    /// Pinned host memory, as the GPU sees it, or device memory.
    pub overflow: DeviceSpan<'a>,
    /// Device memory.
    pub metadata: DeviceSpan<'a>,
}

impl KvShape {
    /// Fails unless the shape is valid.
    ///
    /// # Errors
    /// [`Error::Kv`] with the reason.
    pub fn check(self) -> Result<Self, Error> {
        let Self { layers, pages, heads, head_values, page_tokens } = self;
        if [layers, pages, heads].contains(&0) {
            return Err(Error::Kv("a cache has layers, pages and heads".to_owned()));
        }
        if ![64, 128].contains(&head_values) {
            return Err(Error::Kv(format!("heads of {head_values} values; those of 64 and 128 are known")));
        }
        if page_tokens < SIXTEEN || !page_tokens.is_power_of_two() {
            return Err(Error::Kv(format!(
                "pages of {page_tokens} tokens; a power of two from 16 on is needed"
            )));
        }
        let tokens = u64::from(pages) * u64::from(page_tokens);
        if tokens > u64::from(u32::MAX) {
            return Err(Error::Kv(format!("{tokens} tokens in a layer; 2^32 - 1 are the most")));
        }
        Ok(self)
    }

    /// Returns the entries of a head's key or value.
    pub(crate) fn parts(self) -> u32 {
        self.head_values / ENTRY_VALUES
    }

    /// Returns the entries of all layers.
    pub fn entries(self) -> u64 {
        [self.layers, self.pages, self.heads, self.page_tokens, 2 * self.parts()]
            .into_iter()
            .map(u64::from)
            .product()
    }

    /// Returns the number of windows: one for each layer, head, and keys or values.
    pub(crate) fn windows(self) -> u64 {
        u64::from(self.layers) * u64::from(self.heads) * 2
    }

    /// Returns the offsets of windows and faults in the metadata, and its size.
    pub(crate) fn metadata(self) -> [u64; 3] {
        let windows = (self.entries() / 2).next_multiple_of(ALIGN);
        let fault = windows + self.windows().next_multiple_of(ALIGN);
        [windows, fault, fault + ALIGN]
    }

    /// Returns the memory that a cache of this shape needs.
    pub fn bytes(self) -> KvBytes {
        let target = Target::X4Over3;
        KvBytes {
            entries: self.entries() * target.device_bytes() as u64,
            overflow: self.entries() * target.buddy_bytes() as u64,
            metadata: self.metadata()[2],
        }
    }
}

impl KvMemory<'_> {
    /// Fails unless each span has the bytes that the shape needs.
    pub(crate) fn check(self, shape: KvShape) -> Result<Self, Error> {
        let KvBytes { entries, overflow, metadata } = shape.bytes();
        let parts = [
            (self.entries, entries, "96 bytes for each entry, aligned to 128"),
            (self.overflow, overflow, "32 bytes for each entry, aligned to 128"),
            (self.metadata, metadata, "the bytes that the shape says for metadata, aligned to 128"),
        ];
        for (span, bytes, need) in parts {
            fits(span, bytes, ALIGN, need)?;
        }
        Ok(self)
    }
}

/// Fails unless a span has `bytes` bytes and is aligned.
pub(crate) fn fits(span: DeviceSpan<'_>, bytes: u64, align: u64, need: &'static str) -> Result<(), Error> {
    if span.bytes() < bytes {
        return Err(Error::Shape { bytes: span.bytes(), address: span.address(), need });
    }
    span.check(1, align, need).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: KvShape = KvShape { layers: 32, pages: 100, heads: 8, head_values: 128, page_tokens: 64 };

    /// Three quarters of the plain bytes are on the device, and half a byte of metadata per 128.
    #[test]
    fn a_kv_cache_takes_three_quarters_of_the_plain_bytes() {
        let plain = 32 * 100 * 64 * 8 * 128 * 2 * 2;
        let bytes = SHAPE.check().unwrap().bytes();
        assert_eq!(bytes.entries, plain / 4 * 3);
        assert_eq!(bytes.overflow, plain / 4);
        assert_eq!(bytes.metadata, plain / 256 + 32 * 8 * 2 + 128);
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        let wrong = |shape: KvShape| shape.check().unwrap_err().to_string();
        assert!(wrong(KvShape { heads: 0, ..SHAPE }).contains("layers, pages and heads"));
        assert!(wrong(KvShape { head_values: 96, ..SHAPE }).contains("heads of 96 values"));
        assert!(wrong(KvShape { page_tokens: 48, ..SHAPE }).contains("pages of 48 tokens"));
        assert!(wrong(KvShape { page_tokens: 8, ..SHAPE }).contains("pages of 8 tokens"));
        assert!(wrong(KvShape { pages: 1 << 31, ..SHAPE }).contains("2^32 - 1"));
    }

    #[test]
    fn memory_that_is_too_small_is_refused() {
        let KvBytes { entries, overflow, metadata } = SHAPE.bytes();
        // SAFETY: no work is started on the memory.
        let span = |address, bytes| unsafe { DeviceSpan::from_raw(address, bytes) };
        let memory = |less| KvMemory {
            entries: span(0, entries - less),
            overflow: span(0, overflow),
            metadata: span(128, metadata),
        };
        assert!(memory(0).check(SHAPE).is_ok());
        assert!(memory(1).check(SHAPE).unwrap_err().to_string().contains("96 bytes for each entry"));
        let skewed = KvMemory { overflow: span(64, overflow), ..memory(0) };
        assert!(skewed.check(SHAPE).is_err());
    }
}
