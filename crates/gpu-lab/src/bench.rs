//! Speed of the runtime, compared with a copy in the same run. Times are medians by CUDA events;
//! every pair of write and read is verified.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRY_BYTES, Target};
use buddy_cuda::{BuddyBuffer, BuddyPool, Carveout, DeviceBytes, Gpu, Surveyed};
use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Fill, Lab,
    lab::{overflow, stored_bytes},
    nvcomp::{Format, Nvcomp},
};

/// Launches of each operation that are timed together.
const LAUNCHES: usize = 3;

/// Codec, target and data of the measured buffers.
const PAIRS: [(CodecKind, Target, Fill); 12] = [
    (CodecKind::Bpc, Target::X2, Fill::Ramp),
    (CodecKind::Planes64, Target::X2, Fill::Field64),
    (CodecKind::Bf16, Target::X4Over3, Fill::Weights),
    (CodecKind::Fp16, Target::X4Over3, Fill::Halves),
    (CodecKind::Zeros32, Target::X4Over3, Fill::Relu),
    (CodecKind::Table64, Target::X4, Fill::Values),
    (CodecKind::Table32, Target::X2, Fill::Values),
    (CodecKind::Scaled64, Target::X2, Fill::Quotients),
    (CodecKind::Prefix32, Target::X4, Fill::Corners),
    (CodecKind::Prefix64, Target::X2, Fill::Field64),
    (CodecKind::Rank32, Target::X2, Fill::Values),
    (CodecKind::Rank64, Target::X4, Fill::Values),
];

/// Codecs whose sizes are counted in one pass, besides all selected ones: those of a snapshot in
/// docs/guide/hpc-programs.md.
const FEW: [CodecKind; 4] = [CodecKind::Bpc, CodecKind::Planes64, CodecKind::Zeros32, CodecKind::Fp32];

/// Data that nvCOMP packs, too, and the bytes of a value.
const PEERS: [(Fill, u32); 4] = [(Fill::Ramp, 4), (Fill::Field64, 8), (Fill::Weights, 2), (Fill::Relu, 4)];

/// The runtime's speed on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// The vendor's name for the GPU.
    pub gpu: String,
    /// CUDA version of its driver.
    pub driver: u32,
    /// Uncompressed bytes of each measurement.
    pub bytes: u64,
    /// The measurements in order.
    pub rows: Vec<BenchRow>,
}

impl RecordKind for BenchReport {
    const KIND: &'static str = "gpu-bench";
    const VERSION: u32 = 1;
}

/// The speed of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    /// The operation, with codec and target.
    pub what: String,
    /// The name of its [`Fill`].
    pub data: String,
    /// 10^9 uncompressed bytes a second; for copies, bytes read and written.
    pub gb_per_s: f64,
    /// Upper bound: the bytes that must move, at the speed of a copy or of the link.
    pub bound_gb_per_s: Option<f64>,
    /// Share of entries that overflow.
    pub overflow: Option<f64>,
}

/// Measures on `bytes` of data: everything, or only the codecs in `only` if it names any.
///
/// # Errors
/// [`Error::Differs`] if a read does not return what was written; compiler and driver errors.
pub fn bench(
    gpu: &Gpu,
    bytes: u64,
    only: &[CodecKind],
    mut progress: impl FnMut(&BenchRow),
) -> Result<BenchReport, Error> {
    let info = gpu.info()?;
    let mut bench = Bench::new(gpu, bytes)?;
    let mut report = BenchReport { gpu: info.name, driver: info.driver, bytes, rows: Vec::new() };
    let mut add = |rows: Vec<BenchRow>| {
        rows.iter().for_each(&mut progress);
        report.rows.extend(rows);
    };
    let asked = |kind: CodecKind| only.is_empty() || only.contains(&kind);
    let pairs = || PAIRS.into_iter().filter(|&(kind, ..)| asked(kind));
    add(vec![bench.copy()?]);
    if asked(CodecKind::Bpc) {
        add(vec![bench.sizes(CodecKind::Bpc, Fill::Varied)?]);
    }
    let all: Vec<CodecKind> = buddy_cuda::codecs().filter(|&kind| asked(kind)).collect();
    for kinds in
        [&FEW[..], &all].into_iter().filter(|kinds| kinds.len() > 1 && kinds.iter().all(|&kind| asked(kind)))
    {
        add(bench.all_sizes(kinds, Fill::Varied)?);
    }
    for (kind, target, fill) in pairs() {
        add(bench.pair(kind, target, fill)?);
    }
    if let Some(nvcomp) = Nvcomp::load().filter(|_| only.is_empty()) {
        for (fill, bytes) in PEERS {
            add(bench.peers(&nvcomp, fill, bytes)?);
        }
    }
    for (kind, _, fill) in pairs().filter(|(kind, ..)| kind.has_parameters() && *kind != CodecKind::Bf16) {
        add(vec![bench.sizes(kind, fill)?]);
    }
    for (kind, target, fill) in pairs().filter(|(kind, ..)| kind.has_parameters() || *kind == CodecKind::Bpc)
    {
        add(bench.gather(kind, target, fill)?);
    }
    if only.is_empty() {
        for carveout in [Carveout::Host, Carveout::Device] {
            add(bench.overflow(carveout)?);
        }
    }
    Ok(report)
}

struct Bench {
    lab: Lab,
    bytes: u64,
    data: DeviceBytes,
    back: DeviceBytes,
    /// Bandwidth of a copy, bytes read and written.
    copy_gb_per_s: f64,
}

impl Bench {
    fn new(gpu: &Gpu, bytes: u64) -> Result<Self, Error> {
        let lab = Lab::new(gpu)?;
        let (data, back) = (lab.bytes(bytes)?, lab.bytes(bytes)?);
        Ok(Self { lab, bytes, data, back, copy_gb_per_s: 0.0 })
    }

    /// Returns the median seconds of an operation.
    fn time(&self, operation: impl Fn() -> Result<(), Error>) -> Result<f64, Error> {
        Ok(self.lab.time(LAUNCHES, |_| operation())? / 1e6)
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

    fn make(&self, fill: Fill, noise: f64) -> Result<(), Error> {
        self.lab.make(self.data.all(), fill, 1, noise)
    }

    fn copy(&mut self) -> Result<BenchRow, Error> {
        self.make(Fill::Varied, 0.0)?;
        let seconds = self.time(|| self.lab.copy(self.data.all(), self.back.all()))?;
        self.copy_gb_per_s = 2.0 * self.bytes as f64 / seconds / 1e9;
        self.verify()?;
        Ok(BenchRow {
            gb_per_s: self.copy_gb_per_s,
            ..self.row("copy, read and written", Fill::Varied, seconds)
        })
    }

    /// Measures a survey of all data as one span, with its wait.
    fn sizes(&self, kind: CodecKind, fill: Fill) -> Result<BenchRow, Error> {
        self.make(fill, 0.0)?;
        let codec = self.lab.gpu.train(&self.lab.stream, kind, self.data.all())?;
        let all = [Surveyed { span: self.data.all(), codec, classes: None }];
        let seconds = self.time(|| Ok(self.lab.gpu.survey(&self.lab.stream, &all).map(drop)?))?;
        Ok(self.row(format!("{kind} size histogram"), fill, seconds))
    }

    /// Measures surveys of all data with several codecs: one pass for each, and one pass per group.
    fn all_sizes(&self, kinds: &[CodecKind], fill: Fill) -> Result<Vec<BenchRow>, Error> {
        self.make(fill, 0.0)?;
        let train = |&kind| Ok(self.lab.gpu.train(&self.lab.stream, kind, self.data.all())?);
        let codecs = kinds.iter().map(train).collect::<Result<Vec<Codec>, Error>>()?;
        let surveyed = |bytes: u64, codec: &Codec| Surveyed {
            span: self.data.span(0..bytes),
            codec: codec.clone(),
            classes: None,
        };
        let together: Vec<_> = codecs.iter().map(|codec| surveyed(self.bytes, codec)).collect();
        // Each span is one entry shorter: different memory is surveyed separately.
        let less = (0..).step_by(ENTRY_BYTES);
        let apart: Vec<_> =
            codecs.iter().zip(less).map(|(codec, less)| surveyed(self.bytes - less, codec)).collect();
        let survey = |spans: &[Surveyed<'_>]| Ok::<_, Error>(self.lab.gpu.survey(&self.lab.stream, spans)?);
        for (one, found) in together.iter().zip(survey(&together)?) {
            if survey(std::slice::from_ref(one))? != [found] {
                return Err(Error::Differs(format!("sizes of {} in one pass with others", one.codec.kind())));
            }
        }
        let row = |what: String, spans: &[Surveyed<'_>]| -> Result<BenchRow, Error> {
            let seconds = self.time(|| survey(spans).map(drop))?;
            Ok(self.row(format!("sizes with {} codecs, {what}", kinds.len()), fill, seconds))
        };
        let passes = buddy_cuda::survey_groups(kinds).len();
        let passes = if passes == 1 { "one pass".to_owned() } else { format!("{passes} passes") };
        Ok(vec![row("a pass for each".to_owned(), &apart)?, row(passes, &together)?])
    }

    /// Measures write and read of a buffer, compared with a copy of the bytes that both must move.
    fn pair(&self, kind: CodecKind, target: Target, fill: Fill) -> Result<Vec<BenchRow>, Error> {
        self.make(fill, 0.0)?;
        let packed = self.lab.compress(kind, target, self.data.all())?;
        let buffer = packed.buffer();
        let (write, read) = self.write_and_read(buffer)?;
        let moved = (self.bytes + stored_bytes(buffer).0) as f64 / self.bytes as f64;
        let row = |what, seconds| BenchRow {
            bound_gb_per_s: Some(self.copy_gb_per_s / moved),
            overflow: Some(overflow(buffer)),
            ..self.row(format!("{kind} {what} at {target}"), fill, seconds)
        };
        Ok(vec![row("compress", write), row("decompress", read)])
    }

    /// Measures nvCOMP on the same data, with preallocated buffers.
    fn peers(&self, nvcomp: &Nvcomp, fill: Fill, bytes: u32) -> Result<Vec<BenchRow>, Error> {
        self.make(fill, 0.0)?;
        let mut rows = Vec::new();
        for format in [Format::Bitcomp(bytes), Format::Ans(bytes)] {
            let peer = nvcomp.measure(&self.lab, format, self.data.all(), self.back.all())?;
            let what = format!("nvCOMP {}, ratio {:.2}, ", format.name(), peer.ratio);
            rows.push(self.row(what.clone() + "compress", fill, peer.pack_us / 1e6));
            rows.push(self.row(what + "decompress", fill, peer.unpack_us / 1e6));
        }
        Ok(rows)
    }

    /// Returns seconds of both; checks the data read back.
    fn write_and_read(&self, buffer: &BuddyBuffer) -> Result<(f64, f64), Error> {
        let write = self.time(|| Ok(buffer.write(&self.lab.stream, 0, self.data.all())?))?;
        self.back.fill(0xee)?;
        let read = self.time(|| Ok(buffer.read(&self.lab.stream, 0, self.back.all())?))?;
        self.lab.describe(buffer)?;
        self.verify()?;
        Ok((write, read))
    }

    fn verify(&self) -> Result<(), Error> {
        self.lab.same("what was read", self.data.all(), self.back.all())
    }

    /// Measures gathers of random entries, from compressed and from plain memory.
    fn gather(&self, kind: CodecKind, target: Target, fill: Fill) -> Result<Vec<BenchRow>, Error> {
        self.make(fill, 0.0)?;
        let packed = self.lab.compress(kind, target, self.data.all())?;
        let buffer = packed.buffer();
        let (list, other) = (self.lab.bytes(4 * buffer.entries())?, self.lab.bytes(self.bytes)?);
        self.lab.make_list(list.all(), buffer.entries(), 7)?;
        let plain = self.time(|| self.lab.gather_plain(self.data.all(), other.all(), list.all()))?;
        let ours = self.time(|| Ok(buffer.gather(&self.lab.stream, list.all(), self.back.all())?))?;
        self.lab.same("gathered entries", other.all(), self.back.all())?;
        let plain = self.row("gather of 128 B from plain memory", fill, plain);
        let bound_gb_per_s = Some(plain.gb_per_s);
        let what = format!("{kind} gather at {target}");
        let ours = BenchRow { bound_gb_per_s, ..self.row(what, fill, ours) };
        Ok(vec![plain, ours])
    }

    /// Measures reads with overflow, compared with the link's bandwidth.
    fn overflow(&self, carveout: Carveout) -> Result<Vec<BenchRow>, Error> {
        let entries = self.bytes / ENTRY_BYTES as u64;
        let (device, buddy) = BuddyPool::room_for(Target::X2, entries);
        let mut pool = BuddyPool::new(&self.lab.gpu, device, carveout, buddy)?;
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
            let buffer = pool.buffer(CodecKind::Bpc.train(&[]), Target::X2, entries)?;
            let (_, read) = self.write_and_read(&buffer)?;
            let without = *without.get_or_insert(read);
            // Noise is stored raw: half of it is in the carve-out.
            let linked = (buffer.latest().overflowing * u64::from(slot)) as f64 / in_order / 1e9;
            rows.push(BenchRow {
                overflow: Some(overflow(&buffer)),
                bound_gb_per_s: Some(self.bytes as f64 / linked.max(without) / 1e9),
                ..self.row(format!("bpc decompress at 2x, overflow on the {place}"), Fill::Ramp, read)
            });
            drop(buffer);
            pool.clear()?;
        }
        Ok(rows)
    }

    /// Measures a kernel that reads slots of the carve-out at this distance.
    fn link(&self, pool: &BuddyPool, slot: u32, stride: u32) -> Result<f64, Error> {
        let [_, carveout] = pool.spans();
        let from = carveout.part(0..carveout.bytes().min(1 << 29));
        let seconds = self.time(|| self.lab.read_slots(from, self.back.all(), slot, stride))?;
        Ok((from.bytes() / u64::from(stride) * u64::from(slot)) as f64 / seconds / 1e9)
    }
}
