//! Time of a decode step or a prefill of a language model, plain and with packed weights.
//!
//! A roofline model, not the cycle simulator: [`kernels()`] lists the kernels of a step from the
//! [`ModelShape`], each with its bytes and operations, and a [`Cost`] turns them into time on a
//! [`Machine`]. [`Parameters`] has every constant with its source. `docs/notes/simulator.md` compares
//! the model with measured steps.

mod bench;
mod buddy;
mod config;
mod estimate;
mod kernel;
mod parameters;
mod portable;
mod shape;
mod step;
#[cfg(test)]
mod tests;
mod validate;

pub use buddy::BuddyMemory;
pub use estimate::{BuddySide, Estimate, Row, Side, estimate, estimate_buddy};
pub use kernel::{Cost, Kernel, Kind, Limiter, Machine};
pub use parameters::Parameters;
pub use portable::{H200, LAYERS, portable_gain, unpacking_gain};
pub use shape::{Experts, ModelShape};
pub use step::{Ask, Runtime, Weights, kernels};
pub use validate::{Comparison, validate};
