//! Sweeps of simulations: axes, points, keys, a store of records, and engines.
//!
//! ```text
//!  plan.toml ─► Plan ─► Points (a digest each) ─┬─► local: threads ───────────┐
//!                                               ├─► slurm: arrays of shards ──┼─► Store ─► Rows ─► table, page
//!                                               └─► any scheduler: --shard ───┘
//! ```
//!
//! A [`Plan`] is lazy: the settings of a point follow from its index. Its [key](Key) is a digest of
//! everything that decides its result, this program's sources included. Engines run [`Tasks`] that
//! each leave a record in a [`Store`]. The store alone knows which are done, so any process can be
//! killed, restarted, or run twice at once.

#![forbid(unsafe_code)]

mod axis;
mod error;
mod filter;
mod key;
pub mod local;
mod outcome;
mod plan;
mod points;
mod results;
mod rows;
mod shard;
pub mod slurm;
mod store;
mod sweep;
mod tasks;
mod tries;
mod values;
mod watch;

pub use axis::Axis;
pub use error::Error;
pub use key::Key;
pub use outcome::Outcome;
pub use plan::Plan;
pub use points::Points;
pub use results::Results;
pub use rows::{METRICS, Metric, Rows};
pub use shard::{Shard, shards};
pub use store::Store;
pub use sweep::{PointTasks, RunTasks, Sweep};
pub use tasks::{Failure, Summary, Tasks};
pub use tries::Tries;
pub use values::values;
pub use watch::{NoWatch, Progress, Watch};
