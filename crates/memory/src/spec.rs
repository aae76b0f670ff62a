//! Configuration of a memory.

use buddy_core::{ENTRY_BYTES, PAGE_BYTES, Target};
use serde::{Deserialize, Serialize};

use crate::{CacheSpec, Error, PageEntry};

/// Sizes and options of a memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Device memory for data, a multiple of the page size. Metadata is additional.
    pub device_bytes: u64,
    /// Buddy memory; must hold the carve-out.
    pub buddy_bytes: u64,
    /// Largest target, at most 4x; determines the carve-out. 16x is also admitted while the
    /// carve-out has space.
    pub largest_target: Target,
    /// Page size: a power of two, at least 8 KiB. The page table's 20-bit offsets cover 2^18 pages.
    pub page_bytes: u64,
    /// The global buddy base address: start of the carve-out.
    pub gbbr: u64,
    /// `false` stores everything uncompressed: no carve-out, metadata or codec.
    pub compression: bool,
    /// Geometry of the metadata cache.
    pub metadata_cache: CacheSpec,
}

impl Spec {
    /// Returns the paper's final design: targets up to 4x, a carve-out of three times the device
    /// memory, and the smallest pages whose offsets cover it.
    pub fn new(device_bytes: u64) -> Self {
        let mut spec = Self {
            device_bytes,
            buddy_bytes: 0,
            largest_target: Target::X4,
            page_bytes: PAGE_BYTES as u64,
            gbbr: 1 << 40,
            compression: true,
            metadata_cache: CacheSpec::paper_text(),
        };
        while spec.carve_out_bytes() > spec.reach() {
            spec.page_bytes *= 2;
        }
        spec.buddy_bytes = spec.carve_out_bytes();
        spec
    }

    /// Returns the same memory with compression disabled.
    pub fn uncompressed(device_bytes: u64) -> Self {
        Self { compression: false, buddy_bytes: 0, ..Self::new(device_bytes) }
    }

    /// Returns the bytes of the carve-out: the need of a full device memory at the largest target.
    pub fn carve_out_bytes(&self) -> u64 {
        if !self.compression {
            return 0;
        }
        let target = self.largest_target;
        let bytes = u128::from(self.device_bytes) * target.buddy_bytes() as u128;
        let bytes = bytes.div_ceil(target.device_bytes() as u128).next_multiple_of(self.page_bytes.into());
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns the data bytes that fit at the largest target.
    pub fn capacity_bytes(&self) -> u64 {
        self.device_bytes.saturating_add(self.carve_out_bytes())
    }

    /// Returns the entries per page.
    pub fn page_entries(&self) -> u64 {
        self.page_bytes / ENTRY_BYTES as u64
    }

    /// Returns the carve-out bytes that page-table offsets can address.
    fn reach(&self) -> u64 {
        (self.page_bytes / 4).saturating_mul(PageEntry::BUDDY_LIMIT)
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Spec`] that names the first invalid field.
    pub fn validate(&self) -> Result<(), Error> {
        let page = self.page_bytes;
        let fail = |field, what| Err(Error::Spec { field, what });
        if !page.is_power_of_two() || page < PAGE_BYTES as u64 || page > 1 << 30 {
            return fail("page_bytes", format!("{page} is not a power of two from {PAGE_BYTES} to 1 GiB"));
        }
        let carve_out = self.carve_out_bytes();
        if self.device_bytes == 0 || !self.device_bytes.is_multiple_of(page) || self.device_bytes > 1 << 48 {
            let device = self.device_bytes;
            return fail(
                "device_bytes",
                format!("{device} is not 1 or more pages of {page} bytes, to 256 TiB"),
            );
        }
        if self.largest_target > Target::X4 {
            return fail("largest_target", format!("{} is above 4x", self.largest_target));
        }
        if carve_out > self.reach() {
            let reach = self.reach();
            return fail(
                "page_bytes",
                format!("pages of {page} reach {reach} of {carve_out} carve-out bytes"),
            );
        }
        if carve_out > self.buddy_bytes {
            let buddy = self.buddy_bytes;
            return fail("buddy_bytes", format!("{buddy} do not hold a carve-out of {carve_out} bytes"));
        }
        if !self.gbbr.is_multiple_of(page) || self.gbbr.checked_add(carve_out).is_none() {
            return fail(
                "gbbr",
                format!("{:#x} is not page-aligned, or the carve-out ends past 2^64", self.gbbr),
            );
        }
        self.metadata_cache.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_carve_out_follows_the_largest_target() {
        let carve_out =
            |largest_target| Spec { largest_target, ..Spec::new(12 << 20) }.carve_out_bytes() >> 20;
        let targets = [Target::X1, Target::X4Over3, Target::X2, Target::X4];
        assert_eq!(targets.map(carve_out), [0, 4, 12, 36]);
        assert_eq!(Spec::uncompressed(12 << 20).carve_out_bytes(), 0);
    }

    #[test]
    fn pages_grow_until_their_offsets_cover_the_carve_out() {
        // 2^20 offsets of 2 KiB are 2 GiB; a third of that on the device exhausts 8 KiB pages.
        let most = (2u64 << 30) / 3 / 8192 * 8192;
        assert_eq!(Spec::new(most).page_bytes, 8 << 10);
        assert_eq!(Spec::new(most + 8192).page_bytes, 16 << 10);
        assert_eq!(Spec::new(12 << 30).page_bytes, 256 << 10);
        assert_eq!(Spec::new(most).validate(), Ok(()));
        let small = Spec { page_bytes: 8 << 10, ..Spec::new(most + 8192) };
        assert!(small.validate().unwrap_err().to_string().starts_with("page_bytes: pages of 8192 reach"));
    }

    #[test]
    fn each_invalid_field_is_named() {
        let good = Spec::new(1 << 20);
        let field = |spec: Spec| match spec.validate() {
            Err(Error::Spec { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(good.validate(), Ok(()));
        assert_eq!(field(Spec { device_bytes: 0, ..good.clone() }), "device_bytes");
        assert_eq!(field(Spec { device_bytes: 8193, ..good.clone() }), "device_bytes");
        assert_eq!(field(Spec { device_bytes: !8191, ..good.clone() }), "device_bytes");
        assert_eq!(field(Spec { page_bytes: 4096, ..good.clone() }), "page_bytes");
        assert_eq!(field(Spec { page_bytes: 0, ..good.clone() }), "page_bytes");
        assert_eq!(field(Spec { largest_target: Target::X16, ..good.clone() }), "largest_target");
        assert_eq!(field(Spec { buddy_bytes: 1 << 20, ..good.clone() }), "buddy_bytes");
        assert_eq!(field(Spec { gbbr: !8191, ..good.clone() }), "gbbr");
        let cache = CacheSpec { ways: 0, ..good.metadata_cache };
        assert_eq!(field(Spec { metadata_cache: cache, ..good }), "metadata_cache.ways");
    }
}
