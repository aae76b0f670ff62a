//! A picture of a run's memory over time.

use buddy_core::{PageMap, SizeClass};
use buddy_record::RunRecord;

use super::{map::runs, svg::file};
use crate::{classes::meaning, escape, stack_maps};

/// Rows of a map, enough to show regions and stripes.
const ROWS: usize = 96;
/// Minimum space for names at the left.
const LEFT: f64 = 140.0;
/// Approximate width of a letter.
const LETTER: f64 = 8.4;
const TOP: f64 = 30.0;
const WIDE: f64 = 192.0;
const HIGH: f64 = 360.0;
const GAP: f64 = 16.0;
/// Number of snapshots shown: the first, the middle and the last.
const SHOWN: usize = 3;

/// Draws three snapshots of a record as heat maps side by side, with the names of allocations that
/// fit.
pub fn run_picture(record: &RunRecord) -> String {
    let maps: Vec<Vec<&PageMap>> = record
        .sizes
        .iter()
        .map(|sizes| sizes.iter().filter_map(|sizes| sizes.pages.get("bpc")).collect())
        .collect();
    let names: Vec<&str> = record.run.allocations.iter().map(|allocation| allocation.name.as_str()).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let left = LEFT.max(20.0 + LETTER * longest as f64);
    let last = maps.len().saturating_sub(1);
    let map = |place: usize| {
        let snapshot = last * place / (SHOWN - 1);
        let map = stack_maps(maps.get(snapshot).map_or(&[], Vec::as_slice), ROWS);
        let (x, high) = (left + place as f64 * (WIDE + GAP), HIGH / map.rows().len().max(1) as f64);
        format!(
            "<text x=\"{x:.0}\" y=\"{:.0}\">snapshot {} of {}</text>\
             <g transform=\"translate({x:.0} {TOP:.0}) scale({:.4} {high:.4})\">{}</g>",
            TOP - 9.0,
            snapshot + 1,
            maps.len(),
            WIDE / 64.0,
            runs(&map)
        )
    };
    let labels = labels(left, &names, maps.first().map_or(&[], Vec::as_slice));
    let pictures: String = (0..SHOWN).map(map).collect();
    let width = left + SHOWN as f64 * (WIDE + GAP);
    file(width, TOP + HIGH + 36.0, &record.run.program, &(labels + &pictures + &legend(left)))
}

/// Draws a tick at the start of each allocation, and its name if it does not overlap the one above.
fn labels(left: f64, names: &[&str], maps: &[&PageMap]) -> String {
    let all = maps.iter().map(|map| map.pages()).sum::<u64>().max(1) as f64;
    let (mut text, mut page, mut free) = (String::new(), 0, 0.0);
    for (name, map) in names.iter().zip(maps) {
        let at = |page: u64| TOP + HIGH * page as f64 / all;
        let (y, middle) = (at(page), (at(page) + at(page + map.pages())) / 2.0);
        text += &format!(
            "<line class=\"grid\" x1=\"{:.0}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            left - 7.0,
            left - 2.0
        );
        if middle - 6.0 >= free {
            free = middle + 6.0;
            let (x, y) = (left - 10.0, middle + 4.0);
            text += &format!("<text x=\"{x:.0}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", escape(name));
        }
        page += map.pages();
    }
    text
}

fn legend(left: f64) -> String {
    let item = |class: SizeClass| {
        let (x, y) = (left + class.index() as f64 * 104.0, TOP + HIGH + 14.0);
        let meaning = meaning(class).rsplit(", ").next().unwrap_or_default();
        format!(
            "<rect class=\"c{}\" x=\"{x:.0}\" y=\"{y:.0}\" width=\"12\" height=\"12\"/><text x=\"{:.0}\" y=\"{:.0}\">{meaning}</text>",
            class.index(),
            x + 17.0,
            y + 10.0
        )
    };
    SizeClass::ALL.map(item).concat()
}

#[cfg(test)]
mod tests {
    use buddy_core::Dtype;
    use buddy_record::{AllocationInfo, AllocationSizes, RunInfo, SnapshotInfo};

    use super::*;

    /// Returns a run of ten snapshots; each allocation has a name, pages and one digit for all
    /// entries.
    fn record(allocations: &[(&str, u64, &str)]) -> RunRecord {
        let info = |&(name, pages, _): &(&str, u64, &str)| AllocationInfo {
            name: name.to_owned(),
            call_site: String::new(),
            base: 0,
            bytes: 8192 * pages,
            dtype: Dtype::F64,
        };
        let sizes = |&(_, pages, digit): &(&str, u64, &str)| {
            let map = PageMap::from_digits(pages, &[digit.repeat(64)]).unwrap();
            AllocationSizes { pages: [("bpc".to_owned(), map)].into(), ..Default::default() }
        };
        let mut run = RunInfo::new("cg", Default::default(), allocations.iter().map(info).collect());
        run.snapshots = vec![SnapshotInfo { step: 0, label: String::new(), file: None }; 10];
        RunRecord { run, sizes: vec![allocations.iter().map(sizes).collect(); 10] }
    }

    #[test]
    fn three_snapshots_are_drawn_with_the_names_that_fit() {
        let svg =
            run_picture(&record(&[("a<", 100, "0"), ("tiny", 1, "1"), ("next", 1, "1"), ("b", 100, "5")]));
        for title in ["snapshot 1 of 10", "snapshot 5 of 10", "snapshot 10 of 10", ">a&lt;<", ">b<"] {
            assert!(svg.contains(title), "{title}");
        }
        assert!(svg.contains(">tiny<") && !svg.contains(">next<"), "of two small ones the first has room");
        assert_eq!(svg.matches("<path class=\"c5\"").count(), 3);
    }

    #[test]
    fn long_names_are_not_clipped() {
        let name = "a_name_of_thirty_three_characters";
        let svg = run_picture(&record(&[(name, 10, "5")]));
        let end = 20.0 + 33.0 * LETTER - 10.0;
        assert!(
            svg.contains(&format!("<text x=\"{end:.0}\"")),
            "it ends 10 before the map and begins 10 from the edge"
        );
    }
}
