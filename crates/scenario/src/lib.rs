//! All that turns a program into a simulation, once: `buddy simulate`, the study and the benches are built on it.
//!
//! ```text
//!  workload ─► observe ─► Observed ─┐
//!  network  ─► its record ──────────┼─► Stage ─┐
//!  trace, generated kernel ─────────┘          ├─► Scenario ─► run ─► Done
//!  GPU, link, mode, ... ─► Point ──────────────┤
//!  policy, ratio, file  ─► TargetChoice ───────┘
//! ```
//!
//! A [`Stage`] is a program that is ready to run: what it does, and the size classes of its memory. A [`Point`] is
//! the machine and the mode, by name; a [`TargetChoice`] is what it calls its targets. Together they are a [`Scenario`],
//! which is checked when it is made and can be run any number of times, on several threads at once. A [`Case`] is all of it
//! before anything is read: an [`Input`] and a point, each setting by its name, as options and sweeps give them.

#![forbid(unsafe_code)]

mod case;
mod error;
mod input;
mod network;
mod observe;
mod point;
mod ranges;
mod recorded;
mod run;
mod scale;
mod source;
mod speed;
mod stage;
mod targets;

pub use case::{Case, canonical};
pub use error::Error;
pub use input::{Input, parse_sample, parse_shares};
pub use observe::{Ask, Observed, observe, typical};
pub use point::{Point, Share, parse_mode};
pub use ranges::Range;
pub use recorded::{recorded, recorded_or, recorded_run};
pub use run::{Done, Scenario};
pub use scale::{Scale, decimal, parse_bytes, parse_scale};
pub use source::Source;
pub use speed::{Speed, time};
pub use stage::Stage;
pub use targets::TargetChoice;

/// Name, version and build of this tool, as a kept result has it: the build is a fingerprint of all sources that decide
/// a result, so that nothing is taken for what another build would find.
pub const TOOL: &str = concat!("buddy ", env!("CARGO_PKG_VERSION"), "+", env!("BUDDY_BUILD"));
