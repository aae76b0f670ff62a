//! `buddy reproduce`: every figure and table of the paper.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    sync::atomic::Ordering,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use buddy_report::summary_table_text;
use buddy_snapshot::Claim;
use buddy_study::{Progress, Request, Settings, Watch, docs, output, reproduce};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{FINISHES, INTERRUPTED, say};

/// Make every figure and table of the paper, ours beside the paper's, as records and one page
///
/// Runs the ten HPC programs and measures their memory, takes the deep-learning runs from their records, simulates, and
/// draws. The page is DIR/index.html; every figure is also a record in DIR/records and a picture in DIR/figures.
///
/// Finished work is kept: after an interruption the same command goes on where it was. Ctrl-C ends with a page of what
/// is done.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reproduce {
    /// Everything at a tiny scale, in less than two minutes
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// The paper's footprints; takes hours
    #[arg(long)]
    full: bool,

    /// Only this figure or table; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Where everything is written
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Write the tables and pictures that the pages of this directory ask for
    #[arg(long, value_name = "DIR", conflicts_with_all = ["quick", "full"])]
    docs: Option<PathBuf>,

    /// Take the recorded training runs from here instead of those that are built in
    #[arg(long, value_name = "DIR")]
    recorded: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  A first look, in less than two minutes:
    buddy reproduce --quick --out out

  What the README shows, in less than 45 minutes on two cores:
    buddy reproduce --out out

  Two figures:
    buddy reproduce --only fig7 --only fig9 --out out";

impl Reproduce {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<()> {
        let settings = match (self.quick, self.full) {
            (true, _) => Settings::QUICK,
            (_, true) => Settings::FULL,
            _ => Settings::DEFAULT,
        };
        FINISHES.store(true, Ordering::Relaxed);
        fs::create_dir_all(&self.out).with_context(|| format!("cannot make {}", self.out.display()))?;
        let _claim = Claim::new(&self.out)?;
        let request =
            Request { settings, only: self.only, records: self.out.join("records"), recorded: self.recorded };
        let bar = Bar::new();
        let done = reproduce(&request, &bar);
        bar.bar.finish_and_clear();
        let done = done?;
        output::write(&self.out, &settings, &done)?;
        if let Some(dir) = self.docs.filter(|_| !done.interrupted) {
            docs::write(&dir, &done.figures)?;
        }
        print(&summary_table_text(&done.figures))?;
        let page = self.out.join("index.html");
        let figures = done.figures.len();
        say(format_args!("{figures} figure{} in {}", if figures == 1 { "" } else { "s" }, page.display()));
        if done.interrupted {
            bail!("interrupted: the page says what is missing; the same command goes on");
        }
        Ok(())
    }
}

fn print(text: &str) -> Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")
}

/// Progress on stderr with the time left: a bar on a terminal, lines elsewhere.
struct Bar {
    bar: ProgressBar,
    begin: Instant,
}

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::new(1000);
        let style = ProgressStyle::with_template("{bar:32} {percent}%, {msg}");
        bar.set_style(style.expect("the template is right"));
        Self { bar, begin: Instant::now() }
    }

    /// The time left if it goes on as before; nothing before there is anything to go by.
    fn left(&self, progress: &Progress<'_>) -> Option<u64> {
        let passed = self.begin.elapsed().as_secs_f64();
        let known = progress.new > 0.0 && passed > 2.0;
        known.then(|| (passed * (progress.all - progress.done) / progress.new) as u64)
    }
}

impl Watch for Bar {
    fn goes_on(&self) -> bool {
        !INTERRUPTED.load(Ordering::Relaxed)
    }

    fn progress(&self, progress: &Progress<'_>) {
        let left = self.left(progress).map(|left| format!(", {} left", time(left))).unwrap_or_default();
        let text = format!("{}{left}", progress.what);
        self.bar.set_position((1000.0 * progress.done / progress.all.max(1e-9)) as u64);
        self.bar.set_message(text.clone());
        if self.bar.is_hidden() {
            say(format_args!("{:3.0}% {text}", 100.0 * progress.done / progress.all.max(1e-9)));
        }
    }
}

fn time(seconds: u64) -> String {
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}
