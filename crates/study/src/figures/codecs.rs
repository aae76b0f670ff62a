//! The paper's five codecs and ours.

use buddy_codec::CodecKind;
use buddy_record::{AxisInfo, Chart, CodecOutcome, Figure, Mark, Profile, SeriesInfo, Shape, Unit};

use super::charts;
use crate::{About, Experiment, Findings, geometric};

/// Every codec for all allocations, and the best codec for each.
#[derive(Debug)]
pub struct Codecs;

impl Experiment for Codecs {
    fn about(&self) -> About {
        About {
            name: "codecs",
            title: "Codecs side by side",
            place: "section 2.4, and beyond the paper",
            text: "The paper compares five codecs and chooses Bit-Plane Compression (bpc). Beside them ours, and \
                   auto: the best of ours and bpc for each allocation. Geometric means of the HPC programs: the \
                   ratio of eight sizes, and the ratio of the final design at a threshold of 30%.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let names: Vec<&str> = CodecKind::ALL.iter().map(|kind| kind.name()).chain(["auto"]).collect();
        let profiles: Vec<&Profile> = found.programs.values().map(|program| &program.profile).collect();
        let mean = |codec: &str, value: fn(&CodecOutcome) -> Option<f64>| {
            let one = |profile: &&Profile| value(profile.codecs.iter().find(|one| one.codec == codec)?);
            geometric(profiles.iter().filter_map(one))
        };
        let column = |name: &str, value: fn(&CodecOutcome) -> Option<f64>| {
            SeriesInfo::bars(name, names.iter().map(|codec| mean(codec, value)))
        };
        let series = vec![
            column("eight sizes", |one| one.optimistic_ratio),
            column("final design", |one| Some(one.ratio)),
        ];
        let mark =
            |label: &str, series, y| Mark { label: label.to_owned(), x: Some(0.0), series: Some(series), y };
        let chart = Chart {
            title: "HPC means by codec".to_owned(),
            shape: Shape::Bars,
            x: AxisInfo::new("", Unit::Number),
            y: AxisInfo::new("ratio", Unit::Ratio).starting_at(0.0),
            groups: names.iter().map(|&name| name.to_owned()).collect(),
            series,
            marks: vec![mark("the paper, eight sizes", 0, 2.51), mark("the paper, final design", 1, 1.9)],
        };
        Figure { panels: charts([chart]), deviations: vec![46], ..self.about().figure() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{bar, chart, findings, near};

    /// bpc: cg 65536 bytes in 18432 + 20480, which is 32/19; seismic 65536 in 16384 + 20672, which
    /// is 1024/579. planes64: cg 32768 in 4096 + 10240 in both snapshots, which is 16/7; seismic as
    /// with bpc.
    #[test]
    fn means_are_geometric_over_the_programs() {
        let figure = Codecs.draw(&findings());
        let chart = chart(&figure, 0);
        near(bar(chart, "eight sizes", "bpc"), (32.0 / 19.0 * 1024.0 / 579.0_f64).sqrt());
        near(bar(chart, "eight sizes", "planes64"), (16.0 / 7.0 * 1024.0 / 579.0_f64).sqrt());
        near(bar(chart, "final design", "bpc"), (4.0 / 3.0 * 32.0 / 17.0_f64).sqrt());
        // cg: 4096 + 16384 bytes of device memory for 32768.
        near(bar(chart, "final design", "auto"), (1.6 * 32.0 / 17.0_f64).sqrt());
        assert_eq!(bar(chart, "final design", "fpc"), None, "not measured");
    }
}
