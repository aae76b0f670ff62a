//! A recorded network on a modelled GPU: the kernels of one iteration, with the sizes and targets of its record.
//!
//! The layers of the model and the tensors of the record are matched by name and kind (`buddy_dl::matches`). An
//! allocation gets the smallest target of what stands for it, and its entries are drawn by their shares.

use buddy_core::{AllocationInfo, AllocationTarget, TARGETS_VERSION, Target, TargetTable};
use buddy_dl::{Network, classes_of, matches};
use buddy_sim::{ClassMap, Classes};

use crate::{Recorded, simulate::Stage};

/// The sampled iteration of a recorded network, about `instructions` long; none if its layers are not known.
pub(crate) fn stage(recorded: &Recorded, instructions: u64) -> Option<Stage> {
    let run = &recorded.record.run;
    let network = Network::named(&run.program).ok().or_else(|| Network::named(name(recorded)?).ok())?;
    let batch = run.parameters.get("batch").and_then(serde_json::Value::as_u64)?;
    let share = instructions as f64 / network.warp_instructions(batch).max(1) as f64;
    let application = network.application_sampled(batch, share.min(1.0));
    let shares = classes_of(&recorded.record, "bpc", &application.allocations);
    let classes =
        &mut |index: usize, _: &AllocationInfo| Classes::Shares { shares: shares[index], seed: index as u64 };
    let table = targets(recorded, &application.allocations);
    let map = ClassMap::bind(&application, Some(&table), classes).ok()?;
    Some(Stage { application, map })
}

fn name(recorded: &Recorded) -> Option<&str> {
    recorded.record.run.parameters.get("network")?.as_str()
}

/// Targets for our allocations, from those that were chosen for the recorded ones.
fn targets(recorded: &Recorded, ours: &[AllocationInfo]) -> TargetTable {
    let chosen = &recorded.profile.targets.allocations;
    let found = matches(&recorded.record.run.allocations, ours);
    let row = |(info, numbers): (&AllocationInfo, Vec<usize>)| {
        let targets = numbers.iter().filter_map(|&number| chosen.get(number)?.target);
        AllocationTarget {
            name: info.name.clone(),
            call_site: info.call_site.clone(),
            bytes: info.bytes,
            codec: "bpc".to_owned(),
            parameters: Default::default(),
            target: Some(targets.min().unwrap_or(Target::X1)),
            ranges: Vec::new(),
        }
    };
    TargetTable {
        version: TARGETS_VERSION,
        program: recorded.record.run.program.clone(),
        allocations: ours.iter().zip(found).map(row).collect(),
    }
}
