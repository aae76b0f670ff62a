//! `buddy gpu large`: a simulation that is larger than the card.

mod draw;
mod png;
mod say;

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::atomic::Ordering,
};

use anyhow::{Context, Result};
use buddy_core::{Record, read_text};
use buddy_cuda::Gpu;
use buddy_gpu_lab::{Grid, LargeAsk, LargeNews, LargeReport, Way};
use clap::Args;

use super::between;
use crate::{FINISHES, INTERRUPTED, output, progress::Bar};

/// Run a 3-D wave whose fields live in compressed memory, at any size: memory, overflow and speed as it spreads
///
/// An acoustic wave, fp32, order 8 in space, with absorbing layers. Two fields and a velocity are 12 bytes a cell in
/// plain memory. In compressed memory pages that the wave has not reached take none, a velocity takes one, and fields take
/// 8 or, where room is short, 7 and the rest in host memory. Where plain memory fits as well the results are compared to the
/// bit. Unified Memory is left out: past the size of the card it can hang it.
///
/// Ctrl-C ends the run and keeps what was recorded.
#[derive(Args)]
pub(super) struct Large {
    /// Cells along x (a multiple of 64), y (of 32) and z
    #[arg(long, value_name = "X,Y,Z", conflicts_with = "times", value_parser = cells)]
    cells: Option<Grid>,
    /// As many cells as take so many times the card's memory in plain memory
    #[arg(long, value_name = "NUMBER", default_value_t = 1.6, value_parser = between(1e-3..=100.0))]
    times: f64,
    /// GB (10^9 bytes) for fields on the GPU; without it all that is free
    #[arg(long, value_name = "GB", value_parser = between(0.0..=1e6))]
    room: Option<f64>,
    /// GB for fields in host memory; without it as much as is planned from a smaller run
    #[arg(long, value_name = "GB", value_parser = between(0.0..=1e6))]
    host: Option<f64>,
    /// Steps; without it until the wave has passed every boundary
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// Seconds after which the run in compressed memory ends in any case
    #[arg(long, value_name = "NUMBER", default_value_t = 1e9, hide_default_value = true, value_parser = between(0.0..=1e9))]
    seconds: f64,
    /// Where fields lie; all but packed only where plain memory fits twice
    #[arg(long, value_name = "WAY", num_args = 1.., value_delimiter = ',', value_parser = way, default_value = "packed,plain")]
    ways: Vec<Way>,
    /// Percent of the planes that slabs and pinned memory have on the GPU
    #[arg(long, value_name = "PERCENT", default_value_t = 62.5, value_parser = between(5.0..=95.0))]
    share: f64,
    /// First compare plain memory with the CPU and compressed with plain memory, at small sizes, to the bit
    #[arg(long)]
    verify: bool,
    /// Write the figures as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Write them as a page
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
    /// Write charts of speed, memory and bricks over time to PATH-1.svg, PATH-2.svg and PATH-3.svg
    #[arg(long, value_name = "PATH")]
    svg: Option<PathBuf>,
    /// Write a slice of the wave as a PNG
    #[arg(long, value_name = "PATH")]
    picture: Option<PathBuf>,
    /// Draw a record that was written before; needs no GPU
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
        .ok_or(format!("there is no way '{text}'; there are {names}"))
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
            say::report(&mut io::stdout().lock(), &record.data)?;
            return self.draw(&record);
        }
        let gpu = gpu()?;
        let ask = self.ask(gpu.info()?.memory_bytes);
        say::size(&mut io::stdout().lock(), ask.grid, gpu.info()?.memory_bytes)?;
        FINISHES.store(true, Ordering::Relaxed);
        let (report, picture) = listen(&gpu, &ask)?;
        say::left_out(&mut io::stdout().lock())?;
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

/// Runs, and prints what is heard on the way.
fn listen(gpu: &Gpu, ask: &LargeAsk) -> Result<(LargeReport, Option<buddy_gpu_lab::LargePicture>)> {
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
        let print = || say::news(&mut io::stdout().lock(), &news).and_then(|()| Ok(io::stdout().flush()?));
        failed = failed.take().or(bar.as_ref().map_or_else(print, |bar| bar.beside(print)).err());
        failed.is_none() && !INTERRUPTED.load(Ordering::Relaxed)
    });
    bar.iter().for_each(Bar::finish);
    failed.map_or(Ok(result?), Err)
}
