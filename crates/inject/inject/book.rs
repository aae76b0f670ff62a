//! The books of a program's device memory: which allocations live, by the calls that the program makes.
//!
//! Nothing here calls CUDA: the library feeds it [`Event`]s, and tests feed it sequences that were recorded.

use std::collections::{BTreeMap, HashMap};

/// How memory was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Plain,
    Async,
    Managed,
    Pitched,
    Mapped,
}

impl How {
    /// Every way with its name in logs and recorded sequences.
    pub(crate) const ALL: [(Self, &'static str); 5] = [
        (Self::Plain, "plain"),
        (Self::Async, "async"),
        (Self::Managed, "managed"),
        (Self::Pitched, "pitched"),
        (Self::Mapped, "mapped"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(how, _)| *how == self).map_or("plain", |(_, name)| name)
    }
}

/// One thing that the program did, as the driver saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Memory was allocated, or physical memory mapped to addresses.
    Allocated { address: u64, bytes: u64, how: How, context: u64, site: u32 },
    /// Memory is about to be freed.
    Freed { address: u64 },
    /// Mapped memory was made readable for the GPU, or closed to it.
    Access { address: u64, bytes: u64, allowed: bool },
    /// Addresses are about to lose their memory.
    Unmapped { address: u64, bytes: u64 },
    /// A context is about to end, and all memory of it.
    ContextEnds { context: u64 },
    /// A stream begins to be captured into a graph.
    CaptureBegins,
    /// A stream's capture has ended.
    CaptureEnds,
    /// All that lives was looked at.
    Looked,
}

impl Event {
    /// One line of a recorded sequence.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Allocated { address, bytes, how, context, site } => {
                format!("allocated {address:#x} {bytes} {} {context:#x} {site}", how.name())
            }
            Self::Freed { address } => format!("freed {address:#x}"),
            Self::Access { address, bytes, allowed } => {
                format!("access {address:#x} {bytes} {}", u8::from(*allowed))
            }
            Self::Unmapped { address, bytes } => format!("unmapped {address:#x} {bytes}"),
            Self::ContextEnds { context } => format!("context-ends {context:#x}"),
            Self::CaptureBegins => "capture-begins".to_owned(),
            Self::CaptureEnds => "capture-ends".to_owned(),
            Self::Looked => "looked".to_owned(),
        }
    }
}

/// What an allocation is across the run: memory of one length from one call site. When it is freed and allocated
/// again, as in a loop, it is the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) site: u32,
    /// 1 for the first of its site, 2 for the next that lives beside it or has another length.
    pub(crate) number: u32,
    pub(crate) bytes: u64,
    pub(crate) how: How,
}

/// An allocation that lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) slot: usize,
    pub(crate) bytes: u64,
    pub(crate) context: u64,
    /// Whether the GPU may read it now.
    pub(crate) readable: bool,
    /// Whether it was looked at since it was allocated.
    seen: bool,
}

/// What is counted for the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Allocations so far.
    pub(crate) allocations: u64,
    /// Those that were freed before anyone looked.
    pub(crate) short: u64,
    /// Bytes of these.
    pub(crate) short_bytes: u64,
    /// Bytes that live now.
    pub(crate) live_bytes: u64,
    /// The most that lived at a time.
    pub(crate) peak_bytes: u64,
}

/// The books.
#[derive(Debug, Default)]
pub(crate) struct Book {
    live: BTreeMap<u64, Live>,
    slots: Vec<Slot>,
    /// Slots whose memory was freed, by site and length.
    idle: HashMap<(u32, u64), Vec<usize>>,
    numbers: HashMap<u32, u32>,
    captures: u32,
    counts: Counts,
}

impl Book {
    /// Writes down what happened. Returns the slot of an allocation if it is a new one.
    pub(crate) fn apply(&mut self, event: &Event) -> Option<usize> {
        match *event {
            Event::Allocated { address, bytes, how, context, site } => {
                return self.allocate(address, bytes, how, context, site);
            }
            Event::Freed { address } => self.remove(address),
            Event::Access { address, bytes, allowed } => {
                let end = address.saturating_add(bytes);
                self.live.range_mut(address..end).for_each(|(_, live)| live.readable = allowed);
            }
            Event::Unmapped { address, bytes } => self.remove_within(address, bytes),
            Event::ContextEnds { context } => {
                let of = self.live.iter().filter(|(_, live)| live.context == context);
                let gone: Vec<u64> = of.map(|(address, _)| *address).collect();
                gone.into_iter().for_each(|address| self.remove(address));
            }
            Event::CaptureBegins => self.captures += 1,
            Event::CaptureEnds => self.captures = self.captures.saturating_sub(1),
            Event::Looked => {
                self.live.values_mut().filter(|live| live.readable).for_each(|live| live.seen = true);
            }
        }
        None
    }

    fn allocate(&mut self, address: u64, bytes: u64, how: How, context: u64, site: u32) -> Option<usize> {
        if address == 0 || bytes == 0 {
            return None;
        }
        // Whatever lay there was freed in a way that was not seen.
        self.remove_within(address, bytes);
        let known = self.idle.get_mut(&(site, bytes)).and_then(Vec::pop);
        let slot = known.unwrap_or(self.slots.len());
        if known.is_none() {
            let number = self.numbers.entry(site).or_default();
            *number += 1;
            self.slots.push(Slot { site, number: *number, bytes, how });
        }
        let live = Live { slot, bytes, context, readable: how != How::Mapped, seen: false };
        self.live.insert(address, live);
        self.counts.allocations += 1;
        self.counts.live_bytes += bytes;
        self.counts.peak_bytes = self.counts.peak_bytes.max(self.counts.live_bytes);
        known.is_none().then_some(slot)
    }

    fn remove(&mut self, address: u64) {
        let Some(live) = self.live.remove(&address) else { return };
        self.counts.live_bytes -= live.bytes;
        if !live.seen {
            self.counts.short += 1;
            self.counts.short_bytes += live.bytes;
        }
        if let Some(slot) = self.slots.get(live.slot) {
            self.idle.entry((slot.site, slot.bytes)).or_default().push(live.slot);
        }
    }

    fn remove_within(&mut self, address: u64, bytes: u64) {
        let before = self.live.range(..address).next_back();
        let reaches = before.filter(|(base, live)| **base + live.bytes > address).map(|(base, _)| *base);
        let within = self.live.range(address..address.saturating_add(bytes)).map(|(base, _)| *base);
        let gone: Vec<u64> = reaches.into_iter().chain(within).collect();
        gone.into_iter().for_each(|base| self.remove(base));
    }

    /// What lives and may be read, by address.
    pub(crate) fn readable(&self) -> impl Iterator<Item = (u64, &Live)> {
        self.live.iter().filter(|(_, live)| live.readable).map(|(address, live)| (*address, live))
    }

    /// The allocation that holds an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Live> {
        let (base, live) = self.live.range(..=address).next_back()?;
        (address - base < live.bytes).then_some(live)
    }

    /// Whether a stream is being captured: the GPU cannot be waited for then.
    pub(crate) fn is_capturing(&self) -> bool {
        self.captures > 0
    }

    pub(crate) fn slot(&self, slot: usize) -> Option<&Slot> {
        self.slots.get(slot)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }
}
