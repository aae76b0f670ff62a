//! The paper's heat maps of all sixteen workloads.

use buddy_core::{Histogram, PageMap};
use buddy_record::{AllocationProfile, Figure, Heat, Panel, Profile};
use buddy_report::stack_maps;

use crate::{About, Experiment, Findings, Subject};

/// A heat map of every workload.
#[derive(Debug)]
pub struct Spatial;

/// Rows of a map, suitable for the page's width.
const ROWS: usize = 256;

impl Experiment for Spatial {
    fn about(&self) -> About {
        About {
            name: "fig6",
            title: "Where memory compresses",
            place: "Figure 6, section 3.4",
            text: "Every allocation of every workload in the last snapshot that has its pages, and the ratio of eight sizes \
                   of just that memory. Each line is a page of 64 entries, pages run downwards in \
                   address order. Blue compresses, red does not. The paper finds large regions of one colour in \
                   most HPC programs, stripes in FF_HPGMG and mixed regions in the networks.",
        }
    }

    fn draw(&self, found: &Findings) -> Figure {
        let subjects = found.subjects();
        Figure {
            panels: subjects.iter().filter_map(heat).map(Panel::Heat).collect(),
            missing: found.missing(),
            ..self.about().figure()
        }
    }
}

fn heat(subject: &Subject<'_>) -> Option<Heat> {
    let profile = subject.profile?;
    let maps: Vec<&PageMap> = pages(profile);
    let remark = shown(profile).optimistic_ratio().map(|ratio| format!("{ratio:.2}x"));
    Some(Heat {
        title: subject.label.to_owned(),
        remark: remark.unwrap_or_else(|| "all zeros".to_owned()),
        map: stack_maps(&maps, ROWS),
    })
}

fn pages(profile: &Profile) -> Vec<&PageMap> {
    profile.allocations.iter().filter_map(|allocation| allocation.pages.as_ref()).collect()
}

/// Returns the sizes that the map shows: each allocation in the snapshot of its pages. A tensor
/// freed before the last snapshot is on the map, and so in its label.
fn shown(profile: &Profile) -> Histogram {
    let of = |allocation: &AllocationProfile| {
        let (pages, sizes) = (allocation.pages.as_ref()?, allocation.histograms.get("bpc")?);
        sizes.iter().rev().find(|sizes| sizes.entries() > 0 && sizes.allows(pages)).copied()
    };
    profile.allocations.iter().filter_map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::findings;

    /// cg: page 1 of a is 64 x 3, page 2 is 32 x 3 and 32 x 5; b is 64 x 2 and 64 x 5. The last
    /// snapshot has a ratio of 32768 / 20480.
    #[test]
    fn a_map_has_the_pages_of_all_allocations_in_order() {
        let figure = Spatial.draw(&findings());
        let [Panel::Heat(cg), Panel::Heat(seismic), ..] = &figure.panels[..] else { panic!("heat maps") };
        assert_eq!((cg.title.as_str(), cg.remark.as_str(), cg.map.pages()), ("354.cg", "1.60x", 4));
        let half = "3".repeat(32) + &"5".repeat(32);
        assert_eq!(cg.map.digits(), ["3".repeat(64), half, "2".repeat(64), "5".repeat(64)]);
        let mixed = "0".repeat(8) + &"1".repeat(24) + &"5".repeat(32);
        assert_eq!(seismic.map.digits()[..2], ["0".repeat(64), mixed]);
        assert_eq!(figure.panels.len(), 4, "two programs and the paper's two networks");
    }

    /// The last snapshot of a training iteration lacks most tensors of the map.
    #[test]
    fn a_label_describes_the_memory_on_its_map() {
        let mut found = findings();
        let mut freed = found.programs["cg"].profile.clone();
        for allocation in &mut freed.allocations {
            allocation.histograms.values_mut().for_each(|sizes| sizes.push(Histogram::default()));
        }
        freed.optimistic.push(Some(99.0));
        found.programs.get_mut("cg").expect("cg").profile = freed;
        let Panel::Heat(cg) = &Spatial.draw(&found).panels[0] else { panic!("heat maps") };
        assert_eq!(cg.remark, "1.60x", "of the map, not of what is left at the end");
    }
}
