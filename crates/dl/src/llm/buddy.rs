//! Weights in a Buddy memory in hardware: the paper's design below plain kernels.

use buddy_core::Target;
use buddy_record::spec::Link;
use serde::{Deserialize, Serialize};

/// Metadata over plain bytes: half a byte for an entry.
const METADATA: f64 = 0.5 / 128.0;

/// A Buddy memory that holds the weights. The KV cache and activations lie in plain memory.
///
/// A share of the entries is incompressible and reads its rest over the link. The others read as many
/// bytes as their target leaves on the device. Latencies, the codec and misses of the metadata cache
/// take no time. No GPU has this memory, so nothing was compared with a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BuddyMemory {
    /// Plain bytes over the bytes on the device.
    pub ratio: f64,
    /// Share of the entries that overflow, 0 to 1.
    pub overflow: f64,
    /// Bandwidth of the link in each direction, in gigabytes a second.
    pub link_gb_per_s: f64,
}

impl BuddyMemory {
    /// Creates a memory with one target for all weights.
    pub fn new(target: Target, overflow: f64, link: &Link) -> Self {
        Self { ratio: target.ratio(), overflow, link_gb_per_s: link.gb_per_s }
    }

    /// Returns the bytes of device memory that hold or read this many plain bytes, with their metadata.
    pub(super) fn device_bytes(&self, plain: f64) -> f64 {
        plain * (self.ratio.recip() + METADATA)
    }

    /// Returns the bytes that cross the link when this many plain bytes are read.
    pub(super) fn link_bytes(&self, plain: f64) -> f64 {
        plain * self.overflow * (1.0 - self.ratio.recip())
    }

    /// Returns the microseconds of bytes over the link.
    pub(super) fn link_us(&self, bytes: f64) -> f64 {
        bytes / (1e3 * self.link_gb_per_s)
    }
}
