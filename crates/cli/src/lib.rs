//! `buddy`: Buddy Compression on the command line, as a library, so that the Python package brings the command too.
//!
//! Thin: each verb has a file of its own that parses its arguments, calls the library crates and prints. Data
//! goes to stdout and talk to stderr; the exit code is 0 for done, 1 for could not, 2 for wrong usage, 130 for interrupted.

#![forbid(unsafe_code)]
// `println!` panics where the reader has gone; `output::print` is an error that ends the command well.
#![deny(clippy::print_stdout)]

mod analyze;
mod bench;
mod completions;
mod gpu;
mod input;
mod inspect;
mod machine;
mod man;
mod model;
mod output;
mod profile;
mod progress;
mod reproduce;
mod showing;
mod simulate;
mod specs;
mod sweep;
mod trace;
mod watch;
mod workload;

pub use showing::width;

use std::{
    ffi::OsString,
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use clap::{Parser, Subcommand};

/// Compressed GPU memory that never moves
///
/// Buddy Compression cuts memory into 128-byte entries, compresses each one, and keeps what does not fit its
/// share of device memory in a fixed slot of a larger, slower memory.
#[derive(Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = "\
Examples:
  buddy analyze model.safetensors --html page.html
  buddy profile -- ./my_program its arguments
  buddy simulate cg --sweep mode=ideal,buddy
  buddy reproduce --quick --out out

Exit codes: 0 done, 1 could not, 2 wrong usage, 130 interrupted.";

#[derive(Subcommand)]
enum Verb {
    Analyze(analyze::Analyze),
    Inspect(inspect::Inspect),
    Workload(workload::Workload),
    Profile(profile::ProfileVerb),
    Simulate(simulate::Simulate),
    Sweep(sweep::SweepVerb),
    Specs(specs::Specs),
    Watch(watch::Watch),
    Trace(trace::Trace),
    Reproduce(reproduce::Reproduce),
    Bench(bench::Bench),
    Gpu(gpu::GpuVerb),
    Pack(model::Pack),
    Unpack(model::Unpack),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Does what the arguments say, the program's name first, and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(said) => {
            // Help and version come this way too; nobody may be reading.
            let _ = said.print();
            return said.exit_code() as u8;
        }
    };
    // A program that is watched gets the signals itself.
    if !command.verb.runs_a_program()
        && let Err(error) = ctrlc::set_handler(stop)
    {
        say(format_args!("note: an interruption may leave a partial file behind: {error}"));
    }
    let done = match command.verb {
        Verb::Analyze(verb) => verb.run().map(|()| 0),
        Verb::Inspect(verb) => verb.run().map(|()| 0),
        Verb::Workload(verb) => verb.run().map(|()| 0),
        Verb::Profile(verb) => verb.run(),
        Verb::Simulate(verb) => verb.run().map(|()| 0),
        Verb::Sweep(verb) => verb.run().map(|()| 0),
        Verb::Specs(verb) => verb.run().map(|()| 0),
        Verb::Watch(verb) => verb.run(),
        Verb::Trace(verb) => verb.run().map(|()| 0),
        Verb::Reproduce(verb) => verb.run().map(|()| 0),
        Verb::Bench(verb) => verb.run().map(|()| 0),
        Verb::Gpu(verb) => verb.run().map(|()| 0),
        Verb::Pack(verb) => verb.run().map(|()| 0),
        Verb::Unpack(verb) => verb.run().map(|()| 0),
        Verb::Completions(verb) => verb.run().map(|()| 0),
        Verb::Man(verb) => verb.run().map(|()| 0),
    };
    let code = match done {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => 0,
        Err(error) => {
            say(format_args!("buddy: {error:#}"));
            1
        }
    };
    // A verb that finishes by itself was interrupted all the same.
    if INTERRUPTED.load(Ordering::Relaxed) { INTERRUPT_CODE } else { code }
}

impl Verb {
    /// Whether it runs a program of the user's, whose signals and exit code are its own.
    fn runs_a_program(&self) -> bool {
        match self {
            Self::Watch(_) => true,
            Self::Profile(verb) => verb.runs_a_program(),
            _ => false,
        }
    }
}

/// Whether the verb finishes by itself when it is interrupted, and whether it should now.
static FINISHES: AtomicBool = AtomicBool::new(false);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The code that shells give for Ctrl-C: 128 and the signal's number.
const INTERRUPT_CODE: u8 = 130;

/// Ends an interrupted process without a half-written file, with the code that shells give for Ctrl-C. A verb that
/// finishes by itself is left alone the first time.
fn stop() {
    if FINISHES.load(Ordering::Relaxed) && !INTERRUPTED.swap(true, Ordering::Relaxed) {
        return;
    }
    buddy_snapshot::discard_partial();
    std::process::exit(INTERRUPT_CODE.into());
}

/// Prints one line on stderr. Nobody may be reading there, and that is no reason to fail.
fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", buddy_core::visible(&line.to_string().replace('\n', " ")));
}

/// Whether the reader of our stdout has gone, as in `buddy ... | head -1`: it has what it wanted.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
