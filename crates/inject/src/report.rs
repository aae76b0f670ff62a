//! The summary at the end of a run: snapshots, their cost, and memory they missed.

use std::fmt::Write;

use crate::Watched;

/// Summarises one process in a few lines.
pub fn report(watched: &Watched) -> String {
    let mut text = String::new();
    let rank = watched.rank.map_or_else(String::new, |rank| format!(", rank {rank}"));
    let totals = &watched.totals;
    let _ = writeln!(
        text,
        "{} (process {}{rank}): {} snapshots of {} allocations, {:.1} MB at most, {} launches",
        watched.program(),
        watched.pid,
        watched.looks.len(),
        watched.seen().len(),
        totals.peak_bytes as f64 / 1e6,
        totals.launches,
    );
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let of_run = watched.ended.map_or_else(String::new, |ended| format!(" of {:.2} s", seconds(ended)));
    let _ = writeln!(
        text,
        "  {} snapshots were taken in {:.3} s{of_run}",
        watched.taken,
        seconds(watched.cost_nanoseconds)
    );
    for line in notes(watched) {
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn notes(watched: &Watched) -> Vec<String> {
    let mut notes = Vec::new();
    let totals = &watched.totals;
    if totals.short > 0 {
        let bytes = totals.short_bytes as f64 / 1e6;
        let all = totals.allocations;
        notes.push(format!(
            "{} of {all} allocations ({bytes:.1} MB) were gone before a snapshot saw them",
            totals.short
        ));
    }
    let zeros = watched.zeros();
    if !zeros.is_empty() {
        let bytes = zeros.iter().map(|slot| watched.slots[*slot].bytes).sum::<u64>() as f64 / 1e6;
        let (count, s) = (zeros.len(), if zeros.len() == 1 { "" } else { "s" });
        notes.push(format!(
            "{count} allocation{s} ({bytes:.1} MB) held nothing but zeros in every snapshot, as memory does that was \
             never written"
        ));
    }
    if watched.unfollowed > 0 {
        let count = watched.unfollowed;
        notes.push(format!("{count} allocations of texture arrays or inside graphs were not followed"));
    }
    if watched.unknown > 0 {
        let count = watched.unknown;
        notes.push(format!(
            "{count} launches are of graphs, or have arguments that the driver cannot describe: their accesses are not counted"
        ));
    }
    if watched.is_cut() {
        notes.push(
            "pools of the program are cut at the pieces that it named; what is free in them is left out"
                .to_owned(),
        );
    } else if watched.is_pytorch() {
        notes.push(
            "these are the segments of PyTorch's allocator, pools of tensors: run `python -m buddy.torch SCRIPT` and \
             they are cut at its blocks, or see `buddy.torch.look`"
                .to_owned(),
        );
    }
    if let Some(why) = &watched.stopped {
        notes.push(format!("stopped: {why}"));
    } else if watched.ended.is_none() {
        notes.push("the process did not end by itself: what was seen until then is kept".to_owned());
    }
    notes
}

impl Watched {
    /// Returns true if the program reported pieces of its memory.
    fn is_cut(&self) -> bool {
        self.slots.iter().any(|slot| slot.how == "piece")
    }

    /// Returns the slots whose entries were zero in all kept snapshots.
    fn zeros(&self) -> Vec<usize> {
        let is_zero = |slot: &usize| {
            let mut seen = self.looks.iter().filter_map(|look| look.seen.get(slot)?.histograms.first());
            seen.all(|histogram| histogram.classes[0] == histogram.entries())
        };
        self.seen().into_iter().filter(is_zero).collect()
    }

    /// Returns whether memory comes from PyTorch's caching allocator.
    fn is_pytorch(&self) -> bool {
        self.sites
            .iter()
            .any(|site| site.starts_with("libc10_cuda") || site.starts_with("CUDACachingAllocator"))
    }
}
