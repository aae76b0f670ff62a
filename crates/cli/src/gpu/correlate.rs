//! `buddy gpu correlate`: the simulator compared with a real GPU.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use buddy_cuda::Gpu;
use buddy_record::{Figure, Panel, Record};
use buddy_report::{Page, figure_files};
use buddy_sim::{Config, spec};
use buddy_study::correlate::{Correlation, compare, panels, read_measured, summary, table};
use clap::Args;

use crate::{output, progress::Bar, say};

/// Compare the simulator with a real GPU, kernel by kernel
///
/// Small built-in kernels, each with one behaviour, are compiled by NVRTC, timed on this GPU,
/// traced from their machine code (needs nvdisasm of the CUDA toolkit) and simulated on the model
/// of the GPU.
///
/// With --traces no GPU is needed: the folder holds traces and measured.json, a list with the file
/// (trace) and time (cycles or ns) of each kernel, and optionally its group and whether its caches
/// were warm. --save writes such a folder.
#[derive(Args)]
#[command(after_help = "Examples:
  buddy gpu correlate --save micro --json micro.json
  buddy gpu correlate --traces micro --spec h200 --html micro.html")]
pub(super) struct Correlate {
    /// Compare with the traces and measured.json in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "save")]
    traces: Option<PathBuf>,
    /// Save traces and times to this new folder
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Model: a name of `buddy specs list` or a TOML file [default: matched by the GPU's
    /// name]
    #[arg(long, value_name = "GPU")]
    spec: Option<String>,
    /// Short description of the traces
    #[arg(long, value_name = "TEXT")]
    what: Option<String>,
    /// Name of the GPU that measured.json was recorded on
    #[arg(long, value_name = "NAME", requires = "traces")]
    card: Option<String>,
    /// Launch each kernel once and do nothing else, for use under a profiler
    #[arg(long, conflicts_with_all = ["traces", "save", "json", "html"])]
    once: bool,
    /// Write the comparison as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Write an HTML page with the chart and the tables
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
}

impl Correlate {
    pub(super) fn run(self, gpu: impl Fn() -> Result<Gpu, buddy_cuda::Error>) -> Result<()> {
        output::check(&[("--json", self.json.as_ref()), ("--html", self.html.as_ref())], &[])?;
        if self.once {
            return Ok(buddy_gpu_lab::micro_once(&gpu()?, |name| say(name))?);
        }
        let found = match &self.traces {
            Some(folder) => {
                let spec =
                    self.spec.as_deref().context("--traces needs --spec: the model to compare with")?;
                let card = self.card.clone().unwrap_or_else(|| spec.to_owned());
                self.compare(folder, spec, &card, "traces")?
            }
            None => self.measure(&gpu()?)?,
        };
        print(&found)?;
        self.write(found)
    }

    /// Times and traces the small kernels, and compares.
    fn measure(&self, gpu: &Gpu) -> Result<Correlation> {
        let card = gpu.info()?.name;
        let spec = match &self.spec {
            Some(spec) => spec.clone(),
            None => known(&card).with_context(|| {
                let names: Vec<&str> = spec::Gpu::names().collect();
                format!(
                    "no model matches {card}; give --spec with one of {} or a TOML file",
                    names.join(", ")
                )
            })?,
        };
        spec::Gpu::named(&spec)?;
        let folder = match &self.save {
            Some(folder) if folder.exists() => {
                bail!("{} exists already; give a new folder", folder.display())
            }
            Some(folder) => folder.clone(),
            None => std::env::temp_dir().join(format!("buddy-correlate-{}", std::process::id())),
        };
        output::make_folder(&folder)?;
        let measured = buddy_gpu_lab::micro(gpu, &folder, |row| {
            say(format_args!("{:<28} {:>10.2} us", row.trace, row.ns / 1e3));
        });
        let found = measured
            .map_err(anyhow::Error::from)
            .and_then(|_| self.compare(&folder, &spec, &card, "small kernels"));
        if self.save.is_none() {
            let _ = std::fs::remove_dir_all(&folder);
        }
        found
    }

    fn compare(&self, folder: &Path, spec: &str, card: &str, what: &str) -> Result<Correlation> {
        let measured = read_measured(folder).map_err(|why| anyhow!(why))?;
        let gpu = spec::Gpu::named(spec)?;
        let config = Config::new(gpu.clone(), spec::Link::named("150")?);
        let bar = Bar::steps(measured.len() as u64);
        let rows = compare(folder, &measured, &config, |_| bar.add(1))?;
        bar.finish();
        Ok(Correlation::new(self.what.as_deref().unwrap_or(what), card, &gpu, rows))
    }

    fn write(&self, found: Correlation) -> Result<()> {
        if let Some(path) = &self.html {
            let panels =
                panels(&found).into_iter().filter(|panel| matches!(panel, Panel::Chart(_))).collect();
            let figure = Figure { name: "correlation".to_owned(), panels, ..Figure::default() };
            let pictures: String = figure_files(&figure).into_iter().map(|(_, svg)| svg).collect();
            let title = format!("The simulator compared with {}", found.card);
            let page =
                Page::new(&title, "Each point is a kernel; lines mark equality, 20% and a factor of two.")
                    .section("Kernels", &summary(&found).join("; "), &pictures)
                    .section("All", "", &table(&found).to_html());
            output::write(path, &page.render(concat!("buddy ", env!("CARGO_PKG_VERSION"))))?;
        }
        match &self.json {
            Some(path) => output::write(path, &Record::new(found).to_json()),
            None => Ok(()),
        }
    }
}

fn print(found: &Correlation) -> Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{}", table(found).to_text())?;
    writeln!(out, "\nworst:")?;
    for row in found.worst(10) {
        writeln!(out, "  {:<32} {:.3} of the card's time", row.name, row.ratio())?;
    }
    writeln!(out)?;
    summary(found).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(())
}

/// Returns the model whose name is part of `card`, longest names first (GH200 contains H200).
fn known(card: &str) -> Option<String> {
    let card = card.to_lowercase().replace(' ', "-");
    let mut names: Vec<&str> = spec::Gpu::names().collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.into_iter().find(|name| card.contains(name)).map(str::to_owned)
}
