//! Compares the GPU with the CPU: every codec and target, on data of many kinds, against
//! `buddy-codec` and the address map of `buddy-core`, bit for bit.

mod corrupt;
mod map;
mod stored;

use std::sync::Mutex;

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRY_BYTES, Entry, Nibble, SizeClass};
use buddy_cuda::{BuddyPool, Carveout, DeviceBytes, Gpu, Surveyed};
use buddy_record::RecordKind;
use serde::{Deserialize, Serialize};

use crate::{Error, Fill, Lab};

/// The fewest entries of a case: a page of each target, and a partial page.
const LEAST: u64 = 64 * 12;

/// Totals of a check without differences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The vendor's name for the GPU.
    pub gpu: String,
    /// CUDA version of its driver.
    pub driver: u32,
    /// Bytes of data compared.
    pub bytes: u64,
    /// One row for each codec and kind of data.
    pub cases: Vec<CheckCase>,
}

impl RecordKind for CheckReport {
    const KIND: &'static str = "gpu-test";
    const VERSION: u32 = 1;
}

/// One kind of data with one codec, at every target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckCase {
    /// The codec, trained on the data.
    pub codec: CodecKind,
    /// The kind of data.
    pub fill: Fill,
    /// Share of entries that were made noise.
    pub noise: f64,
    /// Entries that were compared.
    pub entries: u64,
    /// Entries by size class.
    pub classes: [u64; 6],
    /// Share of entries that overflow, for each target from 1x to 16x and for mixed pages.
    pub overflow: Vec<f64>,
}

/// Returns the data of each case and its fraction of noise: overflow from nothing to everything.
fn cases(kind: CodecKind) -> [(Fill, f64); 5] {
    let native = match kind {
        CodecKind::Planes64 | CodecKind::Near64 | CodecKind::Prefix64 => Fill::Field64,
        CodecKind::Table32 | CodecKind::Table64 | CodecKind::Rank32 | CodecKind::Rank64 => Fill::Values,
        CodecKind::Prefix32 => Fill::Corners,
        CodecKind::Scaled64 => Fill::Quotients,
        CodecKind::Zeros16 | CodecKind::Zeros32 | CodecKind::Fp32 => Fill::Relu,
        CodecKind::Bf16 => Fill::Weights,
        CodecKind::Fp16 => Fill::Halves,
        _ => Fill::Ramp,
    };
    [(native, 0.0), (Fill::Varied, 0.01), (native, 0.1), (Fill::Varied, 0.5), (Fill::Noise, 1.0)]
}

/// Compares about `bytes` of data, divided among all codecs, or those in `only` if it names any;
/// `progress` receives each case.
///
/// # Errors
/// [`Error::Differs`] with the first difference; compiler and driver errors.
pub fn check(
    gpu: &Gpu,
    bytes: u64,
    only: &[CodecKind],
    mut progress: impl FnMut(&CheckCase),
) -> Result<CheckReport, Error> {
    let asked = |kind: &CodecKind| only.is_empty() || only.contains(kind);
    let codecs: Vec<CodecKind> = buddy_cuda::codecs().filter(asked).collect();
    let each = bytes / (codecs.len().max(1) as u64 * 5 * ENTRY_BYTES as u64);
    // Not a whole number of pages: the last one is partial.
    let entries = each.max(LEAST) / 64 * 64 - 27;
    // The data, one page more, metadata, and slack.
    let room = ((entries + 64) * 130 + (1 << 16)).next_multiple_of(ENTRY_BYTES as u64);
    let mut bench = Bench::new(gpu, entries, room)?;
    map::check(&bench.lab)?;
    let mut pools =
        [Carveout::Host, Carveout::Device].map(|carveout| BuddyPool::new(gpu, room, carveout, room));
    let info = gpu.info()?;
    let mut report = CheckReport { gpu: info.name, driver: info.driver, bytes: 0, cases: Vec::new() };
    bench.together(&codecs)?;
    for kind in codecs {
        for (i, (fill, noise)) in cases(kind).into_iter().enumerate() {
            // Odd cases overflow into device memory.
            let pool = pools[i % 2].as_mut().map_err(|error| error.clone())?;
            let case = bench.case(kind, fill, noise, i as u64, pool)?;
            progress(&case);
            report.bytes += entries * ENTRY_BYTES as u64;
            report.cases.push(case);
        }
        corrupt::check(&bench.lab, kind)?;
    }
    Ok(report)
}

/// Memory shared by all cases.
struct Bench {
    lab: Lab,
    data: DeviceBytes,
    back: DeviceBytes,
    /// As large as a pool's device memory or carve-out, to fill it and to read it.
    staging: DeviceBytes,
    plain: Vec<Entry>,
    nibbles: Vec<Nibble>,
    slots: Vec<Entry>,
    /// Content of device and buddy memory.
    copies: Mutex<[Vec<u8>; 2]>,
}

impl Bench {
    fn new(gpu: &Gpu, entries: u64, room: u64) -> Result<Self, Error> {
        let lab = Lab::new(gpu)?;
        let bytes = entries * ENTRY_BYTES as u64;
        Ok(Self {
            data: lab.bytes(bytes)?,
            back: lab.bytes(bytes)?,
            staging: lab.bytes(room)?,
            plain: vec![[0; ENTRY_BYTES]; entries as usize],
            nibbles: vec![Nibble::from_bits(0).expect("zero is a class"); entries as usize],
            slots: vec![[0; ENTRY_BYTES]; entries as usize],
            copies: Mutex::default(),
            lab,
        })
    }

    fn case(
        &mut self,
        kind: CodecKind,
        fill: Fill,
        noise: f64,
        seed: u64,
        pool: &mut BuddyPool,
    ) -> Result<CheckCase, Error> {
        self.lab.make(self.data.all(), fill, seed, noise)?;
        self.data.download(self.plain.as_flattened_mut())?;
        let codec = self.lab.gpu.train(&self.lab.stream, kind, self.data.all())?;
        let classes = self.pack(&codec);
        same(self.sizes([&codec])?, vec![classes], || format!("{kind} size histogram"))?;
        let overflow = stored::check(self, &codec, pool)?;
        let entries = self.plain.len() as u64;
        Ok(CheckCase { codec: kind, fill, noise, entries, classes, overflow })
    }

    /// Packs the data on the CPU; returns the number of entries of each class.
    fn pack(&mut self, codec: &Codec) -> [u64; 6] {
        codec.pack_all_parallel(&self.plain, &mut self.nibbles, &mut self.slots);
        SizeClass::ALL
            .map(|class| self.nibbles.iter().filter(|nibble| nibble.class() == class).count() as u64)
    }

    /// Returns the size histograms of the GPU, all in one survey.
    fn sizes<'a>(&self, codecs: impl IntoIterator<Item = &'a Codec>) -> Result<Vec<[u64; 6]>, Error> {
        let surveyed =
            |codec: &Codec| Surveyed { span: self.data.all(), codec: codec.clone(), classes: None };
        let all: Vec<_> = codecs.into_iter().map(surveyed).collect();
        let found = self.lab.gpu.survey(&self.lab.stream, &all)?;
        Ok(found.iter().map(|found| found.classes).collect())
    }

    /// Compares the sizes of all codecs in one survey with the CPU's.
    fn together(&mut self, kinds: &[CodecKind]) -> Result<(), Error> {
        self.lab.make(self.data.all(), Fill::Varied, 9, 0.1)?;
        self.data.download(self.plain.as_flattened_mut())?;
        let train = |&kind| Ok(self.lab.gpu.train(&self.lab.stream, kind, self.data.all())?);
        let codecs = kinds.iter().map(train).collect::<Result<Vec<Codec>, Error>>()?;
        for (codec, found) in codecs.iter().zip(self.sizes(&codecs)?) {
            same(found, self.pack(codec), || format!("{} size histogram in one pass", codec.kind()))?;
        }
        Ok(())
    }
}

/// Fails unless both are equal.
fn same<T: PartialEq + std::fmt::Debug>(gpu: T, cpu: T, what: impl Fn() -> String) -> Result<(), Error> {
    if gpu == cpu { Ok(()) } else { Err(Error::Differs(format!("{}: {gpu:02x?}, not {cpu:02x?}", what()))) }
}
