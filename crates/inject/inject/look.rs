//! A look at the memory of one context: the size kernels run over it in place, and counts come back.

use std::{collections::HashMap, ffi::c_void, fs, path::Path, slice};

use crate::{
    driver::Driver,
    lines::{SUMS, write_part},
    settings::Settings,
    spans::{PAGE_CLASSES, Table},
    window::{self, SAMPLE_BYTES},
};

/// What the library keeps in a context of the program.
struct Eye {
    /// One kernel for each codec.
    kernels: Vec<u64>,
    multiprocessors: u32,
    stream: u64,
    /// Device memory for table, counters and classes, and its bytes.
    scratch: u64,
    bytes: usize,
    /// Host memory that the GPU copies to at full speed, and its bytes.
    staging: usize,
    staged: usize,
}

/// The contexts that were looked at, and the windows that `bf16` learned of allocations, by slot.
#[derive(Default)]
pub(crate) struct Eyes {
    contexts: HashMap<u64, Eye>,
    windows: HashMap<usize, u64>,
}

impl Eyes {
    /// Forgets a context that ends; what was taken from it ends with it.
    pub(crate) fn forget(&mut self, context: u64) {
        self.contexts.remove(&context);
    }

    /// Looks at allocations of the current context, whose work is done, and writes what was seen in the log's words.
    pub(crate) fn look(
        &mut self,
        driver: &Driver,
        settings: &Settings,
        context: u64,
        allocations: &[(usize, u64, u64)],
        log: &mut Vec<u8>,
    ) -> Result<(), String> {
        if !self.contexts.contains_key(&context) {
            self.contexts.insert(context, Eye::open(driver, settings)?);
        }
        let Some(eye) = self.contexts.get_mut(&context) else { return Ok(()) };
        let mut table = Table::new(allocations);
        if settings.codecs.iter().any(|codec| codec == "bf16") {
            eye.learn(driver, &table, &mut self.windows)?;
            table.place_windows(&self.windows);
        }
        let (sums, classes) = eye.count(driver, settings, &mut table)?;
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
        let Some(eye) = self.contexts.get(&context) else { return Ok(()) };
        for (name, base, bytes) in allocations {
            let mut copy = vec![0u8; *bytes as usize];
            // SAFETY: the allocation lives, and has so many bytes.
            unsafe { driver.copy_out(copy.as_mut_ptr() as usize, *base, copy.len(), eye.stream) }?;
            driver.wait(eye.stream)?;
            let file = folder.join(name);
            fs::write(&file, copy).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        }
        Ok(())
    }
}

impl Eye {
    fn open(driver: &Driver, settings: &Settings) -> Result<Self, String> {
        let (architecture, multiprocessors) = driver.describe()?;
        let mut kernels = Vec::new();
        for codec in &settings.codecs {
            let file = settings.folder.join(format!("sm_{architecture}-{codec}.cubin"));
            let code = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            kernels.push(driver.kernel(&code, c"buddy_survey")?);
        }
        Ok(Self { kernels, multiprocessors, stream: driver.new_stream()?, scratch: 0, bytes: 0, staging: 0, staged: 0 })
    }

    /// Device memory of at least so many bytes.
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
    /// Each place of the device has so many bytes.
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
            // SAFETY: the caller's promise; the staging memory has room for all.
            unsafe { driver.copy_out(self.staging + index * bytes, from, bytes, self.stream) }?;
        }
        driver.wait(self.stream)?;
        // SAFETY: so many bytes were just copied there, and nobody writes while they are borrowed.
        Ok(unsafe { slice::from_raw_parts(self.staging as *const u8, all) })
    }

    /// Has `bf16` learn of allocations that are new: a window is kept once a sample had something but zeros.
    fn learn(&mut self, driver: &Driver, table: &Table, windows: &mut HashMap<usize, u64>) -> Result<(), String> {
        for part in table.parts.iter().filter(|part| part.bytes >= SAMPLE_BYTES) {
            if windows.contains_key(&part.slot) {
                continue;
            }
            let places: Vec<u64> = window::places(part.bytes).map(|at| part.base + at).collect();
            // SAFETY: the places lie in an allocation that lives.
            let sample = unsafe { self.fetch(driver, &places, SAMPLE_BYTES as usize) }?;
            if let Some(window) = window::learned(sample) {
                windows.insert(part.slot, window);
            }
        }
        Ok(())
    }

    /// The sums of every span for each codec, and the classes of the picture's pages with the first.
    fn count(
        &mut self,
        driver: &Driver,
        settings: &Settings,
        table: &mut Table,
    ) -> Result<(&[u64], &[u8]), String> {
        let table_bytes = size_of_val(&table.numbers[..]);
        let sums_bytes = 8 * SUMS * table.spans * self.kernels.len();
        let found_bytes = sums_bytes + PAGE_CLASSES as usize * table.picture_pages;
        let at = self.room(driver, table_bytes + found_bytes)?;
        let (sums_at, classes_at) = (at + table_bytes as u64, at + (table_bytes + sums_bytes) as u64);
        table.place_classes(classes_at);
        // SAFETY: the scratch memory has room for all three, one after the other.
        unsafe {
            driver.send(at, &table.numbers, self.stream)?;
            driver.clear(sums_at, sums_bytes, self.stream)?;
        }
        for (index, &kernel) in self.kernels.iter().enumerate() {
            let (spans, tiles) =
                if index == 0 { (table.spans, table.tiles) } else { (table.blocks, table.block_tiles) };
            let to = sums_at + (8 * SUMS * table.spans * index) as u64;
            self.launch(driver, settings, kernel, (at, spans as u32, tiles, to))?;
        }
        // SAFETY: as above; sums and classes lie one after the other.
        let found = unsafe { self.fetch(driver, &[sums_at], found_bytes) }?;
        let (sums, classes) = found.split_at(sums_bytes);
        // SAFETY: any bytes are numbers, and the staging memory begins at a page.
        let sums = unsafe { slice::from_raw_parts(sums.as_ptr().cast(), sums_bytes / 8) };
        Ok((sums, classes))
    }

    fn launch(
        &self,
        driver: &Driver,
        settings: &Settings,
        kernel: u64,
        (mut table, mut spans, mut tiles, mut to): (u64, u32, u64, u64),
    ) -> Result<(), String> {
        let most = u64::from(self.multiprocessors * settings.blocks);
        let blocks = tiles.div_ceil(u64::from(settings.warps)).clamp(1, most) as u32;
        let mut arguments: [*mut c_void; 4] =
            [(&raw mut table).cast(), (&raw mut spans).cast(), (&raw mut tiles).cast(), (&raw mut to).cast()];
        // SAFETY: the arguments of `buddy_survey`: its table, spans, tiles, and where the sums go.
        unsafe { driver.launch(kernel, (blocks, settings.warps * 32), self.stream, &mut arguments) }
    }
}
