//! What is simulated: a trace, a generated program, a workload or a network.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use buddy_dl::Network;
use buddy_sim::{ClassMap, Simulator};
use buddy_trace::{
    Application, Item,
    accel::{self, Reader},
    pattern::{PROGRAMS, program},
};
use buddy_workloads::ALL;

use super::{bound::Bound, network::Iteration};
use crate::workload::decimal;

/// A program that can be run any number of times, each from its start.
pub(crate) struct Source {
    pub(crate) name: String,
    /// First address and length of each known allocation.
    pub(crate) allocations: Vec<(u64, u64)>,
    kind: Kind,
}

enum Kind {
    Trace(Vec<Item>),
    Program { name: String, bytes: u64 },
    Workload(Box<Bound>),
    Network(Box<Iteration>),
}

impl Source {
    /// Finds a program of that name, or else opens the trace.
    pub(crate) fn open(what: &str, mib: u64) -> Result<Self> {
        if let Some(known) = PROGRAMS.contains(&what).then(|| program(what, mib << 20)).flatten() {
            let kind = Kind::Program { name: what.to_owned(), bytes: mib << 20 };
            return Ok(Self { name: format!("{what} ({mib} MiB)"), allocations: known.allocations, kind });
        }
        let path = Path::new(what);
        if !path.exists() {
            let workloads: Vec<&str> = ALL.iter().map(|info| info.name).collect();
            bail!(
                "'{what}' is no trace and no program; the programs are {}, the workloads {} and the networks {}",
                PROGRAMS.join(", "),
                workloads.join(", "),
                Network::ALL.join(", ")
            );
        }
        let kernel = what.ends_with(".traceg") || what.ends_with(".traceg.xz");
        let items = if kernel { vec![Item::Kernel(PathBuf::from(what))] } else { accel::read_list(path)? };
        let allocations = copied(&items);
        Ok(Self { name: what.to_owned(), allocations, kind: Kind::Trace(items) })
    }

    /// A workload with its targets.
    pub(crate) fn workload(bound: Bound) -> Self {
        let name = title(&bound.observed.application);
        Self { name, allocations: Vec::new(), kind: Kind::Workload(Box::new(bound)) }
    }

    /// A training iteration with its targets.
    pub(crate) fn network(iteration: Iteration) -> Self {
        let name = title(&iteration.application);
        Self { name, allocations: Vec::new(), kind: Kind::Network(Box::new(iteration)) }
    }

    /// The map of a program that knows how its own allocations compress.
    pub(crate) fn map(&self, targets: Option<&str>) -> Option<Result<ClassMap>> {
        match &self.kind {
            Kind::Workload(bound) => Some(bound.map(targets)),
            Kind::Network(iteration) => Some(iteration.map(targets)),
            Kind::Trace(_) | Kind::Program { .. } => None,
        }
    }

    /// Runs all of it; `false` if `keep_on` ended it early.
    pub(crate) fn run(
        &self,
        simulator: &mut Simulator,
        keep_on: &mut dyn FnMut(&Simulator) -> bool,
    ) -> Result<bool> {
        match &self.kind {
            Kind::Trace(items) => {
                for item in items {
                    match item {
                        Item::Copy { bytes, .. } => simulator.copy(*bytes),
                        Item::Kernel(path) => simulator.run(&mut Reader::open(path)?, keep_on)?,
                    }
                    if !keep_on(simulator) {
                        return Ok(false);
                    }
                }
            }
            Kind::Workload(bound) => {
                return Ok(simulator.run_application(&bound.observed.application, keep_on)?);
            }
            Kind::Network(iteration) => {
                return Ok(simulator.run_application(&iteration.application, keep_on)?);
            }
            Kind::Program { name, bytes } => {
                for mut kernel in program(name, *bytes).into_iter().flat_map(|program| program.kernels) {
                    simulator.run(kernel.as_mut(), keep_on)?;
                    if !keep_on(simulator) {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

/// A program's name and footprint.
fn title(application: &Application) -> String {
    let bytes: u64 = application.allocations.iter().map(|allocation| allocation.bytes).sum();
    format!("{} ({})", application.name, decimal(bytes))
}

/// The memory that a trace copies to, as whole entries, without overlaps. Other addresses are plain device memory.
fn copied(items: &[Item]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = items
        .iter()
        .filter_map(|item| match item {
            Item::Copy { address, bytes } if *bytes > 0 => Some((address / 128 * 128, address + bytes)),
            _ => None,
        })
        .collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some((_, last)) if start / 128 <= (*last - 1) / 128 => *last = end.max(*last),
            _ => merged.push((start, end)),
        }
    }
    merged.into_iter().map(|(start, end)| (start, end - start)).collect()
}
