//! The allocations of a profile, for a terminal and as CSV.

use buddy_core::ENTRY_BYTES;
use buddy_record::{AllocationInfo, LinkCost, Profile};

use super::{link, overflow, target_text};
use crate::{
    Cell, SortBy, Table, View,
    analysis::{left, right, saved, several},
    bytes, count,
    csv::{Value, csv},
    ratio, share,
    view::{Group, Measure},
};

/// Default maximum of rows on a terminal; the record and the page have all.
const MOST_ROWS: usize = 40;
/// Columns that a narrow terminal omits, in this order.
const SPARE: [&str; 6] = ["learned", "call site", "at worst", "over link", "codec", "overflow"];

/// Renders a row per allocation or group of similar names; the largest if there are many.
pub(super) fn allocations(profile: &Profile, view: &View) -> String {
    let columns = vec![
        left("allocation", ""),
        left("call site", ""),
        right("size", ""),
        left("codec", ""),
        left("learned", ""),
        left("target", ""),
        right("ratio", ""),
        right("overflow", ""),
        right("at worst", ""),
        right("over link", ""),
        right("slowdown", ""),
        right("saved", ""),
    ];
    let (shown, hidden) = shown(profile, view);
    let rows: Vec<Vec<Cell>> = shown.iter().map(|group| row(profile, group)).collect();
    let table = Table { columns, rows, total: total(profile).into_iter().collect() };
    let mut text = table
        .without_empty(&["call site", "learned", "over link", "slowdown"])
        .to_text_within(view.width, &SPARE);
    if hidden > 0 {
        text.push_str(&format!("and {} more allocations\n", count(hidden as u64)));
    }
    text
}

/// Returns the rows, and the number of matching allocations in none of them.
fn shown(profile: &Profile, view: &View) -> (Vec<Group>, usize) {
    let mut groups = groups(profile, view);
    let all: usize = groups.iter().map(|group| group.members.len()).sum();
    if view.top.is_none() && view.sort.is_none() && groups.len() > MOST_ROWS {
        // The largest, in their original order.
        let order = |group: &Group| group.members[0];
        groups.sort_by_key(|group| std::cmp::Reverse(measure(profile, &group.members).bytes));
        groups.truncate(MOST_ROWS);
        groups.sort_by_key(order);
    }
    groups.truncate(view.top.unwrap_or(if view.sort.is_some() { usize::MAX } else { MOST_ROWS }));
    let left: usize = groups.iter().map(|group| group.members.len()).sum();
    (groups, all - left)
}

fn groups(profile: &Profile, view: &View) -> Vec<Group> {
    let infos = &profile.run.allocations;
    let names: Vec<&str> = infos.iter().map(|info| info.name.as_str()).collect();
    let alike = |index: usize| {
        let AllocationInfo { call_site, bytes, dtype, .. } = &infos[index];
        format!("{dtype} {bytes} {call_site}")
    };
    let sort = view.sort.or(view.top.map(|_| SortBy::Size));
    View { sort, ..view.clone() }.groups(&names, alike, |members| measure(profile, members))
}

/// Sums up several allocations. Their overflow is that of the mean snapshot.
fn measure(profile: &Profile, members: &[usize]) -> Measure {
    let sum = |value: &dyn Fn(usize) -> u64| members.iter().map(|&member| value(member)).sum::<u64>();
    let entries = sum(&|member| profile.run.allocations[member].entries());
    let device_bytes = sum(&|member| profile.allocations[member].device_bytes);
    let over =
        |&member: &usize| overflow(profile, member).0 * profile.run.allocations[member].entries() as f64;
    Measure {
        bytes: sum(&|member| profile.run.allocations[member].bytes),
        device_bytes,
        ratio: if device_bytes == 0 {
            1.0
        } else {
            (entries * ENTRY_BYTES as u64) as f64 / device_bytes as f64
        },
        overflow: members.iter().map(over).sum::<f64>() / entries.max(1) as f64,
    }
}

fn row(profile: &Profile, group: &Group) -> Vec<Cell> {
    let found = measure(profile, &group.members);
    let worst = group.members.iter().map(|&member| overflow(profile, member).1).fold(0.0, f64::max);
    let [over_link, slowdown] = link::texts(together(profile, &group.members));
    let of = |value: &dyn Fn(usize) -> String| several(group.members.iter().map(|&member| value(member)));
    let targets = &profile.targets.allocations;
    [
        group.name.clone(),
        of(&|member| profile.run.allocations[member].call_site.clone()),
        bytes(found.bytes),
        of(&|member| super::codec_text(profile, member).0),
        of(&|member| super::codec_text(profile, member).1),
        of(&|member| target_text(&targets[member])),
        ratio(found.ratio),
        share(found.overflow),
        share(worst),
        over_link,
        slowdown,
        saved(found.bytes, found.device_bytes),
    ]
    .map(Cell::text)
    .into()
}

/// Sums the bytes over the link, and takes the largest slowdown.
fn together(profile: &Profile, members: &[usize]) -> Option<LinkCost> {
    let costs = members.iter().filter_map(|&member| profile.allocations[member].link);
    costs.reduce(|sum, one| LinkCost {
        overflow: sum.overflow.max(one.overflow),
        bytes: sum.bytes + one.bytes,
        slowdown: sum.slowdown.max(one.slowdown),
    })
}

fn total(profile: &Profile) -> Option<Vec<Cell>> {
    let all = super::chosen(profile)?;
    let size = profile.run.bytes();
    let [over_link, slowdown] = link::texts(all.link);
    let name = format!("all {}", count(profile.run.allocations.len() as u64));
    let [none, overflow, worst] = [String::new(), share(all.mean_overflow), share(all.worst_overflow)];
    let cells = [
        name,
        none.clone(),
        bytes(size),
        none.clone(),
        none.clone(),
        none,
        ratio(all.ratio),
        overflow,
        worst,
        over_link,
        slowdown,
        saved(super::footprint(profile, all), all.device_bytes),
    ];
    Some(cells.map(Cell::text).into())
}

/// Renders a CSV line per shown allocation, never grouped: sizes in bytes, shares from 0 to 1.
pub fn profile_csv(profile: &Profile, view: &View) -> String {
    const NAMES: [&str; 13] = [
        "name",
        "call_site",
        "dtype",
        "bytes",
        "codec",
        "learned",
        "target",
        "ratio",
        "overflow",
        "worst_overflow",
        "device_bytes",
        "link_bytes",
        "slowdown",
    ];
    let groups = groups(profile, &View { each: true, ..view.clone() });
    let line = |group: Group| {
        let index = group.members[0];
        let (info, found) = (&profile.run.allocations[index], measure(profile, &group.members));
        let target = &profile.targets.allocations[index];
        let text = |text: &str| Value::Text(text.to_owned());
        let link = profile.allocations[index].link;
        vec![
            text(&info.name),
            text(&info.call_site),
            text(info.dtype.name()),
            Value::Whole(info.bytes),
            text(&target.codec),
            text(&profile.allocations[index].learned),
            text(&target_text(target)),
            Value::Number(found.ratio),
            Value::Number(found.overflow),
            Value::Number(overflow(profile, index).1),
            Value::Whole(found.device_bytes),
            link.map_or_else(|| text(""), |link| Value::Whole(link.bytes)),
            link.map_or_else(|| text(""), |link| Value::Number(link.slowdown)),
        ]
    };
    csv(&NAMES, groups.into_iter().take(view.top.unwrap_or(usize::MAX)).map(line))
}
