//! Which allocations kernels are given: the pointers among the arguments of launches.

use std::collections::HashMap;

use crate::{book::Book, calls::Parameters, driver::Driver, library::Handle};

const ENTRY_BYTES: u64 = 128;
/// The marks of a launch's `extra` list: where the packed arguments are, and how many bytes they
/// have.
const BUFFER: u64 = 1;
const BUFFER_BYTES: u64 = 2;

/// Counts for each slot how many of its entries launches were given in all.
#[derive(Default)]
pub(crate) struct Accesses {
    entries: HashMap<usize, u64>,
    /// Bytes of the arguments of each kernel.
    kernels: HashMap<u64, Vec<usize>>,
    /// Launches of graphs, and those whose arguments the driver could not describe.
    pub(crate) unknown: u64,
}

impl Accesses {
    /// Counts a launch: every allocation that an argument points into is read or written once, all
    /// of it.
    ///
    /// # Safety
    /// These are the parameters of a launch, with kernel, arguments and packed arguments at these
    /// places.
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
        let mut slots: Vec<(usize, u64)> =
            words.iter().filter_map(|word| book.find(*word)).collect();
        slots.sort_unstable();
        slots.dedup();
        for (slot, bytes) in slots {
            *self.entries.entry(slot).or_default() += bytes.div_ceil(ENTRY_BYTES);
        }
    }

    /// The words of arguments that lie each at a place of its own.
    ///
    /// # Safety
    /// The list has a place for each argument of the kernel.
    unsafe fn listed(&mut self, driver: &Driver, kernel: u64, list: *const *const u8) -> Vec<u64> {
        let describe = || driver.argument_bytes(kernel as Handle).unwrap_or_default();
        let bytes = self.kernels.entry(kernel).or_insert_with(describe);
        self.unknown += u64::from(bytes.is_empty());
        // SAFETY: the caller's promise; an argument has so many bytes.
        let of_argument = |(at, bytes): (usize, &usize)| unsafe { words(*list.add(at), *bytes) };
        bytes.iter().enumerate().flat_map(of_argument).collect()
    }

    /// The lines `accesses SLOT ENTRIES` of the log.
    pub(crate) fn lines(&self) -> String {
        let mut all: Vec<_> = self.entries.iter().collect();
        all.sort_unstable();
        all.iter().map(|(slot, entries)| format!("accesses {slot} {entries}\n")).collect()
    }
}

/// The words of eight bytes in some bytes.
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

/// The words of arguments that are packed in one buffer, as a launch's `extra` list says.
///
/// # Safety
/// The list is null, or pairs of a mark and a place that end with a mark of zero.
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
