//! Counts the entries that just miss a size class, and what shorter streams would save:
//! `cargo run --release -p buddy-profile --example near_misses RUN...` (docs/notes/capacity.md).
//!
//! For each run, the first table has the codecs of the targets that `buddy profile --policy page`
//! chooses within 1% overflow: entries, and the shares of them whose stream is at most 4 bytes longer
//! than 8, 32, 64 or 96 bytes. The second has what the ratio within 1% gains if streams were some bits
//! shorter, those of every codec or of one codec alone, and with variants of the prefix codecs. Every
//! codec is trained on samples of all snapshots and measured in full.

mod prefix;

use std::{collections::BTreeMap, path::Path};

use buddy_codec::{Codec, CodecKind, EntryCodec};
use buddy_core::{Blocks, ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, Histogram, as_entries, is_zero, last_entry};
use buddy_profile::{
    CodecChoice, Measured, MeasuredAllocation, MeasuredCodec, Memory, PageClasses, Place, Settings,
    candidates, policy_targets, sample,
};
use buddy_record::{Policy, RunInfo, TargetTable};
use buddy_snapshot::{Array, Run};
use rayon::prelude::*;

use crate::prefix::{Trained, VARIANTS};

/// Largest mean overflow.
const LIMIT: f64 = 0.01;
/// Thresholds of which the best with at most `LIMIT` mean overflow counts.
const THRESHOLDS: [f64; 2] = [0.01, 0.02];
/// Limits of the size classes in bits.
const CLASSES: [u16; 4] = [64, 256, 512, 768];
/// Window above each limit in bits.
const WINDOW: u16 = 32;
/// Bits by which every stream is made shorter.
const SHORTER: [u16; 4] = [4, 8, 16, 32];
/// Bits by which the streams of one codec are made shorter.
const ONE: u16 = 16;

/// Bits of every entry with one codec in each snapshot: 0 for zero entries, at least 1 for others.
struct Bits {
    codec: Codec,
    snapshots: Vec<Vec<u16>>,
    /// The same with each variant of a prefix codec.
    variants: Option<Vec<Vec<Vec<u16>>>>,
}

/// A change of streams.
#[derive(Clone, Copy)]
enum Change {
    /// Streams of this codec, or of every codec, are shorter by a number of bits.
    Shorter(Option<CodecKind>, u16),
    /// Prefix codecs are a variant.
    Prefix(usize),
}

impl Bits {
    /// Returns the bits by which a change makes streams shorter.
    fn shorter(&self, change: Change) -> u16 {
        match change {
            Change::Shorter(kind, bits) if kind.is_none_or(|kind| kind == self.codec.kind()) => bits,
            _ => 0,
        }
    }

    /// Returns the bits of every entry after a change.
    fn changed(&self, change: Change) -> &[Vec<u16>] {
        match (change, &self.variants) {
            (Change::Prefix(variant), Some(variants)) => &variants[variant],
            _ => &self.snapshots,
        }
    }

    /// Returns whether a stream would reach a smaller class if it were so much shorter.
    fn misses(&self, bits: u16) -> bool {
        let miss = |&own: &u16| CLASSES.iter().any(|&limit| own > limit && own <= limit + bits);
        self.snapshots.iter().flatten().any(miss)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut gains: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for dir in std::env::args().skip(1) {
        for (name, ratio) in one(Path::new(&dir))? {
            gains.entry(name).or_default().push(ratio);
        }
    }
    println!("geometric means of all runs");
    for (name, ratios) in gains {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        println!("  {name:28} {mean:7.4}");
    }
    Ok(())
}

/// Prints the tables of a run and returns its ratio and the factors that it gains.
fn one(dir: &Path) -> Result<Vec<(String, f64)>, Box<dyn std::error::Error>> {
    let run = Run::open(dir)?;
    let snapshots: Vec<Vec<Array>> =
        (0..run.info().snapshots.len()).map(|index| run.snapshot(index)).collect::<Result<_, _>>()?;
    let kinds = candidates(Place::Memory);
    let of_allocation = |index: usize| -> Vec<Bits> {
        let arrays: Vec<&Array> = snapshots.iter().map(|arrays| &arrays[index]).collect();
        let seen: Vec<Entry> = arrays.iter().flat_map(sample).collect();
        let bits = |kind: &CodecKind| {
            let codec = kind.train(&seen);
            let snapshots: Vec<Vec<u16>> = arrays.iter().map(|array| bits(array.bytes(), &codec)).collect();
            let prefix = Trained::new(&codec, &seen);
            let changed = |prefix: &Trained, variant| {
                let bits = |(array, own): (&&Array, &Vec<u16>)| prefix.bits(variant, array.bytes(), own);
                arrays.iter().zip(&snapshots).map(bits).collect()
            };
            let variants =
                prefix.map(|prefix| (0..VARIANTS.len()).map(|variant| changed(&prefix, variant)).collect());
            Bits { codec, snapshots, variants }
        };
        kinds.iter().map(bits).collect()
    };
    let all: Vec<Vec<Bits>> = (0..run.info().allocations.len()).into_par_iter().map(of_allocation).collect();
    let (usual, table) = ratio(run.info(), &all, Change::Shorter(None, 0))?;
    println!("{}: {usual:.4} within 1%", dir.display());
    misses(&all, &table);
    let mut changes: Vec<(String, Change)> =
        SHORTER.map(|bits| (format!("all, {bits:2} bits shorter"), Change::Shorter(None, bits))).into();
    changes.extend(
        kinds.iter().map(|kind| (format!("{kind}, {ONE} bits shorter"), Change::Shorter(Some(*kind), ONE))),
    );
    changes.extend(
        VARIANTS.iter().enumerate().map(|(at, name)| (format!("prefix, {name}"), Change::Prefix(at))),
    );
    let mut found = vec![("ratio".to_owned(), usual)];
    for (name, change) in changes {
        let none = match change {
            Change::Shorter(Some(kind), bits) => {
                !all.iter().flatten().any(|one| one.codec.kind() == kind && one.misses(bits))
            }
            _ => false,
        };
        let gain = if none { 1.0 } else { ratio(run.info(), &all, change)?.0 / usual };
        if gain != 1.0 {
            println!("  {name:28} {:6.2}%", 100.0 * (gain - 1.0));
        }
        found.push((name, gain));
    }
    Ok(found)
}

/// Returns the bits of each entry of an array.
fn bits(bytes: &[u8], codec: &Codec) -> Vec<u16> {
    let (entries, tail) = as_entries(bytes);
    let last = last_entry(tail);
    let one = |entry: &Entry| if is_zero(entry) { 0 } else { codec.size_bits(entry).max(1) as u16 };
    entries.iter().chain(&last).map(one).collect()
}

/// Returns the ratio within `LIMIT` after a change, and its targets.
fn ratio(
    info: &RunInfo,
    all: &[Vec<Bits>],
    change: Change,
) -> Result<(f64, TargetTable), buddy_profile::Error> {
    let codec = |one: &Bits| {
        let pages: Vec<Vec<PageClasses>> =
            one.changed(change).iter().map(|bits| pages(bits, one.shorter(change))).collect();
        MeasuredCodec {
            kind: one.codec.kind(),
            codec: Some(one.codec.clone()),
            parameter_bytes: one.codec.parameter_bytes() as u64,
            histograms: pages.iter().map(|pages| histogram(pages)).collect(),
            blocks: Some(pages.iter().map(|pages| Blocks::from_pages(pages)).collect()),
            maps: Vec::new(),
        }
    };
    let allocations: Vec<MeasuredAllocation> = all
        .par_iter()
        .map(|codecs| {
            let codecs: Vec<MeasuredCodec> = codecs.iter().map(codec).collect();
            let stored =
                |codec: &MeasuredCodec| codec.histograms.iter().map(Histogram::stored_bytes).sum::<u64>();
            let auto = (0..codecs.len()).min_by_key(|&at| stored(&codecs[at])).unwrap_or(0);
            MeasuredAllocation { codecs, auto }
        })
        .collect();
    let measured = Measured { run: info.clone(), allocations, auto: true };
    let mut best: Option<(f64, TargetTable)> = None;
    for threshold in THRESHOLDS {
        let settings =
            Settings { threshold, policy: Policy::Page, codec: CodecChoice::Auto, plan: None, link: None };
        let table = policy_targets(&measured, &settings)?;
        let (device, overflow) = cost(info, all, &table, change);
        let ratio = info.bytes() as f64 / device;
        if overflow <= LIMIT && best.as_ref().is_none_or(|(least, _)| ratio > *least) {
            best = Some((ratio, table));
        }
    }
    Ok(best.expect("the lowest threshold is within the limit"))
}

/// Returns the device bytes of targets, and the mean overflow over the snapshots.
fn cost(info: &RunInfo, all: &[Vec<Bits>], table: &TargetTable, change: Change) -> (f64, f64) {
    let (mut device, mut over, mut total) = (0.0, 0, 0);
    for ((info, codecs), row) in info.allocations.iter().zip(all).zip(&table.allocations) {
        let own = codecs.iter().find(|one| one.codec.kind().name() == row.codec).expect("a measured codec");
        let pages = info.bytes.div_ceil((ENTRIES_PER_PAGE * ENTRY_BYTES) as u64);
        let ranges = row.ranges_of(info.bytes).expect("ranges of this allocation");
        let mut start = 0;
        for range in ranges {
            let end = (start + range.pages).min(pages);
            let target = range.target.device_bytes() as u64;
            device += (target * (end - start) * ENTRIES_PER_PAGE as u64) as f64;
            for bits in own.changed(change) {
                let part = &bits[(start as usize * ENTRIES_PER_PAGE).min(bits.len())
                    ..(end as usize * ENTRIES_PER_PAGE).min(bits.len())];
                let limit = 8 * target as u16;
                over += part
                    .iter()
                    .filter(|&&bits| limit < 1024 && cut(bits, own.shorter(change)) > limit)
                    .count();
                total += part.len();
            }
            start = end;
        }
        device += own.codec.parameter_bytes() as f64 * f64::from(u8::from(device > 0.0));
    }
    (device, over as f64 / (total as f64).max(1.0))
}

/// Returns the bits of a shorter stream.
fn cut(bits: u16, shorter: u16) -> u16 {
    if bits == 0 { 0 } else { bits.saturating_sub(shorter).max(1) }
}

/// Returns the class counts of each page.
fn pages(bits: &[u16], shorter: u16) -> Vec<PageClasses> {
    let page = |page: &[u16]| {
        let mut counts = [0; 6];
        for &bits in page {
            let bits = cut(bits, shorter);
            counts[if bits == 0 { 0 } else { 1 + CLASSES.iter().filter(|&&limit| bits > limit).count() }] +=
                1;
        }
        counts
    };
    bits.chunks(ENTRIES_PER_PAGE).map(page).collect()
}

fn histogram(pages: &[PageClasses]) -> Histogram {
    let mut classes = [0; 6];
    for page in pages {
        classes.iter_mut().zip(page).for_each(|(sum, &count)| *sum += u64::from(count));
    }
    Histogram { classes, optimistic_bytes: 0 }
}

/// Prints the entries of each chosen codec, and the shares just above each limit.
fn misses(all: &[Vec<Bits>], table: &TargetTable) {
    let mut counted: BTreeMap<&str, (u64, [u64; 4])> = BTreeMap::new();
    for (codecs, row) in all.iter().zip(&table.allocations) {
        let own = codecs.iter().find(|one| one.codec.kind().name() == row.codec).expect("a measured codec");
        let (entries, above) = counted.entry(own.codec.kind().name()).or_default();
        for &bits in own.snapshots.iter().flatten() {
            *entries += 1;
            for (above, limit) in above.iter_mut().zip(CLASSES) {
                *above += u64::from(bits > limit && bits <= limit + WINDOW);
            }
        }
    }
    for (name, (entries, above)) in counted {
        let share = above.map(|count| format!("{:6.2}%", 100.0 * count as f64 / entries as f64));
        println!("  {name:10} {entries:9} entries  {}", share.join(" "));
    }
}
