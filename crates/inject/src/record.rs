//! Converts a watched process to a run record.

use std::collections::BTreeMap;

use buddy_core::{Dtype, PageMap};
use buddy_record::{AllocationInfo, AllocationSizes, RunInfo, RunRecord, SnapshotInfo};
use serde_json::{Map, Value, json};

use crate::{Look, Seen, TrainedCodec, UNTRAINED, Watched};

impl Watched {
    /// Returns an allocation's name: its call site, and a number from the second of the site on.
    pub fn name(&self, slot: usize) -> String {
        let Some(found) = self.slots.get(slot) else { return format!("allocation {slot}") };
        let site = self.sites.get(found.site).map_or("unknown", String::as_str);
        if found.number == 1 { site.to_owned() } else { format!("{site}#{}", found.number) }
    }

    /// Returns the slots that a snapshot covered, by their last address.
    pub fn seen(&self) -> Vec<usize> {
        let mut bases: BTreeMap<usize, u64> = BTreeMap::new();
        for (slot, seen) in self.looks.iter().flat_map(|look| &look.seen) {
            bases.insert(*slot, seen.base);
        }
        let mut slots: Vec<usize> = bases.keys().copied().filter(|slot| *slot < self.slots.len()).collect();
        slots.sort_by_key(|slot| bases[slot]);
        slots
    }

    /// Returns the program's file name.
    pub fn program(&self) -> String {
        let path = self.arguments.first().map_or("unknown", String::as_str);
        path.rsplit('/').next().unwrap_or(path).to_owned()
    }

    /// Returns the run record; `None` if no snapshot covered any memory.
    pub fn record(&self) -> Option<RunRecord> {
        let slots = self.seen();
        if slots.is_empty() {
            return None;
        }
        let allocations = slots.iter().map(|&slot| self.allocation(slot)).collect();
        let mut run = RunInfo::new(&self.program(), self.parameters(&slots), allocations);
        run.snapshots = self.looks.iter().map(snapshot).collect();
        let sizes = |look: &Look| {
            let of_slot = |slot| {
                look.seen.get(slot).map_or_else(AllocationSizes::default, |one| self.sizes(*slot, one))
            };
            slots.iter().map(of_slot).collect()
        };
        Some(RunRecord { run, sizes: self.looks.iter().map(sizes).collect() })
    }

    fn allocation(&self, slot: usize) -> AllocationInfo {
        let last = self.looks.iter().rev().find_map(|look| look.seen.get(&slot));
        AllocationInfo {
            name: self.name(slot),
            call_site: self.sites.get(self.slots[slot].site).cloned().unwrap_or_default(),
            base: last.map_or(0, |seen| seen.base),
            bytes: self.slots[slot].bytes,
            dtype: Dtype::U8,
        }
    }

    fn parameters(&self, slots: &[usize]) -> Map<String, Value> {
        let all = json!({
            "arguments": self.arguments.get(1..).unwrap_or_default(),
            "card": self.card, "driver": self.driver, "rank": self.rank,
            "launches": self.totals.launches, "allocations": self.totals.allocations,
            "short_lived": self.totals.short, "peak_bytes": self.totals.peak_bytes,
        });
        let mut all = all.as_object().cloned().unwrap_or_default();
        if !self.learned.is_empty() {
            let codecs = |slot| self.trained(slot).map(|(_, one)| one.parameters.clone()).collect();
            let learned = slots.iter().map(|&slot| (self.name(slot), Value::Array(codecs(slot))));
            all.insert("learned_codecs".to_owned(), Value::Object(learned.collect()));
        }
        all
    }

    /// Returns the codecs' parameters trained on an allocation, or the untrained ones.
    fn trained(&self, slot: usize) -> impl Iterator<Item = (&String, &TrainedCodec)> {
        self.learned.get(&(slot as u64)).or_else(|| self.learned.get(&UNTRAINED)).into_iter().flatten()
    }

    fn sizes(&self, slot: usize, seen: &Seen) -> AllocationSizes {
        let named = |index: usize| self.codecs.get(index).cloned().unwrap_or_default();
        let histograms = seen.histograms.iter().enumerate().map(|(index, one)| (named(index), *one));
        let blocks = seen.blocks.iter().enumerate().map(|(index, one)| (named(index), one.clone()));
        let entries = seen.histograms.first().map_or(0, buddy_core::Histogram::entries);
        let pages = PageMap::from_digits(entries.div_ceil(buddy_core::ENTRIES_PER_PAGE as u64), &seen.rows);
        AllocationSizes {
            histograms: histograms.collect(),
            pages: pages.ok().map(|map| (named(0), map)).into_iter().collect(),
            blocks: blocks.collect(),
            parameter_bytes: self.trained(slot).map(|(codec, one)| (codec.clone(), one.bytes)).collect(),
        }
    }

    /// Returns, as JSON, the entries that launches accessed in each allocation, for a plan.
    pub fn accesses_json(&self) -> String {
        let count = |slot: &usize| (self.name(*slot), self.accesses.get(slot).copied().unwrap_or(0));
        let all: BTreeMap<String, u64> = self.seen().iter().map(count).collect();
        serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
    }
}

fn snapshot(look: &Look) -> SnapshotInfo {
    SnapshotInfo { step: look.launches, label: look.label.clone(), file: None }
}
