//! The benchmark of `buddy bench memory`: the overhead of the memory over its codec, of disabled
//! compression over the storage, and the gain of a second thread. All passes run interleaved in one
//! process; the fastest of each kind counts, since other load only slows passes down.

use std::{
    fmt,
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use buddy_codec::{
    Codec, CodecKind, Packed,
    samples::{Noise, fill},
};
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, Entry, PAGE_BYTES, Target};
use buddy_memory::{BuddyMemory, Error, Handle, Region, Request, Spec};
use buddy_record::{Record, RecordKind};
use serde::{Deserialize, Serialize};

/// Benchmark parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BenchSpec {
    /// Bytes of data, rounded up to 8 KiB pages.
    pub(super) bytes: u64,
    /// Passes of each kind.
    pub(super) rounds: u32,
    /// Codec of the compressed allocation.
    pub(super) codec: CodecKind,
    /// Target of the compressed allocation.
    pub(super) target: Target,
}

impl Default for BenchSpec {
    fn default() -> Self {
        Self { bytes: 2 << 20, rounds: 40, codec: CodecKind::Bpc, target: Target::X2 }
    }
}

/// One comparison, in nanoseconds per entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Comparison {
    /// The measured operation.
    pub(super) what: String,
    /// The baseline.
    pub(super) with: String,
    /// Nanoseconds of the operation.
    pub(super) ns: f64,
    /// Nanoseconds of the baseline.
    pub(super) with_ns: f64,
}

impl Comparison {
    /// Returns the time relative to the baseline.
    pub(super) fn cost(&self) -> f64 {
        self.ns / self.with_ns
    }
}

/// Benchmark results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MemoryBench {
    /// Benchmark parameters.
    pub(super) spec: BenchSpec,
    /// Processors available to this process.
    pub(super) processors: u64,
    /// Streaming through the memory against the codec alone; without compression, against the
    /// storage alone; the storage against a copy.
    pub(super) costs: Vec<Comparison>,
    /// Two threads against one, for the memory and for the codec alone; the latter shares nothing
    /// and shows the gain the machine allows.
    pub(super) threads: Vec<Comparison>,
}

impl RecordKind for MemoryBench {
    const KIND: &'static str = "bench-memory";
    const VERSION: u32 = 1;
}

/// Runs the benchmark and verifies the data.
///
/// # Errors
/// [`Error`] of the memory.
///
/// # Panics
/// If the data read differs from the data written.
pub(super) fn run(spec: &BenchSpec) -> Result<Record<MemoryBench>, Error> {
    let rig = Rig::new(spec)?;
    let mut out = vec![0; rig.bytes().len()];
    let mut best = [Duration::MAX; PASSES.len()];
    for _ in 0..spec.rounds.max(1) {
        for (pass, best) in PASSES.iter().zip(&mut best) {
            let start = Instant::now();
            (pass.run)(&rig, &mut out)?;
            *best = start.elapsed().min(*best);
            assert!(!pass.reads || out == rig.bytes(), "{} lost data", pass.name);
        }
    }
    let mut record = Record::new(rig.results(spec, &best));
    record.spec = serde_json::to_value(spec).expect("a spec has string keys");
    Ok(record)
}

/// Memory, codec and buffers of the benchmark.
struct Rig {
    data: Vec<Entry>,
    codec: Codec,
    packed: Vec<Packed>,
    memory: BuddyMemory,
    compressed: Handle,
    plain: Handle,
    storage: Region,
}

/// One timed operation.
struct Pass {
    name: &'static str,
    /// True if it must leave the data in the output buffer.
    reads: bool,
    run: fn(&Rig, &mut [u8]) -> Result<(), Error>,
}

const PASSES: [Pass; 13] = [
    Pass { name: "codec: pack", reads: false, run: |rig, _| rig.pack(1) },
    Pass { name: "write", reads: false, run: |rig, _| rig.write(rig.compressed, 1) },
    Pass { name: "codec: unpack", reads: true, run: |rig, out| rig.unpack(out, 1) },
    Pass { name: "read", reads: true, run: |rig, out| rig.read(rig.compressed, out, 1) },
    Pass { name: "storage: write", reads: false, run: Rig::store },
    Pass { name: "write, compression off", reads: false, run: |rig, _| rig.write(rig.plain, 1) },
    Pass { name: "storage: read", reads: true, run: Rig::load },
    Pass { name: "read, compression off", reads: true, run: |rig, out| rig.read(rig.plain, out, 1) },
    Pass { name: "copy", reads: true, run: Rig::copy },
    Pass { name: "write, 2 threads", reads: false, run: |rig, _| rig.write(rig.compressed, 2) },
    Pass { name: "read, 2 threads", reads: true, run: |rig, out| rig.read(rig.compressed, out, 2) },
    Pass { name: "codec: pack, 2 threads", reads: false, run: |rig, _| rig.pack(2) },
    Pass { name: "codec: unpack, 2 threads", reads: true, run: |rig, out| rig.unpack(out, 2) },
];

/// Compared passes, as indices into [`PASSES`].
const COSTS: [(usize, usize); 5] = [(1, 0), (3, 2), (5, 4), (7, 6), (6, 8)];
const THREADS: [(usize, usize); 4] = [(9, 1), (10, 3), (11, 0), (12, 2)];

impl Rig {
    fn new(spec: &BenchSpec) -> Result<Self, Error> {
        let bytes = spec.bytes.next_multiple_of(PAGE_BYTES as u64);
        let data = sample(bytes / ENTRY_BYTES as u64);
        let codec = spec.codec.train(&data);
        let memory = BuddyMemory::new(Spec::new(2 * bytes))?;
        let compressed = memory.allocate(&Request::new(bytes, codec.clone(), spec.target))?;
        let plain = memory.allocate(&Request::plain(bytes))?;
        let mut packed = vec![Packed::default(); data.len()];
        for (entry, packed) in data.iter().zip(&mut packed) {
            codec.pack(entry, packed);
        }
        Ok(Self { data, codec, packed, memory, compressed, plain, storage: Region::new(bytes)? })
    }

    fn bytes(&self) -> &[u8] {
        self.data.as_flattened()
    }

    /// Codec alone: packs every entry into a buffer that stays in cache.
    fn pack(&self, threads: usize) -> Result<(), Error> {
        on_threads(self.data.chunks(self.share(threads)), |data| {
            let mut packed = Packed::default();
            for entry in data {
                self.codec.pack(entry, &mut packed);
                black_box(&packed);
            }
            Ok(())
        })
    }

    /// Codec alone: unpacks every entry to the output.
    fn unpack(&self, out: &mut [u8], threads: usize) -> Result<(), Error> {
        let (share, out) = (self.share(threads), out.as_chunks_mut::<ENTRY_BYTES>().0);
        on_threads(self.packed.chunks(share).zip(out.chunks_mut(share)), |(packed, out)| {
            for (packed, out) in packed.iter().zip(out) {
                let entry = self.codec.unpack(packed.nibble(), packed.bytes());
                *out = entry.map_err(|source| Error::Codec { offset: 0, source })?;
            }
            Ok(())
        })
    }

    /// Storage alone: shared atomic words, without allocations, pages or locks.
    fn store(&self, _: &mut [u8]) -> Result<(), Error> {
        self.storage.store(0, self.bytes());
        Ok(())
    }

    fn load(&self, out: &mut [u8]) -> Result<(), Error> {
        self.storage.load(0, out);
        Ok(())
    }

    fn copy(&self, out: &mut [u8]) -> Result<(), Error> {
        black_box(out).copy_from_slice(black_box(self.bytes()));
        Ok(())
    }

    fn write(&self, handle: Handle, threads: usize) -> Result<(), Error> {
        let share = self.share(threads) * ENTRY_BYTES;
        let write = |(i, data)| self.memory.write(handle, (i * share) as u64, data);
        on_threads(self.bytes().chunks(share).enumerate(), write)
    }

    fn read(&self, handle: Handle, out: &mut [u8], threads: usize) -> Result<(), Error> {
        let share = self.share(threads) * ENTRY_BYTES;
        let read = |(i, out)| self.memory.read(handle, (i * share) as u64, out);
        on_threads(out.chunks_mut(share).enumerate(), read)
    }

    /// Returns the entries per thread.
    fn share(&self, threads: usize) -> usize {
        self.data.len().div_ceil(threads).next_multiple_of(ENTRIES_PER_PAGE)
    }

    fn results(&self, spec: &BenchSpec, best: &[Duration; PASSES.len()]) -> MemoryBench {
        let entries = self.data.len() as f64;
        let ns = |pass: usize| best[pass].as_nanos() as f64 / entries;
        let compare = |(pass, with): (usize, usize)| Comparison {
            what: PASSES[pass].name.to_owned(),
            with: PASSES[with].name.to_owned(),
            ns: ns(pass),
            with_ns: ns(with),
        };
        MemoryBench {
            spec: *spec,
            processors: thread::available_parallelism().map_or(1, |n| n.get() as u64),
            costs: COSTS.map(compare).into(),
            threads: THREADS.map(compare).into(),
        }
    }
}

/// Returns entries of every size class in runs of eight: zeros, counters, floats, noise of three
/// widths.
fn sample(count: u64) -> Vec<Entry> {
    let mut noise = Noise(0x2545_f491_4f6c_dd1d);
    let entry = |i: u64| {
        fill(|k| {
            let (number, noise) = (i * 32 + k, noise.next() as u32);
            let x = number as f32 * 1e-4;
            let word = match i / 8 % 7 {
                0 => 0,
                1 => number as u32,
                2 => x.sin().to_bits() & 0xffff_0000,
                3 => (x.sin() + 2.0).to_bits(),
                4 => noise & 0xfff,
                5 => noise & 0xf_ffff,
                _ => noise,
            };
            word.to_le_bytes()
        })
    };
    (0..count).map(entry).collect()
}

/// Runs the first job on this thread and the others on threads of their own.
fn on_threads<T: Send>(
    mut jobs: impl Iterator<Item = T>,
    work: impl Fn(T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let (first, work) = (jobs.next(), &work);
    thread::scope(|scope| {
        let running: Vec<_> = jobs.map(|job| scope.spawn(move || work(job))).collect();
        first.map_or(Ok(()), work)?;
        running.into_iter().try_for_each(|thread| thread.join().expect("a pass does not panic"))
    })
}

impl fmt::Display for MemoryBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BenchSpec { bytes, rounds, codec, target } = self.spec;
        let mib = bytes as f64 / f64::from(1 << 20);
        let processors = self.processors;
        writeln!(f, "{mib} MiB, {codec}, target {target}, best of {rounds}, {processors} processors")?;
        writeln!(f, "{:24} {:>9}  {:16} {:>9} {:>8}", "streaming", "ns/entry", "beside", "ns/entry", "cost")?;
        for row in &self.costs {
            let Comparison { what, with, ns, with_ns } = row;
            writeln!(f, "{what:24} {ns:9.1}  {with:16} {with_ns:9.1} {:7.2}x", row.cost())?;
        }
        writeln!(f, "{:24} {:>9}  {:16} {:>9} {:>8}", "threads", "ns/entry", "beside", "ns/entry", "speed")?;
        for row in &self.threads {
            let Comparison { what, with, ns, with_ns } = row;
            writeln!(f, "{what:24} {ns:9.1}  {with:16} {with_ns:9.1} {:7.2}x", 1.0 / row.cost())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_every_class() {
        let entries = sample(64);
        let codec = CodecKind::Bpc.train(&entries);
        let classes: std::collections::BTreeSet<_> = entries.iter().map(|entry| codec.class(entry)).collect();
        assert_eq!(classes.len(), 6, "{classes:?}");
    }

    #[test]
    fn a_short_run_measures_everything() {
        let spec = BenchSpec { bytes: 64 << 10, rounds: 1, ..BenchSpec::default() };
        let record = run(&spec).unwrap();
        let data = &record.data;
        assert_eq!((data.costs.len(), data.threads.len()), (5, 4));
        assert!(data.costs.iter().chain(&data.threads).all(|row| row.cost() > 0.0));
        assert_eq!(Record::from_json(&record.to_json()).unwrap(), record);
        assert_eq!(data.to_string().lines().count(), 12);
    }
}
