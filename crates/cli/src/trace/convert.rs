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

/// Write a trace in another format: Accel-Sim's text or our packed .warps
///
/// A kernel's file is converted to the format that the new name asks for. A folder with a kernelslist.g, or the list
/// itself, is converted to a new folder, in the format of --to. Nothing is lost that the simulator uses; PCs and line
/// numbers are.
#[derive(Args)]
#[command(after_help = "Examples:
  buddy trace convert kernel-1.traceg.xz kernel-1.warps
  buddy trace convert kernel-1.warps kernel-1.traceg
  buddy trace convert traces/ packed/ --to warps")]
pub(super) struct Convert {
    /// A kernel's trace (.traceg, .traceg.xz, .warps), a folder with kernelslist.g, or that list
    from: PathBuf,
    /// The file or folder to write
    to: PathBuf,
    /// Format of a folder's kernels
    #[arg(long = "to", value_name = "FORMAT", default_value = "warps")]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Packed, our own
    Warps,
    /// Accel-Sim's text
    Traceg,
    /// The same compressed
    TracegXz,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Warps => ".warps",
            Self::Traceg => ".traceg",
            Self::TracegXz => ".traceg.xz",
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
            bail!("{} is there already; give the name of a new folder", self.to.display());
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

/// Converts one kernel; the new file is whole, or what was there before stays.
fn one(from: &Path, to: &Path) -> Result<()> {
    if !is_kernel(&to.to_string_lossy()) {
        bail!("{}: a kernel's trace ends in .warps, .traceg or .traceg.xz", to.display());
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
