//! Builds the class map of a program from its allocations, their targets and their size classes.

use buddy_core::{ENTRY_BYTES, PAGE_BYTES, TargetRange};
use buddy_record::{AllocationInfo, AllocationTarget, TargetTable};
use buddy_trace::Application;

use crate::{Allocation, ClassMap, Classes, Error, Home};

impl ClassMap {
    /// Gives each allocation of a program the targets of the table row with its name. Without a row
    /// or a table it is uncompressed device memory; host allocations stay in host memory. `classes`
    /// returns the size classes of an allocation by its index in the program.
    ///
    /// A row with a single target fits any length, so targets of a small run serve a large one.
    ///
    /// # Errors
    /// [`Error::Table`] if the ranges do not cover the allocation's pages, [`Error::Allocation`] if
    /// allocations overlap or are not aligned to entries.
    pub fn bind(
        application: &Application,
        table: Option<&TargetTable>,
        classes: &mut dyn FnMut(usize, &AllocationInfo) -> Classes,
    ) -> Result<Self, Error> {
        let mut all = Vec::new();
        for (index, info) in application.allocations.iter().enumerate().filter(|(_, info)| info.bytes > 0) {
            let whole = Allocation {
                base: info.base,
                bytes: info.bytes,
                home: if application.host.contains(&info.name) { Home::Host } else { Home::Device },
                classes: classes(index, info),
            };
            match table.and_then(|table| table.get(&info.name)) {
                Some(row) if whole.home == Home::Device => all.extend(split_ranges(&whole, row)?),
                _ => all.push(whole),
            }
        }
        Self::new(all)
    }
}

/// Splits an allocation into one per range of pages.
fn split_ranges(whole: &Allocation, row: &AllocationTarget) -> Result<Vec<Allocation>, Error> {
    let (page, entry) = (PAGE_BYTES as u64, ENTRY_BYTES as u64);
    let ranges = row.ranges_of(whole.bytes)?;
    let mut start = 0;
    let part = |range: &TargetRange| {
        let end = whole.bytes.min(start + range.pages * page);
        let classes = whole.classes.slice(start / entry..end.div_ceil(entry));
        let home = range.target.into();
        let part = Allocation { base: whole.base + start, bytes: end - start, home, classes };
        start = end;
        part
    };
    Ok(ranges.iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use buddy_core::{Dtype, SizeClass, Target, Targets};
    use buddy_record::TARGETS_VERSION;

    use super::*;

    fn info(name: &str, base: u64, bytes: u64) -> AllocationInfo {
        AllocationInfo { name: name.to_owned(), call_site: String::new(), base, bytes, dtype: Dtype::F64 }
    }

    fn row(name: &str, bytes: u64, ranges: &[(u64, Target)]) -> AllocationTarget {
        let range = |&(pages, target): &(u64, Target)| TargetRange { pages, target };
        AllocationTarget {
            name: name.to_owned(),
            call_site: String::new(),
            bytes,
            codec: "bpc".to_owned(),
            parameters: Default::default(),
            targets: Targets::from_ranges(ranges.iter().map(range).collect()),
        }
    }

    fn application() -> Application {
        let allocations = vec![info("a", 0, 4096), info("b", 8192, 20_000), info("h", 32_768, 128)];
        Application { name: "p".to_owned(), allocations, host: vec!["h".to_owned()], steps: Vec::new() }
    }

    fn bind(rows: Vec<AllocationTarget>) -> Result<ClassMap, Error> {
        let table = TargetTable {
            version: TARGETS_VERSION,
            program: "p".to_owned(),
            allocations: rows,
            changes: Vec::new(),
        };
        ClassMap::bind(&application(), Some(&table), &mut |_, info| {
            let class = |entry| SizeClass::ALL[(entry / 64 % 6) as usize];
            Classes::each((0..info.entries()).map(class).collect::<Vec<_>>())
        })
    }

    #[test]
    fn page_ranges_become_allocations_with_their_own_classes() {
        let ranges = [(1, Target::Uncompressed), (1, Target::X4), (1, Target::X16)];
        let mut map = bind(vec![row("b", 20_000, &ranges), row("h", 128, &[(1, Target::X2)])]).unwrap();
        let mut at = |line: u64| {
            let mapped = map.find(line).unwrap();
            (mapped.home, mapped.class, mapped.entry)
        };
        assert_eq!(at(0), (Home::Device, SizeClass::Zero, 0));
        assert_eq!(at(64 + 63), (Home::Device, SizeClass::Zero, 63));
        assert_eq!(at(64 + 127), (Home::Compressed(Target::X4), SizeClass::B8, 63));
        assert_eq!(at(64 + 128), (Home::Compressed(Target::X16), SizeClass::S1, 0));
        assert_eq!(at(256).0, Home::Host);
        assert_eq!(map.find(64 + 128).unwrap().extent.nibble_base, 64 + 128);
    }

    #[test]
    fn one_target_fits_any_length_but_ranges_must_match() {
        assert!(bind(vec![row("b", 1 << 30, &[(9, Target::X2)])]).is_ok());
        let error = bind(vec![row("b", 1 << 14, &[(1, Target::X2), (1, Target::X1)])]).unwrap_err();
        assert!(error.to_string().ends_with("the ranges have 2 pages; it has 3"), "{error}");
    }
}
