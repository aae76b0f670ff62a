//! Public programs from the records of their memory, which have neither accesses nor places: kernels
//! read each allocation once in order, and entries of each class lie scattered or together.

use std::path::Path;

use buddy_codec::CodecKind;
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Histogram, PAGE_BYTES, PageMap, SizeClass};
use buddy_profile::{DEFAULT_THRESHOLD, Measured, Settings, Tried, profile};
use buddy_record::{AllocationInfo, AllocationSizes, AllocationTarget, Profile, RunRecord, TargetTable};
use buddy_scenario::{Stage, recorded_run, typical};
use buddy_trace::{
    Application, Launch, Step,
    pattern::{Array, Stream, scramble},
};

/// Their names, those of `PUBLIC` in the study.
pub(crate) const NAMES: [&str; 20] = [
    "bfs",
    "bt",
    "cg",
    "ep",
    "ft",
    "gaussian",
    "hotspot",
    "hotspot3d",
    "hpgmg",
    "is",
    "lavamd",
    "lu",
    "lud",
    "lulesh",
    "mg",
    "needle",
    "particlefilter",
    "pathfinder",
    "sp",
    "streamcluster",
];

/// Bytes of an element that the kernels read.
const ELEMENT: u8 = 8;
/// Bytes between the starts of allocations.
const ALIGNMENT: u64 = 2 << 20;

/// Where the entries of a class lie.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Places {
    /// Anywhere, by chance.
    Scattered,
    /// Side by side.
    Together,
}

/// The memory of a public program, shrunk to a footprint.
pub(crate) struct Public {
    record: RunRecord,
    /// Its memory, as `buddy profile` measured it.
    pub(crate) measured: Measured,
    profile: Profile,
    allocations: Vec<AllocationInfo>,
}

impl Public {
    /// Reads a record and shrinks every allocation to its share of `bytes`, at least one page.
    pub(crate) fn read(name: &str, bytes: u64) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/recorded/public");
        let record = recorded_run(Some(&dir), name).expect("a valid record").expect("a record");
        let tried = Tried { kinds: vec![CodecKind::Bpc], auto: true, threshold: DEFAULT_THRESHOLD };
        let measured = Measured::from_record(&record, &tried).expect("sizes of bpc");
        let (profile, _) = profile(&measured, &Settings::final_design(CodecKind::Bpc)).expect("a profile");
        let total: u64 = record.run.allocations.iter().map(|info| info.bytes).sum();
        let share = (bytes as f64 / total as f64).min(1.0);
        let mut base = 1 << 32;
        let place = |info: &AllocationInfo| {
            let bytes = ((info.bytes as f64 * share) as u64).next_multiple_of(PAGE_BYTES as u64);
            let placed = AllocationInfo { base, bytes: bytes.max(PAGE_BYTES as u64), ..info.clone() };
            base += placed.bytes.next_multiple_of(ALIGNMENT);
            placed
        };
        let allocations = record.run.allocations.iter().map(place).collect();
        Self { record, measured, profile, allocations }
    }

    /// Returns the program with its typical snapshot, as the codecs of `table` compress it.
    pub(crate) fn stage(&self, table: &TargetTable, places: Places) -> Stage {
        let rows = self.allocations.iter().zip(self.snapshot()).zip(&table.allocations).enumerate();
        let map = |(index, ((info, sizes), row)): (usize, ((&AllocationInfo, &AllocationSizes), _))| {
            let row: &AllocationTarget = row;
            // An allocation without a target has no codec; one that is not alive has no sizes.
            let sizes = sizes.histograms.get(&row.codec).or(sizes.histograms.values().next());
            classes(info.bytes, &sizes.copied().unwrap_or_default(), places, index as u64)
        };
        let maps: Vec<PageMap> = rows.map(map).collect();
        Stage::of_classes(self.application(), &maps, &self.profile)
    }

    fn snapshot(&self) -> &[AllocationSizes] {
        &self.record.sizes[typical(&self.profile)]
    }

    /// Returns kernels that read each living allocation.
    fn application(&self) -> Application {
        let step = |info: &AllocationInfo| {
            let elements = info.bytes / u64::from(ELEMENT);
            let launch = Launch::linear("read", elements.div_ceil(1024).min(4096) as u32, 256);
            let array = Array { base: info.base, element_bytes: ELEMENT };
            Step::of(Stream::new(launch, &[array], &[], elements, 1))
        };
        let alive =
            self.allocations.iter().zip(self.snapshot()).filter(|(_, sizes)| !sizes.histograms.is_empty());
        Application {
            name: self.record.run.program.clone(),
            allocations: self.allocations.clone(),
            host: Vec::new(),
            steps: alive.map(|(info, _)| step(info)).collect(),
        }
    }
}

/// Returns the classes of an allocation's entries in the shares of a histogram.
fn classes(bytes: u64, sizes: &Histogram, places: Places, seed: u64) -> PageMap {
    let entries = bytes / ENTRY_BYTES as u64;
    let total = sizes.entries().max(1) as f64;
    let mut before = 0;
    let ends = sizes.classes.map(|count| {
        before += count;
        before as f64 / total
    });
    let class = |entry: u64| {
        let at = match places {
            Places::Scattered => (scramble(seed << 40 | entry) >> 11) as f64 / (1_u64 << 53) as f64,
            Places::Together => (entry as f64 + 0.5) / entries as f64,
        };
        SizeClass::ALL[ends.iter().position(|&end| at < end).unwrap_or(SizeClass::ALL.len() - 1)]
    };
    PageMap::from_pages(entries.div_ceil(ENTRIES_PER_PAGE as u64), (0..entries).map(class).collect())
}
