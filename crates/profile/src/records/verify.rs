//! Checks predictions by storing a snapshot in a working memory.

use buddy_core::{ENTRY_BYTES, Histogram, PAGE_BYTES, SECTOR_BYTES, Target, TargetRange};
use buddy_memory::{BuddyMemory, Request, Spec, Usage};
use buddy_record::{AllocationTarget, TargetsError, Verification};
use buddy_snapshot::{Array, Run};

use crate::{
    Assignment, Error, Measured, Progress,
    records::{assign::ranges_in, target_file::row_codec},
    sample,
};

/// Bytes written and read at a time.
const PIECE_BYTES: usize = 4 << 20;

/// Stores one snapshot in a working memory with the codecs and targets of `rows`, and reads it
/// back.
///
/// Compares size classes, overflow and sectors with the prediction of `measured` for `chosen`.
///
/// # Errors
/// If the bytes read back or any count differ, or the memory or the snapshot cannot be used.
pub fn verify(
    run: &Run,
    snapshot: usize,
    measured: &Measured,
    chosen: &[Assignment],
    rows: &[AllocationTarget],
    progress: Progress<'_>,
) -> Result<Verification, Error> {
    let mut sum = Verification { snapshot, entries: 0, overflowing: 0, device_sectors: 0, buddy_sectors: 0 };
    let arrays = run.snapshot(snapshot)?;
    for (((array, allocation), assigned), row) in
        arrays.iter().zip(&measured.allocations).zip(chosen).zip(rows)
    {
        if row.bytes == 0 {
            continue;
        }
        let predicted = ranges_in(&allocation.codecs[assigned.codec], assigned, snapshot);
        let usage = store(array, row, progress)?;
        compare(row, &predicted, &usage)?;
        sum.entries += usage.traffic.entries_written;
        sum.overflowing += usage.entries_overflowing;
        sum.device_sectors += usage.traffic.device_sectors_written;
        sum.buddy_sectors += usage.traffic.buddy_sectors_written;
    }
    Ok(sum)
}

/// Writes an array to a memory of its own and reads it back. Returns the memory's counts.
fn store(array: &Array, row: &AllocationTarget, progress: Progress<'_>) -> Result<Usage, Error> {
    let refuse =
        |error: buddy_memory::Error| Error::Memory { name: row.name.clone(), what: error.to_string() };
    // With as much device memory as data, every target fits, including its carve-out.
    let spec = Spec::new(row.bytes.next_multiple_of(PAGE_BYTES as u64));
    let spec = Spec::new(row.bytes.next_multiple_of(spec.page_bytes));
    let codec = row_codec(row, || sample(array))?;
    let ranges = memory_ranges(row, spec.page_bytes)?;
    let memory = BuddyMemory::new(spec).map_err(refuse)?;
    let handle = memory.allocate(&Request::by_pages(row.bytes, codec, ranges)).map_err(refuse)?;
    let mut offset = 0;
    for piece in array.bytes().chunks(PIECE_BYTES) {
        memory.write(handle, offset, piece).map_err(refuse)?;
        offset += piece.len() as u64;
    }
    offset = 0;
    let mut back = vec![0; PIECE_BYTES];
    for piece in array.bytes().chunks(PIECE_BYTES) {
        let back = &mut back[..piece.len()];
        memory.read(handle, offset, back).map_err(refuse)?;
        if back != piece {
            return Err(Error::ReadBack { name: row.name.clone(), offset });
        }
        offset += piece.len() as u64;
        progress(piece.len() as u64);
    }
    array.release(0..array.bytes().len());
    Ok(memory.report_allocation(handle).map_err(refuse)?.usage)
}

/// Converts the ranges of a row to pages of the memory. A page shared by two ranges gets the
/// smaller target.
fn memory_ranges(row: &AllocationTarget, page_bytes: u64) -> Result<Vec<TargetRange>, TargetsError> {
    let mut ranges: Vec<TargetRange> = Vec::new();
    let mut end = 0;
    let mut covered = 0;
    for TargetRange { pages, target } in row.ranges()? {
        end += pages * PAGE_BYTES as u64;
        let shared = covered * page_bytes > end - pages * PAGE_BYTES as u64;
        if let Some(last) = ranges.last_mut().filter(|last| shared && target < last.target) {
            last.pages -= 1;
            covered -= 1;
        }
        let more = end.div_ceil(page_bytes) - covered;
        covered += more;
        ranges.push(TargetRange { pages: more, target });
    }
    ranges.retain(|range| range.pages > 0);
    Ok(ranges)
}

fn compare(row: &AllocationTarget, predicted: &[(Target, Histogram)], usage: &Usage) -> Result<(), Error> {
    let same = |what, predicted, found| match predicted == found {
        true => Ok(()),
        false => Err(Error::Verify { name: row.name.clone(), what, predicted, found }),
    };
    let sum = |count: &dyn Fn(Target, &Histogram) -> u64| -> u64 {
        predicted.iter().map(|(target, histogram)| count(*target, histogram)).sum()
    };
    let classes = [
        "the zero entries",
        "the b8 entries",
        "the s1 entries",
        "the s2 entries",
        "the s3 entries",
        "the raw entries",
    ];
    for (class, what) in classes.into_iter().enumerate() {
        // Uncompressed entries have no metadata and are not counted by class.
        let entries = |target: Target, histogram: &Histogram| match target.compresses() {
            true => histogram.classes[class],
            false => 0,
        };
        same(what, sum(&entries), usage.entries_by_class[class])?;
    }
    same("overflow", sum(&|target, histogram| histogram.overflowing(target)), usage.entries_overflowing)?;
    // A partial last entry is compressed as a whole entry; uncompressed, it has only the sectors it
    // needs.
    let rest = row.bytes % ENTRY_BYTES as u64;
    let short = match predicted.last() {
        Some((Target::Uncompressed, _)) if rest > 0 => (ENTRY_BYTES as u64 - rest) / SECTOR_BYTES as u64,
        _ => 0,
    };
    let device = sum(&|target, histogram| histogram.sectors(target).0) - short;
    let buddy = sum(&|target, histogram| histogram.sectors(target).1);
    same("device sectors written", device, usage.traffic.device_sectors_written)?;
    same("device sectors read", device, usage.traffic.device_sectors_read)?;
    same("buddy sectors written", buddy, usage.traffic.buddy_sectors_written)?;
    same("buddy sectors read", buddy, usage.traffic.buddy_sectors_read)
}

#[cfg(test)]
mod tests {
    use buddy_core::{Dtype, Targets};
    use buddy_record::{AllocationInfo, Policy, RunInfo};
    use buddy_snapshot::RunWriter;

    use super::*;
    use crate::{CodecChoice, Settings, Tried, profile};

    /// Creates a run of zeros, ramps, noise and bf16, for which policies choose different targets.
    fn run(dir: &std::path::Path) -> Run {
        let noise = |i: usize| (((i * i) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8;
        let parts: Vec<u8> = (0..500_003)
            .map(|i| match i / 60_000 {
                0..=3 => 0,
                4 if i % 4 == 0 => (i / 4) as u8,
                4 => 0,
                _ => noise(i),
            })
            .collect();
        let halves: Vec<u8> = (0..40_000).map(|i| if i % 2 == 0 { noise(i) } else { 0x3f }).collect();
        let info = |name: &str, bytes: &[u8], dtype| AllocationInfo {
            name: name.to_owned(),
            call_site: "main".to_owned(),
            base: 0,
            bytes: bytes.len() as u64,
            dtype,
        };
        let empty = vec![];
        let arrays =
            [("parts", &parts, Dtype::U8), ("halves", &halves, Dtype::Bf16), ("none", &empty, Dtype::F32)];
        let infos = arrays.iter().map(|(name, bytes, dtype)| info(name, bytes, *dtype)).collect();
        let mut writer = RunWriter::create(dir, RunInfo::new("demo", Default::default(), infos), 1).unwrap();
        writer.write(0, &arrays.map(|(_, bytes, _)| &bytes[..])).unwrap();
        Run::open(dir).unwrap()
    }

    #[test]
    fn every_policy_is_confirmed_and_a_false_prediction_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(&dir.path().join("run"));
        let tried = Tried { kinds: vec![buddy_codec::CodecKind::Bpc], auto: true, threshold: 0.3 };
        let measured = Measured::from_run(&run, &tried, &|_| ()).unwrap();
        let (mut ranges, mut found_false) = (0, 0);
        for policy in [Policy::Naive, Policy::Allocation, Policy::Allocation16x, Policy::Page] {
            for codec in [CodecChoice::Fixed(buddy_codec::CodecKind::Bpc), CodecChoice::Auto] {
                let settings = Settings { threshold: 0.3, policy, codec, plan: None, link: None };
                let (profile, chosen) = profile(&measured, &settings).unwrap();
                let rows = &profile.targets.allocations;
                ranges = ranges.max(rows[0].targets.count());
                let check = |measured| verify(&run, 0, measured, &chosen, rows, &|_| ());
                let found = check(&measured).unwrap();
                assert_eq!(found.entries, 500_003u64.div_ceil(128) + 40_000u64.div_ceil(128));
                let mut wrong = measured.clone();
                let codec = &mut wrong.allocations[0].codecs[chosen[0].codec];
                codec.histograms[0].classes[0] -= 1;
                codec.histograms[0].classes[4] += 1;
                if let Some(block) = codec.blocks.as_mut().and_then(|all| all[0].counts_mut().first_mut()) {
                    block[0] -= 1;
                    block[4] += 1;
                }
                // Classes are not predicted for uncompressed allocations.
                if rows[0].targets.uniform() != Some(Target::Uncompressed) {
                    let error = check(&wrong).unwrap_err().to_string();
                    assert!(error.starts_with("allocation \"parts\": the zero entries is"), "{error}");
                    found_false += 1;
                }
            }
        }
        assert!(ranges >= 2, "page ranges differ: {ranges}");
        assert!(found_false > 0, "some allocations are compressed");
    }

    #[test]
    fn a_page_shared_by_two_ranges_gets_the_smaller_target() {
        let row = |ranges: &[(u64, Target)]| AllocationTarget {
            name: String::new(),
            call_site: String::new(),
            bytes: ranges.iter().map(|(pages, _)| pages * 8192).sum::<u64>() - 5,
            codec: "bpc".to_owned(),
            parameters: Default::default(),
            targets: Targets::Pages(
                ranges.iter().map(|&(pages, target)| TargetRange { pages, target }).collect(),
            ),
        };
        let found = |ranges: &[(u64, Target)]| -> Vec<(u64, Target)> {
            memory_ranges(&row(ranges), 16_384)
                .unwrap()
                .iter()
                .map(|range| (range.pages, range.target))
                .collect()
        };
        use Target::{X1, X2, X4};
        assert_eq!(found(&[(2, X1), (4, X4)]), [(1, X1), (2, X4)]);
        assert_eq!(found(&[(3, X1), (4, X4)]), [(2, X1), (2, X4)]);
        assert_eq!(found(&[(3, X4), (4, X1)]), [(1, X4), (3, X1)]);
        assert_eq!(found(&[(1, X4), (1, X1), (1, X2)]), [(1, X1), (1, X2)]);
    }
}
