//! `buddy gpu large`: a simulation larger than GPU memory.

mod draw;
mod png;
mod print;

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::atomic::Ordering,
};

use anyhow::{Context, Result};
use buddy_core::read_text;
use buddy_cuda::Gpu;
use buddy_gpu_lab::{Grid, LargeAsk, LargeNews, LargeReport, Way};
use buddy_record::Record;
use clap::Args;

use super::between;
use crate::{INTERRUPTED, STOPS_GRACEFULLY, output, progress::Bar};

/// Run a 3-D wave simulation larger than GPU memory, with its fields in compressed memory
///
/// An acoustic wave in fp32, order 8 in space, with absorbing boundary layers. Two fields and a
/// velocity take 12 bytes per cell in plain memory. In compressed memory, pages that the wave has
/// not reached take nothing and a velocity takes 1 byte per cell. Fields take 8 bytes, or 7 plus
/// overflow in host memory when device memory runs short. Prints memory, overflow and speed while
/// the wave spreads.
///
/// If plain memory fits too, results are compared bit for bit. Unified Memory is not run: beyond
/// the size of GPU memory it can hang the GPU.
///
/// Ctrl-C ends the run and keeps what was recorded.
#[derive(Args)]
pub(super) struct Large {
    /// Cells along x (a multiple of 64), y (a multiple of 32) and z
    #[arg(long, value_name = "X,Y,Z", conflicts_with = "times", value_parser = cells)]
    cells: Option<Grid>,
    /// Choose the grid so that plain memory would need NUMBER times the GPU's memory
    #[arg(long, value_name = "NUMBER", default_value_t = 1.6, value_parser = between(1e-3..=100.0))]
    times: f64,
    /// GB (10^9 bytes) for fields on the GPU [default: all free memory]
    #[arg(long, value_name = "GB", value_parser = between(0.0..=1e6))]
    room: Option<f64>,
    /// GB for fields in host memory [default: planned from a smaller run]
    #[arg(long, value_name = "GB", value_parser = between(0.0..=1e6))]
    host: Option<f64>,
    /// Time steps [default: until the wave has passed every boundary]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// Stop the compressed run after this many seconds
    #[arg(long, value_name = "NUMBER", default_value_t = 1e9, hide_default_value = true, value_parser = between(0.0..=1e9))]
    seconds: f64,
    /// Where the fields are stored; plain memory must fit twice, the planes of --share once
    #[arg(long, value_name = "WAY", num_args = 1.., value_delimiter = ',', value_parser = way, default_value = "packed,plain")]
    ways: Vec<Way>,
    /// Percent of planes that slabs and pinned memory hold on the GPU
    #[arg(long, value_name = "PERCENT", default_value_t = 62.5, value_parser = between(5.0..=95.0))]
    share: f64,
    /// First compare plain memory with the CPU, and compressed with plain memory, bit for bit at
    /// small sizes
    #[arg(long)]
    verify: bool,
    /// Write the results as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Write an HTML page with charts
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
    /// Write charts of speed, memory and bricks over time to PATH-1.svg, PATH-2.svg and PATH-3.svg
    #[arg(long, value_name = "PATH")]
    svg: Option<PathBuf>,
    /// Write a slice of the wave as a PNG
    #[arg(long, value_name = "PATH")]
    picture: Option<PathBuf>,
    /// Draw an existing record; needs no GPU
    #[arg(long, value_name = "PATH", conflicts_with_all = ["cells", "times", "json", "picture", "verify", "steps"])]
    from: Option<PathBuf>,
}

fn cells(text: &str) -> Result<Grid, String> {
    let numbers: Vec<u32> = text.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    match numbers[..] {
        [x, y, z] if text.split(',').count() == 3 => {
            let grid = Grid { x, y, z };
            grid.check().map(|()| grid).map_err(|error| error.to_string())
        }
        _ => Err(format!("'{text}' is not three numbers such as 1024,1024,1000")),
    }
}

fn way(text: &str) -> Result<Way, String> {
    let names = Way::ALL.map(Way::name).join(", ");
    Way::ALL
        .into_iter()
        .find(|way| way.name() == text)
        .ok_or(format!("unknown way '{text}'; use one of {names}"))
}

impl Large {
    pub(super) fn run(self, gpu: impl FnOnce() -> Result<Gpu, buddy_cuda::Error>) -> Result<()> {
        let outputs = [
            ("--json", &self.json),
            ("--html", &self.html),
            ("--svg", &self.svg),
            ("--picture", &self.picture),
        ];
        output::check(&outputs.map(|(name, path)| (name, path.as_ref())), &[])?;
        if let Some(path) = &self.from {
            let text = read_text(path).with_context(|| format!("cannot read {}", path.display()))?;
            let record =
                Record::<LargeReport>::from_json(&text).with_context(|| path.display().to_string())?;
            print::report(&mut io::stdout().lock(), &record.data)?;
            return self.draw(&record);
        }
        let gpu = gpu()?;
        let ask = self.ask(gpu.info()?.memory_bytes);
        print::size(&mut io::stdout().lock(), ask.grid, gpu.info()?.memory_bytes)?;
        STOPS_GRACEFULLY.store(true, Ordering::Relaxed);
        let (report, picture) = run_and_print(&gpu, &ask)?;
        print::left_out(&mut io::stdout().lock())?;
        if let (Some(path), Some(picture)) = (&self.picture, &picture) {
            draw::picture(path, picture)?;
        }
        let record = Record::new(report);
        if let Some(path) = &self.json {
            output::write(path, &record.to_json())?;
        }
        self.draw(&record)
    }

    fn ask(&self, memory: u64) -> LargeAsk {
        let bytes = |gb: f64| (gb * 1e9) as u64;
        LargeAsk {
            grid: self.cells.unwrap_or(Grid::of_bytes(self.times * memory as f64)),
            room: self.room.map(bytes),
            host: self.host.map(bytes),
            steps: self.steps,
            seconds: self.seconds,
            ways: self.ways.clone(),
            verify: self.verify,
            share: self.share / 100.0,
        }
    }

    fn draw(&self, record: &Record<LargeReport>) -> Result<()> {
        if let Some(path) = &self.html {
            output::write(path, &draw::page(record))?;
        }
        self.svg.as_ref().map_or(Ok(()), |path| draw::charts(path, &record.data))
    }
}

/// Runs the simulation and prints its progress.
fn run_and_print(gpu: &Gpu, ask: &LargeAsk) -> Result<(LargeReport, Option<buddy_gpu_lab::LargePicture>)> {
    let (mut bar, mut last, mut failed) = (None::<Bar>, 0, None);
    let result = buddy_gpu_lab::large(gpu, ask, |news| {
        match &news {
            LargeNews::Began(_, steps) => (bar, last) = (Some(Bar::steps(u64::from(*steps))), 0),
            LargeNews::Passed(moment) => {
                bar.iter().for_each(|bar| bar.add(u64::from(moment.step - last)));
                last = moment.step;
            }
            LargeNews::Ended(_) => bar.take().iter().for_each(Bar::finish),
            _ => {}
        }
        let print = || print::news(&mut io::stdout().lock(), &news).and_then(|()| Ok(io::stdout().flush()?));
        failed = failed.take().or(bar.as_ref().map_or_else(print, |bar| bar.suspend(print)).err());
        failed.is_none() && !INTERRUPTED.load(Ordering::Relaxed)
    });
    bar.iter().for_each(Bar::finish);
    failed.map_or(Ok(result?), Err)
}
