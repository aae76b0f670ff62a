//! The `buddy` command as a library, so that the Python package can provide the command too.
//!
//! Each verb has its own file, which parses its arguments, calls the library crates and prints.
//! Data goes to stdout, messages to stderr. The exit code is 0 for success, 1 for failure, 2 for
//! wrong usage and 130 for an interruption.

#![forbid(unsafe_code)]
// `println!` panics on a closed pipe; `output::print` returns an error, which ends the command
// cleanly.
#![deny(clippy::print_stdout)]

mod analyze;
mod bench;
mod completions;
mod display;
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
mod simulate;
mod specs;
mod sweep;
mod threads;
mod trace;
mod watch;
mod workload;

pub use display::width;
pub use threads::start as start_threads;

use std::{
    ffi::OsString,
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use clap::{Parser, Subcommand};

/// Compressed GPU memory with fixed addresses
///
/// Buddy Compression splits memory into 128-byte entries, compresses each one, and stores the part
/// that does not fit its share of device memory in a fixed slot of a larger, slower memory.
#[derive(Parser)]
#[command(name = "buddy", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = "\
Examples:
  buddy analyze model.safetensors --html page.html
  buddy profile -- ./my_program arg1 arg2
  buddy simulate cg --sweep mode=ideal,buddy
  buddy reproduce --quick --out out

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.";

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
    Verify(model::Verify),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Runs the command with these arguments, the program's name first, and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let command = match Command::try_parse_from(arguments) {
        Ok(command) => command,
        Err(message) => {
            // Help and version arrive here too; stderr or stdout may be closed.
            let _ = message.print();
            return message.exit_code() as u8;
        }
    };
    // A program started by the verb handles signals itself.
    if !command.verb.runs_a_program()
        && let Err(error) = ctrlc::set_handler(stop)
    {
        say(format_args!("note: an interruption may leave a partial file behind: {error}"));
    }
    threads::start();
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
        Verb::Verify(verb) => verb.run().map(|()| 0),
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
    // A verb that stopped gracefully was interrupted all the same.
    if INTERRUPTED.load(Ordering::Relaxed) { INTERRUPT_CODE } else { code }
}

impl Verb {
    /// Returns whether the verb runs a user's program, which then handles signals and sets the exit
    /// code.
    fn runs_a_program(&self) -> bool {
        match self {
            Self::Watch(_) => true,
            Self::Profile(verb) => verb.runs_a_program(),
            _ => false,
        }
    }
}

/// True while the verb handles an interruption itself.
static STOPS_GRACEFULLY: AtomicBool = AtomicBool::new(false);
/// True after an interruption.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Exit code after Ctrl-C: 128 plus the signal number, as in shells.
const INTERRUPT_CODE: u8 = 130;

/// Handles Ctrl-C: removes partial files and exits. A verb that stops gracefully gets the first
/// interruption as the flag [`INTERRUPTED`].
fn stop() {
    if STOPS_GRACEFULLY.load(Ordering::Relaxed) && !INTERRUPTED.swap(true, Ordering::Relaxed) {
        return;
    }
    buddy_snapshot::discard_partial();
    std::process::exit(INTERRUPT_CODE.into());
}

/// Prints one line on stderr, and ignores a closed stderr.
fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", buddy_core::visible(&line.to_string().replace('\n', " ")));
}

/// Returns whether the reader of stdout has closed it, as in `buddy ... | head -1`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
