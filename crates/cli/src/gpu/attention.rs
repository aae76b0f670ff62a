//! `buddy gpu attention`: attention over a compressed KV cache.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Result;
use buddy_cuda::Gpu;
use buddy_gpu_lab::AttentionRow;
use clap::Args;

#[derive(Args)]
pub(super) struct Attention {
    /// Number of random shapes to verify first
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    checks: u32,
    /// Write the results as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

impl Attention {
    pub(super) fn run(self, gpu: &Gpu) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{:<48} {:>10} {:>10} {:>6} {:>7} {:>10} {:>8}",
            "case", "packed us", "plain us", "ratio", "bytes", "append us", "read us"
        )?;
        let mut failed = None;
        let report = buddy_gpu_lab::attention(gpu, self.checks, |row| {
            failed = failed.take().or(print_row(&mut out, row).err());
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        writeln!(
            out,
            "a token of 8 sequences, 32 layers, 8 heads of 128: appended at once in {:.1} us, layer by layer in {:.1} us",
            report.append_at_once_us, report.append_by_layer_us
        )?;
        writeln!(
            out,
            "{} random shapes, 1000 replays of a graph and all of the above verified on {}",
            report.checked, report.gpu
        )?;
        super::record(self.json.as_deref(), report)
    }
}

fn print_row(out: &mut impl Write, row: &AttentionRow) -> Result<()> {
    let AttentionRow { sequences, length, heads, group, head_values, page_tokens, .. } = row;
    let what = format!(
        "{sequences} x {length} tokens, {heads} heads of {head_values} x {group}, pages of {page_tokens}"
    );
    Ok(writeln!(
        out,
        "{what:<48} {:>10.1} {:>10.1} {:>6.2} {:>6.1}% {:>10.1} {:>8.1}",
        row.packed_us,
        row.twin_us,
        row.twin_us / row.packed_us,
        100.0 * row.packed_bytes as f64 / row.plain_bytes as f64,
        row.append_us,
        row.read_us,
    )?)
}
