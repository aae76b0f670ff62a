//! The shape of a KV cache, and its memory.

use buddy_core::{ENTRY_BYTES, Target};

use crate::{DeviceSpan, Error};

/// Values of an entry: half a head of 128, or one of 64.
pub(super) const ENTRY_VALUES: u32 = ENTRY_BYTES as u32 / 2;
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
    /// Device memory: four bits for each entry, the windows, the shifts, and the fault.
    pub metadata: u64,
    /// The four bits for each entry alone, if the windows have memory of their own.
    pub nibbles: u64,
    /// Device memory: the windows, the shifts and the fault.
    pub windows: u64,
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

    /// Returns the number of an entry of a token of a page: part `part` of a head's key (`which` 0)
    /// or value (1), as `entry` in `kv.cuh`.
    pub fn entry(self, layer: u32, page: u32, head: u32, token: u32, which: u32, part: u32) -> u64 {
        let [layer, page, head, token, which, part] = [layer, page, head, token, which, part].map(u64::from);
        let [pages, heads, page_tokens] = [self.pages, self.heads, self.page_tokens].map(u64::from);
        let (sixteen, parts) = (u64::from(SIXTEEN), u64::from(self.parts()));
        let tile = ((layer * pages + page) * heads + head) * (page_tokens / sixteen) + token / sixteen;
        (tile * 2 * parts + which * parts + part) * sixteen + token % sixteen
    }

    /// Returns the number of windows: one for each layer, head, and keys or values.
    pub(crate) fn windows(self) -> u64 {
        u64::from(self.layers) * u64::from(self.heads) * 2
    }

    /// Returns the offsets of windows and faults in the metadata, and its size.
    pub(crate) fn metadata(self) -> [u64; 3] {
        let windows = (self.entries() / 2).next_multiple_of(ALIGN);
        let fault =
            windows + self.shifts() + (self.windows() * u64::from(self.head_values)).next_multiple_of(ALIGN);
        [windows, fault, fault + ALIGN]
    }

    /// Returns the offset of the shifts behind the windows: a byte for each value of each window's
    /// heads.
    pub(crate) fn shifts(self) -> u64 {
        self.windows().next_multiple_of(ALIGN)
    }

    /// Returns the memory that a cache of this shape needs.
    pub fn bytes(self) -> KvBytes {
        let target = Target::X4Over3;
        let [windows, _, end] = self.metadata();
        KvBytes {
            entries: self.entries() * target.device_bytes() as u64,
            overflow: self.entries() * target.buddy_bytes() as u64,
            metadata: end,
            nibbles: self.entries() / 2,
            windows: end - windows,
        }
    }
}

impl KvMemory<'_> {
    /// Fails unless each span has the bytes that the shape needs. `windows` replaces the end of the
    /// metadata.
    pub(crate) fn check(self, shape: KvShape, windows: Option<DeviceSpan<'_>>) -> Result<Self, Error> {
        let bytes = shape.bytes();
        let metadata = match windows {
            None => (bytes.metadata, "the bytes that the shape says for metadata, aligned to 128"),
            Some(_) => (bytes.nibbles, "half a byte for each entry, aligned to 128"),
        };
        let parts = [
            (self.entries, bytes.entries, "96 bytes for each entry, aligned to 128"),
            (self.overflow, bytes.overflow, "32 bytes for each entry, aligned to 128"),
            (self.metadata, metadata.0, metadata.1),
        ];
        for (span, bytes, need) in parts {
            fits(span, bytes, ALIGN, need)?;
        }
        if let Some(windows) = windows {
            fits(windows, bytes.windows, ALIGN, "the bytes that the shape says for windows, aligned to 128")?;
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
        assert_eq!(bytes.metadata, plain / 256 + 32 * 8 * 2 * (1 + 128) + 128);
        assert_eq!(bytes.nibbles + bytes.windows, bytes.metadata);
    }

    /// Without windows, a token of a head of 128 values takes 386 bytes, and one of 64 takes 193, for
    /// any number of pages.
    #[test]
    fn entries_and_nibbles_fill_a_page_exactly() {
        for (head_values, token_bytes) in [(128, 386), (64, 193)] {
            let shape = KvShape { layers: 1, pages: 7, heads: 3, head_values, page_tokens: 16 };
            let bytes = shape.bytes();
            assert_eq!(bytes.entries + bytes.nibbles, 7 * 16 * 3 * token_bytes);
        }
    }

    /// Token 18 of page 5 is the third of the page's second mma tile of 64 entries.
    #[test]
    fn entries_have_the_numbers_of_the_kernels() {
        assert_eq!(SHAPE.entry(1, 5, 3, 18, 1, 1), ((((100 + 5) * 8 + 3) * 4 + 1) * 4 + 3) * 16 + 2);
        let shape = KvShape { layers: 2, pages: 3, heads: 2, head_values: 64, page_tokens: 32 };
        let mut found: Vec<u64> = Vec::new();
        for layer in 0..2 {
            for page in 0..3 {
                for token in 0..32 {
                    let heads = [(0, 0), (0, 1), (1, 0), (1, 1)];
                    found.extend(heads.map(|(head, which)| shape.entry(layer, page, head, token, which, 0)));
                }
            }
        }
        found.sort_unstable();
        assert_eq!(found, (0..shape.entries()).collect::<Vec<_>>());
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
        let KvBytes { entries, overflow, metadata, nibbles, windows } = SHAPE.bytes();
        // SAFETY: no work is started on the memory.
        let span = |address, bytes| unsafe { DeviceSpan::from_raw(address, bytes) };
        let memory = |less| KvMemory {
            entries: span(0, entries - less),
            overflow: span(0, overflow),
            metadata: span(128, metadata),
        };
        assert!(memory(0).check(SHAPE, None).is_ok());
        assert!(memory(1).check(SHAPE, None).unwrap_err().to_string().contains("96 bytes for each entry"));
        let skewed = KvMemory { overflow: span(64, overflow), ..memory(0) };
        assert!(skewed.check(SHAPE, None).is_err());
        let short = KvMemory { metadata: span(128, nibbles), ..memory(0) };
        assert!(short.check(SHAPE, None).is_err());
        assert!(short.check(SHAPE, Some(span(256, windows))).is_ok());
        assert!(short.check(SHAPE, Some(span(256, windows - 1))).is_err());
    }
}
