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
pub(crate) struct Specs {
    #[command(subcommand)]
    what: What,
}

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
