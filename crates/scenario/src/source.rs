//! Resolution of program names, and programs without data: traces and generated kernels.

use std::path::{Path, PathBuf};

use buddy_codec::CodecKind;
use buddy_dl::Network;
use buddy_trace::{
    Application, Item, Step, accel, is_kernel,
    pattern::{PROGRAMS, program},
};
use buddy_workloads::{ALL, Info};

use crate::{
    Error, Stage,
    stage::{Memory, Work},
};

/// A program to simulate.
pub enum Source {
    /// One of the HPC programs.
    Workload(&'static Info),
    /// One training iteration of a network.
    Network(Network),
    /// A generated program, by its name.
    Generated(&'static str),
    /// An Accel-Sim trace folder, its list, or one kernel's file.
    Trace(PathBuf),
}

impl Source {
    /// Finds a program by name, or a trace by path.
    ///
    /// # Errors
    /// [`Error::Unknown`], with the known names.
    pub fn find(what: &str) -> Result<Self, Error> {
        if let Some(info) = ALL.iter().find(|info| info.name == what) {
            return Ok(Self::Workload(info));
        }
        if Network::names().contains(&what) {
            return Ok(Self::Network(Network::named(what)?));
        }
        if let Some(name) = PROGRAMS.into_iter().find(|name| *name == what) {
            return Ok(Self::Generated(name));
        }
        if Path::new(what).exists() {
            return Ok(Self::Trace(PathBuf::from(what)));
        }
        let workloads: Vec<&str> = ALL.iter().map(|info| info.name).collect();
        let names = PROGRAMS.into_iter().chain(workloads.iter().copied()).chain(Network::names());
        let known = format!(
            "{}the programs are {}, the workloads {} and the networks {}",
            did_you_mean(what, names),
            PROGRAMS.join(", "),
            workloads.join(", "),
            Network::names().join(", ")
        );
        Err(Error::Unknown { what: what.to_owned(), known })
    }
}

/// Returns the question whether one of the names was meant, which ends with a space; empty if none
/// differs only in case.
pub fn did_you_mean<'a>(what: &str, mut names: impl Iterator<Item = &'a str>) -> String {
    let nearest = names.find(|name| name.eq_ignore_ascii_case(what));
    nearest.map_or_else(String::new, |name| format!("did you mean '{name}'? "))
}

impl Stage {
    /// Prepares a trace. Its memory is what it copies from the host, with entries of each class in
    /// these shares.
    ///
    /// # Errors
    /// An unreadable list. Kernels are read when they run.
    pub fn trace(path: &Path, shares: [f64; 6]) -> Result<Self, Error> {
        let name = path.to_string_lossy();
        let items =
            if is_kernel(&name) { vec![Item::Kernel(path.to_owned())] } else { accel::read_list(path)? };
        let memory = Memory::Ranges { ranges: copied(&items), shares };
        Ok(Self::new(Work::Trace { name: name.into_owned(), items }, memory, CodecKind::Bpc))
    }

    /// Prepares a generated program of `bytes` bytes, 1 MiB to 1 TiB, with entries of each class in
    /// these shares. Without shares it has plain memory and no allocations.
    ///
    /// # Panics
    /// For an unknown program or an invalid size.
    pub fn generated(name: &str, bytes: u64, shares: Option<[f64; 6]>) -> Self {
        let kernel = name.to_owned();
        let make = move || program(&kernel, bytes).expect("a known program");
        let ranges = make().allocations;
        let step = Step::Kernel(Box::new(move || make().kernels.swap_remove(0)));
        let application = Application {
            name: name.to_owned(),
            allocations: Vec::new(),
            host: Vec::new(),
            steps: vec![step],
        };
        let memory = shares.map_or(Memory::Unknown, |shares| Memory::Ranges { ranges, shares });
        Self::new(Work::Application(application), memory, CodecKind::Bpc)
    }
}

/// Returns the memory that a trace copies to, as disjoint ranges of whole entries. Other addresses
/// are plain device memory.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_become_entries_without_overlaps() {
        let copy = |address, bytes| Item::Copy { address, bytes };
        let items = [copy(1000, 24), copy(0, 0), copy(256, 128), copy(300, 200), copy(1024, 1)];
        assert_eq!(copied(&items), [(256, 244), (896, 128), (1024, 1)]);
    }
}
