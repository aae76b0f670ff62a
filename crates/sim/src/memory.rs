//! What lies behind L2, in each mode: device memory, the metadata cache, the link.

use buddy_core::SizeClass;
use serde::{Deserialize, Serialize};

use crate::{
    Config,
    cache::{Cache, hash_set, hash_slice},
    dram::Dram,
    link::Link,
    map::{ClassMap, Found, Home},
    pipe::TICKS,
    request::count,
    um::Um,
};

/// What lies behind L2, and what a miss of it costs (`docs/explain/model-gpu.md`, "Modes").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Device memory without limit, uncompressed.
    Ideal,
    /// Compressed between L2 and device memory only: fewer sectors, no metadata, no buddy memory.
    Bandwidth,
    /// Buddy Compression: a target for each allocation, metadata cached at each slice, overflow over the link.
    Buddy,
    /// Everything in host memory, read over the link.
    Pinned,
    /// Unified Memory: pages migrate on faults.
    Um,
}

impl Mode {
    /// Every mode, in the order of the command line's help.
    pub const ALL: [Self; 5] = [Self::Ideal, Self::Bandwidth, Self::Buddy, Self::Pinned, Self::Um];

    /// Its name on the command line and in records.
    pub fn name(self) -> &'static str {
        ["ideal", "bandwidth", "buddy", "pinned", "um"][self as usize]
    }
}

/// A fill of L2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    /// The tick at which the last sector is there.
    pub(crate) ready: u64,
    /// The sectors that arrive: at least those asked for.
    pub(crate) sectors: u8,
}

/// What the compressed modes did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) metadata_hits: u64,
    pub(crate) metadata_misses: u64,
    /// Fills and write-backs of L2 lines.
    pub(crate) accesses: u64,
    /// Of those, the ones that needed buddy memory.
    pub(crate) buddy_accesses: u64,
    /// Entries read back before a partial write.
    pub(crate) rewrites: u64,
    /// Sectors that L2 asked for.
    pub(crate) asked_sectors: u64,
    /// Sectors that arrived at L2.
    pub(crate) filled_sectors: u64,
}

const WHOLE: u8 = 0b1111;
/// Where metadata lies among the lines of device memory: far from everything else.
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
    /// Ticks to compress or decompress.
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

    /// Brings sectors of a line to L2, asked for at tick `at`. Nothing may be asked before `floor` any more.
    #[inline]
    pub(crate) fn fetch(&mut self, floor: u64, at: u64, line: u64, need: u8) -> Fill {
        self.counts.accesses += 1;
        self.counts.asked_sectors += count(need);
        let found = if self.mode == Mode::Ideal && self.map_is_plain() { None } else { self.map.find(line) };
        let fill = match (self.mode, found) {
            (_, Some(Found { home: Home::Host, .. })) | (Mode::Pinned, _) => self.fetch_host(floor, at, need),
            (Mode::Bandwidth, Some(found)) => self.fetch_compressed(floor, at, line, need, &found),
            (Mode::Buddy, Some(found)) if found.home != Home::Device => {
                self.fetch_buddy(floor, at, need, &found)
            }
            (Mode::Um, _) => {
                let at = self.um.touch(floor, at, line, false, &mut self.link);
                self.fetch_plain(floor, at, line, need)
            }
            _ => self.fetch_plain(floor, at, line, need),
        };
        self.counts.filled_sectors += count(fill.sectors);
        fill
    }

    /// Whether no address needs to be looked up in ideal mode.
    #[inline]
    fn map_is_plain(&self) -> bool {
        self.map.ranges().next().is_none()
    }

    fn fetch_plain(&mut self, floor: u64, at: u64, line: u64, need: u8) -> Fill {
        Fill { ready: self.dram.read(floor, at, line, count(need) as u32), sectors: need }
    }

    fn fetch_host(&mut self, floor: u64, at: u64, need: u8) -> Fill {
        Fill { ready: self.link.read(floor, at, u64::from(need.count_ones()) * 32), sectors: need }
    }

    /// Bandwidth compression: a compressed line comes whole, in the sectors it needs and at least one.
    fn fetch_compressed(&mut self, floor: u64, at: u64, line: u64, need: u8, found: &Found) -> Fill {
        if found.class == SizeClass::Raw {
            return self.fetch_plain(floor, at, line, need);
        }
        let sectors = found.class.sectors().max(1) as u32;
        Fill { ready: self.dram.read(floor, at, line, sectors) + self.codec, sectors: WHOLE }
    }

    /// Buddy Compression: the metadata says how many sectors lie where.
    fn fetch_buddy(&mut self, floor: u64, at: u64, need: u8, found: &Found) -> Fill {
        let (known, hit) = self.look_up_metadata(floor, at, found);
        let parts = Parts::new(found, need);
        let mut ready = known;
        // Until the metadata is there, all of the entry's device sectors are fetched.
        let device = if hit { parts.device } else { parts.device_room };
        if device > 0 {
            ready = ready.max(self.dram.read(floor, at, parts.device_line, device));
        }
        if parts.buddy > 0 {
            self.counts.buddy_accesses += 1;
            ready = ready.max(self.link.read(floor, known, u64::from(parts.buddy) * 32));
        }
        let codec = if parts.compressed && found.class != SizeClass::Zero { self.codec } else { 0 };
        Fill { ready: ready + codec, sectors: if parts.compressed { WHOLE } else { need } }
    }

    /// The tick at which the metadata of an entry is known, and whether its cache had it.
    fn look_up_metadata(&mut self, floor: u64, at: u64, found: &Found) -> (u64, bool) {
        let byte = (found.extent.nibble_base + found.entry) / 2;
        let number = byte / self.metadata_line;
        let line = METADATA_LINE + byte / 128;
        // The slice of a piece of metadata follows from its own address, as for any other line.
        let set = hash_slice(line, self.slices) * self.metadata_sets + hash_set(number, self.metadata_sets);
        if let Some(place) = self.metadata.find(set as usize, number) {
            self.counts.metadata_hits += 1;
            return (at.max(self.metadata.line(place).ready), true);
        }
        self.counts.metadata_misses += 1;
        let ready = self.dram.read(floor, at, line, (self.metadata_line / 32) as u32);
        if let Some((place, _)) = self.metadata.insert(set as usize, number, u64::MAX) {
            self.metadata.line(place).ready = ready;
        }
        (ready, false)
    }

    /// Writes the dirty sectors of a line that L2 gives up; gives the tick at which the write has its place.
    pub(crate) fn write_back(&mut self, floor: u64, at: u64, line: u64, dirty: u8, valid: u8) -> u64 {
        self.counts.accesses += 1;
        let sectors = dirty.count_ones();
        let found = self.map.find(line);
        match (self.mode, found) {
            (_, Some(Found { home: Home::Host, .. })) | (Mode::Pinned, _) => {
                self.link.write(floor, at, u64::from(sectors) * 32)
            }
            (Mode::Bandwidth, Some(found)) if found.class != SizeClass::Raw => {
                let sectors = found.class.sectors().max(1) as u32;
                let at = if valid == WHOLE { at } else { self.rewrite(floor, at, line, sectors) };
                self.dram.write(floor, at + self.codec, line, sectors)
            }
            (Mode::Buddy, Some(found)) if found.home != Home::Device => {
                self.write_buddy(floor, at, dirty, valid, &found)
            }
            (Mode::Um, _) => {
                let at = self.um.touch(floor, at, line, true, &mut self.link);
                self.dram.write(floor, at, line, sectors)
            }
            _ => self.dram.write(floor, at, line, sectors),
        }
    }

    /// Reads an entry that is about to be written in part; gives the tick at which it is there.
    fn rewrite(&mut self, floor: u64, at: u64, line: u64, sectors: u32) -> u64 {
        self.counts.rewrites += 1;
        self.dram.read(floor, at, line, sectors) + self.codec
    }

    fn write_buddy(&mut self, floor: u64, at: u64, dirty: u8, valid: u8, found: &Found) -> u64 {
        let (mut at, _) = self.look_up_metadata(floor, at, found);
        let parts = Parts::new(found, dirty);
        if parts.compressed && valid != WHOLE && found.class != SizeClass::Zero {
            if parts.device > 0 {
                at = at.max(self.rewrite(floor, at, parts.device_line, parts.device));
            }
            if parts.buddy > 0 {
                at = at.max(self.link.read(floor, at, u64::from(parts.buddy) * 32) + self.codec);
            }
        }
        at += if parts.compressed { self.codec } else { 0 };
        let mut done = at;
        if parts.device > 0 {
            done = self.dram.write(floor, at, parts.device_line, parts.device);
        }
        if parts.buddy > 0 {
            self.counts.buddy_accesses += 1;
            done = done.max(self.link.write(floor, at, u64::from(parts.buddy) * 32));
        }
        done
    }
}

/// How an access to an entry is divided between device and buddy memory.
struct Parts {
    compressed: bool,
    /// Sectors to move on each side.
    device: u32,
    buddy: u32,
    /// Sectors that the entry's device part could hold.
    device_room: u32,
    device_line: u64,
}

impl Parts {
    /// A compressed entry moves as a whole; of a raw one only the sectors asked for, each where it lies.
    #[inline]
    fn new(found: &Found, need: u8) -> Self {
        let target = found.extent.target;
        let start = found.extent.device_base + found.entry * target.device_bytes() as u64;
        let room = (target.device_bytes() / 32) as u32;
        let compressed = found.class != SizeClass::Raw;
        let (device, buddy) = if compressed {
            let (device, buddy) = target.split(found.class);
            (device.div_ceil(32) as u32, buddy.div_ceil(32) as u32)
        } else {
            let here = need & ((1u8 << room) - 1);
            (here.count_ones(), (need & !here).count_ones())
        };
        Self { compressed, device, buddy, device_room: room.max(1), device_line: start / 128 }
    }
}
