//! A simulation larger than device memory: an acoustic wave whose fields are in compressed memory,
//! compared with plain memory, slabs through the host and pinned host memory (`buddy gpu large`).
//! Unified Memory is left out, since beyond the size of device memory it can hang this kind of GPU.
//!
//! [`Grid`] is the problem, [`Reference`] computes it on the CPU; the kernels are
//! `kernels/wave*.cuh`.

mod host;
mod kernels;
mod model;
mod packed;
mod plain;
mod plan;
mod problem;
mod reference;
mod report;
mod slabs;
mod verify;

use std::time::Instant;

use buddy_cuda::Gpu;

pub use model::Grid;
pub use plan::Plan;
pub use problem::WaveProblem;
pub use reference::Reference;
pub use report::{AllAlive, LargeCheck, LargePicture, LargeReport, LargeRun, Moment, Way};

pub(crate) use kernels::source;

use crate::{Error, Lab};
use kernels::{UNIT, WaveKernels, pages};
use model::push;
use packed::PackedWave;
use plain::PlainWave;
use slabs::SlabWave;

/// Steps between two checks of the pool.
const LOOK: u32 = 10;
/// Recorded intervals of a run.
const INTERVALS: u32 = 40;
/// Measured steps of slabs and pinned memory: their speed does not depend on the wave.
const SLAB_STEPS: u32 = 5;
/// The most pixels per side of a picture.
const PICTURE: u32 = 800;

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct LargeAsk {
    /// Cells.
    pub grid: Grid,
    /// Bytes for fields on the device; by default all free memory.
    pub room: Option<u64>,
    /// Bytes for fields in host memory; by default those of the plan.
    pub host: Option<u64>,
    /// Steps; by default until every boundary is reached.
    pub steps: Option<u32>,
    /// Time limit of the compressed run in seconds.
    pub seconds: f64,
    /// The ways to run, of those that fit.
    pub ways: Vec<Way>,
    /// Verify all methods at small sizes first.
    pub verify: bool,
    /// Fraction of the planes that slabs and pinned memory keep on the device.
    pub share: f64,
}

/// Progress of a run.
#[derive(Debug)]
pub enum LargeNews<'a> {
    /// A comparison passed.
    Checked(&'a LargeCheck),
    /// The plan was made.
    Planned(&'a Plan),
    /// Speed with every cell nonzero.
    Alive(&'a AllAlive),
    /// A run begins: its method and its number of steps.
    Began(Way, u32),
    /// An interval of compressed memory has passed.
    Passed(&'a Moment),
    /// A run has ended.
    Ended(&'a LargeRun),
    /// A way that cannot run, and the reason.
    Left(Way, &'static str),
    /// No progress; asks whether to continue.
    Waiting,
}

/// Runs the wave; `news` receives its progress and returns false to stop. Returns everything
/// recorded until then.
///
/// # Errors
/// [`Error::Cut`] for an invalid grid, [`Error::NoRoom`] or [`Error::HostMemory`] without enough
/// memory, [`Error::Differs`] if two methods differ; compiler and driver errors.
pub fn large(
    gpu: &Gpu,
    ask: &LargeAsk,
    mut news: impl FnMut(LargeNews<'_>) -> bool,
) -> Result<(LargeReport, Option<LargePicture>), Error> {
    ask.grid.check()?;
    let (info, lab, kernels) = (gpu.info()?, Lab::new(gpu)?, WaveKernels::new(gpu)?);
    let report = LargeReport {
        gpu: info.name,
        driver: info.driver,
        memory_bytes: info.memory_bytes,
        grid: ask.grid,
        plain_bytes: ask.grid.plain_bytes(),
        steps_to_boundaries: ask.grid.steps_to_boundaries(),
        plan: None,
        checks: Vec::new(),
        all_alive: None,
        runs: Vec::new(),
        stopped: false,
    };
    let mut large = Large { ask, lab: &lab, kernels: &kernels, news: &mut news, report, picture: None };
    large.run()?;
    Ok((large.report, large.picture))
}

struct Large<'a> {
    ask: &'a LargeAsk,
    lab: &'a Lab,
    kernels: &'a WaveKernels,
    news: &'a mut dyn FnMut(LargeNews<'_>) -> bool,
    report: LargeReport,
    picture: Option<LargePicture>,
}

impl Large<'_> {
    /// Reports progress; returns whether to continue.
    fn tell(&mut self, news: LargeNews<'_>) -> bool {
        let goes_on = (self.news)(news);
        self.report.stopped |= !goes_on;
        goes_on
    }

    fn run(&mut self) -> Result<(), Error> {
        if self.ask.verify {
            for check in verify::verify(self.lab, self.kernels)? {
                self.tell(LargeNews::Checked(&check));
                self.report.checks.push(check);
            }
        }
        let free = self.lab.gpu.info()?.free_bytes;
        // Plain and compressed fields at the same time, to compare.
        let fits = 2 * self.report.plain_bytes < free;
        if self.ask.ways.contains(&Way::Packed) {
            self.plan()?;
            self.packed(fits)?;
        }
        for way in [Way::Plain, Way::Slabs, Way::Pinned] {
            let wanted = self.ask.ways.contains(&way) && !self.report.stopped;
            let done = self.report.runs.iter().any(|run| run.way == way);
            let by_slabs = SlabWave::device_bytes(self.ask.grid, self.ask.share) < free;
            let left = match way {
                _ if !wanted || done => continue,
                Way::Plain if fits => {
                    self.plain()?;
                    continue;
                }
                Way::Plain => "plain memory does not fit twice on this GPU",
                _ if by_slabs => {
                    self.slabs(way, fits)?;
                    continue;
                }
                _ => "its planes on the GPU do not fit: lower --share",
            };
            let _ = self.tell(LargeNews::Left(way, left));
        }
        Ok(())
    }

    fn plan(&mut self) -> Result<(), Error> {
        let (ask, news) = (self.ask, &mut *self.news);
        let plan = plan::plan(self.lab, self.kernels, ask.grid, ask.room, &mut || news(LargeNews::Waiting))?;
        self.report.plan = Some(plan);
        self.tell(LargeNews::Planned(&plan));
        Ok(())
    }

    /// Runs compressed memory, and if it fits plain memory after it, whose result is compared.
    fn packed(&mut self, fits: bool) -> Result<(), Error> {
        let host = self.ask.host.or(self.report.plan.map(|plan| plan.host_bytes)).unwrap_or(0);
        let mut wave = PackedWave::new(self.lab, self.kernels, self.ask.grid, self.ask.room, host)?;
        let mut run = self.packed_run(&mut wave)?;
        self.picture = Some(picture(&wave)?);
        if fits && self.ask.ways.contains(&Way::Plain) && !self.report.stopped {
            let plain = self.plain_steps(run.steps)?;
            run.differing = Some(wave.differing(&plain)?);
        }
        self.tell(LargeNews::Ended(&run));
        let wrong = run.differing.unwrap_or(0);
        self.report.runs.insert(0, run);
        crate::lab::none_wrong("the wave in compressed memory", wrong)?;
        drop(wave);
        if fits && !self.report.stopped {
            let alive = verify::all_alive(self.lab, self.kernels, self.ask.grid)?;
            self.tell(LargeNews::Alive(&alive));
            self.report.all_alive = Some(alive);
        }
        Ok(())
    }

    fn steps(&self) -> u32 {
        self.ask.steps.unwrap_or(self.report.steps_to_boundaries)
    }

    fn packed_run(&mut self, wave: &mut PackedWave<'_>) -> Result<LargeRun, Error> {
        let of = self.steps();
        self.tell(LargeNews::Began(Way::Packed, of));
        let interval = (of / INTERVALS / LOOK * LOOK).max(LOOK);
        let (began, (device_bytes, host_bytes)) = (Instant::now(), wave.room());
        let (mut over_time, mut steps, mut seconds) = (Vec::new(), 0, 0.0);
        while steps < of && !self.report.stopped && began.elapsed().as_secs_f64() < self.ask.seconds {
            let count = interval.min(of - steps);
            let took = self.interval(wave, steps, count)?;
            (steps, seconds) = (steps + count, seconds + took);
            let moment = moment(wave, steps, took / f64::from(count))?;
            over_time.push(moment);
            self.tell(LargeNews::Passed(&moment));
        }
        let mean_gcells = gcells(self.ask.grid, seconds / f64::from(steps.max(1)));
        let end_gcells = over_time.last().map_or(0.0, |moment: &Moment| moment.gcells);
        Ok(LargeRun {
            way: Way::Packed,
            steps,
            of,
            device_bytes,
            host_bytes,
            seconds,
            mean_gcells,
            end_gcells,
            differing: None,
            over_time,
        })
    }

    /// Returns the seconds of several steps, checks and retargets included.
    fn interval(&mut self, wave: &mut PackedWave<'_>, first: u32, count: u32) -> Result<f64, Error> {
        let began = Instant::now();
        for step in first..first + count {
            wave.advance(push(step))?;
            if (step + 1) % LOOK == 0 {
                wave.look()?;
                if !(self.news)(LargeNews::Waiting) {
                    self.report.stopped = true;
                }
            }
        }
        self.lab.wait()?;
        Ok(began.elapsed().as_secs_f64())
    }

    fn plain(&mut self) -> Result<(), Error> {
        self.plain_steps(self.steps()).map(drop)
    }

    /// Runs the wave in plain memory for `steps` steps and records it.
    fn plain_steps(&mut self, steps: u32) -> Result<PlainWave<'_>, Error> {
        self.tell(LargeNews::Began(Way::Plain, steps));
        let mut wave = PlainWave::new(self.lab, self.kernels, self.ask.grid)?;
        let began = Instant::now();
        for step in 0..steps {
            wave.advance(push(step))?;
        }
        self.lab.wait()?;
        let seconds = began.elapsed().as_secs_f64();
        let run = self.run_of(Way::Plain, steps, seconds, self.report.plain_bytes, 0, None);
        self.tell(LargeNews::Ended(&run));
        self.report.runs.push(run);
        Ok(wave)
    }

    /// Runs slabs or pinned memory, over waves everywhere, compared with plain memory if that fits too.
    fn slabs(&mut self, way: Way, fits: bool) -> Result<(), Error> {
        self.tell(LargeNews::Began(way, SLAB_STEPS));
        let mut wave = SlabWave::new(self.lab, self.kernels, self.ask.grid, self.ask.share)?;
        let began = Instant::now();
        for _ in 0..SLAB_STEPS {
            match way {
                Way::Slabs => wave.advance_by_slabs()?,
                _ => wave.advance_pinned()?,
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let differing = if fits { Some(self.beside_plain(&wave)?) } else { None };
        let far = ((1.0 - self.ask.share) * self.report.plain_bytes as f64) as u64;
        let run = self.run_of(way, SLAB_STEPS, seconds, self.report.plain_bytes - far, far, differing);
        self.tell(LargeNews::Ended(&run));
        self.report.runs.push(run);
        crate::lab::none_wrong(way.name(), differing.unwrap_or(0))
    }

    /// Returns the number of values in which slabs differ from plain memory after the same steps.
    fn beside_plain(&self, wave: &SlabWave<'_>) -> Result<u64, Error> {
        let mut plain = PlainWave::new(self.lab, self.kernels, self.ask.grid)?;
        plain.fill()?;
        (0..SLAB_STEPS).try_for_each(|_| plain.advance(0.0))?;
        wave.differing(&plain.here)
    }

    fn run_of(
        &self,
        way: Way,
        steps: u32,
        seconds: f64,
        device_bytes: u64,
        host_bytes: u64,
        differing: Option<u64>,
    ) -> LargeRun {
        let gcells = gcells(self.ask.grid, seconds / f64::from(steps.max(1)));
        LargeRun {
            way,
            steps,
            of: steps,
            device_bytes,
            host_bytes,
            seconds,
            mean_gcells: gcells,
            end_gcells: gcells,
            differing,
            over_time: Vec::new(),
        }
    }
}

fn gcells(grid: Grid, seconds_per_step: f64) -> f64 {
    grid.cells() as f64 / seconds_per_step.max(1e-12) / 1e9
}

fn moment(wave: &PackedWave<'_>, step: u32, seconds_per_step: f64) -> Result<Moment, Error> {
    let [zero, window, raw, overflow] = wave.kinds()?;
    Ok(Moment {
        step,
        ms_per_step: 1e3 * seconds_per_step,
        gcells: gcells(wave.grid, seconds_per_step),
        zero,
        window,
        raw,
        overflow,
        device_bytes: u64::from(wave.books.device_used) * UNIT,
        host_bytes: u64::from(wave.books.host_used) * UNIT,
        lit: f64::from(wave.books.lit) / (2 * pages(wave.grid)) as f64,
        windows: wave.windows,
        moved: wave.books.moved,
    })
}

fn picture(wave: &PackedWave<'_>) -> Result<LargePicture, Error> {
    let grid = wave.grid;
    let by = grid.x.max(grid.z).div_ceil(PICTURE);
    let (width, values) = wave.slice(by)?;
    let place = |at: u32| [at % width * by, grid.y / 2, at / width * by];
    let rock = (0..values.len() as u32).map(|at| grid.velocity_index(place(at)) as u8).collect();
    Ok(LargePicture { width, values, rock })
}
