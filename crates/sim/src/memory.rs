//! Memory behind L2 in each mode: device memory, the metadata cache and the link.

use buddy_core::SizeClass;
use serde::{Deserialize, Serialize};

use crate::{
    Config,
    bandwidth::TICKS,
    cache::{Cache, hash_set, hash_slice},
    dram::Dram,
    link::Link,
    map::{ClassMap, Home, MappedEntry},
    request::count,
    um::Um,
};

/// Memory system behind L2 (`docs/explain/model-gpu.md`, "Modes").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Unlimited, uncompressed device memory.
    Ideal,
    /// Bandwidth compression between L2 and device memory: fewer sectors, no metadata, no buddy
    /// memory.
    Bandwidth,
    /// The compressible memory of an H200: an entry that halves is read and written in two sectors. Fitted
    /// to micro kernels, not validated on programs.
    Compressible,
    /// Buddy Compression: a target per allocation, metadata cached at each slice, overflow over the
    /// link.
    Buddy,
    /// All data in host memory, accessed over the link.
    Pinned,
    /// Unified Memory: pages migrate on faults.
    Um,
}

impl Mode {
    /// Every mode, in the order of the command line's help.
    pub const ALL: [Self; 6] =
        [Self::Ideal, Self::Bandwidth, Self::Compressible, Self::Buddy, Self::Pinned, Self::Um];

    /// Returns the name used on the command line and in records.
    pub fn name(self) -> &'static str {
        ["ideal", "bandwidth", "compressible", "buddy", "pinned", "um"][self as usize]
    }

    /// Returns whether the size classes of entries matter.
    pub fn compresses(self) -> bool {
        matches!(self, Self::Bandwidth | Self::Compressible | Self::Buddy)
    }
}

/// A fill of L2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    /// Arrival tick of the last sector.
    pub(crate) ready: u64,
    /// Sectors filled: at least the requested ones.
    pub(crate) sectors: u8,
}

/// Counters of fills, write-backs and compression.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) metadata_hits: u64,
    pub(crate) metadata_misses: u64,
    /// Fills and write-backs of L2 lines.
    pub(crate) accesses: u64,
    /// Accesses that needed buddy memory.
    pub(crate) buddy_accesses: u64,
    /// Read-modify-writes: entries read before a partial write.
    pub(crate) read_modify_writes: u64,
    /// Sectors requested by L2.
    pub(crate) asked_sectors: u64,
    /// Sectors filled into L2.
    pub(crate) filled_sectors: u64,
}

const ALL_SECTORS: u8 = 0b1111;
/// Sectors of an entry that the compressible memory of an H200 holds in less than four. Zeros and noise
/// by turns, in blocks of an entry or more, are read 1.33 times as fast as noise: one over the mean of 2
/// and 4 sectors in 4 (`docs/records/gpu-compressible-h200-2026-11-19.json`).
const HALVED: u32 = 2;
/// Line address of metadata in device memory, apart from all data.
const METADATA_LINE: u64 = 1 << 52;

#[derive(Debug)]
pub(crate) struct Memory {
    mode: Mode,
    pub(crate) dram: Dram,
    pub(crate) link: Link,
    pub(crate) um: Um,
    pub(crate) map: ClassMap,
    metadata: Cache,
    metadata_line: u64,
    metadata_sets: u32,
    slices: u32,
    /// Codec latency in ticks, to compress or decompress.
    codec: u64,
    pub(crate) counts: Counts,
}

impl Memory {
    pub(crate) fn new(config: &Config) -> Self {
        let gpu = &config.gpu;
        let buddy = &gpu.buddy;
        let sets = buddy.metadata_bytes / buddy.metadata_line_bytes / buddy.metadata_ways;
        let codec = f64::from(buddy.codec_clocks) * gpu.core.clock_mhz / gpu.dram.clock_mhz * TICKS as f64;
        Self {
            mode: config.mode,
            dram: Dram::new(gpu),
            link: Link::new(gpu, &config.link),
            um: Um::new(config),
            map: config.map.clone(),
            metadata: Cache::new((sets * gpu.l2.slices) as usize, buddy.metadata_ways as usize),
            metadata_line: u64::from(buddy.metadata_line_bytes),
            metadata_sets: sets,
            slices: gpu.l2.slices,
            codec: codec.round() as u64,
            counts: Counts::default(),
        }
    }

    /// Fetches sectors of a line, requested at tick `at`. No later request may precede `floor`.
    #[inline]
    pub(crate) fn fetch(&mut self, floor: u64, at: u64, line: u64, need: u8) -> Fill {
        self.counts.accesses += 1;
        self.counts.asked_sectors += count(need);
        let mapped = if self.mode == Mode::Ideal && self.map_is_empty() { None } else { self.map.find(line) };
        let fill = match (self.mode, mapped) {
            (_, Some(MappedEntry { home: Home::Host, .. })) | (Mode::Pinned, _) => {
                self.fetch_host(floor, at, need)
            }
            (Mode::Bandwidth, Some(mapped)) => self.fetch_compressed(floor, at, line, need, &mapped),
            (Mode::Compressible, Some(mapped)) if halves(&mapped) => {
                Fill { ready: self.dram.read(floor, at, line, HALVED), sectors: ALL_SECTORS }
            }
            (Mode::Buddy, Some(mapped)) if mapped.home != Home::Device => {
                self.fetch_buddy(floor, at, need, &mapped)
            }
            (Mode::Um, _) => {
                let at = self.um.access(floor, at, line, false, &mut self.link);
                self.fetch_plain(floor, at, line, need)
            }
            _ => self.fetch_plain(floor, at, line, need),
        };
        self.counts.filled_sectors += count(fill.sectors);
        fill
    }

    /// Returns the sectors that L2 reads for requested ones. Compressible memory is compressed in L2, too
    /// ("NVIDIA A100 Tensor Core GPU Architecture", compute data compression).
    #[inline]
    pub(crate) fn read_in_l2(&mut self, line: u64, sectors: u64) -> u64 {
        let compressed = self.mode == Mode::Compressible && self.map.find(line).as_ref().is_some_and(halves);
        if compressed { sectors.div_ceil(2) } else { sectors }
    }

    /// Returns whether the map is empty, so that ideal mode needs no lookup.
    #[inline]
    fn map_is_empty(&self) -> bool {
        self.map.ranges().next().is_none()
    }

    fn fetch_plain(&mut self, floor: u64, at: u64, line: u64, need: u8) -> Fill {
        Fill { ready: self.dram.read(floor, at, line, count(need) as u32), sectors: need }
    }

    fn fetch_host(&mut self, floor: u64, at: u64, need: u8) -> Fill {
        Fill { ready: self.link.read(floor, at, u64::from(need.count_ones()) * 32), sectors: need }
    }

    /// Bandwidth compression: fetches a compressed line whole, in its compressed number of sectors,
    /// at least one.
    fn fetch_compressed(&mut self, floor: u64, at: u64, line: u64, need: u8, mapped: &MappedEntry) -> Fill {
        if mapped.class == SizeClass::Raw {
            return self.fetch_plain(floor, at, line, need);
        }
        let sectors = mapped.class.sectors().max(1) as u32;
        Fill { ready: self.dram.read(floor, at, line, sectors) + self.codec, sectors: ALL_SECTORS }
    }

    /// Buddy Compression: fetches the device and buddy sectors that the metadata names.
    fn fetch_buddy(&mut self, floor: u64, at: u64, need: u8, mapped: &MappedEntry) -> Fill {
        let (metadata_ready, hit) = self.look_up_metadata(floor, at, mapped);
        let split = SectorSplit::new(mapped, need);
        let mut ready = metadata_ready;
        // On a metadata miss the stored size is unknown: fetch every device sector of the entry.
        let device = if hit { split.device } else { split.device_slot };
        if device > 0 {
            ready = ready.max(self.dram.read(floor, at, split.device_line, device));
        }
        if split.buddy > 0 {
            self.counts.buddy_accesses += 1;
            ready = ready.max(self.link.read(floor, metadata_ready, u64::from(split.buddy) * 32));
        }
        let codec = if split.compressed && mapped.class != SizeClass::Zero { self.codec } else { 0 };
        Fill { ready: ready + codec, sectors: if split.compressed { ALL_SECTORS } else { need } }
    }

    /// Returns the tick at which an entry's metadata is known, and whether the metadata cache hit.
    fn look_up_metadata(&mut self, floor: u64, at: u64, mapped: &MappedEntry) -> (u64, bool) {
        let byte = (mapped.extent.nibble_base + mapped.entry) / 2;
        let number = byte / self.metadata_line;
        let line = METADATA_LINE + byte / 128;
        // A metadata line's slice follows from its own address, as for any line.
        let set = hash_slice(line, self.slices) * self.metadata_sets + hash_set(number, self.metadata_sets);
        if let Some(index) = self.metadata.find(set as usize, number) {
            self.counts.metadata_hits += 1;
            return (at.max(self.metadata.line(index).ready), true);
        }
        self.counts.metadata_misses += 1;
        let ready = self.dram.read(floor, at, line, (self.metadata_line / 32) as u32);
        if let Some((index, _)) = self.metadata.insert(set as usize, number, u64::MAX) {
            self.metadata.line(index).ready = ready;
        }
        (ready, false)
    }

    /// Writes back the dirty sectors of an evicted line; returns the tick at which the write is
    /// accepted.
    pub(crate) fn write_back(&mut self, floor: u64, at: u64, line: u64, dirty: u8, valid: u8) -> u64 {
        self.counts.accesses += 1;
        let sectors = dirty.count_ones();
        let mapped = self.map.find(line);
        match (self.mode, mapped) {
            (_, Some(MappedEntry { home: Home::Host, .. })) | (Mode::Pinned, _) => {
                self.link.write(floor, at, u64::from(sectors) * 32)
            }
            (Mode::Bandwidth, Some(mapped)) if mapped.class != SizeClass::Raw => {
                let sectors = mapped.class.sectors().max(1) as u32;
                let at =
                    if valid == ALL_SECTORS { at } else { self.read_for_modify(floor, at, line, sectors) };
                self.dram.write(floor, at + self.codec, line, sectors)
            }
            (Mode::Compressible, Some(mapped)) if halves(&mapped) => {
                let mut at = at;
                if valid != ALL_SECTORS {
                    self.counts.read_modify_writes += 1;
                    at = self.dram.read(floor, at, line, HALVED);
                }
                self.dram.write(floor, at, line, HALVED)
            }
            (Mode::Buddy, Some(mapped)) if mapped.home != Home::Device => {
                self.write_buddy(floor, at, dirty, valid, &mapped)
            }
            (Mode::Um, _) => {
                let at = self.um.access(floor, at, line, true, &mut self.link);
                self.dram.write(floor, at, line, sectors)
            }
            _ => self.dram.write(floor, at, line, sectors),
        }
    }

    /// Reads an entry before a partial write; returns the tick at which it is decompressed.
    fn read_for_modify(&mut self, floor: u64, at: u64, line: u64, sectors: u32) -> u64 {
        self.counts.read_modify_writes += 1;
        self.dram.read(floor, at, line, sectors) + self.codec
    }

    fn write_buddy(&mut self, floor: u64, at: u64, dirty: u8, valid: u8, mapped: &MappedEntry) -> u64 {
        let (mut at, _) = self.look_up_metadata(floor, at, mapped);
        let split = SectorSplit::new(mapped, dirty);
        if split.compressed && valid != ALL_SECTORS && mapped.class != SizeClass::Zero {
            if split.device > 0 {
                at = at.max(self.read_for_modify(floor, at, split.device_line, split.device));
            }
            if split.buddy > 0 {
                at = at.max(self.link.read(floor, at, u64::from(split.buddy) * 32) + self.codec);
            }
        }
        at += if split.compressed { self.codec } else { 0 };
        let mut done = at;
        if split.device > 0 {
            done = self.dram.write(floor, at, split.device_line, split.device);
        }
        if split.buddy > 0 {
            self.counts.buddy_accesses += 1;
            done = done.max(self.link.write(floor, at, u64::from(split.buddy) * 32));
        }
        done
    }
}

/// Returns whether an entry takes at most half of its bytes.
fn halves(mapped: &MappedEntry) -> bool {
    mapped.class.sectors() <= HALVED as usize
}

/// Sectors of an access, split between device and buddy memory.
struct SectorSplit {
    compressed: bool,
    /// Sectors to transfer on each side.
    device: u32,
    buddy: u32,
    /// Sectors of the entry's device slot, at least 1.
    device_slot: u32,
    device_line: u64,
}

impl SectorSplit {
    /// A compressed entry transfers whole; a raw one only the requested sectors, each from where it
    /// is stored.
    #[inline]
    fn new(mapped: &MappedEntry, need: u8) -> Self {
        let target = mapped.extent.target;
        let start = mapped.extent.device_base + mapped.entry * target.device_bytes() as u64;
        let slot = (target.device_bytes() / 32) as u32;
        let compressed = mapped.class != SizeClass::Raw;
        let (device, buddy) = if compressed {
            let (device, buddy) = target.split(mapped.class);
            (device.div_ceil(32) as u32, buddy.div_ceil(32) as u32)
        } else {
            let on_device = need & ((1u8 << slot) - 1);
            (on_device.count_ones(), (need & !on_device).count_ones())
        };
        Self { compressed, device, buddy, device_slot: slot.max(1), device_line: start / 128 }
    }
}
