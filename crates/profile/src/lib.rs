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
//!
//! The feature `records` is on by default. Without it, only [`sample()`], [`histogram`] and the choice
//! of codecs and frozen buffers remain, which need no file formats.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "records"),
    expect(dead_code, reason = "the choice of a codec needs a part of each module")
)]

mod allowed;
#[cfg(feature = "records")]
mod analyze;
#[cfg(feature = "records")]
mod assign;
#[cfg(feature = "records")]
mod carve_out;
mod choose;
#[cfg(feature = "records")]
mod error;
mod estimate;
mod knapsack;
#[cfg(feature = "records")]
mod link;
mod look;
#[cfg(feature = "records")]
mod measured;
mod memory;
#[cfg(feature = "records")]
mod observer;
#[cfg(feature = "records")]
mod phases;
#[cfg(feature = "records")]
mod plan;
#[cfg(feature = "records")]
mod profile;
#[cfg(feature = "records")]
mod prune;
mod ranges;
#[cfg(feature = "records")]
mod record;
#[cfg(feature = "records")]
mod rows;
mod sample;
mod share;
mod smallest;
#[cfg(feature = "records")]
mod target_file;
#[cfg(feature = "records")]
mod timeline;
#[cfg(feature = "records")]
mod together;
#[cfg(feature = "records")]
mod verify;

#[cfg(feature = "records")]
pub use analyze::analyze;
#[cfg(feature = "records")]
pub use assign::{Assignment, CodecChoice, assign};
pub use choose::{DEFAULT_THRESHOLD, Place, candidates, choose_codec, choose_codecs};
#[cfg(feature = "records")]
pub use error::Error;
#[cfg(feature = "records")]
pub use link::{LinkLimit, assign_within};
pub use look::{PageClasses, Progress, histogram};
#[cfg(feature = "records")]
pub use measured::{Measured, MeasuredAllocation, MeasuredCodec, Tried};
pub use memory::Memory;
#[cfg(feature = "records")]
pub use observer::{Observer, train};
#[cfg(feature = "records")]
pub use plan::{PlanRequest, plan, read_accesses};
#[cfg(feature = "records")]
pub use profile::{Settings, best_policy, check_threshold, policy_targets, profile};
#[cfg(feature = "records")]
pub use prune::drop_beaten;
#[cfg(feature = "records")]
pub use record::record_run;
#[cfg(feature = "records")]
pub use rows::Rows;
pub use sample::sample;
pub use smallest::smallest_buffer;
#[cfg(feature = "records")]
pub use target_file::{read_targets, row_codec, write_targets};
#[cfg(feature = "records")]
pub use verify::verify;
