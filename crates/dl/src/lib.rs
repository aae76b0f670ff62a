//! Deep-learning training by batch size, after the paper's case study.
//!
//! A [`Network`] is a list of layers. It gives the [footprint](Network::footprint) of training at a
//! batch size, the [time()] of an iteration on a GPU, the [largest batch](largest_batch) that fits
//! with and without compression, and a [trace](Network::application) of one iteration for the
//! simulator. [`llm`] estimates the inference of language models. The model is compared with
//! [published](validate) throughputs.
//! `docs/notes/case-study.md` describes it.

#![forbid(unsafe_code)]

mod accuracy;
mod error;
mod footprint;
mod graph;
mod iteration;
mod layer;
pub mod llm;
mod networks;
mod project;
mod recorded;
mod spec;
mod time;
mod validate;
mod work;

pub use accuracy::{Accuracy, AccuracyRun, AccuracySummary};
pub use error::Error;
pub use footprint::{Footprint, VALUE_BYTES, WORKSPACE_BYTES, largest_batch};
pub use layer::{Layer, Op, Shape};
pub use networks::{Network, NetworkInfo, PAPER, TODAY};
pub use project::{PAPER_MEAN_RATIO, Projection, Sweep, project, sweep};
pub use recorded::{classes_of, histograms_of, matches};
pub use spec::{Gpu, Model, Spec};
pub use time::{Time, time};
pub use validate::{MemoryValidation, Point, TableValidation, Validation, validate};
