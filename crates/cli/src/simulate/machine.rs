//! GPUs and links by name or from files.

use anyhow::{Context, Result};
use buddy_sim::{presets, spec};

/// Reads a file.
pub(super) fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// A preset or a file.
pub(super) fn gpu(name: &str) -> Result<spec::Gpu> {
    if name.ends_with(".toml") { Ok(spec::Gpu::parse(name, &read(name)?)?) } else { Ok(presets::gpu(name)?) }
}

/// A preset, a file, or a bandwidth with the latency of the 150 GB/s link.
pub(super) fn link(name: &str) -> Result<spec::Link> {
    if name.ends_with(".toml") {
        return Ok(spec::Link::parse(name, &read(name)?)?);
    }
    let known = presets::LINKS.iter().any(|(known, _)| *known == name);
    match name.parse::<f64>() {
        Ok(gb_per_s) if !known => {
            let link = spec::Link { name: name.to_owned(), gb_per_s, ..presets::link("150")? };
            link.check().map_err(|why| anyhow::anyhow!("link {name}: {why}"))?;
            Ok(link)
        }
        _ => Ok(presets::link(name)?),
    }
}
