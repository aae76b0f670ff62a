//! The wave in compressed memory: pages get units as it spreads, on the device or in host memory,
//! and are retargeted before memory runs out.

use buddy_cuda::DeviceBytes;

use super::{
    host::HostBytes,
    kernels::{
        BRICKS, FieldView, PoolView, Slice, Step, UNIT, UNITS, WaveKernels, packed_launch, page_launch,
        pages, row,
    },
    model::Grid,
    plain::{PlainWave, table},
};
use crate::{Error, Lab, lab::at};

/// Device memory reserved for the driver and for comparisons if a run takes everything else.
const RESERVE: u64 = 1 << 30;
/// Additional units: pages that allocate at the same moment may leave a few unused.
const SPARE_UNITS: u64 = 4096;
/// The most raw bricks of a page whose last unit moves to host memory, as memory becomes scarcer.
const LEVELS: [u32; 5] = [0, 2, 8, 24, 64];

/// A field's page data on the device.
struct Field {
    refs: DeviceBytes,
    kinds: DeviceBytes,
    active: DeviceBytes,
}

impl Field {
    fn new(lab: &Lab, pages: u64) -> Result<Self, Error> {
        let (refs, kinds, active) =
            (lab.bytes(4 * UNITS * pages)?, lab.bytes(BRICKS * pages)?, lab.bytes(pages)?);
        refs.fill(0xff)?;
        kinds.fill(0)?;
        active.fill(0)?;
        Ok(Self { refs, kinds, active })
    }

    fn view(&self) -> FieldView {
        FieldView { refs: at(&self.refs), kinds: at(&self.kinds), active: at(&self.active) }
    }
}

/// The struct `PoolState`: allocation of the pool.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PoolState {
    device_next: u32,
    device_end: u32,
    freed: i32,
    /// Pages that have units.
    pub(super) lit: u32,
    pub(super) device_used: u32,
    pub(super) host_used: u32,
    failed: u32,
    /// Units moved by retargeting.
    pub(super) moved: u32,
}

impl PoolState {
    const WORDS: usize = 10;

    fn of(
        [device_next, device_end, _, _, freed, lit, device_used, host_used, failed, moved]: [u32;
            Self::WORDS],
    ) -> Self {
        Self { device_next, device_end, freed: freed as i32, lit, device_used, host_used, failed, moved }
    }

    /// Returns the free units on the device.
    pub(super) fn free(&self) -> u64 {
        u64::from(self.device_end.saturating_sub(self.device_next)) + u64::from(self.freed.max(0) as u32)
    }
}

/// Two fields in pages, a byte of velocity per cell, and a pool of units.
pub(super) struct PackedWave<'a> {
    lab: &'a Lab,
    kernels: &'a WaveKernels,
    pub(super) grid: Grid,
    step: Step,
    here: Field,
    before: Field,
    indices: DeviceBytes,
    table: DeviceBytes,
    fault: DeviceBytes,
    books_at: DeviceBytes,
    stack: DeviceBytes,
    device: DeviceBytes,
    host: Option<HostBytes>,
    host_units: u64,
    pub(super) books: PoolState,
    /// True if bricks are stored as windows.
    pub(super) windows: bool,
    steps_of_windows: u32,
    level: usize,
    pub(super) trims: u32,
    pub(super) raises: u32,
}

impl<'a> PackedWave<'a> {
    /// Creates zero fields, with `room` bytes on the device (all free memory by default) and `host`
    /// bytes in host memory.
    pub(super) fn new(
        lab: &'a Lab,
        kernels: &'a WaveKernels,
        grid: Grid,
        room: Option<u64>,
        host: u64,
    ) -> Result<Self, Error> {
        let pages = pages(grid);
        let (here, before) = (Field::new(lab, pages)?, Field::new(lab, pages)?);
        let (indices, table) = (lab.bytes(grid.cells())?, table(lab, grid)?);
        let (fault, books_at, stack) = (lab.bytes(8)?, lab.bytes(64)?, lab.bytes(16 * pages + 4096)?);
        fault.fill(0xff)?;
        let most = 2 * pages * UNITS;
        let units = match room {
            Some(room) => (room / UNIT + SPARE_UNITS).min(most),
            None => (lab.gpu.info()?.free_bytes.saturating_sub(RESERVE) / UNIT).min(most),
        };
        let device = lab.bytes(units * UNIT)?;
        let host_units = host / UNIT;
        let host = (host_units > 0).then(|| HostBytes::new(&lab.gpu, host_units * UNIT)).transpose()?;
        let mut books = [0u32; 16];
        (books[1], books[3]) = (units as u32, host_units as u32);
        books_at.upload(bytemuck::cast_slice(&books))?;
        let step = Step::new(grid, at(&fault));
        // SAFETY: the arguments of `fill_velocity_pages`, which writes a byte of each cell.
        unsafe {
            kernels.start(&lab.stream, "fill_velocity_pages", row(grid.cells() / 4), &(at(&indices), step))?
        };
        lab.wait()?;
        Ok(Self {
            lab,
            kernels,
            grid,
            step,
            here,
            before,
            indices,
            table,
            fault,
            books_at,
            stack,
            device,
            host,
            host_units,
            books: PoolState { device_end: units as u32, ..PoolState::default() },
            windows: false,
            steps_of_windows: 0,
            level: 0,
            trims: 0,
            raises: 0,
        })
    }

    /// Returns the bytes for fields on the device and in host memory.
    pub(super) fn room(&self) -> (u64, u64) {
        (self.device.len(), self.host_units * UNIT)
    }

    fn pool(&self) -> PoolView {
        PoolView { device: at(&self.device), host: self.host.as_ref().map_or(0, HostBytes::address) }
    }

    /// Enqueues a step: first units for pages that it may reach, then the step.
    pub(super) fn advance(&mut self, push: f32) -> Result<(), Error> {
        self.step.push = push;
        let (u, w) = (self.here.view(), self.before.view());
        let target: u32 = if self.level > 0 { 7 } else { 8 };
        let light = (u, w, at(&self.books_at), at(&self.stack), self.step, target);
        // SAFETY: the arguments of `light_pages`; all are this wave's own.
        unsafe { self.kernels.start(&self.lab.stream, "light_pages", row(pages(self.grid)), &light)? };
        self.launch()?;
        self.steps_of_windows += u32::from(self.windows);
        Ok(())
    }

    /// Enqueues a step when every page has its units.
    pub(super) fn launch(&mut self) -> Result<(), Error> {
        let name = if self.windows { "wave_window" } else { "wave_raw" };
        let (u, w) = (self.here.view(), self.before.view());
        let arguments = (u, w, self.pool(), at(&self.indices), at(&self.table), self.step);
        // SAFETY: the arguments of both kernels; all are this wave's own. Bricks become windows
        // once and stay so.
        unsafe { self.kernels.start(&self.lab.stream, name, packed_launch(self.grid), &arguments)? };
        std::mem::swap(&mut self.here, &mut self.before);
        Ok(())
    }

    /// Checks the pool, and retargets before memory runs out: first windows, then
    /// [`trim`](Self::trim) and [`raise`](Self::raise).
    pub(super) fn look(&mut self) -> Result<(), Error> {
        let lit = self.books.lit;
        self.read_books()?;
        let total = self.device.len() / UNIT;
        // Units for three times the pages added since the last check.
        let soon = (3 * UNITS) as f64 * f64::from(self.books.lit - lit);
        let wanted = UNITS * (2 * pages(self.grid)).saturating_sub(u64::from(self.books.lit));
        let free = self.books.free() as f64;
        let scarce = |share: f64, soon: f64| wanted as f64 > free && free < (share * total as f64).max(soon);
        self.windows |= scarce(0.25, 4.0 * soon);
        if self.windows && self.steps_of_windows >= 4 && scarce(0.02, soon) && self.host_units > 0 {
            self.trim()?;
        }
        if self.level > 0 && i64::from(self.books.freed) > (total * 3 / 100) as i64 {
            self.raise((total / 50) as i32)?;
        }
        Ok(())
    }

    fn read_books(&mut self) -> Result<(), Error> {
        let (mut words, mut fault) = ([0u32; PoolState::WORDS], [0u64; 1]);
        self.books_at.download(bytemuck::cast_slice_mut(&mut words))?;
        self.fault.download(bytemuck::cast_slice_mut(&mut fault))?;
        self.books = PoolState::of(words);
        if self.books.failed > 0 || fault[0] != u64::MAX {
            return Err(Error::NoRoom { device: self.device.len(), host: self.host_units * UNIT });
        }
        Ok(())
    }

    /// Retargets pages to 8/7 if few of their bricks use the last unit, and finally all pages.
    fn trim(&mut self) -> Result<(), Error> {
        let most = LEVELS[self.level.min(LEVELS.len() - 1)];
        self.level = (self.level + 1).min(LEVELS.len());
        let pages = pages(self.grid);
        for field in [&self.here, &self.before] {
            let arguments = (field.view(), self.pool(), at(&self.books_at), at(&self.stack), pages, most);
            // SAFETY: the arguments of `trim_pages`; all are this wave's own.
            unsafe { self.kernels.start(&self.lab.stream, "trim_pages", row(32 * pages), &arguments)? };
        }
        self.trims += 1;
        Ok(())
    }

    /// Moves units back to the device, except those of pages at 8/7.
    fn raise(&mut self, keep: i32) -> Result<(), Error> {
        let pages = pages(self.grid);
        for field in [&self.here, &self.before] {
            let arguments =
                (field.view(), self.pool(), at(&self.books_at), at(&self.stack), pages, 7u32, keep);
            // SAFETY: the arguments of `raise_pages`; all are this wave's own.
            unsafe { self.kernels.start(&self.lab.stream, "raise_pages", row(32 * pages), &arguments)? };
        }
        self.raises += 1;
        Ok(())
    }

    /// Returns the fractions of bricks that are zero, windows, raw, and that touch host memory.
    pub(super) fn kinds(&self) -> Result<[f64; 4], Error> {
        let counts = self.lab.bytes(32)?;
        counts.fill(0)?;
        let pages = pages(self.grid);
        for field in [&self.here, &self.before] {
            // SAFETY: the arguments of `count_kinds`, which adds to four counters.
            unsafe {
                let arguments = (field.view(), pages, at(&counts));
                self.kernels.start(&self.lab.stream, "count_kinds", row(pages), &arguments)?;
            }
        }
        self.lab.wait()?;
        let mut numbers = [0u64; 4];
        counts.download(bytemuck::cast_slice_mut(&mut numbers))?;
        Ok(numbers.map(|count| count as f64 / (2 * pages * BRICKS) as f64))
    }

    /// Packs the fields of plain memory; every page gets eight units.
    pub(super) fn pack(&mut self, plain: &PlainWave<'_>) -> Result<(), Error> {
        let name = if self.windows { "pack_field_window" } else { "pack_field_raw" };
        let launch = page_launch(self.grid, self.grid.z);
        for (from, to, first) in
            [(&plain.here, &self.here, 0), (&plain.before, &self.before, UNITS * pages(self.grid))]
        {
            let arguments = (at(from), to.view(), self.pool(), self.step, first as u32);
            // SAFETY: the arguments of both kernels; the pool has eight units for each page of both
            // fields.
            unsafe { self.kernels.start(&self.lab.stream, name, launch, &arguments)? };
        }
        self.lab.wait()
    }

    /// Returns the number of words in which both fields differ from plain memory.
    pub(super) fn differing(&self, plain: &PlainWave<'_>) -> Result<u64, Error> {
        let at_once = ((RESERVE / 2) / (4 * self.grid.plane())).clamp(1, u64::from(self.grid.z)) as u32;
        let buffer = self.lab.bytes(u64::from(at_once) * 4 * self.grid.plane())?;
        let mut wrong = 0;
        for (field, expected) in [(&self.here, &plain.here), (&self.before, &plain.before)] {
            for first in (0..self.grid.z).step_by(at_once as usize) {
                let planes = at_once.min(self.grid.z - first);
                let arguments = (field.view(), self.pool(), self.step, first as i32, at(&buffer));
                let launch = page_launch(self.grid, planes);
                // SAFETY: the arguments of `unpack_field`, which writes `count` planes of the
                // buffer.
                unsafe { self.kernels.start(&self.lab.stream, "unpack_field", launch, &arguments)? };
                let expected = plain.planes(expected, first, planes);
                wrong += self.lab.count(|count| self.lab.compare(buffer.all(), expected, count))?;
            }
        }
        Ok(wrong)
    }

    /// Returns every `by`th cell along x and z, in the middle of y.
    pub(super) fn slice(&self, by: u32) -> Result<(u32, Vec<f32>), Error> {
        let (width, height) = (self.grid.x / by, self.grid.z / by);
        let mut values = vec![0f32; (width * height) as usize];
        let to = self.lab.bytes(4 * values.len() as u64)?;
        let slice =
            Slice { y: (self.grid.y / 2) as i32, by: by as i32, width: width as i32, height: height as i32 };
        let arguments = (self.here.view(), self.pool(), self.step, slice, at(&to));
        // SAFETY: the arguments of `slice_field`, which reads cells of the grid and writes this
        // many values.
        unsafe { self.kernels.start(&self.lab.stream, "slice_field", row(values.len() as u64), &arguments)? };
        self.lab.wait()?;
        to.download(bytemuck::cast_slice_mut(&mut values))?;
        Ok((width, values))
    }
}
