//! `buddy specs`: the GPUs and links that are built in.

use std::io::{self, Write};

use anyhow::{Context, Result};
use buddy_core::spec::{Gpu, Link};
use clap::{Args, Subcommand};

/// List GPUs and links, or show every field of one
///
/// A GPU or a link of your own is a file with all fields, or with `base = "h200"` and those that differ; give its path
/// wherever a GPU or a link is asked for.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Specs {
    #[command(subcommand)]
    what: What,
}

const EXAMPLES: &str = "\
Examples:
  What is built in, and all that the model knows of one:
    buddy specs list
    buddy specs show h200

  A GPU of your own, with twice the L2 of an H200:
    printf 'base = \"h200\"\\nname = \"mine\"\\n[l2]\\nbytes = 125829120\\n' > mine.toml
    buddy specs show mine.toml
    buddy simulate stream --spec mine.toml";

#[derive(Subcommand)]
enum What {
    /// The names of the GPUs and links that are built in
    List,
    /// Every field of a GPU or a link as TOML, those of its base included
    Show {
        /// Its name, or the path of its file; a name that both have is the GPU's
        name: String,
    },
}

impl Specs {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let text = match self.what {
            What::List => {
                let names = |names: Vec<&str>| names.join(", ");
                format!(
                    "GPUs: {}\nlinks: {}\n",
                    names(Gpu::names().collect()),
                    names(Link::names().collect())
                )
            }
            What::Show { name } if Link::names().any(|link| link == name) => Link::text(&name)?,
            What::Show { name } => Gpu::text(&name)?,
        };
        io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")
    }
}
