//! How the memory of a running program would compress: the sizes of many spans, looked at in place.
//!
//! One launch for each codec, one wait for all of them. The memory is only read.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRY_BYTES, Entry, Histogram};
use cudarc::driver::CudaStream;

use crate::{
    DeviceSpan, Error, Gpu, Params,
    driver::{Launch, Region},
    given::check_window,
    learned::Learned,
    source::{BLOCKS, WARPS},
};

/// Bytes that one warp takes at a time: 32 entries.
const TILE_BYTES: u64 = 32 * ENTRY_BYTES as u64;
/// Numbers of a span for the kernel: address, bytes, tiles before it, where classes go, window, what the codec learned.
const FIELDS: usize = 6;
/// Numbers that the kernel finds of a span: six classes and the bytes of the paper's eight sizes.
const SUMS: usize = 7;
/// Runs of entries that a codec is trained on, and entries of each.
const SAMPLE_RUNS: u64 = 64;
const RUN_ENTRIES: u64 = 8;
/// Threads of the block that trains a window: as `given.cu` has it.
const TRAIN_THREADS: u32 = 256;

/// Memory whose sizes are asked for.
#[derive(Debug, Clone)]
pub struct Surveyed<'a> {
    /// The memory, aligned to 16 bytes. An entry that it ends in counts as padded with zeros.
    pub span: DeviceSpan<'a>,
    /// The codec whose sizes are asked for, trained if it learns.
    pub codec: Codec,
    /// Where each entry's size class goes, one byte for an entry.
    pub classes: Option<DeviceSpan<'a>>,
}

/// Memory that a survey works with.
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

    /// A pointer that the GPU cannot follow would end the context.
    fn check_reach(&self) -> Result<(), Error> {
        let classes = self.classes.map(|classes| classes.part(0..self.entries()));
        [Some(self.span), classes].into_iter().flatten().try_for_each(|span| span.check_reach().map(|_| ()))
    }
}

impl Gpu {
    /// The sizes of every span, in the order given, as of this point of the stream. Waits for the stream once.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NoKernels`], or what compiler or driver say.
    pub fn survey(&self, on: &CudaStream, spans: &[Surveyed<'_>]) -> Result<Vec<Histogram>, Error> {
        spans.iter().try_for_each(|one| one.check().and_then(|()| one.check_reach()))?;
        let order = by_codec(spans);
        let mut found = vec![Histogram::default(); spans.len()];
        if order.is_empty() {
            return Ok(found);
        }
        let learned: Vec<Learned> =
            spans.iter().map(|one| Learned::of(self, &one.codec)).collect::<Result<_, _>>()?;
        let params: Vec<Params> = learned.iter().map(Learned::params).collect();
        let (rows, launches) = table(spans, &params, &order);
        // Whatever is missing is missed before the first kernel starts.
        let kernels = launches.iter().map(|launch| self.survey_kernel(launch.kind));
        let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
        let sums = SUMS * order.len();
        let mut scratch = self.scratch();
        let Scratch { host, device } = self.room(&mut scratch, 8 * (rows.len() + sums) as u64)?;
        host.put(&rows);
        let table_bytes = 8 * rows.len() as u64;
        self.check("send the table", host.send_on(on, device, table_bytes))?;
        self.check("clear the counters", device.fill_on(on, table_bytes, 8 * sums as u64, 0))?;
        for (Batch { first, count, tiles, .. }, kernel) in launches.into_iter().zip(kernels) {
            let table = device.address() + 8 * (FIELDS * first) as u64;
            let to = device.address() + table_bytes + 8 * (SUMS * first) as u64;
            let most = u64::from(self.multiprocessors() * BLOCKS);
            let blocks = tiles.div_ceil(u64::from(WARPS)).min(most);
            // SAFETY: the arguments of `buddy_survey`; the table's spans are the caller's, checked above, and the
            // scratch memory has room for what is found of each.
            let launched = unsafe {
                Launch::row(blocks, WARPS * 32).start(on, &kernel, &(table, count as u32, tiles, to))
            };
            self.check("start counting", launched)?;
        }
        self.check("copy the counters", device.copy_on(on, table_bytes, host, 8 * sums as u64))?;
        self.wait(on)?;
        for (at, &index) in order.iter().enumerate() {
            let number = |i| host.peek(SUMS * at + i);
            found[index] = Histogram { classes: std::array::from_fn(number), optimistic_bytes: number(6) };
        }
        Ok(found)
    }

    /// A codec trained on a sample of device memory, as of this point of the stream. Waits for the stream if the
    /// codec learns.
    ///
    /// # Errors
    /// What the driver says.
    pub fn train(&self, on: &CudaStream, kind: CodecKind, span: DeviceSpan<'_>) -> Result<Codec, Error> {
        if !kind.learns() {
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

    /// Trains bf16's window on the same sample of device memory, when the stream gets there, and leaves it in device memory, a 32-bit
    /// number: nothing waits. [`GivenBuffer::with_window`](crate::GivenBuffer::with_window) takes it from there.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the memory is aligned to 16 bytes and the window is four bytes, or what compiler or driver say.
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
        let launched = unsafe { launch.start(on, &self.given_kernels()?.train, &arguments) };
        self.check("start training", launched)
    }

    /// The scratch memory, with room for so many bytes.
    fn room<'a>(&self, scratch: &'a mut Option<Scratch>, bytes: u64) -> Result<&'a Scratch, Error> {
        if scratch.as_ref().is_none_or(|scratch| scratch.host.bytes() < bytes) {
            // At least 256 KiB: enough for thousands of spans, so that it is taken once.
            let bytes = bytes.next_power_of_two().max(1 << 18);
            *scratch = None;
            *scratch = Some(Scratch { host: self.pinned_region(bytes)?, device: self.device_region(bytes)? });
        }
        Ok(scratch.as_ref().expect("taken above"))
    }
}

/// Runs of a sample of so many entries, and entries of each.
fn sample(entries: u64) -> (u64, u64) {
    let run = RUN_ENTRIES.min(entries);
    (SAMPLE_RUNS.min(entries / run.max(1)), run)
}

/// The spans of one codec: where they lie in the table.
struct Batch {
    kind: CodecKind,
    first: usize,
    count: usize,
    tiles: u64,
}

/// The spans' numbers, those of one codec together.
fn by_codec(spans: &[Surveyed<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..spans.len()).filter(|&index| spans[index].span.bytes() > 0).collect();
    order.sort_by_key(|&index| spans[index].codec.kind().name());
    order
}

/// The kernel's table in this order, and what to launch.
fn table(spans: &[Surveyed<'_>], params: &[Params], order: &[usize]) -> (Vec<u64>, Vec<Batch>) {
    let (mut rows, mut launches) = (Vec::new(), Vec::<Batch>::new());
    for (at, &index) in order.iter().enumerate() {
        let one = &spans[index];
        let kind = one.codec.kind();
        if launches.last().is_none_or(|launch| launch.kind != kind) {
            launches.push(Batch { kind, first: at, count: 0, tiles: 0 });
        }
        let launch = launches.last_mut().expect("pushed above");
        let classes = one.classes.map_or(0, DeviceSpan::address);
        let (window, learned) = (u64::from(params[index].window()), params[index].learned());
        rows.extend([one.span.address(), one.span.bytes(), launch.tiles, classes, window, learned]);
        launch.count += 1;
        launch.tiles += one.tiles();
    }
    (rows, launches)
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
    fn spans_of_a_codec_stand_together_and_empty_ones_nowhere() {
        let spans = [
            surveyed(CodecKind::Zeros32, 0, 4097),
            surveyed(CodecKind::Bpc, 16, 4096),
            surveyed(CodecKind::Bpc, 32, 0),
            surveyed(CodecKind::Zeros32, 48, 1),
        ];
        let order = by_codec(&spans);
        assert_eq!(order, [1, 0, 3]);
        let (rows, launches) = table(&spans, &[Params::default(); 4], &order);
        let shapes: Vec<_> = launches.iter().map(|l| (l.kind, l.first, l.count, l.tiles)).collect();
        assert_eq!(shapes, [(CodecKind::Bpc, 0, 1, 1), (CodecKind::Zeros32, 1, 2, 3)]);
        let firsts: Vec<u64> = rows.as_chunks::<FIELDS>().0.iter().map(|row| row[2]).collect();
        assert_eq!(firsts, [0, 0, 2]);
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
