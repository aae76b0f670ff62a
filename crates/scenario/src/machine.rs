//! GPUs and links by name, from files, or as a bandwidth.

use buddy_sim::{presets, spec};

use crate::Error;

fn read(path: &str) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// A GPU by the name of a preset, or by the path of a TOML file.
///
/// # Errors
/// A name that is none, or a file that is not the description of a GPU.
pub fn gpu(name: &str) -> Result<spec::Gpu, Error> {
    if name.ends_with(".toml") { Ok(spec::Gpu::parse(name, &read(name)?)?) } else { Ok(presets::gpu(name)?) }
}

/// A link by the name of a preset, by the path of a TOML file, or as a bandwidth such as `75` or `75 GB/s`, with the
/// latency of the 150 GB/s link.
///
/// # Errors
/// A name that is none, a file that is not the description of a link, or a bandwidth that cannot be.
pub fn link(name: &str) -> Result<spec::Link, Error> {
    if name.ends_with(".toml") {
        return Ok(spec::Link::parse(name, &read(name)?)?);
    }
    let known = presets::LINKS.iter().any(|(known, _)| *known == name);
    match name.trim_end_matches(" GB/s").parse::<f64>() {
        Ok(gb_per_s) if !known => {
            let link = spec::Link { name: name.to_owned(), gb_per_s, ..presets::link("150")? };
            link.check().map_err(|why| Error::Setting(format!("link {name}: {why}")))?;
            Ok(link)
        }
        _ => Ok(presets::link(name)?),
    }
}
