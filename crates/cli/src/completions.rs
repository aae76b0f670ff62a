//! `buddy completions`: what a shell completes after `buddy`.

use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// Print what a shell needs to complete verbs, options and their values
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

const AFTER_HELP: &str = "\
Examples:
  Put it where the shell looks:
    buddy completions bash >~/.local/share/bash-completion/completions/buddy
    buddy completions zsh  >~/.zfunc/_buddy     # a folder of $fpath
    buddy completions fish >~/.config/fish/completions/buddy.fish";

impl Completions {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        // The script is made whole first: a pipe that is closed is no panic.
        let mut script = Vec::new();
        generate(self.shell, &mut crate::Command::command(), "buddy", &mut script);
        io::stdout().write_all(&script).context("cannot write to stdout")
    }
}
