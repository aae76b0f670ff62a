//! The command `buddy`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(buddy_cli::run(std::env::args_os()))
}
