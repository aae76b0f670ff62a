//! Where memory compresses: the paper's heat maps of all sixteen.

use buddy_core::{Figure, Heat, PageMap, Panel, Profile};
use buddy_report::stack_maps;

use crate::{About, Experiment, Findings, Subject};

/// A heat map of every workload.
#[derive(Debug)]
pub struct Spatial;

/// Rows of a map: what a picture of the page's width shows well.
const ROWS: usize = 256;

impl Experiment for Spatial {
    fn about(&self) -> About {
        About {
            name: "fig6",
            title: "Where memory compresses",
            place: "Figure 6, section 3.4",
            text: "The last snapshot of every workload. Each line is a page of 64 entries, pages run downwards in \
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
    let remark = profile.optimistic.last().copied().flatten().map(|ratio| format!("{ratio:.2}x"));
    Some(Heat {
        title: subject.label.to_owned(),
        remark: remark.unwrap_or_else(|| "all zeros".to_owned()),
        map: stack_maps(&maps, ROWS),
    })
}

fn pages(profile: &Profile) -> Vec<&PageMap> {
    profile.allocations.iter().filter_map(|allocation| allocation.pages.as_ref()).collect()
}
