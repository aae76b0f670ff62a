//! Compressed sizes of many spans of plain memory, measured in place while a program runs.
//!
//! Codecs that read the same memory share a pass if they are in one group ([`survey_groups`]): one
//! launch for each set of codecs, and one wait for all. The memory is only read.

use std::collections::BTreeMap;

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRY_BYTES, Entry, Histogram};
use cudarc::driver::CudaStream;

use crate::{
    DeviceSpan, Error, Gpu, Params,
    codecs::{SURVEY_SHAPE, struct_of, survey_groups},
    driver::{Launch, Region},
    external::check_window,
    learned::Learned,
};

/// Bytes that a warp takes at a time: 32 entries.
const TILE_BYTES: u64 = 32 * ENTRY_BYTES as u64;
/// Sums of a span and codec: six classes, and the bytes by the paper's eight sizes.
const SUMS: usize = 7;
/// Runs of entries in a training sample, and entries per run.
const SAMPLE_RUNS: u64 = 64;
const RUN_ENTRIES: u64 = 8;
/// Threads of the CTA that trains a window, as in `external.cu`.
const TRAIN_THREADS: u32 = 256;

/// Memory to be sized with a codec.
#[derive(Debug, Clone)]
pub struct Surveyed<'a> {
    /// The memory, aligned to 16 bytes. A partial last entry counts as padded with zeros.
    pub span: DeviceSpan<'a>,
    /// The codec, trained if it can be.
    pub codec: Codec,
    /// Receives each entry's size class, one byte per entry.
    pub classes: Option<DeviceSpan<'a>>,
}

/// Scratch memory of a survey.
#[derive(Debug)]
pub(crate) struct Scratch {
    host: Region,
    device: Region,
}

impl Surveyed<'_> {
    fn entries(&self) -> u64 {
        self.span.bytes().div_ceil(ENTRY_BYTES as u64)
    }

    fn tiles(&self) -> u64 {
        self.span.bytes().div_ceil(TILE_BYTES)
    }

    fn check(&self) -> Result<(), Error> {
        self.span.check(1, 16, "memory aligned to 16 bytes")?;
        match self.classes {
            Some(classes) if classes.bytes() < self.entries() => Err(Error::Shape {
                bytes: classes.bytes(),
                address: classes.address(),
                need: "a byte for the class of each entry",
            }),
            _ => Ok(()),
        }
    }

    /// An invalid pointer on the GPU would end the context.
    fn check_reach(&self) -> Result<(), Error> {
        let classes = self.classes.map(|classes| classes.part(0..self.entries()));
        [Some(self.span), classes].into_iter().flatten().try_for_each(|span| span.check_reach().map(|_| ()))
    }
}

impl Gpu {
    /// Returns the sizes of every span, in the given order, at this point of the stream. Waits for
    /// the stream once.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NoKernels`], or an error of the compiler or the driver.
    pub fn survey(&self, on: &CudaStream, spans: &[Surveyed<'_>]) -> Result<Vec<Histogram>, Error> {
        spans.iter().try_for_each(|one| one.check().and_then(|()| one.check_reach()))?;
        spans.iter().try_for_each(|one| struct_of(one.codec.kind()).map(drop))?;
        let mut found = vec![Histogram::default(); spans.len()];
        let batches = batches(spans);
        if batches.is_empty() {
            return Ok(found);
        }
        // Loads all kernels before the first launch, so that a missing one fails early.
        let kernels = batches.iter().map(|batch| self.survey_kernel(&batch.kinds));
        let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
        let learned: Vec<Learned> =
            spans.iter().map(|one| Learned::of(self, &one.codec)).collect::<Result<_, _>>()?;
        let params: Vec<Params> = learned.iter().map(Learned::params).collect();
        let tables: Vec<Table> = batches.iter().map(|batch| batch.table(spans, &params)).collect();
        let numbers: usize = tables.iter().map(|table| table.numbers.len()).sum();
        let sums: usize = batches.iter().map(Batch::sums).sum();
        let mut scratch = self.scratch();
        let Scratch { host, device } = self.room(&mut scratch, 8 * (numbers + sums) as u64)?;
        host.put(&tables.iter().flat_map(|table| &table.numbers).copied().collect::<Vec<u64>>());
        let sums_at = 8 * numbers as u64;
        self.check("send the table", host.send_on(on, device, sums_at))?;
        self.check("clear the counters", device.fill_on(on, sums_at, 8 * sums as u64, 0))?;
        let (mut table_at, mut to) = (device.address(), device.address() + sums_at);
        for ((batch, table), kernel) in batches.iter().zip(&tables).zip(&kernels) {
            let rows = batch.rows.len();
            let arguments = (table_at, rows as u32, table.tiles, table_at + 8 * (SPAN * rows) as u64, to);
            let (warps, blocks) = SURVEY_SHAPE;
            let most = u64::from(self.multiprocessors() * blocks);
            let blocks = table.tiles.div_ceil(u64::from(warps)).min(most);
            // SAFETY: the arguments of `buddy_survey`; the table's spans are the caller's, checked
            // above, and the scratch memory has room for all sums.
            let launched = unsafe { Launch::row(blocks, warps * 32).start(on, kernel, &arguments) };
            self.check("start counting", launched)?;
            table_at += 8 * table.numbers.len() as u64;
            to += 8 * batch.sums() as u64;
        }
        self.check("copy the counters", device.copy_on(on, sums_at, host, 8 * sums as u64))?;
        self.wait(on)?;
        let mut at = 0;
        for index in batches.iter().flat_map(Batch::order) {
            let number = |i| host.peek(at + i);
            found[index] = Histogram { classes: std::array::from_fn(number), optimistic_bytes: number(6) };
            at += SUMS;
        }
        Ok(found)
    }

    /// Trains a codec on a sample of device memory, at this point of the stream. Waits for the
    /// stream if the codec is trainable.
    ///
    /// # Errors
    /// A driver error.
    pub fn train(&self, on: &CudaStream, kind: CodecKind, span: DeviceSpan<'_>) -> Result<Codec, Error> {
        if !kind.has_parameters() {
            return Ok(kind.train(&[]));
        }
        let entries = span.entries();
        let (runs, run) = sample(entries);
        let bytes = run * ENTRY_BYTES as u64;
        let mut scratch = self.scratch();
        let Scratch { host, .. } = self.room(&mut scratch, runs * bytes)?;
        for index in 0..runs {
            let first = index * (entries - run) / (runs - 1).max(1);
            let from = span.address() + first * ENTRY_BYTES as u64;
            self.check("sample memory", host.receive_on(on, index * bytes, from, bytes))?;
        }
        self.wait(on)?;
        let number = |i| host.peek(i).to_le_bytes();
        let sample: Vec<u8> = (0..(runs * bytes / 8) as usize).flat_map(number).collect();
        let sample: Vec<Entry> = sample.as_chunks().0.to_vec();
        Ok(kind.train(&sample))
    }

    /// Trains a bf16 window on the same sample, in stream order, and leaves it in device memory as
    /// a 32-bit number, without waiting.
    /// [`ExternalBuffer::with_window`](crate::ExternalBuffer::with_window) uses it there.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the memory is aligned to 16 bytes and the window is four bytes, or
    /// an error of the compiler or the driver.
    pub fn train_window(
        &self,
        on: &CudaStream,
        span: DeviceSpan<'_>,
        window: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        self.alive()?;
        let (span, window) = (span.check(1, 16, "memory aligned to 16 bytes")?, check_window(window)?);
        let entries = span.bytes() / ENTRY_BYTES as u64;
        let (runs, run) = sample(entries);
        let arguments = (span.address(), entries, runs, run.max(1), window.address());
        let launch = Launch::row(1, TRAIN_THREADS);
        // SAFETY: the arguments of `window_train`; the sample is of the span's whole entries.
        let launched = unsafe { launch.start(on, &self.external_kernels()?.train, &arguments) };
        self.check("start training", launched)
    }

    /// Returns the scratch memory, grown to at least `bytes`.
    fn room<'a>(&self, scratch: &'a mut Option<Scratch>, bytes: u64) -> Result<&'a Scratch, Error> {
        if scratch.as_ref().is_none_or(|scratch| scratch.host.bytes() < bytes) {
            // At least 256 KiB: enough for thousands of spans, so that it is allocated once.
            let bytes = bytes.next_power_of_two().max(1 << 18);
            *scratch = None;
            *scratch = Some(Scratch { host: self.pinned_region(bytes)?, device: self.device_region(bytes)? });
        }
        Ok(scratch.as_ref().expect("taken above"))
    }
}

/// Returns the runs of a sample of `entries` entries, and the entries of each.
fn sample(entries: u64) -> (u64, u64) {
    let run = RUN_ENTRIES.min(entries);
    (SAMPLE_RUNS.min(entries / run.max(1)), run)
}

/// Numbers per span in the kernel's table: address, bytes, first tile, and its row of parameters,
/// which have for each codec the address of classes, the window, and the address of parameters.
const SPAN: usize = 4;

/// Memory that the same codecs size: for each span the requests, one per codec.
#[derive(Debug, Default, PartialEq, Eq)]
struct Batch {
    kinds: Vec<CodecKind>,
    rows: Vec<Vec<usize>>,
}

/// A batch in the kernel's layout.
struct Table {
    numbers: Vec<u64>,
    tiles: u64,
}

impl Batch {
    /// Returns the number of sums.
    fn sums(&self) -> usize {
        SUMS * self.kinds.len() * self.rows.len()
    }

    /// Lists the requests in the order of the sums: all spans with the first codec, then all with
    /// the second.
    fn order(&self) -> impl Iterator<Item = usize> {
        (0..self.kinds.len()).flat_map(|codec| self.rows.iter().map(move |row| row[codec]))
    }

    fn table(&self, spans: &[Surveyed<'_>], params: &[Params]) -> Table {
        let mut table = Table { numbers: Vec::new(), tiles: 0 };
        for (at, row) in self.rows.iter().enumerate() {
            let one = &spans[row[0]];
            table.numbers.extend([one.span.address(), one.span.bytes(), table.tiles, at as u64]);
            table.tiles += one.tiles();
        }
        for &index in self.rows.iter().flatten() {
            let classes = spans[index].classes.map_or(0, DeviceSpan::address);
            table.numbers.extend([classes, u64::from(params[index].window()), params[index].learned()]);
        }
        table
    }
}

/// Groups requests into launches: requests for the same memory together, as far as one pass can
/// serve them.
fn batches(spans: &[Surveyed<'_>]) -> Vec<Batch> {
    let mut places: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
    for (index, one) in spans.iter().enumerate().filter(|(_, one)| one.span.bytes() > 0) {
        places.entry((one.span.address(), one.span.bytes())).or_default().push(index);
    }
    let mut batches = Vec::<Batch>::new();
    for mut left in places.into_values() {
        while !left.is_empty() {
            let kinds: Vec<CodecKind> = left.iter().map(|&index| spans[index].codec.kind()).collect();
            for kinds in survey_groups(&kinds) {
                // The first request for each codec; one with other parameters goes to the next
                // batch.
                let take = |&kind: &CodecKind| {
                    let at = left.iter().position(|&index| spans[index].codec.kind() == kind);
                    left.remove(at.expect("a codec of those left"))
                };
                let row = kinds.iter().map(take).collect();
                match batches.iter_mut().find(|batch| batch.kinds == kinds) {
                    Some(batch) => batch.rows.push(row),
                    None => batches.push(Batch { kinds, rows: vec![row] }),
                }
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surveyed(kind: CodecKind, address: u64, bytes: u64) -> Surveyed<'static> {
        // SAFETY: no test here starts work on the memory.
        let span = unsafe { DeviceSpan::from_raw(address, bytes) };
        Surveyed { span, codec: kind.train(&[]), classes: None }
    }

    #[test]
    fn requests_for_the_same_memory_share_a_batch_and_empty_spans_are_skipped() {
        let spans = [
            surveyed(CodecKind::Zeros32, 48, 4097),
            surveyed(CodecKind::Bpc, 16, 4096),
            surveyed(CodecKind::Bpc, 32, 0),
            surveyed(CodecKind::Zeros32, 16, 4096),
            surveyed(CodecKind::Bpc, 48, 4097),
            surveyed(CodecKind::Bpc, 48, 4097),
            surveyed(CodecKind::Bpc, 64, 1),
        ];
        let batches = batches(&spans);
        let both = vec![CodecKind::Bpc, CodecKind::Zeros32];
        let of_both = Batch { kinds: both, rows: vec![vec![1, 3], vec![4, 0]] };
        let alone = Batch { kinds: vec![CodecKind::Bpc], rows: vec![vec![5], vec![6]] };
        assert_eq!(batches, [of_both, alone]);
        let mut order: Vec<usize> = batches.iter().flat_map(Batch::order).collect();
        assert_eq!(order, [1, 4, 3, 0, 5, 6]);
        order.sort_unstable();
        assert_eq!(order, [0, 1, 3, 4, 5, 6]);
        let table = batches[0].table(&spans, &[Params::default(); 7]);
        assert_eq!((&table.numbers[..8], table.tiles), (&[16, 4096, 0, 0, 48, 4097, 1, 1][..], 3));
        assert_eq!(table.numbers.len(), 2 * (SPAN + 2 * 3));
    }

    #[test]
    fn memory_that_the_kernel_cannot_take_is_refused() {
        assert!(surveyed(CodecKind::Bpc, 8, 128).check().is_err());
        let mut one = surveyed(CodecKind::Bpc, 16, 129);
        assert!(one.check().is_ok());
        one.classes = Some(surveyed(CodecKind::Bpc, 0, 1).span);
        assert!(one.check().unwrap_err().to_string().contains("a byte for the class of each entry"));
    }
}
