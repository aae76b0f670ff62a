//! Turns a program into a simulation; `buddy simulate` and the study are built on it.
//!
//! ```text
//!  workload ─► observe ─► Observed ─┐
//!  network  ─► its record ──────────┼─► Stage ─┐
//!  trace, generated kernel ─────────┘          ├─► Scenario ─► run ─► Done
//!  GPU, link, mode, ... ─► Point ──────────────┤
//!  policy, ratio, file  ─► TargetChoice ───────┘
//! ```
//!
//! A [`Stage`] is a program ready to run: its work, and the size classes of its memory. A [`Point`]
//! is the machine and the mode, by name. A [`TargetChoice`] selects the targets. Together they form
//! a [`Scenario`], which is checked when created and can run any number of times, on several
//! threads. A [`Case`] is the unread form: an [`Input`] and a point, with each setting by name as
//! in options and sweeps.

#![forbid(unsafe_code)]

mod case;
mod error;
mod forced;
mod ignored;
mod imposed;
mod input;
mod network;
mod observe;
mod point;
mod ranges;
mod recorded;
mod run;
mod scale;
mod source;
mod stage;
mod targets;

pub use case::{Case, canonical};
pub use error::Error;
pub use ignored::baselines;
pub use imposed::Imposed;
pub use input::{Input, parse_sample, parse_shares};
pub use observe::{Ask, Observed, observe, typical};
pub use point::{Point, Share, parse_mode};
pub use ranges::Range;
pub use recorded::{recorded, recorded_or, recorded_run};
pub use run::{Done, Scenario};
pub use scale::{Scale, decimal, parse_bytes, parse_mib, parse_scale};
pub use source::{Source, did_you_mean};
pub use stage::Stage;
pub use targets::TargetChoice;

/// Name, version and build of this tool for stored results. The build is a fingerprint of all
/// sources that decide a result, so that results of other builds are not reused.
pub const TOOL: &str = concat!("buddy ", env!("CARGO_PKG_VERSION"), "+", env!("BUDDY_BUILD"));
