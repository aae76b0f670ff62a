//! `buddy simulate --ranges`: the address ranges of a trace as a targets file to edit.

use std::io::{self, Write};

use anyhow::{Context, Result, bail};
use buddy_report::bytes;
use buddy_scenario::{Input, Range};

/// Prints a row of a targets file for every range.
pub(crate) fn print(input: &Input) -> Result<()> {
    let ranges = input.stage(false, None)?.ranges()?;
    if ranges.is_empty() {
        bail!("{}: no kernel accesses global memory and nothing is copied", input.program);
    }
    let mut text = "# One row per address range. A target is 1x, 4/3x, 2x, 4x, 16x, device\n\
                    # (uncompressed) or host; shares are those of zero, b8, s1, s2, s3 and raw\n\
                    # entries. Then: buddy simulate WHAT --mode buddy --targets FILE\n"
        .to_owned();
    text.extend(ranges.iter().map(|range| row(range, input.shares)));
    io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")
}

fn row(range: &Range, shares: [f64; 6]) -> String {
    let size = bytes(range.bytes);
    let what = match (range.stated, range.accessed) {
        (true, true) => format!("{size}, allocated or copied to"),
        (true, false) => format!("{size}, copied to, not accessed by kernels"),
        (false, _) => format!("{size}, accessed by kernels"),
    };
    format!(
        "\n# {what}\n[[allocation]]\nbase = {:#x}\nbytes = {}\ntarget = \"1x\"\nshares = [{}]\n",
        range.base,
        range.bytes,
        shares.map(|share| share.to_string()).join(", ")
    )
}
