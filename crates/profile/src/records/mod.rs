//! Everything that reads files or returns records: the feature `records`.

mod analyze;
mod array;
mod assign;
mod carve_out;
mod error;
mod knapsack;
mod link;
mod measured;
mod observer;
mod phases;
mod plan;
mod profile;
mod prune;
mod record;
mod rows;
mod target_file;
mod timeline;
mod together;
mod verify;

pub use analyze::analyze;
pub use assign::{Assignment, CodecChoice, assign};
pub use error::Error;
pub use link::{LinkLimit, assign_within};
pub use measured::{Measured, MeasuredAllocation, MeasuredCodec, Tried};
pub use observer::{Observer, train};
pub use plan::{PlanRequest, plan, read_accesses};
pub use profile::{Settings, best_policy, check_threshold, policy_targets, profile};
pub use prune::drop_beaten;
pub use record::record_run;
pub use rows::Rows;
pub use target_file::{read_targets, row_codec, write_targets};
pub use verify::verify;
