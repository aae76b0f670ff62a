//! Counts the allocations that kernels access: the pointers among the arguments of launches.

use std::collections::HashMap;

use crate::{book::Book, calls::Parameters, driver::Driver, library::Handle};

const ENTRY_BYTES: u64 = 128;
/// Marks in a launch's `extra` list: the address of the packed arguments, and their size.
const BUFFER: u64 = 1;
const BUFFER_BYTES: u64 = 2;

/// Counts the entries of each slot over all launches.
#[derive(Default)]
pub(crate) struct Accesses {
    entries: HashMap<usize, u64>,
    /// Bytes of the arguments of each kernel.
    kernels: HashMap<u64, Vec<usize>>,
    /// Launches of graphs, and those whose arguments the driver could not describe.
    pub(crate) unknown: u64,
}

impl Accesses {
    /// Counts a launch: every allocation that an argument points into counts as accessed once, as a
    /// whole.
    ///
    /// # Safety
    /// The parameters of a launch, with kernel, arguments and packed arguments at these indices.
    pub(crate) unsafe fn count(
        &mut self,
        driver: &Driver,
        book: &Book,
        parameters: Parameters,
        (kernel, arguments, packed): (usize, usize, bool),
    ) {
        // SAFETY: the caller's promise.
        let words = unsafe {
            let extra = if packed { parameters.word(arguments + 1) } else { 0 };
            let list = parameters.word(arguments) as *const *const u8;
            if !list.is_null() {
                self.listed(driver, parameters.word(kernel), list)
            } else {
                packed_words(extra as *const u64)
            }
        };
        let mut slots: Vec<(usize, u64)> = words.iter().filter_map(|word| book.find(*word)).collect();
        slots.sort_unstable();
        slots.dedup();
        for (slot, bytes) in slots {
            *self.entries.entry(slot).or_default() += bytes.div_ceil(ENTRY_BYTES);
        }
    }

    /// Returns the words of arguments with separate addresses.
    ///
    /// # Safety
    /// The list has an address for each argument of the kernel.
    unsafe fn listed(&mut self, driver: &Driver, kernel: u64, list: *const *const u8) -> Vec<u64> {
        let describe = || driver.argument_bytes(kernel as Handle).unwrap_or_default();
        let bytes = self.kernels.entry(kernel).or_insert_with(describe);
        self.unknown += u64::from(bytes.is_empty());
        // SAFETY: the caller's promise; an argument has `bytes` bytes.
        let of_argument = |(at, bytes): (usize, &usize)| unsafe { words(*list.add(at), *bytes) };
        bytes.iter().enumerate().flat_map(of_argument).collect()
    }

    /// Returns the lines `accesses SLOT ENTRIES` of the log.
    pub(crate) fn lines(&self) -> String {
        let mut all: Vec<_> = self.entries.iter().collect();
        all.sort_unstable();
        all.iter().map(|(slot, entries)| format!("accesses {slot} {entries}\n")).collect()
    }
}

/// Splits bytes into words of eight bytes.
///
/// # Safety
/// `place` is null or has `bytes` readable bytes.
unsafe fn words(place: *const u8, bytes: usize) -> Vec<u64> {
    if place.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    (0..bytes / 8).map(|at| unsafe { place.add(8 * at).cast::<u64>().read_unaligned() }).collect()
}

/// Returns the words of arguments packed in one buffer, as a launch's `extra` list describes it.
///
/// # Safety
/// The list is null, or pairs of a mark and an address that end with a mark of zero.
unsafe fn packed_words(extra: *const u64) -> Vec<u64> {
    let (mut buffer, mut bytes) = (0, 0);
    let mut at = extra;
    // SAFETY: the caller's promise.
    unsafe {
        while !at.is_null() && at.read() != 0 {
            match at.read() {
                BUFFER => buffer = at.add(1).read(),
                BUFFER_BYTES => bytes = (at.add(1).read() as *const usize).read(),
                _ => return Vec::new(),
            }
            at = at.add(2);
        }
        words(buffer as *const u8, bytes)
    }
}
