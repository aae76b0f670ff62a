//! How fast it is, beside a copy in the same run. Times are medians by CUDA events; every pair of write and read
//! is verified.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRY_BYTES, RecordKind, SizeClass, Target};
use cudarc::driver::{CudaStream, sys::CUevent_flags};
use serde::{Deserialize, Serialize};

use crate::{BuddyBuffer, BuddyPool, Carveout, DeviceBytes, Error, Fill, Gpu, Targets, pool::room_for};

/// Timed repeats of each operation, after three that are not.
const REPEATS: usize = 15;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// The GPU's name.
    pub gpu: String,
    /// CUDA version of its driver.
    pub driver: u32,
    /// Uncompressed bytes of each measurement.
    pub bytes: u64,
    /// The measurements.
    pub rows: Vec<BenchRow>,
}

impl RecordKind for BenchReport {
    const KIND: &'static str = "gpu-bench";
    const VERSION: u32 = 1;
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    /// What was done.
    pub what: String,
    /// On which data.
    pub data: String,
    /// 10^9 uncompressed bytes a second; for copies, bytes read and written.
    pub gb_per_s: f64,
    /// What the bytes that must move allow, at the copy's speed or the link's.
    pub bound_gb_per_s: Option<f64>,
    /// Share of entries that overflow.
    pub overflow: Option<f64>,
}

/// Measures everything on `bytes` of data.
///
/// # Errors
/// [`Error::Differs`] if something is not read as it was written, or what compiler or driver say.
pub fn bench(gpu: &Gpu, bytes: u64, mut progress: impl FnMut(&BenchRow)) -> Result<BenchReport, Error> {
    let info = gpu.info()?;
    let mut bench = Bench::new(gpu, bytes)?;
    let mut report = BenchReport { gpu: info.name, driver: info.driver, bytes, rows: Vec::new() };
    let mut add = |rows: Vec<BenchRow>| {
        rows.iter().for_each(&mut progress);
        report.rows.extend(rows);
    };
    add(vec![bench.copy()?]);
    add(vec![bench.sizes(CodecKind::Bpc, Fill::Varied)?]);
    let pairs = [
        (CodecKind::Bpc, Target::X2, Fill::Ramp),
        (CodecKind::Planes64, Target::X2, Fill::Field64),
        (CodecKind::Bf16, Target::X4Over3, Fill::Weights),
        (CodecKind::Fp16, Target::X4Over3, Fill::Halves),
        (CodecKind::Zeros32, Target::X4Over3, Fill::Relu),
    ];
    for (kind, target, fill) in pairs {
        add(bench.pair(kind, target, fill)?);
    }
    add(bench.gather()?);
    for carveout in [Carveout::Host, Carveout::Device] {
        add(bench.overflow(carveout)?);
    }
    Ok(report)
}

struct Bench {
    gpu: Gpu,
    stream: std::sync::Arc<CudaStream>,
    bytes: u64,
    data: DeviceBytes,
    back: DeviceBytes,
    counts: DeviceBytes,
    /// What a copy moves, read and written.
    copy_gb_per_s: f64,
}

impl Bench {
    fn new(gpu: &Gpu, bytes: u64) -> Result<Self, Error> {
        Ok(Self {
            gpu: gpu.clone(),
            stream: gpu.stream()?,
            bytes,
            data: DeviceBytes::new(gpu, bytes)?,
            back: DeviceBytes::new(gpu, bytes)?,
            counts: DeviceBytes::new(gpu, 64)?,
            copy_gb_per_s: 0.0,
        })
    }

    /// Median seconds of an operation.
    fn time(&self, operation: impl Fn() -> Result<(), Error>) -> Result<f64, Error> {
        let event = || self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let mut times = Vec::new();
        for run in 0..3 + REPEATS {
            let start = self.gpu.check("record an event", event())?;
            operation()?;
            let end = self.gpu.check("record an event", event())?;
            self.gpu.wait(&self.stream)?;
            let ms = self.gpu.check("read the time", start.elapsed_ms(&end))?;
            if run >= 3 {
                times.push(f64::from(ms) / 1e3);
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times[REPEATS / 2])
    }

    fn row(&self, what: impl Into<String>, data: Fill, seconds: f64) -> BenchRow {
        BenchRow {
            what: what.into(),
            data: format!("{data:?}").to_lowercase(),
            gb_per_s: self.bytes as f64 / seconds / 1e9,
            bound_gb_per_s: None,
            overflow: None,
        }
    }

    /// What a copy of `moved` bytes for each entry would reach.
    fn bound(&self, moved: f64) -> Option<f64> {
        Some(self.copy_gb_per_s * ENTRY_BYTES as f64 / moved)
    }

    fn make(&self, fill: Fill, noise: f64) -> Result<(), Error> {
        self.gpu.make(&self.stream, self.data.all(), fill, 1, noise)?;
        self.gpu.wait(&self.stream)
    }

    /// The codec, trained on some of the data.
    fn train(&self, kind: CodecKind) -> Result<Codec, Error> {
        let mut sample = vec![[0; ENTRY_BYTES]; (self.bytes / ENTRY_BYTES as u64).min(4096) as usize];
        self.data.download(sample.as_flattened_mut())?;
        Ok(kind.train(&sample))
    }

    fn copy(&mut self) -> Result<BenchRow, Error> {
        self.make(Fill::Varied, 0.0)?;
        let seconds = self.time(|| self.gpu.copy(&self.stream, self.data.all(), self.back.all()))?;
        self.copy_gb_per_s = 2.0 * self.bytes as f64 / seconds / 1e9;
        self.verify()?;
        Ok(BenchRow {
            gb_per_s: self.copy_gb_per_s,
            ..self.row("copy, read and written", Fill::Varied, seconds)
        })
    }

    fn sizes(&self, kind: CodecKind, fill: Fill) -> Result<BenchRow, Error> {
        self.make(fill, 0.0)?;
        let codec = self.train(kind)?;
        let counts = self.counts.span(0..48);
        let seconds = self.time(|| self.gpu.size_histogram(&self.stream, &codec, self.data.all(), counts))?;
        Ok(self.row(format!("{kind} size histogram"), fill, seconds))
    }

    /// Write and read of a whole buffer.
    fn pair(&self, kind: CodecKind, target: Target, fill: Fill) -> Result<Vec<BenchRow>, Error> {
        self.make(fill, 0.0)?;
        let mut pool = self.pool(target, Carveout::Host)?;
        let buffer = pool.buffer(self.train(kind)?, self.targets(target))?;
        let (write, read) = self.write_and_read(&buffer)?;
        let overflow = Some(buffer.latest().overflowing as f64 / buffer.entries() as f64);
        let bound_gb_per_s = self.bound(ENTRY_BYTES as f64 + stored_bytes(&buffer));
        let row = |what, seconds| BenchRow {
            bound_gb_per_s,
            overflow,
            ..self.row(format!("{kind} {what} at {target}"), fill, seconds)
        };
        Ok(vec![row("compress", write), row("decompress", read)])
    }

    fn write_and_read(&self, buffer: &BuddyBuffer) -> Result<(f64, f64), Error> {
        let write = self.time(|| buffer.write(&self.stream, 0, self.data.all()))?;
        self.back.fill(0xee)?;
        let read = self.time(|| buffer.read(&self.stream, 0, self.back.all()))?;
        buffer.stats(&self.stream)?;
        self.verify()?;
        Ok((write, read))
    }

    /// `back` is the data.
    fn verify(&self) -> Result<(), Error> {
        self.counts.fill(0)?;
        let (data, back) = (self.data.all(), self.back.all());
        self.gpu.count_differences(&self.stream, data, back, self.counts.span(0..8))?;
        self.gpu.wait(&self.stream)?;
        let mut count = [0; 8];
        self.counts.download(&mut count)?;
        match u64::from_le_bytes(count) {
            0 => Ok(()),
            words => Err(Error::Differs(format!("{words} words are not read as they were written"))),
        }
    }

    fn targets(&self, target: Target) -> Targets<'static> {
        Targets::Uniform(target, self.bytes / ENTRY_BYTES as u64)
    }

    fn pool(&self, target: Target, carveout: Carveout) -> Result<BuddyPool, Error> {
        let (device, buddy) = room_for(target, self.bytes / ENTRY_BYTES as u64);
        BuddyPool::new(&self.gpu, device, carveout, buddy)
    }

    /// Random single entries, from compressed and from plain memory.
    fn gather(&self) -> Result<Vec<BenchRow>, Error> {
        self.make(Fill::Ramp, 0.0)?;
        let mut pool = self.pool(Target::X2, Carveout::Host)?;
        let buffer = pool.buffer(self.train(CodecKind::Bpc)?, self.targets(Target::X2))?;
        buffer.write(&self.stream, 0, self.data.all())?;
        let list = DeviceBytes::new(&self.gpu, 4 * buffer.entries())?;
        self.gpu.make_list(&self.stream, list.all(), buffer.entries(), 7)?;
        let other = DeviceBytes::new(&self.gpu, self.bytes)?;
        let plain =
            self.time(|| self.gpu.gather_plain(&self.stream, self.data.all(), other.all(), list.all()))?;
        let ours = self.time(|| buffer.gather(&self.stream, list.all(), self.back.all()))?;
        self.counts.fill(0)?;
        self.gpu.count_differences(&self.stream, other.all(), self.back.all(), self.counts.span(0..8))?;
        self.gpu.wait(&self.stream)?;
        let mut count = [0; 8];
        self.counts.download(&mut count)?;
        if count != [0; 8] {
            return Err(Error::Differs("gathered entries are not the plain ones".to_owned()));
        }
        let plain = self.row("gather of 128 B from plain memory", Fill::Ramp, plain);
        let bound_gb_per_s = Some(plain.gb_per_s);
        let ours = BenchRow { bound_gb_per_s, ..self.row("bpc gather at 2x", Fill::Ramp, ours) };
        Ok(vec![plain, ours])
    }

    /// Reads while some entries overflow, beside what the link allows.
    fn overflow(&self, carveout: Carveout) -> Result<Vec<BenchRow>, Error> {
        let mut pool = self.pool(Target::X2, carveout)?;
        let place = format!("{carveout:?}").to_lowercase();
        let slot = Target::X2.buddy_bytes() as u32;
        let in_order = self.link(&pool, slot, slot)?;
        let apart = self.link(&pool, slot, 10 * slot)?;
        let row = |what, gb_per_s| BenchRow {
            gb_per_s,
            ..self.row(format!("carve-out on the {place}, {what}"), Fill::Ramp, 1.0)
        };
        let mut rows = vec![row("in order", in_order), row("one slot of 64 B in ten", apart)];
        let mut without = None;
        for noise in [0.0, 0.001, 0.01, 0.1] {
            self.make(Fill::Ramp, noise)?;
            let buffer = pool.buffer(self.train(CodecKind::Bpc)?, self.targets(Target::X2))?;
            let (_, read) = self.write_and_read(&buffer)?;
            let overflowing = buffer.latest().overflowing;
            let without = *without.get_or_insert(read);
            // Noise is stored raw: half of it lies in the carve-out.
            let linked = (overflowing * u64::from(slot)) as f64 / in_order / 1e9;
            rows.push(BenchRow {
                overflow: Some(overflowing as f64 / buffer.entries() as f64),
                bound_gb_per_s: Some(self.bytes as f64 / linked.max(without) / 1e9),
                ..self.row(format!("bpc decompress at 2x, overflow on the {place}"), Fill::Ramp, read)
            });
            drop(buffer);
            pool.clear()?;
        }
        Ok(rows)
    }

    /// Speed of a kernel that reads slots of the carve-out, so far apart.
    fn link(&self, pool: &BuddyPool, slot: u32, stride: u32) -> Result<f64, Error> {
        let from = pool.carveout_span(pool.regions().buddy.bytes().min(1 << 29));
        let kernels = self.gpu.common()?;
        let seconds = self.time(|| {
            let launched = kernels.read_slots(&self.stream, from, self.back.all(), slot, stride);
            self.gpu.check("start reading the carve-out", launched)
        })?;
        Ok((from.bytes() / u64::from(stride) * u64::from(slot)) as f64 / seconds / 1e9)
    }
}

/// Bytes of device memory that the average entry moves: its sectors there, and its nibble.
fn stored_bytes(buffer: &BuddyBuffer) -> f64 {
    let stats = buffer.latest();
    let used = |class| stats.class(class) * buffer.target(0).split(class).0 as u64;
    let used: u64 = SizeClass::ALL.into_iter().map(used).sum();
    used as f64 / buffer.entries() as f64 + 0.5
}
