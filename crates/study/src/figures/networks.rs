//! Beyond the paper: recorded networks by rule, their memory over a step, and heat maps.

use buddy_core::PageMap;
use buddy_dl::{NetworkInfo, PAPER, TODAY};
use buddy_record::{AxisInfo, Chart, Figure, Grid, GridCell, Heat, Panel, SeriesInfo, Unit};
use buddy_report::{number, stack_maps};
use serde_json::Value;

use super::{bar_chart, caffe, charts, line_chart};
use crate::{
    About, Experiment, Findings, Recorded, arithmetic, geometric,
    tensors::{Outcome, RULES, Tensor, outcome, tensors},
};

/// Every recorded network with every rule.
#[derive(Debug)]
pub struct Networks;

/// The memory of every recorded network, page by page.
#[derive(Debug)]
pub struct NetworkMaps;

/// Kinds of tensors in records.
const KINDS: [&str; 5] = ["weights", "gradients", "optimizer", "activations", "input"];
/// Rows of a map.
const ROWS: usize = 256;

impl Experiment for Networks {
    fn about(&self) -> About {
        About {
            name: "networks",
            title: "Recorded networks by rule",
            place: "beyond the paper",
            text: "The largest footprint of a training step for each byte of device memory, and the share of live entries \
                   that need buddy memory, the mean of ten snapshots. 30% is the paper's rule; for a link, the largest target \
                   at which a pass over the tensor takes the link no longer than device memory takes for the plain bytes. At \
                   the end the paper's networks as Caffe holds them: every blob and its gradient for the whole run.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, found: &Findings) -> Figure {
        let groups = [known(found, &PAPER), known(found, &TODAY)];
        let table = Panel::Table(by_network(&groups));
        let all = groups.concat();
        let pictures = charts([ratios(&all), over_time(&all), by_kind(&all)]);
        let costs = Panel::Table(costs(&all));
        let panels =
            std::iter::once(table).chain(pictures).chain([costs]).chain(caffe::panels(found)).collect();
        Figure { panels, missing: found.missing(), deviations: vec![49], ..self.about().figure() }
    }
}

/// A recorded network.
#[derive(Clone)]
struct Known<'a> {
    info: &'static NetworkInfo,
    recorded: &'a Recorded,
    tensors: Vec<Tensor<'a>>,
}

fn known<'a>(found: &'a Findings, networks: &'static [NetworkInfo]) -> Vec<Known<'a>> {
    let one = |info: &'static NetworkInfo| {
        let recorded = found.networks.get(info.name)?;
        Some(Known { info, recorded, tensors: tensors(&recorded.profile) })
    };
    networks.iter().filter_map(one).collect()
}

impl Known<'_> {
    fn snapshots(&self) -> usize {
        self.recorded.record.run.snapshots.len()
    }

    /// Returns the live bytes in a snapshot, of one kind or of all.
    fn live(&self, snapshot: usize, kind: Option<&str>) -> u64 {
        let counts = |tensor: &&Tensor<'_>| {
            tensor.alive(snapshot) && kind.is_none_or(|kind| tensor.info.call_site == kind)
        };
        self.tensors.iter().filter(counts).map(|tensor| tensor.info.bytes).sum()
    }

    /// Returns the snapshot with the most memory.
    fn peak(&self) -> usize {
        (0..self.snapshots()).max_by_key(|&snapshot| self.live(snapshot, None)).unwrap_or(0)
    }

    fn parameter(&self, name: &str) -> Option<&Value> {
        self.recorded.record.run.parameters.get(name)
    }
}

/// Returns a table of the paper's networks and current ones, each group with its mean.
fn by_network(groups: &[Vec<Known<'_>>; 2]) -> Grid {
    let plain = [
        ("network", Unit::Number),
        ("batch", Unit::Count),
        ("footprint", Unit::Bytes),
        ("recorded", Unit::Bytes),
    ];
    let ratios =
        ["optimistic, bpc"].into_iter().chain(RULES.map(|(name, _)| name)).map(|name| (name, Unit::Ratio));
    let columns = plain.into_iter().chain(ratios).map(|(name, unit)| (name.to_owned(), unit)).collect();
    let mut rows = Vec::new();
    for group in groups.iter().filter(|group| !group.is_empty()) {
        let outcomes: Vec<Vec<Outcome>> =
            group.iter().map(|one| RULES.map(|(_, rule)| outcome(&one.tensors, rule)).into()).collect();
        let optimistic = |one: &Known<'_>| one.recorded.profile.optimistic_ratio;
        for (one, outcomes) in group.iter().zip(&outcomes) {
            let parameter = |name| GridCell::from(one.parameter(name).and_then(Value::as_f64));
            let recorded = one.live(one.peak(), None) as f64;
            let head =
                [one.info.name.into(), parameter("batch"), parameter("footprint_bytes"), recorded.into()];
            let cells = outcomes.iter().map(|one| both(one.ratio, one.overflow));
            rows.push(head.into_iter().chain([optimistic(one).into()]).chain(cells).collect());
        }
        let mean = |rule: usize| {
            let ratio = geometric(outcomes.iter().map(|all| all[rule].ratio));
            let overflow = arithmetic(outcomes.iter().map(|all| all[rule].overflow));
            both(ratio.unwrap_or(f64::NAN), overflow.unwrap_or(f64::NAN))
        };
        let head = ["mean".into(), GridCell::Empty, GridCell::Empty, GridCell::Empty];
        let optimistic = geometric(group.iter().filter_map(optimistic));
        rows.push(head.into_iter().chain([optimistic.into()]).chain((0..RULES.len()).map(mean)).collect());
    }
    Grid { title: String::new(), columns, rows }
}

/// Formats a ratio and a share in one cell.
pub(super) fn both(ratio: f64, share: f64) -> GridCell {
    format!("{}, {}", number(Unit::Ratio, ratio), number(Unit::Percent, share)).into()
}

fn ratios(all: &[Known<'_>]) -> Chart {
    let series = RULES.map(|(name, rule)| {
        SeriesInfo::bars(name, all.iter().map(|one| Some(outcome(&one.tensors, rule).ratio)))
    });
    let y = AxisInfo::new("ratio", Unit::Ratio).starting_at(0.0);
    Chart { groups: labels(all), ..bar_chart("Ratio by rule", &[], y, series.into()) }
}

fn over_time(all: &[Known<'_>]) -> Chart {
    let line = |one: &Known<'_>| {
        let live =
            (0..one.snapshots()).map(|snapshot| (snapshot as f64 + 1.0, one.live(snapshot, None) as f64));
        SeriesInfo::new(one.info.label, live.collect())
    };
    line_chart(
        "Live memory over a step",
        AxisInfo::new("snapshot", Unit::Count),
        AxisInfo::new("memory", Unit::Bytes).starting_at(0.0),
        all.iter().map(line).collect(),
    )
}

fn by_kind(all: &[Known<'_>]) -> Chart {
    let series = KINDS.map(|kind| {
        let share = |one: &Known<'_>| {
            let peak = one.peak();
            Some(one.live(peak, Some(kind)) as f64 / one.live(peak, None).max(1) as f64)
        };
        SeriesInfo::bars(kind, all.iter().map(share))
    });
    let y = AxisInfo::new("share of the memory", Unit::Percent).starting_at(0.0);
    Chart {
        groups: labels(all),
        ..bar_chart("Kinds of tensors where memory is largest", &[], y, series.into())
    }
}

fn labels(all: &[Known<'_>]) -> Vec<String> {
    all.iter().map(|one| one.info.label.to_owned()).collect()
}

/// Returns a table of the recording cost of a snapshot.
fn costs(all: &[Known<'_>]) -> Grid {
    let columns = [
        ("network", Unit::Number),
        ("tensors", Unit::Count),
        ("ms per GB", Unit::Number),
        ("of it in buddyHistograms", Unit::Number),
    ];
    let row = |one: &Known<'_>| -> Vec<GridCell> {
        let cost = |what: &str| {
            GridCell::from(one.parameter("snapshot_ms_per_gb").and_then(|all| all.get(what)?.as_f64()))
        };
        vec![one.info.name.into(), (one.tensors.len() as f64).into(), cost("all"), cost("counting")]
    };
    let columns = columns.map(|(name, unit)| (name.to_owned(), unit)).into();
    Grid { title: "What a snapshot cost".to_owned(), columns, rows: all.iter().map(row).collect() }
}

impl Experiment for NetworkMaps {
    fn about(&self) -> About {
        About {
            name: "maps",
            title: "Where networks compress",
            place: "beyond the paper",
            text: "64 entries of a page along x, pages down y in the order of the record, each tensor in the last snapshot \
                   that has it, with BPC. Every layer of a convolutional network has a compressibility of its own; \
                   transformers are one colour per tensor.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, found: &Findings) -> Figure {
        let heat = |one: &Known<'_>| {
            let tensors = &one.recorded.profile.allocations;
            let maps: Vec<&PageMap> = tensors.iter().filter_map(|tensor| tensor.pages.as_ref()).collect();
            let remark = one.recorded.profile.optimistic_ratio.map(|ratio| number(Unit::Ratio, ratio));
            let title = one.info.label.to_owned();
            Panel::Heat(Heat { title, remark: remark.unwrap_or_default(), map: stack_maps(&maps, ROWS) })
        };
        let all = [known(found, &PAPER), known(found, &TODAY)].concat();
        Figure { panels: all.iter().map(heat).collect(), missing: found.missing(), ..self.about().figure() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{bar, chart, findings, near, points};

    fn table(figure: &Figure, panel: usize) -> &Grid {
        if let Panel::Table(table) = &figure.panels[panel] { table } else { panic!("a table") }
    }

    /// alexnet: 16384 bytes in 4096, over PCIe 5 in 8192 (see roles). resnet50: 32768 in 16384 +
    /// 12288 with every rule.
    #[test]
    fn a_row_for_each_network_and_each_mean() {
        let figure = Networks.draw(&findings());
        let rows = &table(&figure, 0).rows;
        let names: Vec<&GridCell> = rows.iter().map(|row| &row[0]).collect();
        let expected = ["alexnet", "resnet50", "mean", "resnet50_bf16", "mean"].map(GridCell::from);
        assert_eq!(names, expected.iter().collect::<Vec<_>>());
        // 48 x 32 + 32 x 64 bytes with eight sizes.
        assert_eq!(rows[0][3..5], [16384.0, 16384.0 / 3584.0].map(GridCell::from));
        assert_eq!(
            rows[0][5..],
            ["4.00x, 25.0%", "4.00x, 25.0%", "2.00x, 0%", "4.00x, 25.0%"].map(GridCell::from)
        );
        assert_eq!(rows[1][3], GridCell::from(32768.0), "at the peak");
        // The roots of 4 x 8/7 and of 2 x 8/7.
        assert_eq!(rows[2][5..8], ["2.14x, 12.5%", "2.14x, 12.5%", "1.51x, 0%"].map(GridCell::from));
        assert_eq!(rows[3][5..7], ["1.00x, 0%", "1.33x, 0%"].map(GridCell::from));
    }

    #[test]
    fn memory_is_shown_over_time_and_by_kind() {
        let figure = Networks.draw(&findings());
        near(bar(chart(&figure, 1), "best codec, 30%", "ResNet50, bf16"), 4.0 / 3.0);
        assert_eq!(points(chart(&figure, 2), "ResNet50"), [(1.0, 16384.0), (2.0, 32768.0)]);
        near(bar(chart(&figure, 3), "gradients", "ResNet50"), 0.5);
        near(bar(chart(&figure, 3), "activations", "AlexNet"), 1.0);
        assert_eq!(
            table(&figure, 4).rows[0],
            ["alexnet".into(), 1.0.into(), GridCell::Empty, GridCell::Empty]
        );
    }

    /// g has 96 bytes everywhere, which is digit 4, and w is raw.
    #[test]
    fn maps_have_the_pages_of_all_tensors() {
        let figure = NetworkMaps.draw(&findings());
        let Panel::Heat(resnet50) = &figure.panels[1] else { panic!("a map") };
        let rows = ["5", "5", "4", "4"].map(|digit| digit.repeat(64));
        assert_eq!((resnet50.title.as_str(), resnet50.map.digits()), ("ResNet50", rows.to_vec()));
        // 49152 bytes over both snapshots in 45056.
        assert_eq!(resnet50.remark, "1.09x");
    }
}
