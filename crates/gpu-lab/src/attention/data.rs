//! Sequences in a cache, and the same keys and values in plain memory.

use buddy_cuda::{
    Attend, AttentionPlan, BuddyPool, Carveout, DeviceBytes, DeviceSpan, KvBytes, KvCache, KvMemory, KvRows,
    KvShape, Launch, Source,
};
use cudarc::driver::DeviceRepr;

use crate::{
    Error, Lab,
    lab::{Kernels, at, none_wrong, program},
};

/// Threads of the laboratory's kernels.
const THREADS: u32 = 256;
const CHECK_THREADS: u32 = 128;
/// Number of entries over which irregular ones are counted; and rounding of weights and results to
/// bf16, as a fraction of the sum of magnitudes.
const ALL_SHARES: f64 = 65536.0;
const LIMIT: f64 = 1.0 / 256.0;
/// Tokens that train the windows.
const TRAINED_ON: u32 = 256;

/// Shape of an attention problem.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) lengths: Vec<u32>,
    pub(crate) heads: u32,
    pub(crate) group: u32,
    pub(crate) tokens: u32,
    pub(crate) head_values: u32,
    pub(crate) page_tokens: u32,
    /// Share of entries that are zeros, sparse or overflow.
    pub(crate) odd: f64,
    pub(crate) seed: u64,
}

/// The program of this module's kernels.
pub(crate) fn source() -> Source {
    program("attention_lab.cu", include_str!("../../kernels/attention_lab.cu"), &[])
}

/// Returns the same kernels on plain memory: stream-K, and clusters where available.
pub(crate) fn twins(head_values: u32, columns: u32) -> [Source; 2] {
    let clusters = AttentionPlan::of(1, 1024, columns, 1);
    [AttentionPlan::Runs(1), clusters].map(|plan| plan.source("Plain", head_values, columns, false))
}

impl Case {
    fn total(&self) -> u64 {
        self.lengths.iter().map(|&length| u64::from(length)).sum()
    }

    fn pages_of(&self, length: u32) -> u32 {
        length.div_ceil(self.page_tokens)
    }

    fn table_pages(&self) -> u32 {
        self.lengths.iter().map(|&length| self.pages_of(length)).max().unwrap_or(0).max(1)
    }

    pub(crate) fn shape(&self) -> KvShape {
        let pages = self.lengths.iter().map(|&length| self.pages_of(length)).sum::<u32>().max(1);
        KvShape {
            layers: 1,
            pages,
            heads: self.heads,
            head_values: self.head_values,
            page_tokens: self.page_tokens,
        }
    }

    /// Bytes of plain keys, or of plain values.
    pub(crate) fn plain_bytes(&self) -> u64 {
        self.total() * u64::from(self.heads * self.head_values) * 2
    }

    fn query_bytes(&self) -> u64 {
        let numbers = [self.lengths.len() as u32, self.tokens, self.heads, self.group, self.head_values, 2];
        numbers.into_iter().map(u64::from).product()
    }

    /// Returns the pages of every sequence, in scattered order, and the slot of every token.
    fn places(&self) -> (Vec<i32>, Vec<i64>) {
        let (stride, pages) = (self.table_pages() as usize, self.shape().pages);
        // A step coprime with the number of pages visits each once.
        let step = (1..).map(|i| pages / 2 + i).find(|&step| gcd(step, pages) == 1).expect("one of them");
        let mut page = self.seed as u32 % pages;
        let (mut table, mut slots) = (vec![0; stride * self.lengths.len()], Vec::new());
        for (sequence, &length) in self.lengths.iter().enumerate() {
            for token in 0..length {
                if token % self.page_tokens == 0 {
                    page = (page + step) % pages;
                    table[sequence * stride + (token / self.page_tokens) as usize] = page as i32;
                }
                slots.push(
                    i64::from(page) * i64::from(self.page_tokens) + i64::from(token % self.page_tokens),
                );
            }
        }
        (table, slots)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The memory of a case, filled.
pub(crate) struct Sequences<'a> {
    lab: &'a Lab,
    kernels: Kernels,
    case: Case,
    pool: BuddyPool,
    metadata: DeviceBytes,
    keys: DeviceBytes,
    values: DeviceBytes,
    queries: DeviceBytes,
    outs: [DeviceBytes; 2],
    table: DeviceBytes,
    slots: DeviceBytes,
    lengths: DeviceBytes,
    scratch: DeviceBytes,
    plain: DeviceBytes,
    twins: [Kernels; 2],
}

/// The struct `Reference` of `attention_lab.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Reference {
    pointers: [u64; 7],
    room: u64,
    numbers: [u32; 4],
    scale: f64,
    limit: f64,
    wrong: u64,
}
// SAFETY: plain numbers in C layout, as in the kernel.
unsafe impl DeviceRepr for Reference {}

impl<'a> Sequences<'a> {
    /// Allocates the memory, and fills plain keys, values and queries.
    pub(crate) fn new(lab: &'a Lab, case: Case) -> Result<Self, Error> {
        let shape = case.shape();
        let KvBytes { entries, overflow, metadata, .. } = shape.bytes();
        let (table, slots) = case.places();
        let scratch = shape.scratch_bytes(case.lengths.len() as u32, lab.gpu.multiprocessors());
        let columns = if case.tokens * case.group <= 8 { 8 } else { 16 };
        let [runs, clusters] = twins(case.head_values, columns);
        let all = Self {
            kernels: lab.kernels(&source())?,
            pool: BuddyPool::new(&lab.gpu, entries, Carveout::Host, overflow)?,
            metadata: lab.bytes(metadata)?,
            keys: lab.bytes(case.plain_bytes().max(128))?,
            values: lab.bytes(case.plain_bytes().max(128))?,
            queries: lab.bytes(case.query_bytes())?,
            outs: [lab.bytes(case.query_bytes())?, lab.bytes(case.query_bytes())?],
            table: upload(lab, &bytes_of(&table, i32::to_le_bytes))?,
            slots: upload(lab, &bytes_of(&slots, i64::to_le_bytes))?,
            lengths: upload(lab, &bytes_of(&case.lengths, u32::to_le_bytes))?,
            scratch: lab.bytes(scratch)?,
            plain: lab.bytes(shape.entries() * 128)?,
            twins: [lab.kernels(&runs)?, lab.kernels(&clusters)?],
            lab,
            case,
        };
        // Unwritten memory is not zero.
        all.plain.fill(0xff)?;
        all.scratch.fill(0)?;
        all.outs.iter().try_for_each(|out| out.fill(0xff))?;
        let seed = all.case.seed;
        all.fill(&all.keys, seed, 1.0, all.case.odd)?;
        all.fill(&all.values, seed ^ 1, 1.0, all.case.odd)?;
        all.fill(&all.queries, seed ^ 2, 1.0, 0.0)?;
        Ok(all)
    }

    fn fill(&self, to: &DeviceBytes, seed: u64, sigma: f32, odd: f64) -> Result<(), Error> {
        let arguments = (at(to), to.len() / 4, seed, sigma, (odd * ALL_SHARES) as u32);
        // SAFETY: the arguments of `attention_fill`, which writes only this memory.
        unsafe { self.kernels.start("attention_fill", Launch::row(4096, THREADS), &arguments) }
    }

    pub(crate) fn cache(&self) -> Result<KvCache<'_>, Error> {
        let [entries, overflow] = self.pool.spans();
        let memory = KvMemory { entries, overflow, metadata: self.metadata.all() };
        Ok(KvCache::over(&self.lab.gpu, self.case.shape(), memory)?)
    }

    /// Fills the cache's device memory with a pattern, since kernels load whole slots, of which an
    /// entry may need less.
    pub(crate) fn fill_slots(&self) -> Result<(), Error> {
        let [entries, _] = self.pool.spans();
        let bytes = self.lab.bytes(entries.bytes())?;
        bytes.fill(0xee)?;
        self.lab.copy(bytes.all(), entries)?;
        self.lab.wait()
    }

    fn rows<'b>(&'b self, first: u64, tokens: u32) -> KvRows<'b> {
        let stride = u64::from(self.case.heads * self.case.head_values);
        let from = first * stride * 2;
        let span = |of: &'b DeviceBytes| of.span(from..of.len());
        KvRows {
            keys: span(&self.keys),
            values: span(&self.values),
            layer_stride: 0,
            token_stride: stride,
            layer: 0,
            layers: 1,
            tokens,
        }
    }

    /// Clears the cache, trains its windows, and copies plain entries for the reference kernel.
    pub(crate) fn prepare(&self, cache: &KvCache<'_>) -> Result<(), Error> {
        let stream = &self.lab.stream;
        let total = self.case.total() as u32;
        cache.clear(stream)?;
        if total == 0 {
            return Ok(());
        }
        cache.train(stream, &self.rows(0, total.min(TRAINED_ON)), None)?;
        let arguments =
            (cache.view(), at(&self.keys), at(&self.values), at(&self.slots), 0u32, total, at(&self.plain));
        let threads = 2 * self.case.plain_bytes() / 16;
        // SAFETY: the arguments of `attention_put`; the plain memory has an entry for each of the
        // cache's.
        unsafe {
            let launch = Launch::row(threads.div_ceil(u64::from(THREADS)), THREADS);
            self.kernels.start("attention_put", launch, &arguments)
        }
    }

    /// Appends tokens.
    pub(crate) fn append(&self, cache: &KvCache<'_>, first: u64, tokens: u32) -> Result<(), Error> {
        let slots = self.slots.span(8 * first..8 * (first + u64::from(tokens)));
        Ok(cache.append(&self.lab.stream, &self.rows(first, tokens), slots)?)
    }

    /// Reads one sequence, and returns keys, then values.
    pub(crate) fn read(
        &self,
        cache: &KvCache<'_>,
        sequence: usize,
        to: [DeviceSpan<'_>; 2],
    ) -> Result<(), Error> {
        let row = 4 * u64::from(self.case.table_pages());
        let pages = self.table.span(sequence as u64 * row..(sequence as u64 + 1) * row);
        // SAFETY: the table's pages are the cache's.
        Ok(unsafe { cache.read(&self.lab.stream, 0, pages, (0, self.case.lengths[sequence]), to) }?)
    }

    /// Returns plain keys and values of a sequence.
    pub(crate) fn plain(&self, sequence: usize) -> [DeviceSpan<'_>; 2] {
        let row = 2 * u64::from(self.case.heads * self.case.head_values);
        let first: u64 = self.case.lengths[..sequence].iter().map(|&length| u64::from(length)).sum();
        let end = first + u64::from(self.case.lengths[sequence]);
        [self.keys.span(row * first..row * end), self.values.span(row * first..row * end)]
    }

    fn asked(&self, out: usize) -> Attend<'_> {
        Attend {
            layer: 0,
            sequences: self.case.lengths.len() as u32,
            tokens: self.case.tokens,
            group: self.case.group,
            scale: (self.scale()) as f32,
            queries: self.queries.all(),
            out: self.outs[out].all(),
            table: self.table.all(),
            lengths: self.lengths.all(),
            scratch: self.scratch.all(),
        }
    }

    fn scale(&self) -> f64 {
        1.0 / f64::from(self.case.head_values).sqrt()
    }

    /// Computes attention from compressed memory.
    pub(crate) fn attend(&self, cache: &KvCache<'_>) -> Result<(), Error> {
        // SAFETY: the table's pages are the cache's, and lengths are those of the slots.
        Ok(unsafe { cache.attend(&self.lab.stream, &self.asked(0)) }?)
    }

    /// Computes attention from plain memory.
    pub(crate) fn attend_plain(&self, cache: &KvCache<'_>) -> Result<(), Error> {
        let asked = self.asked(1);
        let mut arguments = cache.arguments(&asked)?;
        arguments.cache.memory.device = at(&self.plain);
        let plan = cache.attention_plan(&asked);
        let (twin, launch) =
            (&self.twins[usize::from(plan.has_clusters())], plan.launch(asked.columns(), false));
        // SAFETY: the arguments of `attention`; the plain memory has an entry for each of the
        // cache's.
        unsafe { twin.start("attention", launch, &(arguments,)) }
    }

    /// Overwrites the output of attention.
    pub(crate) fn spoil(&self) -> Result<(), Error> {
        Ok(self.outs[0].fill(0xff)?)
    }

    /// Fails unless attention equals that on plain memory, bit for bit.
    pub(crate) fn same_as_twin(&self, what: &str) -> Result<(), Error> {
        self.lab.same(what, self.outs[0].all(), self.outs[1].all())
    }

    /// Fails unless attention equals that on plain memory, bit for bit, and a reference in double
    /// precision, up to rounding.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        let what = format!("{:?}", self.case);
        self.same_as_twin(&what)?;
        let Case { tokens, heads, group, head_values, .. } = self.case;
        let blocks = self.case.lengths.len() as u64 * u64::from(tokens * heads * group);
        let room = u64::from(self.case.lengths.iter().copied().max().unwrap_or(0).max(1));
        let scores = self.lab.bytes(8 * room * blocks)?;
        let starts = self.case.lengths.iter().scan(0, |end, &length| {
            *end += i64::from(length);
            Some(*end - i64::from(length))
        });
        let starts: Vec<i64> = starts.collect();
        let starts = upload(self.lab, &bytes_of(&starts, i64::to_le_bytes))?;
        let wrong = self.lab.count(|wrong| {
            let pointers =
                [&self.queries, &self.keys, &self.values, &self.outs[0], &starts, &self.lengths, &scores]
                    .map(at);
            let numbers = [tokens, heads, group, head_values];
            let arguments = Reference {
                pointers,
                room,
                numbers,
                scale: self.scale(),
                limit: LIMIT,
                wrong: wrong.address(),
            };
            // SAFETY: the arguments of `attention_check`; every sequence has its rows.
            unsafe {
                self.kernels.start("attention_check", Launch::row(blocks, CHECK_THREADS), &(arguments,))
            }
        })?;
        none_wrong(&what, wrong)
    }
}

fn bytes_of<T: Copy, const N: usize>(numbers: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| to_bytes(number)).collect()
}

fn upload(lab: &Lab, bytes: &[u8]) -> Result<DeviceBytes, Error> {
    let to = lab.bytes(bytes.len().max(16) as u64)?;
    to.upload(bytes)?;
    Ok(to)
}
