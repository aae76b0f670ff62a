//! Attention over KV caches in compressed memory, append and read: verified, and compared with the
//! same kernel on plain memory.

mod data;

use buddy_cuda::{DeviceBytes, Gpu, KvCache, KvMemory, KvRows, KvShape, Source};
use buddy_record::RecordKind;
use buddy_trace::pattern::scramble;
use serde::{Deserialize, Serialize};

use crate::{Error, Fill, Lab};
use data::{Case, Sequences};

/// Launches of attention that are timed together.
const LAUNCHES: usize = 10;
/// The 8B model of the append measurement: layers, KV heads and head dimension; and sequences that
/// append a token each.
const MODEL: (u32, u32, u32) = (32, 8, 128);
const BATCH: u32 = 8;

/// Results on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttentionReport {
    /// The GPU's name.
    pub gpu: String,
    /// CUDA version of its driver.
    pub driver: u32,
    /// Random shapes that matched the reference and the plain kernel.
    pub checked: u32,
    /// The measurements.
    pub rows: Vec<AttentionRow>,
    /// Microseconds to append a token to each of 8 sequences, for all layers of an 8B model, at
    /// once.
    pub append_at_once_us: f64,
    /// The same layer by layer, in a graph.
    pub append_by_layer_us: f64,
}

impl RecordKind for AttentionReport {
    const KIND: &'static str = "gpu-attention";
    const VERSION: u32 = 1;
}

/// Attention of one token of each sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttentionRow {
    /// Number of sequences.
    pub sequences: u32,
    /// Tokens of each.
    pub length: u32,
    /// KV heads.
    pub heads: u32,
    /// Query heads per KV head.
    pub group: u32,
    /// Head dimension.
    pub head_values: u32,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// Microseconds from compressed memory.
    pub packed_us: f64,
    /// Microseconds of the same kernel from plain memory.
    pub twin_us: f64,
    /// Bytes of keys and values, uncompressed.
    pub plain_bytes: u64,
    /// Bytes in compressed memory, with metadata, without overflow.
    pub packed_bytes: u64,
    /// Microseconds to append everything at once, like a prefill.
    pub append_us: f64,
    /// Microseconds to read one sequence into plain memory.
    pub read_us: f64,
}

/// Replays of a graph that must give equal results.
const REPLAYS: u32 = 1000;

/// Sequences, tokens of each, KV heads, query heads per KV head, head dimension, tokens of a page.
const SHAPES: [[u32; 6]; 6] = [
    [8, 32768, 8, 4, 128, 64],
    [8, 32768, 8, 4, 128, 16],
    [1, 32768, 8, 4, 128, 64],
    [64, 1024, 8, 4, 128, 64],
    [8, 32768, 8, 4, 64, 64],
    [8, 4096, 8, 8, 128, 64],
];

/// The programs of this measurement.
pub(crate) fn sources() -> Vec<Source> {
    let twins = [(64, 8), (64, 16), (128, 8), (128, 16)].into_iter().flat_map(|(values, columns)| {
        let [runs, clusters] = data::twins(values, columns);
        if columns == 8 { vec![runs, clusters] } else { vec![runs] }
    });
    [data::source()].into_iter().chain(twins).collect()
}

/// Verifies random shapes, then measures; calls `progress` after each row.
///
/// # Errors
/// [`Error::Differs`] if a result differs from that on plain memory; compiler and driver errors.
pub fn attention(
    gpu: &Gpu,
    checks: u32,
    mut progress: impl FnMut(&AttentionRow),
) -> Result<AttentionReport, Error> {
    let (info, lab) = (gpu.info()?, Lab::new(gpu)?);
    check_attention(&lab, checks)?;
    replay(&lab)?;
    let measured = SHAPES.into_iter().map(|shape| measure(&lab, shape).inspect(|row| progress(row)));
    let rows = measured.collect::<Result<Vec<_>, _>>()?;
    let [append_at_once_us, append_by_layer_us] = measure_append(&lab)?;
    let (gpu, driver) = (info.name, info.driver);
    Ok(AttentionReport { gpu, driver, checked: checks, rows, append_at_once_us, append_by_layer_us })
}

/// Checks that a graph which clears a cache, trains, appends, attends and reads gives the same bits
/// in every replay.
fn replay(lab: &Lab) -> Result<(), Error> {
    let lengths = vec![700, 33];
    let case =
        Case { lengths, heads: 4, group: 4, tokens: 2, head_values: 128, page_tokens: 16, odd: 0.3, seed: 5 };
    let total = case.lengths.iter().sum();
    let all = Sequences::new(lab, case)?;
    let (cache, plain) = (all.cache()?, all.plain(0));
    let to = [lab.bytes(plain[0].bytes())?, lab.bytes(plain[1].bytes())?];
    let work = || {
        all.prepare(&cache)?;
        all.append(&cache, 0, total)?;
        all.attend(&cache)?;
        all.read(&cache, 0, [to[0].all(), to[1].all()])
    };
    // Once outside the graph, to compile the kernels.
    work()?;
    all.attend_plain(&cache)?;
    all.verify()?;
    let graph = lab.graph(work)?;
    for index in 0..REPLAYS {
        all.spoil()?;
        to.iter().try_for_each(|bytes| bytes.fill(0xff))?;
        lab.gpu.check("start a graph", graph.launch())?;
        all.same_as_twin(&format!("replay {index}"))?;
        lab.same(&format!("keys of replay {index}"), plain[0], to[0].all())?;
        lab.same(&format!("values of replay {index}"), plain[1], to[1].all())?;
    }
    Ok(())
}

/// Verifies `checks` random shapes.
///
/// # Errors
/// As for [`attention`].
pub fn check_attention(lab: &Lab, checks: u32) -> Result<(), Error> {
    (0..u64::from(checks)).try_for_each(|seed| check(lab, seed))
}

/// Verifies small shapes, with heads of 64 and 128 values: one CTA per item, one
/// cluster per item, and runs of tokens. They are small enough for a memory checker.
///
/// # Errors
/// As for [`attention`].
pub fn check_small_attention(lab: &Lab) -> Result<(), Error> {
    // Lengths; KV heads, query heads per KV head, query tokens, head dimension, tokens of a page.
    let cases: [(&[u32], [u32; 5]); 5] = [
        (&[3, 40], [2, 4, 1, 64, 16]),
        (&[70, 1], [1, 3, 2, 128, 32]),
        (&[300], [1, 4, 1, 128, 64]),
        (&[90, 20], [1, 8, 2, 128, 16]),
        (&[100], [1, 8, 2, 64, 32]),
    ];
    for (lengths, [heads, group, tokens, head_values, page_tokens]) in cases {
        let lengths = lengths.to_vec();
        let case = Case { lengths, heads, group, tokens, head_values, page_tokens, odd: 0.3, seed: 1 };
        check_case(lab, case, &mut Random(1))?;
    }
    Ok(())
}

/// Verifies one random shape.
fn check(lab: &Lab, seed: u64) -> Result<(), Error> {
    let mut random = Random(seed);
    let group = random.to(8);
    let case = Case {
        lengths: (0..random.to(6)).map(|_| random.to(2500) * random.to(5).min(2) / 2).collect(),
        heads: random.to(8),
        group,
        tokens: random.to(16 / group),
        head_values: 64 * random.to(2),
        page_tokens: 8 << random.to(4),
        odd: if random.to(2) == 1 { 0.3 } else { 0.0 },
        seed,
    };
    check_case(lab, case, &mut random)
}

/// Checks that appended tokens read back, and that attention equals that on plain memory.
fn check_case(lab: &Lab, case: Case, random: &mut Random) -> Result<(), Error> {
    let total: u64 = case.lengths.iter().map(|&length| u64::from(length)).sum();
    let sequences = Sequences::new(lab, case.clone())?;
    let cache = sequences.cache()?;
    sequences.fill_slots()?;
    sequences.prepare(&cache)?;
    let mut first = 0;
    while first < total {
        let most = if random.to(2) == 1 { 4 } else { 4096 };
        let tokens = random.to(most).min((total - first) as u32);
        sequences.append(&cache, first, tokens)?;
        first += u64::from(tokens);
    }
    for (sequence, _) in case.lengths.iter().enumerate().filter(|&(_, &length)| length > 0) {
        let plain = sequences.plain(sequence);
        let came = plain.map(|span| lab.bytes(span.bytes()));
        let [keys, values] = came;
        let came = [keys?, values?];
        sequences.read(&cache, sequence, [came[0].all(), came[1].all()])?;
        lab.same(&format!("keys read: {case:?}"), plain[0], came[0].all())?;
        lab.same(&format!("values read: {case:?}"), plain[1], came[1].all())?;
    }
    // Twice, to check that scratch memory is left reusable.
    sequences.attend(&cache)?;
    sequences.attend(&cache)?;
    sequences.attend_plain(&cache)?;
    sequences.verify()
}

fn measure(lab: &Lab, shape: [u32; 6]) -> Result<AttentionRow, Error> {
    let [sequences, length, heads, group, head_values, page_tokens] = shape;
    let lengths = vec![length; sequences as usize];
    let case = Case { lengths, heads, group, tokens: 1, head_values, page_tokens, odd: 0.0, seed: 1 };
    let (plain_bytes, bytes) = (2 * case.plain_bytes(), case.shape().bytes());
    let all = Sequences::new(lab, case)?;
    let cache = all.cache()?;
    all.prepare(&cache)?;
    let append_us = lab.time(1, |_| all.append(&cache, 0, sequences * length))?;
    let packed_us = lab.time(LAUNCHES, |_| all.attend(&cache))?;
    let twin_us = lab.time(LAUNCHES, |_| all.attend_plain(&cache))?;
    let to: [DeviceBytes; 2] = [lab.bytes(all.plain(0)[0].bytes())?, lab.bytes(all.plain(0)[1].bytes())?];
    let read_us = lab.time(1, |_| all.read(&cache, 0, [to[0].all(), to[1].all()]))?;
    all.verify()?;
    let packed_bytes = bytes.entries + bytes.metadata;
    #[rustfmt::skip]
    let row = AttentionRow { sequences, length, heads, group, head_values, page_tokens, packed_us, twin_us, plain_bytes, packed_bytes, append_us, read_us };
    Ok(row)
}

/// Microseconds to append a token of each sequence to all layers: at once, and layer by layer.
fn measure_append(lab: &Lab) -> Result<[f64; 2], Error> {
    let (layers, heads, head_values) = MODEL;
    let shape = KvShape { layers, pages: BATCH, heads, head_values, page_tokens: 64 };
    let bytes = shape.bytes();
    let memory = [bytes.entries, bytes.overflow, bytes.metadata].map(|bytes| lab.bytes(bytes));
    let [entries, overflow, metadata] = memory;
    let (entries, overflow, metadata) = (entries?, overflow?, metadata?);
    let memory = KvMemory { entries: entries.all(), overflow: overflow.all(), metadata: metadata.all() };
    let cache = KvCache::over(&lab.gpu, shape, memory)?;
    let row = u64::from(heads * head_values);
    let plain = lab.bytes(2 * 2 * row * u64::from(BATCH * layers))?;
    lab.make(plain.all(), Fill::Weights, 1, 0.0)?;
    let slots: Vec<u8> = (0..i64::from(BATCH)).flat_map(|page| (page * 64 + 17).to_le_bytes()).collect();
    let slots_at = lab.bytes(slots.len() as u64)?;
    slots_at.upload(&slots)?;
    let half = plain.len() / 2;
    let rows = |layer: u32, layers: u32| {
        let from = u64::from(layer) * row * u64::from(BATCH) * 2;
        let (keys, values) = (plain.span(from..half), plain.span(half + from..plain.len()));
        let strides = (row * u64::from(BATCH), row);
        KvRows {
            keys,
            values,
            layer_stride: strides.0,
            token_stride: strides.1,
            layer,
            layers,
            tokens: BATCH,
        }
    };
    cache.clear(&lab.stream)?;
    cache.train(&lab.stream, &rows(0, layers), None)?;
    let append = |rows: &KvRows<'_>| cache.append(&lab.stream, rows, slots_at.all()).map_err(Error::from);
    let at_once = lab.graph(|| append(&rows(0, layers)))?;
    let by_layer = lab.graph(|| (0..layers).try_for_each(|layer| append(&rows(layer, 1))))?;
    Ok([lab.time_graph(1, &at_once)?, lab.time_graph(1, &by_layer)?])
}

/// Random numbers by splitmix64.
struct Random(u64);

impl Random {
    /// Returns a number from 1 to `most`.
    fn to(&mut self, most: u32) -> u32 {
        let bits = scramble(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (bits % u64::from(most)) as u32 + 1
    }
}
