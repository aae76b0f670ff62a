//! The allocation table of a program's device memory, maintained from its driver calls.
//!
//! Nothing here calls CUDA: the library feeds it [`Event`]s, and tests feed it recorded sequences.

use std::{
    collections::{BTreeMap, HashMap},
    mem::take,
    ops::Range,
};

/// Allocation kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Plain,
    Async,
    Managed,
    Pitched,
    Mapped,
    /// A piece of a pool that the program manages itself.
    Piece,
}

impl How {
    /// Every kind with its name in logs and recorded sequences.
    pub(crate) const ALL: [(Self, &'static str); 6] = [
        (Self::Plain, "plain"),
        (Self::Async, "async"),
        (Self::Managed, "managed"),
        (Self::Pitched, "pitched"),
        (Self::Mapped, "mapped"),
        (Self::Piece, "piece"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(how, _)| *how == self).map_or("plain", |(_, name)| name)
    }
}

/// An event of the program, as the driver saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Memory was allocated, or physical memory mapped to addresses.
    Allocated { address: u64, bytes: u64, how: How, context: u64, site: u32 },
    /// Memory is about to be freed.
    Freed { address: u64 },
    /// Mapped memory was opened to the GPU, or closed.
    Access { address: u64, bytes: u64, allowed: bool },
    /// Addresses are about to be unmapped.
    Unmapped { address: u64, bytes: u64 },
    /// The program reports a piece of its pool: its site, or free.
    Piece { address: u64, bytes: u64, site: Option<u32> },
    /// The program has reported all current pieces.
    Cut,
    /// A context is about to end, and all memory of it.
    ContextEnds { context: u64 },
    /// A stream begins to be captured into a graph.
    CaptureBegins,
    /// A stream's capture has ended.
    CaptureEnds,
    /// A snapshot of all live allocations was taken.
    Looked,
    /// The process ends, and all memory of it.
    Ends,
}

impl Event {
    /// Returns one line of a recorded sequence.
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
            Self::Piece { address, bytes, site: Some(site) } => format!("piece {address:#x} {bytes} {site}"),
            Self::Piece { address, bytes, site: None } => format!("piece {address:#x} {bytes}"),
            Self::Cut => "cut".to_owned(),
            Self::ContextEnds { context } => format!("context-ends {context:#x}"),
            Self::CaptureBegins => "capture-begins".to_owned(),
            Self::CaptureEnds => "capture-ends".to_owned(),
            Self::Looked => "looked".to_owned(),
            Self::Ends => "ends".to_owned(),
        }
    }
}

/// An allocation across the run: memory of one length from one call site. Memory that is freed and
/// allocated again, as in a loop, keeps its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) site: u32,
    /// 1 for the first of its site, 2 for the next that is live at the same time or has another
    /// length.
    pub(crate) number: u32,
    pub(crate) bytes: u64,
    pub(crate) how: How,
}

/// A live allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) slot: usize,
    pub(crate) bytes: u64,
    pub(crate) context: u64,
    /// True if the GPU can read it now.
    pub(crate) readable: bool,
    /// True if a snapshot has covered it since it was allocated.
    seen: bool,
}

/// A piece of a pool; its slot is `None` if it is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    bytes: u64,
    site: Option<u32>,
    slot: Option<usize>,
}

/// Memory to survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) slot: usize,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) context: u64,
}

/// Allocation totals for the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Allocations so far.
    pub(crate) allocations: u64,
    /// Allocations freed before any snapshot.
    pub(crate) short: u64,
    /// Bytes of these.
    pub(crate) short_bytes: u64,
    /// Live bytes now.
    pub(crate) live_bytes: u64,
    /// The most live bytes at a time.
    pub(crate) peak_bytes: u64,
}

/// The allocation table.
#[derive(Debug, Default)]
pub(crate) struct Book {
    live: BTreeMap<u64, Live>,
    /// Pool pieces reported last, and those being reported.
    pieces: BTreeMap<u64, Piece>,
    named: Vec<(u64, u64, Option<u32>)>,
    slots: Vec<Slot>,
    /// Slots of freed memory, by site and length.
    idle: HashMap<(u32, u64), Vec<usize>>,
    numbers: HashMap<u32, u32>,
    captures: u32,
    counts: Counts,
}

impl Book {
    /// Applies an event. Returns the new slots.
    pub(crate) fn apply(&mut self, event: &Event) -> Range<usize> {
        let before = self.slots.len();
        match *event {
            Event::Allocated { address, bytes, how, context, site } => {
                self.allocate(address, bytes, how, context, site);
            }
            Event::Piece { address, bytes, site } => self.named.push((address, bytes, site)),
            Event::Cut => self.cut(),
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
            Event::Ends => {
                let gone: Vec<u64> = self.live.keys().copied().collect();
                gone.into_iter().for_each(|address| self.remove(address));
            }
            Event::CaptureBegins => self.captures += 1,
            Event::CaptureEnds => self.captures = self.captures.saturating_sub(1),
            Event::Looked => {
                self.live.values_mut().filter(|live| live.readable).for_each(|live| live.seen = true);
            }
        }
        before..self.slots.len()
    }

    fn allocate(&mut self, address: u64, bytes: u64, how: How, context: u64, site: u32) {
        if address == 0 || bytes == 0 {
            return;
        }
        // An earlier allocation here was freed in an unobserved way.
        self.remove_within(address, bytes);
        let slot = self.take_slot(site, bytes, how);
        let live = Live { slot, bytes, context, readable: how != How::Mapped, seen: false };
        self.live.insert(address, live);
        self.counts.allocations += 1;
        self.counts.live_bytes += bytes;
        self.counts.peak_bytes = self.counts.peak_bytes.max(self.counts.live_bytes);
    }

    /// Returns a slot for memory of a site: an idle one of that length, or a new one.
    fn take_slot(&mut self, site: u32, bytes: u64, how: How) -> usize {
        if let Some(slot) = self.idle.get_mut(&(site, bytes)).and_then(Vec::pop) {
            return slot;
        }
        let number = self.numbers.entry(site).or_default();
        *number += 1;
        self.slots.push(Slot { site, number: *number, bytes, how });
        self.slots.len() - 1
    }

    fn give_back(&mut self, slot: usize) {
        if let Some(known) = self.slots.get(slot) {
            self.idle.entry((known.site, known.bytes)).or_default().push(slot);
        }
    }

    /// Replaces the earlier pieces by those reported. Unmoved pieces keep their slots; slots of
    /// vanished pieces become idle.
    fn cut(&mut self) {
        let mut before = take(&mut self.pieces);
        let mut new = Vec::new();
        for (address, bytes, site) in take(&mut self.named) {
            match before.get(&address) {
                Some(piece) if (piece.bytes, piece.site) == (bytes, site) => {
                    self.pieces.extend(before.remove(&address).map(|piece| (address, piece)));
                }
                _ => new.push((address, bytes, site)),
            }
        }
        before.values().filter_map(|gone| gone.slot).for_each(|slot| self.give_back(slot));
        for (address, bytes, site) in new.into_iter().filter(|(address, bytes, _)| *address > 0 && *bytes > 0)
        {
            let slot = site.map(|site| self.take_slot(site, bytes, How::Piece));
            self.pieces.insert(address, Piece { bytes, site, slot });
        }
    }

    fn remove(&mut self, address: u64) {
        let Some(live) = self.live.remove(&address) else { return };
        self.counts.live_bytes -= live.bytes;
        if !live.seen {
            self.counts.short += 1;
            self.counts.short_bytes += live.bytes;
        }
        self.give_back(live.slot);
    }

    fn remove_within(&mut self, address: u64, bytes: u64) {
        let before = self.live.range(..address).next_back();
        let reaches = before.filter(|(base, live)| **base + live.bytes > address).map(|(base, _)| *base);
        let within = self.live.range(address..address.saturating_add(bytes)).map(|(base, _)| *base);
        let gone: Vec<u64> = reaches.into_iter().chain(within).collect();
        gone.into_iter().for_each(|base| self.remove(base));
    }

    /// Returns the live, readable memory by address: pieces where the program reported them, else
    /// whole allocations.
    pub(crate) fn readable(&self) -> Vec<Span> {
        let whole = self.live.iter().filter(|(base, live)| live.readable && !self.is_cut(**base, live.bytes));
        let whole =
            whole.map(|(&base, &Live { slot, bytes, context, .. })| Span { slot, base, bytes, context });
        let pieces = self.pieces.iter().filter_map(|(&base, piece)| {
            let context = self.context_of(base, piece.bytes)?;
            Some(Span { slot: piece.slot?, base, bytes: piece.bytes, context })
        });
        let mut all: Vec<Span> = whole.chain(pieces).collect();
        all.sort_by_key(|span| span.base);
        all
    }

    /// Returns whether a piece overlaps this memory.
    fn is_cut(&self, base: u64, bytes: u64) -> bool {
        let last = self.pieces.range(..base.saturating_add(bytes)).next_back();
        last.is_some_and(|(at, piece)| at.saturating_add(piece.bytes) > base)
    }

    /// Returns the context of a range that is readable throughout, in one or several adjacent
    /// allocations.
    fn context_of(&self, base: u64, bytes: u64) -> Option<u64> {
        let (mut at, end) = (base, base.checked_add(bytes)?);
        let mut context = None;
        while at < end {
            let (start, live) = self.live.range(..=at).next_back()?;
            let reach = (start + live.bytes).max(at);
            if !live.readable || reach == at {
                return None;
            }
            (at, context) = (reach, context.or(Some(live.context)));
        }
        context
    }

    /// Returns slot and bytes of the piece, or else the allocation, that holds an address.
    pub(crate) fn find(&self, address: u64) -> Option<(usize, u64)> {
        let piece =
            self.pieces.range(..=address).next_back().filter(|(at, piece)| address - *at < piece.bytes);
        if let Some((_, piece)) = piece {
            return Some((piece.slot?, piece.bytes));
        }
        let (base, live) = self.live.range(..=address).next_back()?;
        (address - base < live.bytes).then_some((live.slot, live.bytes))
    }

    /// Returns whether a stream is being captured; synchronising is an error then.
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
