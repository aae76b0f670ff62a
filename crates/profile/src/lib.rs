//! Memory to histograms, and histograms to targets: what the paper's profiler does.
//!
//! [`measure()`] counts the entries of an array by size class, streaming over the mapping; the
//! [`Histogram`](buddy_core::Histogram) says which target a threshold allows; [`choose_codec`] picks a codec from
//! a sample.
//! [`analyze()`] does all of it for the arrays of files, and [`record_run`] turns a run into a record without its
//! bytes; a [`Recorder`] does so while the program runs, and a [`Watcher`] keeps what policies need.
//!
//! A [`Measured`] run has the sizes of every allocation in every snapshot, from snapshots or from a record.
//! [`assign()`] chooses targets for it by a policy, [`plan()`] to fit a device memory, and [`profile()`] puts all that
//! there is to say into one record. [`write_targets`] and [`read_targets`] are the file of targets, and
//! [`verify()`] asks a working memory whether the prediction holds.

#![forbid(unsafe_code)]

mod analyze;
mod assign;
mod choose;
mod error;
mod knapsack;
mod measure;
mod measured;
mod memory;
mod plan;
mod profile;
mod prune;
mod ranges;
mod record;
mod sample;
mod target_file;
mod verify;
mod watcher;
mod worst;

pub use analyze::analyze;
pub use assign::{Assignment, CodecChoice, assign};
pub use choose::{DEFAULT_THRESHOLD, candidates, choose_codec};
pub use error::Error;
pub use measure::{PageClasses, Progress, Sizes, measure, page_map};
pub use measured::{Measured, MeasuredAllocation, MeasuredCodec, Tried};
pub use memory::Memory;
pub use plan::{PlanRequest, plan, read_accesses};
pub use profile::{Settings, check_threshold, profile};
pub use record::{Recorder, record_run};
pub use sample::sample;
pub use target_file::{read_targets, row_codec, write_targets};
pub use verify::verify;
pub use watcher::Watcher;
pub use worst::{conservative_target, stays_mostly_zero, worst_overflow};
