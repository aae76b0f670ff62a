//! `buddy trace convert`.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, BufWriter},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use buddy_snapshot::write_atomic;
use buddy_trace::{Item, accel, is_kernel, open_kernel, write_kernel_to};
use clap::{Args, ValueEnum};

use crate::{output, say, workload::decimal};

/// Convert a trace between Accel-Sim's formats and the packed .warps format
///
/// A kernel's file is converted to the format of the new file name. A folder with a kernelslist.g,
/// or the list itself, is converted to a new folder in the format of --to. Keeps everything that
/// the simulator uses; PCs and line numbers are dropped.
#[derive(Args)]
#[command(after_help = "Examples:
  buddy trace convert kernel-1.traceg.xz kernel-1.warps
  buddy trace convert kernel-1.warps kernel-1.traceg
  buddy trace convert traces/ packed/ --to warps
  buddy trace convert traces/ accel-sim-2/ --to tracez")]
pub(super) struct Convert {
    /// A kernel's trace (.traceg, .traceg.xz, .tracez, .warps), a folder with kernelslist.g, or that list
    from: PathBuf,
    /// File or folder to write
    to: PathBuf,
    /// Format of the kernels of a folder
    #[arg(long = "to", value_name = "FORMAT", default_value = "warps")]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Buddy's packed format
    Warps,
    /// Accel-Sim's text format
    Traceg,
    /// Accel-Sim's text format, xz-compressed
    TracegXz,
    /// Accel-Sim 2.0's format
    Tracez,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Warps => ".warps",
            Self::Traceg => ".traceg",
            Self::TracegXz => ".traceg.xz",
            Self::Tracez => ".tracez",
        }
    }
}

impl Convert {
    pub(super) fn run(self) -> Result<()> {
        if is_kernel(&self.from.to_string_lossy()) {
            return one(&self.from, &self.to);
        }
        let items = accel::read_list(&self.from)?;
        if self.to.exists() {
            bail!("{} exists already; give a new folder", self.to.display());
        }
        output::make_folder(&self.to)?;
        let list = items.iter().enumerate().try_fold(String::new(), |mut list, (index, item)| {
            match item {
                Item::Copy { address, bytes } => writeln!(list, "MemcpyHtoD,{address:#x},{bytes}")?,
                Item::Other(line) => writeln!(list, "{line}")?,
                Item::Kernel(path) => {
                    let name = format!("kernel-{}{}", index + 1, self.format.ending());
                    one(path, &self.to.join(&name))?;
                    writeln!(list, "{name}")?;
                }
            }
            anyhow::Ok(list)
        })?;
        output::write(&self.to.join("kernelslist.g"), &list)
    }
}

/// Converts one kernel atomically.
fn one(from: &Path, to: &Path) -> Result<()> {
    if !is_kernel(&to.to_string_lossy()) {
        bail!(
            "{}: the name of a kernel's trace must end in .warps, .traceg, .traceg.xz or .tracez",
            to.display()
        );
    }
    output::check(&[("the trace", Some(&to.to_owned()))], &[from.to_owned()])?;
    let mut kernel = open_kernel(from)?;
    let write =
        |out: &mut BufWriter<File>| write_kernel_to(to, out, kernel.as_mut()).map_err(io::Error::other);
    write_atomic(to, write).with_context(|| format!("cannot convert {}", from.display()))?;
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    say(format_args!("{}: {} from {}", to.display(), decimal(bytes(to)), decimal(bytes(from))));
    Ok(())
}
