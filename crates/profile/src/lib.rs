//! Memory to histograms, and histograms to targets: what the paper's profiler does.
//!
//! [`measure()`] counts the entries of an array by size class, streaming over the mapping; the
//! [`Histogram`](buddy_core::Histogram) says which target a threshold allows; [`choose_codec`] picks a codec from
//! a sample.
//! [`analyze()`] does all of it for the arrays of files, and [`record_run`] turns a run into a record without its
//! bytes.

#![forbid(unsafe_code)]

mod analyze;
mod choose;
mod measure;
mod record;
mod sample;

pub use analyze::analyze;
pub use choose::{DEFAULT_THRESHOLD, candidates, choose_codec};
pub use measure::{Progress, measure, page_map};
pub use record::record_run;
pub use sample::sample;
