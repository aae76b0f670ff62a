//! The full-duplex link to buddy or host memory: a latency, and a bandwidth in each direction.

use crate::{
    bandwidth::{BandwidthServer, TICKS},
    spec::{Gpu, Link as Spec},
};

#[derive(Debug)]
pub(crate) struct Link {
    to_device: BandwidthServer,
    to_host: BandwidthServer,
    latency: u64,
    /// Ticks per 32 bytes, times 2^16: a fast link moves a sector in a fraction of a tick.
    sector_ticks: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Ticks that reads waited for the link beyond latency and transfer.
    pub(crate) wait_ticks: u64,
}

impl Link {
    pub(crate) fn new(gpu: &Gpu, spec: &Spec) -> Self {
        let cycles_per_ns = gpu.core.clock_mhz / 1000.0;
        let ticks_per_byte = cycles_per_ns / spec.gb_per_s * TICKS as f64;
        Self {
            to_device: BandwidthServer::new(),
            to_host: BandwidthServer::new(),
            latency: (spec.latency_ns * cycles_per_ns * TICKS as f64).round() as u64,
            sector_ticks: (ticks_per_byte * 32.0 * 65536.0).round() as u64,
            read_bytes: 0,
            written_bytes: 0,
            wait_ticks: 0,
        }
    }

    #[inline]
    fn transfer_ticks(&self, bytes: u64) -> u64 {
        ((bytes * self.sector_ticks) >> 21).max(1)
    }

    /// Copies bytes to the device between two kernels; returns the ticks taken. The link is idle,
    /// so the time is latency plus transfer.
    pub(crate) fn copy(&mut self, bytes: u64) -> u64 {
        self.read_bytes += bytes;
        let cost = (u128::from(bytes) * u128::from(self.sector_ticks)) >> 21;
        self.latency + u64::try_from(cost).unwrap_or(u64::MAX >> 1).max(1)
    }

    /// Reads bytes; returns the arrival tick of the last.
    #[inline]
    pub(crate) fn read(&mut self, floor: u64, at: u64, bytes: u64) -> u64 {
        self.read_bytes += bytes;
        let cost = self.transfer_ticks(bytes);
        let done = self.to_device.send(floor, at + self.latency, cost);
        self.wait_ticks += done - at - self.latency - cost;
        done
    }

    /// Writes bytes; returns the tick at which the last has left.
    #[inline]
    pub(crate) fn write(&mut self, floor: u64, at: u64, bytes: u64) -> u64 {
        self.written_bytes += bytes;
        let cost = self.transfer_ticks(bytes);
        self.to_host.send(floor, at, cost)
    }
}
