//! Soak test: data of many kinds passes through compressed memory for a long time, compared on the
//! GPU bit for bit.
//!
//! A round writes data, overwrites a part of it, moves everything to a buffer with another target,
//! and frees the memory; after each step everything is read and compared. Workers, each with its
//! own stream and memory, do rounds concurrently.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRY_BYTES, Target};
use buddy_cuda::{Allocation, BuddyPool, Carveout, DeviceBytes, DeviceSpan, Gpu, Launch};
use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

use crate::{Error, Fill, Lab};

/// The most data of a round.
const MOST_BYTES: u64 = 2 << 30;
/// The most data of a round that overflows over the link, which is a hundred times slower.
const MOST_OVER_LINK: u64 = 32 << 20;
/// Fill pattern of memory before a read, so that unwritten bytes show.
const POISON: u8 = 0xee;

/// Parameters of a soak test.
#[derive(Debug, Clone, Copy)]
pub struct SoakAsk {
    /// Bytes to write and read back before it stops.
    pub bytes: u64,
    /// Time limit in seconds.
    pub seconds: f64,
    /// Concurrent rounds, each on its own stream.
    pub streams: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Totals of a soak test without differences.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SoakReport {
    /// The vendor's name for the GPU.
    pub gpu: String,
    /// CUDA version of its driver.
    pub driver: u32,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Concurrent rounds.
    pub streams: usize,
    /// Duration.
    pub seconds: f64,
    /// Completed rounds.
    pub rounds: u64,
    /// Plain bytes that were compressed.
    pub written_bytes: u64,
    /// Plain bytes that were read back and compared.
    pub read_bytes: u64,
    /// Entries with bytes in buddy memory when read.
    pub overflowing_entries: u64,
    /// Buffers that moved to another target.
    pub retargets: u64,
    /// Buffers and allocations freed.
    pub frees: u64,
    /// Bytes that were written, by codec and target, as in `bpc 2x`.
    pub written_by: BTreeMap<String, u64>,
}

impl RecordKind for SoakReport {
    const KIND: &'static str = "gpu-soak";
    const VERSION: u32 = 1;
}

/// State shared by the workers.
struct Shared<'a> {
    gpu: &'a Gpu,
    ask: SoakAsk,
    begin: Instant,
    rounds: AtomicU64,
    written: AtomicU64,
    failed: AtomicBool,
    report: Mutex<SoakReport>,
}

/// Writes, reads and compares until the volume or the time is reached; `progress` receives the
/// bytes of each round.
///
/// # Errors
/// [`Error::Differs`] with the first difference; compiler and driver errors.
pub fn soak(gpu: &Gpu, ask: SoakAsk, progress: impl Fn(u64) + Sync) -> Result<SoakReport, Error> {
    let shared = Shared {
        gpu,
        ask,
        begin: Instant::now(),
        rounds: AtomicU64::new(0),
        written: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        report: Mutex::default(),
    };
    let streams = ask.streams.max(1);
    let outcomes: Vec<Result<(), Error>> = thread::scope(|scope| {
        let worker = |_| scope.spawn(|| shared.work(streams as u64, &progress));
        let workers: Vec<_> = (0..streams).map(worker).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker panics with its message")).collect()
    });
    outcomes.into_iter().collect::<Result<(), Error>>()?;
    let info = gpu.info()?;
    let found = shared.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = shared.begin.elapsed().as_secs_f64();
    Ok(SoakReport { gpu: info.name, driver: info.driver, seed: ask.seed, streams, seconds, ..found })
}

impl Shared<'_> {
    /// Does rounds until the limit, or until one fails in any worker.
    fn work(&self, workers: u64, progress: &impl Fn(u64)) -> Result<(), Error> {
        let done = Worker::new(self.gpu, self.ask.bytes / 4, workers).and_then(|mut worker| {
            while !self.is_enough() {
                let number = self.rounds.fetch_add(1, Ordering::Relaxed);
                let mut made = Tally::default();
                worker.round(mix(self.ask.seed ^ mix(number)), &mut made)?;
                let written = made.written.iter().map(|(_, bytes)| bytes).sum();
                self.written.fetch_add(written, Ordering::Relaxed);
                progress(written);
                self.add(made);
            }
            Ok(())
        });
        if done.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        done
    }

    fn is_enough(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
            || self.written.load(Ordering::Relaxed) >= self.ask.bytes
            || self.begin.elapsed().as_secs_f64() >= self.ask.seconds
    }

    fn add(&self, made: Tally) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.rounds += 1;
        report.read_bytes += made.read;
        report.overflowing_entries += made.overflowing;
        report.retargets += made.retargets;
        report.frees += made.frees;
        for (what, bytes) in made.written {
            report.written_bytes += bytes;
            *report.written_by.entry(what).or_default() += bytes;
        }
    }
}

/// Totals of one round.
#[derive(Default)]
struct Tally {
    written: Vec<(String, u64)>,
    read: u64,
    overflowing: u64,
    retargets: u64,
    frees: u64,
}

/// A stream, plain memory, and two pools: one overflows into device memory and one over the link.
struct Worker {
    lab: Lab,
    data: DeviceBytes,
    back: DeviceBytes,
    near: BuddyPool,
    far: BuddyPool,
    /// Bytes of a round that overflows over the link.
    over_link: u64,
}

impl Worker {
    fn new(gpu: &Gpu, most: u64, workers: u64) -> Result<Self, Error> {
        // A tenth of the free memory: plain memory twice, and two buffers with all of their
        // overflow.
        let most = (gpu.info()?.free_bytes / 10).min(MOST_BYTES).min(most) / workers;
        let bytes = most.max(1 << 16).next_multiple_of(8192);
        let over_link = (MOST_OVER_LINK / workers).min(bytes).next_multiple_of(8192);
        let room = |bytes: u64| 2 * (bytes + bytes / 64 + (1 << 16));
        Ok(Self {
            lab: Lab::new(gpu)?,
            data: DeviceBytes::new(gpu, bytes)?,
            back: DeviceBytes::new(gpu, bytes)?,
            near: BuddyPool::new(gpu, room(bytes), Carveout::Device, room(bytes))?,
            far: BuddyPool::new(gpu, room(over_link), Carveout::Host, room(over_link))?,
            over_link,
        })
    }

    fn round(&mut self, seed: u64, made: &mut Tally) -> Result<(), Error> {
        let pick = |at: u32, of: usize| (mix(seed ^ u64::from(at)) % of as u64) as usize;
        let kinds: Vec<CodecKind> = buddy_cuda::codecs().collect();
        let kind = kinds[pick(1, kinds.len())];
        let (target, other) = (Target::ALL[pick(2, 5)], Target::ALL[pick(3, 5)]);
        let far = pick(4, 4) == 0;
        let most = if far { self.over_link } else { self.data.len() };
        // Rarely a whole number of pages.
        let entries = most / ENTRY_BYTES as u64 - pick(5, 100).min(60) as u64;
        let data = self.data.span(0..entries * ENTRY_BYTES as u64);
        fill(&self.lab, data, seed)?;
        let codec = self.lab.gpu.train(&self.lab.stream, kind, data)?;
        let pool = if far { &mut self.far } else { &mut self.near };
        let mut steps = Steps { lab: &self.lab, data, back: &self.back, made };
        steps.all(pool, &codec, [target, other], seed)?;
        pool.clear()?;
        if pick(6, 8) == 0 {
            one_by_one(&self.lab, &codec, target, data, seed, made)?;
        }
        Ok(())
    }
}

/// The steps of a round, on data to compare with after each.
struct Steps<'a> {
    lab: &'a Lab,
    data: DeviceSpan<'a>,
    back: &'a DeviceBytes,
    made: &'a mut Tally,
}

impl Steps<'_> {
    fn all(
        &mut self,
        pool: &mut BuddyPool,
        codec: &Codec,
        targets: [Target; 2],
        seed: u64,
    ) -> Result<(), Error> {
        let name = |target: Target| format!("{} {target}", codec.kind());
        let entries = self.data.entries();
        let first = pool.buffer(codec.clone(), targets[0], entries)?;
        first.write(&self.lab.stream, 0, self.data)?;
        self.made.written.push((name(targets[0]), self.data.bytes()));
        self.compare(&first, "written")?;
        // Overwrites a random range of entries.
        let begin = mix(seed ^ 11) % entries;
        let end = begin + 1 + mix(seed ^ 12) % (entries - begin).min(entries / 4 + 1);
        let part = self.data.part(begin * ENTRY_BYTES as u64..end.min(entries) * ENTRY_BYTES as u64);
        fill(self.lab, part, mix(seed ^ 13))?;
        first.write(&self.lab.stream, begin, part)?;
        self.made.written.push((name(targets[0]), part.bytes()));
        self.compare(&first, "overwritten")?;
        // Copies everything to a buffer with another target.
        let second = pool.buffer(codec.clone(), targets[1], entries)?;
        first.copy_to(&self.lab.stream, &second, self.back.span(0..self.back.len().min(1 << 20)))?;
        self.made.written.push((name(targets[1]), self.data.bytes()));
        self.made.retargets += 1;
        self.made.frees += 2;
        self.compare(&second, "retargeted")
    }

    /// Reads everything and compares it with the data.
    fn compare(&mut self, buffer: &buddy_cuda::BuddyBuffer, what: &str) -> Result<(), Error> {
        let back = self.back.span(0..self.data.bytes());
        self.lab.poison(back)?;
        buffer.read(&self.lab.stream, 0, back)?;
        let name = || format!("{what}, {} at {}", buffer.codec().kind(), buffer.target(0));
        self.lab.same(&name(), self.data, back)?;
        self.lab.describe(buffer)?;
        self.made.read += self.data.bytes();
        self.made.overflowing += buffer.latest().overflowing;
        Ok(())
    }
}

/// Allocates, writes, reads and frees an allocation of odd length.
fn one_by_one(
    lab: &Lab,
    codec: &Codec,
    target: Target,
    data: DeviceSpan<'_>,
    seed: u64,
    made: &mut Tally,
) -> Result<(), Error> {
    let bytes = (1 + mix(seed ^ 21) % (1 << 20)).min(data.bytes());
    let allocation = Allocation::new(&lab.gpu, bytes, target, codec.clone())?;
    let back = lab.bytes(bytes.next_multiple_of(ENTRY_BYTES as u64))?;
    back.fill(0)?;
    allocation.write(&lab.stream, 0, data.part(0..bytes))?;
    allocation.read_checked(&lab.stream, 0, back.span(0..bytes))?;
    let whole = bytes / ENTRY_BYTES as u64 * ENTRY_BYTES as u64;
    lab.same("an allocation", data.part(0..whole), back.span(0..whole))?;
    made.written.push((format!("{} {target}", codec.kind()), bytes));
    made.read += whole;
    made.frees += 1;
    Ok(())
}

/// Makes data of a random kind: structured, random, or difficult.
fn fill(lab: &Lab, to: DeviceSpan<'_>, seed: u64) -> Result<(), Error> {
    const FILLS: [Fill; 11] = [
        Fill::Noise,
        Fill::Zeros,
        Fill::Varied,
        Fill::Ramp,
        Fill::Field64,
        Fill::Weights,
        Fill::Relu,
        Fill::Halves,
        Fill::Values,
        Fill::Corners,
        Fill::Quotients,
    ];
    match mix(seed ^ 31) % 15 {
        kind @ 0..11 => {
            let noise = [0.0, 0.001, 0.01, 0.1, 0.5][(mix(seed ^ 32) % 5) as usize];
            lab.make(to, FILLS[kind as usize], seed, noise)
        }
        _ => lab.make_hard(to, seed),
    }
}

impl Lab {
    /// Fills entries with difficult data: sizes just below and above every class, special floats,
    /// single bits.
    fn make_hard(&self, to: DeviceSpan<'_>, seed: u64) -> Result<(), Error> {
        let to = to.check_entries()?;
        let arguments = (to.address(), to.entries(), seed);
        // SAFETY: the arguments of `buddy_fill_hard`, which writes only the span.
        unsafe { self.own.start("buddy_fill_hard", Launch::row(8192, 256), &arguments)? };
        self.wait()
    }

    /// Fills a span with a pattern that no entry has by chance.
    fn poison(&self, to: DeviceSpan<'_>) -> Result<(), Error> {
        let to = to.check_entries()?;
        let word = u32::from_ne_bytes([POISON; 4]);
        let arguments = (to.address(), to.bytes() / 16, word);
        // SAFETY: the arguments of `buddy_set`, which writes only the span.
        unsafe { self.own.start("buddy_set", Launch::row(4096, 256), &arguments) }
    }
}

/// Hashes a 64-bit number, like the kernels.
fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
