//! A look at the memory of one context: the size kernels run over it in place, and counts come back.

use std::{collections::HashMap, ffi::c_void, fmt::Write as _, fs, path::Path};

use crate::{
    driver::Driver,
    settings::Settings,
    spans::{PAGE_CLASSES, Part, Table},
};

/// Numbers that a kernel finds of a span: six classes and the bytes of the paper's eight sizes.
const SUMS: usize = 7;

/// What the library keeps in a context of the program.
struct Eye {
    /// One kernel for each codec.
    kernels: Vec<u64>,
    multiprocessors: u32,
    stream: u64,
    /// Device memory for table, counters and classes, and its bytes.
    scratch: u64,
    bytes: usize,
}

/// The contexts that were looked at.
#[derive(Default)]
pub(crate) struct Eyes(HashMap<u64, Eye>);

impl Eyes {
    /// Forgets a context that ends; what was taken from it ends with it.
    pub(crate) fn forget(&mut self, context: u64) {
        self.0.remove(&context);
    }

    /// Looks at allocations of the current context, whose work is done, and writes what was seen in the log's words.
    pub(crate) fn look(
        &mut self,
        driver: &Driver,
        settings: &Settings,
        context: u64,
        allocations: &[(usize, u64, u64)],
        log: &mut String,
    ) -> Result<(), String> {
        if !self.0.contains_key(&context) {
            self.0.insert(context, Eye::open(driver, settings)?);
        }
        let Some(eye) = self.0.get_mut(&context) else { return Ok(()) };
        let mut table = Table::new(allocations);
        let (sums, classes) = eye.count(driver, settings, &mut table)?;
        for part in &table.parts {
            write_part(log, &table, part, &sums, &classes);
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
        let Some(eye) = self.0.get(&context) else { return Ok(()) };
        for (name, base, bytes) in allocations {
            let mut copy = vec![0u8; *bytes as usize];
            // SAFETY: the allocation lives, and has so many bytes.
            unsafe { driver.receive(&mut copy, *base, eye.stream) }?;
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
        Ok(Self { kernels, multiprocessors, stream: driver.new_stream()?, scratch: 0, bytes: 0 })
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

    /// The sums of every span for each codec, and the classes of the picture's pages with the first.
    fn count(
        &mut self,
        driver: &Driver,
        settings: &Settings,
        table: &mut Table,
    ) -> Result<(Vec<u64>, Vec<u8>), String> {
        let mut sums = vec![0u64; SUMS * table.spans * self.kernels.len()];
        let mut classes = vec![0u8; PAGE_CLASSES as usize * table.picture_pages];
        let table_bytes = size_of_val(&table.numbers[..]);
        let sums_bytes = size_of_val(&sums[..]);
        let at = self.room(driver, table_bytes + sums_bytes + classes.len())?;
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
        // SAFETY: as above.
        unsafe {
            driver.receive(&mut sums, sums_at, self.stream)?;
            if !classes.is_empty() {
                driver.receive(&mut classes, classes_at, self.stream)?;
            }
        }
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

/// What was seen of one allocation: for each codec a line `sizes SLOT BASE CODEC CLASSES... BYTES` and a line
/// `blocks SLOT CODEC PAGES` with runs of equal blocks, and a line `rows SLOT DIGITS...`.
fn write_part(log: &mut String, table: &Table, part: &Part, sums: &[u64], classes: &[u8]) {
    let codecs = sums.len() / (SUMS * table.spans.max(1));
    for codec in 0..codecs {
        let first = SUMS * (codec * table.spans + part.first);
        let blocks = &sums[first..first + SUMS * part.blocks];
        let total = |at: usize| blocks.iter().skip(at).step_by(SUMS).sum::<u64>();
        let _ = write!(log, "sizes {} {:#x} {codec}", part.slot, part.base);
        (0..SUMS).for_each(|at| write!(log, " {}", total(at)).unwrap_or(()));
        let _ = write!(log, "\nblocks {} {codec} {}", part.slot, part.pages);
        let counts: Vec<&[u64]> = blocks.chunks(SUMS).map(|block| &block[..SUMS - 1]).collect();
        for same in counts.chunk_by(|one, next| one == next) {
            let _ = write!(log, " {}*", same.len());
            same[0].iter().for_each(|count| write!(log, " {count}").unwrap_or(()));
        }
        log.push('\n');
    }
    let _ = write!(log, "rows {}", part.slot);
    for row in part.row..part.row + part.rows {
        let page = &classes[row * PAGE_CLASSES as usize..][..table.entries_of_row(row)];
        log.push(' ');
        log.extend(page.iter().map(|class| char::from(b'0' + class.min(&5))));
    }
    log.push('\n');
}
