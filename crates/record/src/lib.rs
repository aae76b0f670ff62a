//! Results and settings as files.
//!
//! A result is a [`Record`]: JSON with a kind, a version and the tool that wrote it. A
//! [`TargetTable`] holds a codec and targets for each allocation of a program. [`spec`] describes
//! GPUs and links in TOML.

#![forbid(unsafe_code)]

mod advice;
mod analysis;
mod checksum;
mod figure;
mod parameters;
mod profile;
mod record;
mod run;
mod skipped;
pub mod spec;
mod table;

pub use advice::{CurvePoint, LinkAdvice, LinkCost};
pub use analysis::{Analysis, ArrayAnalysis, Fit, Outcome};
pub use checksum::json_checksum;
pub use figure::{
    AxisInfo, Chart, Figure, Grid, GridCell, Heat, Mark, Origin, Panel, Quantity, SeriesInfo, Shape, Unit,
};
pub use parameters::{codec_parameters, codec_with_parameters};
pub use profile::{
    AllocationProfile, CodecOutcome, PlanOutcome, Policy, PolicyOutcome, Profile, SweepPoint, Verification,
    best_outcome,
};
pub use record::{Record, RecordError, RecordKind};
pub use run::{AllocationInfo, AllocationSizes, RUN_VERSION, RunError, RunInfo, RunRecord, SnapshotInfo};
pub use skipped::Skipped;
pub use table::{AllocationTarget, TARGETS_VERSION, TargetTable, TargetsError};
