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
mod choose;
mod estimate;
mod look;
mod memory;
mod ranges;
#[cfg(feature = "records")]
mod records;
mod sample;
mod share;
mod smallest;

pub use choose::{DEFAULT_THRESHOLD, Place, candidates, choose_codec, choose_codecs};
pub use look::{PageClasses, Progress, histogram};
pub use memory::Memory;
#[cfg(feature = "records")]
pub use records::*;
pub use sample::sample;
pub use smallest::smallest_buffer;
