//! `buddy man`: the help of every verb as pages for `man`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};

/// Write a manual page of the command and of each verb
#[derive(Args)]
#[command(after_help = "Examples:\n  buddy man ~/.local/share/man/man1 && man buddy-profile")]
pub(crate) struct Man {
    /// The folder that gets them; made if it is missing
    folder: PathBuf,
}

impl Man {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let cannot = || format!("cannot write manual pages to {}", self.folder.display());
        std::fs::create_dir_all(&self.folder).with_context(cannot)?;
        clap_mangen::generate_to(crate::Command::command(), &self.folder).with_context(cannot)
    }
}
