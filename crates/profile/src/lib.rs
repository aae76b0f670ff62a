//! Memory to histograms, and histograms to targets: what the paper's profiler does.
//!
//! An [`Observer`] looks at the allocations of a run, snapshot after snapshot, and sizes every entry once with each
//! codec: in files, or in the memory of a program that runs. What it saw is a [`Measured`] run; histograms, pictures,
//! the [record](Measured::to_record) of a run and the simulator's map of size classes are views of it. Sizes come
//! from a record as well.
//!
//! [`choose_codec`] picks a codec from samples, by the one rule for targets
//! ([`conservative_target`](buddy_core::conservative_target)); [`analyze()`] shows both for the arrays of files.
//! [`assign()`] chooses targets for it by a policy, [`plan()`] to fit a device memory, and [`profile()`] puts all that
//! there is to say into one record. [`write_targets`] and [`read_targets`] are the file of targets, and
//! [`verify()`] asks a working memory whether the prediction holds.

#![forbid(unsafe_code)]

mod analyze;
mod assign;
mod carve_out;
mod choose;
mod error;
mod estimate;
mod knapsack;
mod look;
mod measured;
mod memory;
mod observer;
mod phases;
mod plan;
mod profile;
mod prune;
mod ranges;
mod record;
mod rows;
mod sample;
mod share;
mod target_file;
mod timeline;
mod together;
mod verify;

pub use analyze::analyze;
pub use assign::{Assignment, CodecChoice, assign};
pub use choose::{DEFAULT_THRESHOLD, candidates, choose_codec, choose_codecs};
pub use error::Error;
pub use look::{PageClasses, Progress, histogram};
pub use measured::{Measured, MeasuredAllocation, MeasuredCodec, Tried};
pub use memory::Memory;
pub use observer::{Observer, train};
pub use phases::phases;
pub use plan::{PlanRequest, plan, read_accesses};
pub use profile::{Settings, best_policy, check_threshold, policy_targets, profile};
pub use prune::drop_beaten;
pub use record::record_run;
pub use rows::Rows;
pub use sample::sample;
pub use target_file::{read_targets, row_codec, write_targets};
pub use verify::verify;
