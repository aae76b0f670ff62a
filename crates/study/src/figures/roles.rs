//! Beyond the paper: compressibility in training by role of the tensor.

use std::collections::BTreeMap;

use buddy_core::{ENTRY_BYTES, Histogram, SizeClass, Target};
use buddy_dl::{NetworkInfo, PAPER, TODAY};
use buddy_record::{Figure, Grid, GridCell, Panel, Unit};

use super::networks::both;
use crate::{
    About, Experiment, Findings, Recorded,
    tensors::{RULES, Rule, Tensor, role, tensors},
};

/// The tensors of all recorded networks, by role and type.
#[derive(Debug)]
pub struct Roles;

/// Roles with a smaller share of all bytes are omitted.
const LEAST_SHARE: f64 = 0.0005;

impl Experiment for Roles {
    fn about(&self) -> About {
        About {
            name: "roles",
            title: "What compresses in training",
            place: "beyond the paper",
            text: "The tensors of the paper's networks, in fp32 with SGD, and of today's, in bf16 with AdamW, by what they \
                   are. A cell has the ratio, the overflow in the worst snapshot, the commonest choice and its share of \
                   the bytes. Below, their entries by size class with the best codec, and the paper's networks as Caffe holds them.",
        }
    }

    fn needs_programs(&self) -> bool {
        false
    }

    fn draw(&self, found: &Findings) -> Figure {
        let networks = &found.networks;
        let groups =
            [("fp32 with SGD", by_role(networks, &PAPER)), ("bf16 with AdamW", by_role(networks, &TODAY))];
        let of_pytorch = groups.iter().map(|(title, roles)| choices(title, roles));
        let classes = groups.iter().map(|(title, roles)| classes(title, roles));
        let caffe = by_role(&found.caffe, &PAPER);
        let of_caffe = (!caffe.is_empty()).then(|| choices("as Caffe holds them, fp32 with SGD", &caffe));
        let panels = of_pytorch.chain(classes).chain(of_caffe).map(Panel::Table).collect();
        Figure { panels, missing: found.missing(), deviations: vec![49], ..self.about().figure() }
    }
}

/// All tensors of one role and type.
struct Group<'a> {
    role: &'static str,
    dtype: &'static str,
    bytes: u64,
    tensors: Vec<Tensor<'a>>,
}

/// Returns the groups, largest first.
fn by_role<'a>(recorded: &'a BTreeMap<String, Recorded>, networks: &[NetworkInfo]) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<(&str, &str), Group<'a>> = BTreeMap::new();
    let known = networks.iter().filter_map(|info| recorded.get_key_value(info.name));
    for (name, recorded) in known {
        for tensor in tensors(&recorded.profile) {
            let (role, dtype) = (role(name, tensor.info), tensor.info.dtype.name());
            let group =
                groups.entry((role, dtype)).or_insert(Group { role, dtype, bytes: 0, tensors: Vec::new() });
            group.bytes += tensor.info.bytes;
            group.tensors.push(tensor);
        }
    }
    let least = LEAST_SHARE * groups.values().map(|group| group.bytes as f64).sum::<f64>();
    let mut groups: Vec<_> = groups.into_values().filter(|group| group.bytes as f64 >= least).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
    groups
}

/// Returns a table with the result of every rule for each group.
fn choices(title: &str, groups: &[Group<'_>]) -> Grid {
    let rules = RULES.map(|(name, _)| (name.to_owned(), Unit::Ratio));
    let row = |group: &Group<'_>| -> Vec<GridCell> {
        let cells = RULES.map(|(_, rule)| choice(&group.tensors, rule));
        head(group).into_iter().chain(cells).collect()
    };
    Grid { title: title.to_owned(), columns: named(rules), rows: groups.iter().map(row).collect() }
}

/// Returns ratio, worst overflow and the most frequent choice of some tensors, weighted by bytes.
fn choice(tensors: &[Tensor<'_>], rule: Rule) -> GridCell {
    let (mut all, mut device, mut over) = (0.0, 0.0, 0.0);
    let mut chosen: BTreeMap<String, f64> = BTreeMap::new();
    for tensor in tensors {
        let (bytes, one) = (tensor.info.bytes as f64, tensor.choose(rule));
        all += bytes;
        device += bytes * one.target.device_bytes() as f64 / ENTRY_BYTES as f64;
        over += bytes * one.worst_overflow();
        let name = match one.target {
            Target::X1 => one.target.to_string(),
            target => format!("{} {target}", one.codec),
        };
        *chosen.entry(name).or_default() += bytes;
    }
    let most = chosen.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let (name, bytes) = most.map_or(("", 0.0), |(name, bytes)| (name.as_str(), *bytes));
    let GridCell::Text(figures) = both(all / device, over / all) else { return GridCell::Empty };
    format!("{figures}: {name} ({:.0}%)", 100.0 * bytes / all).into()
}

/// Returns the entries of each group by class with the best codec; each tensor is averaged over its
/// snapshots.
fn classes(title: &str, groups: &[Group<'_>]) -> Grid {
    let columns = SizeClass::ALL.map(|class| (format!("{} B", class.bytes()), Unit::Percent));
    let row = |group: &Group<'_>| -> Vec<GridCell> {
        let mut sums = [0.0; 6];
        for tensor in &group.tensors {
            let sizes: Histogram = tensor.choose(Rule::Best).sizes();
            let weight = tensor.entries() as f64 / sizes.entries().max(1) as f64;
            sums.iter_mut().zip(sizes.classes).for_each(|(sum, count)| *sum += weight * count as f64);
        }
        let all: f64 = sums.iter().sum();
        head(group).into_iter().chain(sums.map(|sum| GridCell::from(sum / all))).collect()
    };
    let rows = groups.iter().map(row).collect();
    Grid { title: format!("Size classes, {title}"), columns: named(columns), rows }
}

fn named<const N: usize>(columns: [(String, Unit); N]) -> Vec<(String, Unit)> {
    let head = [("what", Unit::Number), ("type", Unit::Number), ("bytes", Unit::Bytes)];
    head.map(|(name, unit)| (name.to_owned(), unit)).into_iter().chain(columns).collect()
}

fn head(group: &Group<'_>) -> [GridCell; 3] {
    [group.role.into(), group.dtype.into(), (group.bytes as f64).into()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::findings;

    fn row(figure: &Figure, table: usize, what: &str) -> Vec<GridCell> {
        let Panel::Table(table) = &figure.panels[table] else { panic!("a table") };
        table.rows.iter().find(|row| row[0] == GridCell::from(what)).expect(what).clone()
    }

    /// x of alexnet overflows by a quarter at 4x: 32 sectors of 32 bytes for 16384 bytes, a
    /// sixteenth. PCIe 5 allows 55 / 4237 of the bytes and takes 2x; NVLink-C2C allows 450 / 4237,
    /// more than a tenth.
    #[test]
    fn cells_show_ratio_overflow_and_choice() {
        let figure = Roles.draw(&findings());
        let cells = row(&figure, 0, "other activations");
        assert_eq!(cells[1..3], [GridCell::from("f32"), GridCell::from(16384.0)]);
        let paper = "4.00x, 25.0%: bpc 4x (100%)";
        assert_eq!(cells[3..], [paper, paper, "2.00x, 0%: bpc 2x (100%)", paper].map(GridCell::from));
        assert_eq!(row(&figure, 0, "weights")[3], GridCell::from("1.00x, 0%: 1x (100%)"));
        assert_eq!(row(&figure, 0, "gradients of weights")[3], GridCell::from("1.33x, 0%: bpc 4/3x (100%)"));
        assert_eq!(row(&figure, 4, "gradients of activations")[3], GridCell::from("1.00x, 0%: 1x (100%)"));
        assert_eq!(row(&figure, 1, "other activations")[4], GridCell::from("1.33x, 0%: bf16 4/3x (100%)"));
    }

    /// 48, 0, 48, 32, 0 and 0 of 128 entries.
    #[test]
    fn classes_are_shares_of_the_entries() {
        let figure = Roles.draw(&findings());
        let shares = [0.375, 0.0, 0.375, 0.25, 0.0, 0.0].map(GridCell::from);
        assert_eq!(row(&figure, 2, "other activations")[3..], shares);
    }
}
