//! The paper's profiler: measures memory as histograms of size classes and chooses codecs and
//! targets.
//!
//! An [`Observer`] classifies every entry of a run's allocations in each snapshot, once with each
//! codec. The memory is that of files or of a running program. The result is a [`Measured`] run,
//! from which histograms, page maps, the [record](Measured::to_record) of a run and the simulator's
//! size classes are derived. A record can also be read back as a [`Measured`] run.
//!
//! [`choose_codec`] picks a codec from samples by the rule for targets,
//! [`conservative_target`](buddy_core::conservative_target). [`analyze()`] applies both to arrays
//! in files. [`assign()`] chooses targets by policy, [`assign_within()`] by predicted slowdown on a
//! link, [`plan()`] to fit a device memory, and [`profile()`] returns the whole profile as one
//! record. [`write_targets`] and [`read_targets`] write and read target files. [`verify()`] checks
//! the predictions against a working memory.

#![forbid(unsafe_code)]

mod analyze;
mod assign;
mod carve_out;
mod choose;
mod error;
mod estimate;
mod knapsack;
mod link;
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
pub use choose::{DEFAULT_THRESHOLD, Place, candidates, choose_codec, choose_codecs};
pub use error::Error;
pub use link::{LinkLimit, assign_within};
pub use look::{PageClasses, Progress, histogram};
pub use measured::{Measured, MeasuredAllocation, MeasuredCodec, Tried};
pub use memory::Memory;
pub use observer::{Observer, train};
pub use plan::{PlanRequest, plan, read_accesses};
pub use profile::{Settings, best_policy, check_threshold, policy_targets, profile};
pub use prune::drop_beaten;
pub use record::record_run;
pub use rows::Rows;
pub use sample::sample;
pub use target_file::{read_targets, row_codec, write_targets};
pub use verify::verify;
