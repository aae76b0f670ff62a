//! The paper's experiments, one file per figure or table.
//!
//! [`reproduce`] runs the HPC programs once and measures their memory ([`Program`]), reads the
//! recorded training runs ([`Recorded`]), and draws every [`Experiment`] from the
//! [results](Findings) as a [`Figure`](buddy_record::Figure). Long computations are records in a
//! [`Store`], so that an interrupted run continues; figures are functions of records.

#![forbid(unsafe_code)]

pub mod bench;
mod caffe;
pub mod correlate;
mod deviations;
pub mod docs;
mod error;
mod experiment;
pub mod figures;
mod findings;
mod means;
pub mod output;
mod performance;
mod program;
mod public;
mod reading;
mod recorded;
mod reproduce;
mod sets;
mod settings;
mod simulate;
mod speed;
mod tasks;
mod tensors;
mod work;

pub use buddy_scenario::{Point, Share};
pub use buddy_sweep::{Key, NoWatch, Progress, Store, Watch};
pub use deviations::deviations;
pub use error::Error;
pub use experiment::{About, EXPERIMENTS, Experiment};
pub use findings::{Findings, Subject};
pub use means::{arithmetic, correlation, geometric};
pub use program::Program;
pub use public::{PUBLIC, PublicInfo};
pub use recorded::Recorded;
pub use reproduce::{Done, Request, reproduce};
pub use settings::Settings;
pub use speed::SpeedRow;
pub use tasks::Engine;
