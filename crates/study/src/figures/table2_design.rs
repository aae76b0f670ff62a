//! The paper's design constants and evaluated GPU, compared with our crates.

use buddy_core::{ENTRY_BYTES, Target};
use buddy_memory::{CacheSpec, PageEntry, Spec};
use buddy_record::spec::Gpu;
use buddy_record::{Figure, Grid, GridCell, Origin, Panel, Unit};

use crate::{
    About, Experiment, Findings,
    experiment::{Explained, quantity},
};

/// Constants of the design and of the simulated GPU.
#[derive(Debug)]
pub struct Design;

impl Experiment for Design {
    fn about(&self) -> About {
        About {
            name: "table2",
            title: "The design and the evaluated GPU",
            place: "Table 2, sections 3.2 and 3.5",
            text: "What the paper fixes, beside what the memory and the simulator have. These numbers are read from our \
                   crates, not typed here.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, _: &Findings) -> Figure {
        let memory = Spec::new(1 << 30);
        let carve_out = memory.carve_out_bytes() as f64 / memory.device_bytes as f64;
        let metadata = 0.5 / ENTRY_BYTES as f64;
        let fits = Spec::new(12 << 30).device_bytes as f64 * Target::X2.ratio() / f64::from(1 << 30);
        let cache = CacheSpec::paper_text();
        let row = |name, unit, paper, ours, place| {
            quantity(name, unit, paper, Some(ours), place).made(Origin::Chosen)
        };
        let mut quantities = vec![
            row("Metadata beside its data", Unit::Percent, 0.004, metadata, "section 3.2"),
            row(
                "Bits added to a page-table entry",
                Unit::Count,
                24.0,
                f64::from(PageEntry::ADDED_BITS),
                "section 3.2",
            ),
            row("Carve-out beside device memory", Unit::Ratio, 3.0, carve_out, "section 3.2"),
            row("GB in 12 GB at 2x", Unit::Count, 24.0, fits, "section 3.2"),
            row("Metadata cache", Unit::Bytes, 65_536.0, cache.bytes as f64, "section 3.2"),
            row(
                "Entries of a metadata line",
                Unit::Count,
                64.0,
                cache.line_bytes as f64 * 2.0,
                "section 3.2",
            ),
        ];
        if let Ok(gpu) = Gpu::named("paper") {
            quantities.push(row("Device memory, GB/s", Unit::Number, 900.0, gpu.dram_gb_per_s(), "table 2"));
        }
        Figure { quantities, panels: parameters().into_iter().collect(), ..self.about().figure() }
    }
}

/// Returns the simulator's parameters of the evaluated GPU.
fn parameters() -> Option<Panel> {
    let gpu = Gpu::named("paper").ok()?;
    let rows: Vec<(&str, &str, String)> = vec![
        ("clock", "1.3 GHz", format!("{} MHz", gpu.core.clock_mhz)),
        (
            "schedulers of an SM",
            "2, greedy then oldest",
            format!("{}, greedy then oldest", gpu.core.schedulers),
        ),
        ("warps of an SM", "64", gpu.core.max_warps.to_string()),
        ("L1", "24 KB, 128 B lines", format!("{} KiB, 128 B lines", gpu.l1.bytes >> 10)),
        ("scratchpad", "64 KB", format!("{} KiB", gpu.shared.bytes >> 10)),
        (
            "L2",
            "4 MB, 32 slices, 16 ways",
            format!("{} MiB, {} slices, {} ways", gpu.l2.bytes >> 20, gpu.l2.slices, gpu.l2.ways),
        ),
        (
            "device memory",
            "32 channels at 875 MHz",
            format!("{} channels at {} MHz", gpu.dram.channels, gpu.dram.clock_mhz),
        ),
        (
            "metadata cache of a slice",
            "4 KB, 128 B lines, 4 ways",
            format!(
                "{} KiB, {} B lines, {} ways",
                gpu.buddy.metadata_bytes >> 10,
                gpu.buddy.metadata_line_bytes,
                gpu.buddy.metadata_ways
            ),
        ),
        ("codec", "11 cycles", format!("{} DRAM cycles", gpu.buddy.codec_clocks)),
    ];
    let columns = ["parameter", "paper", "ours"].map(|name| (name.to_owned(), Unit::Number)).into();
    let row = |(name, paper, ours): (&str, &str, String)| {
        vec![GridCell::from(name), GridCell::from(paper), GridCell::from(ours)]
    };
    Some(Panel::Table(Grid { title: String::new(), columns, rows: rows.into_iter().map(row).collect() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{findings, near, ours};

    #[test]
    fn the_design_is_the_papers() {
        let figure = Design.draw(&findings());
        near(ours(&figure, "Metadata beside"), 0.5 / 128.0);
        near(ours(&figure, "Bits added"), 24.0);
        near(ours(&figure, "Carve-out beside"), 3.0);
        near(ours(&figure, "GB in 12 GB"), 24.0);
        near(ours(&figure, "Metadata cache"), 65_536.0);
        // 32 bytes of four bits each.
        near(ours(&figure, "Entries of a metadata line"), 64.0);
        // 32 channels, 875 MHz, 32 bytes per clock: 896 GB/s.
        near(ours(&figure, "Device memory, GB/s"), 896.0);
    }

    #[test]
    fn parameters_are_read_from_the_simulators_gpu() {
        let Some(Panel::Table(table)) = parameters() else { panic!("a table") };
        let row =
            |name: &str| table.rows.iter().find(|row| row[0] == GridCell::from(name)).unwrap()[2].clone();
        assert_eq!(row("L2"), GridCell::from("4 MiB, 32 slices, 16 ways"));
        assert_eq!(row("metadata cache of a slice"), GridCell::from("4 KiB, 128 B lines, 4 ways"));
        assert_eq!(row("device memory"), GridCell::from("32 channels at 875 MHz"));
    }
}
