//! The command as a user calls it, a file for each verb, and what the documents say of the tree. One program, since each would link the
//! same libraries.

mod analyze;
mod architecture;
mod common;
mod correlate;
mod documents;
mod gpu;
mod help;
mod inspect;
mod install;
mod model;
mod profile;
mod recorded;
mod sample;
mod simulate;
mod slurm;
mod sweep;
mod trace;
mod versions;
mod watch;
mod workload;
