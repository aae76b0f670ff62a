//! End-to-end tests of the command, a file per verb, and checks of the documents. One test program,
//! because each would link the same libraries.

mod analyze;
mod architecture;
mod common;
mod correlate;
mod documents;
mod gpu;
mod help;
mod inspect;
mod install;
mod llm;
mod model;
mod profile;
mod recorded;
mod sample;
mod simulate;
mod simulate_page;
mod slurm;
mod sweep;
mod trace;
mod versions;
mod watch;
mod workload;
