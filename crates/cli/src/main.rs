//! `buddy`: Buddy Compression on the command line.

#![forbid(unsafe_code)]

mod bench;

use clap::{Parser, Subcommand};

/// Compressed GPU memory that never moves
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Bench(bench::Bench),
}

fn main() -> anyhow::Result<()> {
    match Command::parse().verb {
        Verb::Bench(verb) => verb.run(),
    }
}
