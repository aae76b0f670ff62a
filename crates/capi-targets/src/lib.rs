//! `libbuddy_targets.so`: all of `libbuddy.so`, and allocations by a targets file.
//! `include/buddy_targets.h` documents every function.
//!
//! A library of its own, so that `libbuddy.so` carries no reader of TOML into programs that need
//! none. The functions of `libbuddy.so` come with the crate `buddy-c`.

use std::{
    ffi::{CStr, CString, c_char},
    ptr::NonNull,
};

use buddy_core::{ENTRY_BYTES, Targets};
use buddy_cuda::{Allocation, BuddyPool};
use buddy_record::{AllocationTarget, TargetTable};
use libbuddy::internals::{self, Failure, change, exists, gpu, guard, keep};
use libbuddy::{Code, Handle, Stream};

/// A targets file that was read, and the allocations made by it.
#[derive(Debug)]
pub struct Opened {
    table: TargetTable,
    rows: Vec<Strings>,
    made: Vec<(String, Handle)>,
    /// Length of `made` at which freed handles are removed from it.
    full: usize,
}

/// Fewest allocations of which freed ones are removed.
const FEW: usize = 64;

/// The strings of a row, for C.
#[derive(Debug)]
struct Strings {
    name: CString,
    call_site: CString,
    codec: CString,
}

/// The struct `buddyTargetsRow`.
#[derive(Debug)]
#[repr(C)]
pub struct Row {
    /// Name of the allocation.
    pub name: *const c_char,
    /// Call site, or an empty string.
    pub call_site: *const c_char,
    /// Name of the codec.
    pub codec: *const c_char,
    /// Length for which the targets were chosen.
    pub bytes: u64,
    /// Device bytes for that length.
    pub device_bytes: u64,
    /// Pinned host bytes for that length.
    pub buddy_bytes: u64,
    /// Ranges of pages.
    pub ranges: u64,
    /// Changes of its targets in the file.
    pub changes: u64,
}

/// Reads and checks a targets file.
///
/// # Safety
/// `path` is null or a string that ends in NUL; `targets` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyTargetsOpen(path: *const c_char, targets: *mut *mut Opened) -> Code {
    guard(|| {
        let targets = internals::some(targets, "targets")?;
        // SAFETY: the caller's promise.
        let path = unsafe { text(path, "path") }?;
        let file = std::fs::read_to_string(path).map_err(|error| value(format!("{path}: {error}")))?;
        let table = TargetTable::parse(&file).map_err(|error| value(format!("{path}: {error}")))?;
        let rows = table.allocations.iter().map(Strings::of).collect::<Result<_, _>>()?;
        let opened = Box::new(Opened { table, rows, made: Vec::new(), full: FEW });
        // SAFETY: the caller's promise.
        unsafe { targets.write(Box::into_raw(opened)) };
        Ok(())
    })
}

/// Frees what [`buddyTargetsOpen`] made; its allocations stay.
///
/// # Safety
/// `targets` is null, or comes from [`buddyTargetsOpen`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyTargetsClose(targets: *mut Opened) {
    if let Some(targets) = NonNull::new(targets) {
        // SAFETY: the caller's promise: the box of `buddyTargetsOpen`, once.
        drop(unsafe { Box::from_raw(targets.as_ptr()) });
    }
}

/// Returns the number of rows; 0 for a null pointer.
///
/// # Safety
/// `targets` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyTargetsCount(targets: *const Opened) -> usize {
    // SAFETY: the caller's promise.
    unsafe { targets.as_ref() }.map_or(0, |opened| opened.rows.len())
}

/// Writes a row.
///
/// # Safety
/// `targets` is null or open; `row` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyTargetsGet(targets: *const Opened, index: usize, row: *mut Row) -> Code {
    guard(|| {
        let to = internals::some(row, "row")?;
        // SAFETY: the caller's promise.
        let opened = unsafe { targets.as_ref() }.ok_or_else(null)?;
        let count = opened.rows.len();
        let row = opened.table.allocations.get(index);
        let row = row.ok_or_else(|| value(format!("there is no row {index}; the file has {count}")))?;
        // SAFETY: the caller's promise.
        unsafe { to.write(opened.row(index, row)?) };
        Ok(())
    })
}

/// Allocates compressed memory by the row of this name.
///
/// # Safety
/// `targets` is null or open; `name` is null or a string that ends in NUL; `handle` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyTargetsMalloc(
    targets: *mut Opened,
    name: *const c_char,
    bytes: usize,
    handle: *mut Handle,
) -> Code {
    guard(|| {
        let handle = internals::some(handle, "handle")?;
        // SAFETY: the caller's promises.
        let (opened, name) = unsafe { (targets.as_mut().ok_or_else(null)?, text(name, "name")?) };
        let now = opened.table.at(0);
        let row = now.get(name).ok_or_else(|| opened.unknown(name))?;
        let bytes = if bytes == 0 { row.bytes } else { bytes as u64 };
        if bytes == 0 {
            return Err(value(format!("allocation {name:?}: an allocation has at least one byte")));
        }
        row.ranges_of(bytes).map_err(|error| {
            value(format!("{error}; profile a run of this size, or give the row one target"))
        })?;
        let made = keep(Allocation::by_row(&gpu()?, row, bytes)?)?;
        opened.add(name, made);
        // SAFETY: the caller's promise.
        unsafe { handle.write(made) };
        Ok(())
    })
}

/// Applies the changes of a snapshot; waits for the stream.
///
/// # Safety
/// `targets` is null or open; `stream` is one of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyTargetsChange(targets: *mut Opened, snapshot: u64, stream: Stream) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let opened = unsafe { targets.as_mut() }.ok_or_else(null)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { gpu()?.borrow_stream(stream)? };
        let mut first = Ok(());
        for (name, targets) in opened.due(snapshot) {
            for (_, handle) in opened.made.iter().filter(|(made, _)| *made == name) {
                let outcome = change(*handle, |one| Ok(one.retarget(&stream, one.covering(&targets)?)?));
                match outcome {
                    Ok(()) | Err(Failure::Handle(_)) => {} // freed since
                    Err(failure) => first = first.and(Err(failure)),
                }
            }
        }
        first
    })
}

impl Opened {
    fn row(&self, index: usize, row: &AllocationTarget) -> Result<Row, Failure> {
        let Strings { name, call_site, codec } = &self.rows[index];
        let entries = row.bytes.div_ceil(ENTRY_BYTES as u64);
        let (device, buddy) = BuddyPool::room_for_pages(&row.targets, entries)?;
        let parameters = Allocation::parameter_bytes_of(row)?;
        let ranges = row.ranges().map_err(|error| value(error.to_string()))?;
        let changes = self.table.changes.iter().filter(|change| change.name == row.name);
        Ok(Row {
            name: name.as_ptr(),
            call_site: call_site.as_ptr(),
            codec: codec.as_ptr(),
            bytes: row.bytes,
            device_bytes: device + parameters,
            buddy_bytes: buddy,
            ranges: ranges.len() as u64,
            changes: changes.count() as u64,
        })
    }

    /// Adds an allocation. Removes the freed ones whenever their number doubled, so that a program
    /// that allocates and frees in a loop needs no more memory in time.
    fn add(&mut self, name: &str, handle: Handle) {
        if self.made.len() >= self.full {
            self.made.retain(|(_, handle)| exists(*handle));
            self.full = FEW.max(2 * self.made.len());
        }
        self.made.push((name.to_owned(), handle));
    }

    fn unknown(&self, name: &str) -> Failure {
        let names: Vec<&str> = self.table.allocations.iter().map(|row| row.name.as_str()).collect();
        value(format!("the targets have no allocation {name:?}; they have {}", names.join(", ")))
    }

    /// Returns the changes at a snapshot; those that need the least device memory come first.
    fn due(&self, snapshot: u64) -> Vec<(String, Targets)> {
        let due = self.table.changes.iter().filter(|change| change.snapshot as u64 == snapshot);
        let mut due: Vec<_> =
            due.map(|change| (change.name.clone(), Targets::from_ranges(change.ranges.clone()))).collect();
        let before = usize::try_from(snapshot).ok().and_then(|at| at.checked_sub(1));
        let old = before.map_or_else(|| self.table.clone(), |at| self.table.at(at));
        due.sort_by_key(|(name, targets)| {
            let Some(row) = old.get(name) else { return 0 };
            let entries = row.bytes.div_ceil(ENTRY_BYTES as u64);
            let room = |targets: &Targets| {
                BuddyPool::room_for_pages(targets, entries).map_or(0, |room| room.0 as i64)
            };
            room(targets) - room(&row.targets)
        });
        due
    }
}

impl Strings {
    fn of(row: &AllocationTarget) -> Result<Self, Failure> {
        let string = |text: &str| CString::new(text).map_err(|_| value(format!("{text:?} holds a NUL")));
        Ok(Self { name: string(&row.name)?, call_site: string(&row.call_site)?, codec: string(&row.codec)? })
    }
}

/// Returns a string of the caller's.
///
/// # Safety
/// `pointer` is null or a string that ends in NUL and outlives the result.
unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(value(format!("{what} must not be null")));
    }
    // SAFETY: the caller's promise, and not null.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| value(format!("{what} is not UTF-8")))
}

fn value(message: String) -> Failure {
    Failure::Value(message)
}

fn null() -> Failure {
    value("targets must not be null".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No handle exists, so each allocation counts as freed.
    #[test]
    fn freed_allocations_are_forgotten() {
        let table = TargetTable::parse("version = 1\nprogram = \"p\"\n").unwrap();
        let mut opened = Opened { table, rows: Vec::new(), made: Vec::new(), full: FEW };
        for handle in 0..10 * FEW as u64 {
            opened.add("a", Handle::MAX - handle);
            assert!(opened.made.len() <= FEW, "{}", opened.made.len());
        }
    }
}
