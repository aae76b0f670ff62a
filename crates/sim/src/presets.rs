//! The GPUs and links of `specs/`, built in.

pub use buddy_core::specs::{GPUS, LINKS};

use crate::{
    Error,
    spec::{Gpu, Link},
};

/// A GPU by its name.
///
/// # Errors
/// [`Error::Preset`] if there is none of that name.
pub fn gpu(name: &str) -> Result<Gpu, Error> {
    Gpu::parse(name, text("GPU", &GPUS, name)?)
}

/// A link by its name.
///
/// # Errors
/// [`Error::Preset`] if there is none of that name.
pub fn link(name: &str) -> Result<Link, Error> {
    Link::parse(name, text("link", &LINKS, name)?)
}

fn text(what: &'static str, presets: &[(&str, &'static str)], name: &str) -> Result<&'static str, Error> {
    let found = presets.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| {
        let list = presets.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
        Error::Preset { what, name: name.to_owned(), list }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid_and_has_its_name() {
        for (name, _) in GPUS {
            assert_eq!(gpu(name).unwrap().name, name);
        }
        for (name, _) in LINKS {
            assert_eq!(link(name).unwrap().name, name);
        }
        assert!(gpu("k80").unwrap_err().to_string().contains("there is no GPU 'k80'; there are paper, p100"));
    }

    #[test]
    fn the_paper_s_table() {
        let gpu = gpu("paper").unwrap();
        assert_eq!((gpu.core.clock_mhz, gpu.core.schedulers, gpu.core.max_warps), (1300.0, 2, 64));
        assert_eq!((gpu.l1.bytes, gpu.shared.bytes), (24 << 10, 64 << 10));
        assert_eq!((gpu.l2.bytes, gpu.l2.slices, gpu.l2.ways), (4 << 20, 32, 16));
        assert_eq!((gpu.dram.channels, gpu.dram.clock_mhz), (32, 875.0));
        assert_eq!(gpu.dram_gb_per_s().round(), 896.0, "which the table calls 900");
        let buddy = &gpu.buddy;
        assert_eq!((buddy.metadata_bytes, buddy.metadata_line_bytes, buddy.metadata_ways), (4096, 128, 4));
        assert_eq!((buddy.codec_clocks, link("150").unwrap().gb_per_s), (11, 150.0));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let paper = GPUS[0].1;
        let error = |from: &str, to: &str| {
            assert!(paper.contains(from));
            let error = Gpu::parse("x.toml", &paper.replacen(from, to, 1)).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1);
            error
        };
        assert_eq!(error("sms = 56", "sms = 0"), "x.toml: core.sms is 0; it must lie between 1 and 1024");
        assert!(error("sms = 56", "smms = 56").contains("unknown field `smms`"));
        assert!(error("sms = 56", "").contains("missing field `sms`"));
        assert!(error("slices = 32", "slices = 48").contains("l2.slices is 48; it must be a multiple of 32"));
        assert!(error("refresh_share = 0.067", "refresh_share = nan").contains("dram.refresh_share is NaN"));
    }
}
