//! `buddy completions`: shell completion scripts.

use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// Print a shell completion script for verbs, options and their values
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Completions {
    /// Shell to write the script for
    shell: Shell,
}

const AFTER_HELP: &str = "\
Examples:
  Install the script:
    buddy completions bash >~/.local/share/bash-completion/completions/buddy
    buddy completions zsh  >~/.zfunc/_buddy     # a folder in $fpath
    buddy completions fish >~/.config/fish/completions/buddy.fish";

impl Completions {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        // Generated in memory first: a closed pipe must not panic.
        let mut script = Vec::new();
        generate(self.shell, &mut crate::Command::command(), "buddy", &mut script);
        io::stdout().write_all(&script).context("cannot write to stdout")
    }
}
