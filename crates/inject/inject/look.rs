//! A snapshot of one context: the size kernels survey its memory in place, and the counts are read
//! back.

use std::{collections::HashMap, ffi::c_void, fs, path::Path, slice};

use crate::{
    driver::Driver,
    lines::{SUMS, write_part},
    settings::Settings,
    spans::{ASKED, PAGE_CLASSES, Part, Table},
    training::{AT_ONCE, PendingTraining, RUN_BYTES, TrainedCodec, UNTRAINED, places},
};

/// Alignment of a codec's block, in 64-bit words.
const BLOCK_WORDS: usize = 32;

/// Per-context state of the library.
struct ContextState {
    /// One kernel per group of codecs.
    kernels: Vec<u64>,
    multiprocessors: u32,
    stream: u64,
    /// Device memory for table, counters and classes, and its bytes.
    scratch: u64,
    bytes: usize,
    /// Host memory that the GPU copies to at full speed, and its bytes.
    staging: usize,
    staged: usize,
    /// Trained parameters on the device: window and address for each trained codec, by slot.
    on_device: HashMap<u64, Vec<[u64; 2]>>,
}

/// State by context, and trained parameters by slot.
#[derive(Default)]
pub(crate) struct Contexts {
    contexts: HashMap<u64, ContextState>,
    trained: HashMap<u64, Vec<TrainedCodec>>,
}

impl Contexts {
    /// Drops the state of a context that ends; the driver frees its memory.
    pub(crate) fn forget(&mut self, context: u64) {
        self.contexts.remove(&context);
    }

    /// Surveys allocations of the current context, whose work is complete, and writes the result in
    /// the log's format.
    pub(crate) fn look(
        &mut self,
        driver: &Driver,
        settings: &Settings,
        context: u64,
        allocations: &[(usize, u64, u64)],
        log: &mut Vec<u8>,
    ) -> Result<(), String> {
        if !self.contexts.contains_key(&context) {
            self.contexts.insert(context, ContextState::open(driver, settings)?);
        }
        let Some(state) = self.contexts.get_mut(&context) else { return Ok(()) };
        let table = Table::new(allocations);
        if settings.learns.contains(&true) {
            state.train(driver, settings, &table, &mut self.trained)?;
        }
        let (sums, classes) = state.count(driver, settings, &table)?;
        for part in &table.parts {
            write_part(log, &table, part, sums, classes);
        }
        Ok(())
    }

    /// Writes the bytes of allocations of the current context to files.
    pub(crate) fn dump(
        &self,
        driver: &Driver,
        context: u64,
        allocations: &[(String, u64, u64)],
        folder: &Path,
    ) -> Result<(), String> {
        let Some(state) = self.contexts.get(&context) else { return Ok(()) };
        for (name, base, bytes) in allocations {
            let mut copy = vec![0u8; *bytes as usize];
            // SAFETY: the allocation is live, and has this length.
            unsafe { driver.copy_out(copy.as_mut_ptr() as usize, *base, copy.len(), state.stream) }?;
            driver.wait(state.stream)?;
            let file = folder.join(name);
            fs::write(&file, copy).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        }
        Ok(())
    }
}

impl ContextState {
    fn open(driver: &Driver, settings: &Settings) -> Result<Self, String> {
        let (architecture, multiprocessors) = driver.describe()?;
        let mut kernels = Vec::new();
        for group in 0..settings.groups.len() {
            let file = settings.folder.join(format!("sm_{architecture}-{group}.cubin"));
            let code = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            kernels.push(driver.kernel(&code, c"buddy_survey")?);
        }
        let (stream, on_device) = (driver.new_stream()?, HashMap::new());
        Ok(Self { kernels, multiprocessors, stream, scratch: 0, bytes: 0, staging: 0, staged: 0, on_device })
    }

    /// Returns device scratch memory of at least `bytes` bytes.
    fn room(&mut self, driver: &Driver, bytes: usize) -> Result<u64, String> {
        if self.bytes < bytes {
            if self.bytes > 0 {
                driver.free(self.scratch);
                self.bytes = 0;
            }
            let bytes = bytes.next_power_of_two().max(1 << 16);
            self.scratch = driver.allocate(bytes)?;
            self.bytes = bytes;
        }
        Ok(self.scratch)
    }

    /// Copies bytes of the device to the staging memory, and waits.
    ///
    /// # Safety
    /// Each device address has its number of readable bytes.
    unsafe fn fetch(&mut self, driver: &Driver, from: &[u64], bytes: usize) -> Result<&[u8], String> {
        let all = from.len() * bytes;
        if self.staged < all {
            if self.staged > 0 {
                driver.free_host(self.staging);
                self.staged = 0;
            }
            let most = all.next_power_of_two().max(1 << 20);
            self.staging = driver.allocate_host(most)?;
            self.staged = most;
        }
        for (index, &from) in from.iter().enumerate() {
            // SAFETY: the caller's promise; the staging memory has room for everything.
            unsafe { driver.copy_out(self.staging + index * bytes, from, bytes, self.stream) }?;
        }
        driver.wait(self.stream)?;
        // SAFETY: these bytes were just copied, and nothing writes while they are borrowed.
        Ok(unsafe { slice::from_raw_parts(self.staging as *const u8, all) })
    }

    /// Trains codecs on new allocations. Parameters are kept once a sample was not all zeros.
    fn train(
        &mut self,
        driver: &Driver,
        settings: &Settings,
        table: &Table,
        trained: &mut HashMap<u64, Vec<TrainedCodec>>,
    ) -> Result<(), String> {
        if !trained.contains_key(&UNTRAINED) {
            trained.insert(UNTRAINED, PendingTraining::about(settings, UNTRAINED, &[])?.answer(settings)?);
        }
        let new = table.parts.iter().filter(|part| !trained.contains_key(&(part.slot as u64)));
        for some in new.collect::<Vec<&Part>>().chunks(AT_ONCE) {
            let mut asked = Vec::new();
            for part in some {
                let places: Vec<u64> = places(part.bytes).map(|at| part.base + at).collect();
                // SAFETY: the places are inside a live allocation.
                let sample = unsafe { self.fetch(driver, &places, part.bytes.min(RUN_BYTES) as usize) }?;
                if sample.iter().any(|byte| *byte != 0) {
                    asked.push((
                        part.slot as u64,
                        PendingTraining::about(settings, part.slot as u64, sample)?,
                    ));
                }
            }
            for (slot, asked) in asked {
                trained.insert(slot, asked.answer(settings)?);
            }
        }
        let slots = table.parts.iter().map(|part| part.slot as u64).chain([UNTRAINED]);
        for (slot, trained) in slots.filter_map(|slot| Some((slot, trained.get(&slot)?))) {
            if !self.on_device.contains_key(&slot) {
                let on_device = self.upload(driver, trained)?;
                self.on_device.insert(slot, on_device);
            }
        }
        Ok(())
    }

    /// Copies trained parameters to device memory. Returns window and address for each codec.
    fn upload(&self, driver: &Driver, trained: &[TrainedCodec]) -> Result<Vec<[u64; 2]>, String> {
        let (mut words, mut starts) = (Vec::new(), Vec::new());
        for one in trained {
            starts.push(8 * words.len() as u64);
            words.extend_from_slice(&one.block);
            words.resize(words.len().next_multiple_of(BLOCK_WORDS), 0);
        }
        let mut at = 0;
        if !words.is_empty() {
            at = driver.allocate(8 * words.len())?;
            // SAFETY: the memory of this size was just allocated.
            unsafe { driver.send(at, &words, self.stream) }?;
        }
        let place = |(one, start): (&TrainedCodec, u64)| [one.window, at + start];
        Ok(trained.iter().zip(starts).map(place).collect())
    }

    /// Returns the sums of every span and codec, and the classes of the picture's pages with the
    /// first codec.
    fn count(
        &mut self,
        driver: &Driver,
        settings: &Settings,
        table: &Table,
    ) -> Result<(&[u64], &[u8]), String> {
        let asked_bytes = 8 * ASKED * table.rows();
        let table_bytes = size_of_val(&table.numbers[..]) + asked_bytes * settings.codecs.len();
        let span_sums_bytes = 8 * SUMS * table.spans;
        let sums_bytes = span_sums_bytes * settings.codecs.len();
        let found_bytes = sums_bytes + PAGE_CLASSES as usize * table.picture_pages;
        let at = self.room(driver, table_bytes + found_bytes)?;
        let (sums_at, classes_at) = (at + table_bytes as u64, at + (table_bytes + sums_bytes) as u64);
        let mut numbers = table.numbers.clone();
        for group in &settings.groups {
            numbers.extend(
                table.asked(group.clone(), classes_at, |slot, codec| self.parameters(settings, slot, codec)),
            );
        }
        // SAFETY: the scratch memory has room for all three, one after the other.
        unsafe {
            driver.send(at, &numbers, self.stream)?;
            driver.clear(sums_at, sums_bytes, self.stream)?;
        }
        let asked_at = at + size_of_val(&table.numbers[..]) as u64;
        for (group, &kernel) in settings.groups.iter().zip(&self.kernels) {
            let asked = asked_at + (asked_bytes * group.start) as u64;
            let to = sums_at + (span_sums_bytes * group.start) as u64;
            self.launch(driver, settings, kernel, (at, table.spans as u32, table.tiles, asked, to))?;
        }
        // SAFETY: as above; sums and classes are adjacent.
        let found = unsafe { self.fetch(driver, &[sums_at], found_bytes) }?;
        let (sums, classes) = found.split_at(sums_bytes);
        // SAFETY: any bytes are valid numbers, and the staging memory is page-aligned.
        let sums = unsafe { slice::from_raw_parts(sums.as_ptr().cast(), sums_bytes / 8) };
        Ok((sums, classes))
    }

    /// Returns window and block of a codec for a slot; zeros if it is not trainable.
    fn parameters(&self, settings: &Settings, slot: usize, codec: usize) -> [u64; 2] {
        if !settings.learns[codec] {
            return [0; 2];
        }
        let learning = settings.learns[..codec].iter().filter(|learns| **learns).count();
        let on_device = self.on_device.get(&(slot as u64)).or_else(|| self.on_device.get(&UNTRAINED));
        on_device.map_or([0; 2], |on_device| on_device[learning])
    }

    fn launch(
        &self,
        driver: &Driver,
        settings: &Settings,
        kernel: u64,
        (mut table, mut spans, mut tiles, mut asked, mut to): (u64, u32, u64, u64, u64),
    ) -> Result<(), String> {
        let most = u64::from(self.multiprocessors * settings.blocks);
        let blocks = tiles.div_ceil(u64::from(settings.warps)).clamp(1, most) as u32;
        let mut arguments: [*mut c_void; 5] = [
            (&raw mut table).cast(),
            (&raw mut spans).cast(),
            (&raw mut tiles).cast(),
            (&raw mut asked).cast(),
            (&raw mut to).cast(),
        ];
        // SAFETY: the arguments of `buddy_survey`: table, spans, tiles, requests, and the address
        // of the sums.
        unsafe { driver.launch(kernel, (blocks, settings.warps * 32), self.stream, &mut arguments) }
    }
}
