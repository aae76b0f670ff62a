//! `buddy specs`: the built-in GPUs and links.

use std::io::{self, Write};

use anyhow::{Context, Result};
use buddy_record::spec::{Gpu, Link};
use clap::{Args, Subcommand};

/// List the built-in GPUs and links, or print every field of one
///
/// To define your own GPU or link, write a TOML file with all fields, or with `base = "h200"` and
/// the fields that differ. Pass its path wherever a GPU or link is expected.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Specs {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  All names, and all fields of one:
    buddy specs list
    buddy specs show h200

  A custom GPU with twice the L2 of an H200:
    printf 'base = \"h200\"\\nname = \"mine\"\\n[l2]\\nbytes = 125829120\\n' > mine.toml
    buddy specs show mine.toml
    buddy simulate stream --spec mine.toml";

#[derive(Subcommand)]
enum Action {
    /// List the names of the built-in GPUs and links
    List,
    /// Print every field of a GPU or link as TOML, including those of its base
    Show {
        /// Name or path of a TOML file; if a GPU and a link share a name, the link
        name: String,
    },
}

impl Specs {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        let text = match self.action {
            Action::List => {
                let names = |names: Vec<&str>| names.join(", ");
                format!(
                    "GPUs: {}\nlinks: {}\n",
                    names(Gpu::names().collect()),
                    names(Link::names().collect())
                )
            }
            Action::Show { name } if Link::names().any(|link| link == name) => Link::text(&name)?,
            Action::Show { name } => Gpu::text(&name)?,
        };
        io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")
    }
}
