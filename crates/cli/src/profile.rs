//! `buddy profile`: from snapshots to targets.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use buddy_codec::CodecKind;
use buddy_core::{
    Dtype, Policy, Profile, Record, RunRecord, read_text,
    spec::{Gpu, Link},
};
use buddy_profile::{
    CodecChoice, DEFAULT_THRESHOLD, Measured, PlanRequest, Settings, Tried, check_threshold, profile,
    read_accesses, verify, write_targets,
};
use buddy_report::{profile_page, profile_text};
use buddy_scenario::{Scale, parse_scale};
use buddy_snapshot::{Pattern, Run};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use crate::{machine, output, progress::Bar, watch::Watching};

/// Choose targets for every allocation of a program from snapshots of its memory
///
/// Reads a run, which is a directory of snapshots, or its record without the bytes (docs/snapshots.md). Says how the
/// memory compresses over time, what each policy makes of it, and which targets to use. A target must leave no more
/// than the threshold's share of an allocation's entries to buddy memory in every snapshot, so a program that begins
/// as zeros gets what its end allows.
///
/// With a device memory it plans to fit: of all codecs and targets that fit, those that lose the least predicted time
/// to the link, from counts of accesses where they are given and from one pass over everything where they are not.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProfileVerb {
    /// A run's directory, or the record of a run
    #[arg(value_name = "RUN", required_unless_present = "program", conflicts_with = "program")]
    path: Option<PathBuf>,

    /// A CUDA program and its arguments, after `--`: it runs, is watched, and is profiled when it has ended
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,

    #[command(flatten)]
    watching: Watching,

    /// How the names of dumps are read, such as '{name}_{step}.dat' or 'step_{step}/{name}.raw'
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<String>,

    /// Element type of dumps that do not say it, such as f64
    #[arg(long)]
    dtype: Option<Dtype>,

    /// Share of an allocation's entries that may overflow to buddy memory, above 0 and below 1
    #[arg(long, default_value_t = DEFAULT_THRESHOLD, allow_negative_numbers = true)]
    threshold: f64,

    /// How targets are chosen: one for the program, one for each allocation, the same with 16x for what stays
    /// mostly zero, or one for each of a few ranges of pages
    #[arg(long, default_value = "allocation-16x", value_parser = policy_parser())]
    policy: Policy,

    /// Codec of the chosen targets: any name that `buddy inspect` takes, or `auto`, the best for each allocation
    #[arg(long, value_name = "NAME", default_value = "bpc", hide_possible_values = true, value_parser = codec_parser())]
    codec: String,

    /// Codecs to measure: names, `auto`, or `all` to compare every one
    #[arg(long, value_name = "LIST", default_value = "bpc,auto", hide_possible_values = true, value_delimiter = ',', value_parser = codecs_parser())]
    codecs: Vec<String>,

    /// Plan to fit this much device memory, such as 12GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    device_memory: Option<u64>,

    #[arg(long, value_name = "GPU", default_value = "h200", requires = "device_memory", help = machine::gpu_help("GPU of the plan"))]
    spec: String,

    #[arg(long, value_name = "LINK", default_value = "pcie5", requires = "device_memory", help = machine::link_help("Link of the plan"))]
    link: String,

    /// JSON object from allocation to how many of its entries are accessed in all, for the plan; a program that runs is
    /// counted instead
    #[arg(long, value_name = "PATH", requires = "device_memory", conflicts_with = "program")]
    accesses: Option<PathBuf>,

    /// Load this snapshot (the last) into a working memory with the chosen targets and compare
    #[arg(long, value_name = "SNAPSHOT", num_args = 0..=1, require_equals = true)]
    verify: Option<Option<usize>>,

    /// Keep the record of a program that runs here
    #[arg(long, value_name = "PATH", requires = "program")]
    record: Option<PathBuf>,

    /// Write the targets here, as TOML that a person can edit
    #[arg(long, value_name = "PATH")]
    targets: Option<PathBuf>,

    /// Write the record of the profile here
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,

    /// Write a page with figures and heat maps here; it is one file and needs no network
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  Targets for a program, with a page to look at:
    buddy profile examples/run --targets targets.toml --html profile.html

  The best codec for each allocation and targets by page, checked in a working memory:
    buddy profile examples/run --codec auto --policy page --verify

  A program as it runs, with nothing written before:
    buddy profile --html profile.html -- ./my_program its arguments

  What fits 12 GiB of an H200 and loses the least time to PCIe 5:
    buddy profile run.json --device-memory 12GiB --spec h200 --link pcie5";

fn policy_parser() -> impl TypedValueParser<Value = Policy> {
    let names = Policy::ALL.into_iter().filter(|policy| *policy != Policy::Plan).map(Policy::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Policy>())
}

fn codec_parser() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(CodecKind::ALL.map(CodecKind::name).into_iter().chain(["auto"]))
}

fn codecs_parser() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(CodecKind::ALL.map(CodecKind::name).into_iter().chain(["auto", "all"]))
}

fn parse_size(text: &str) -> Result<u64, String> {
    match parse_scale(text) {
        Ok(Scale::Bytes(bytes)) => Ok(bytes),
        _ => Err("give a size, such as 12GiB".to_owned()),
    }
}

/// The run as it was given.
enum Source {
    Snapshots(Run),
    Record(RunRecord),
}

impl ProfileVerb {
    /// Does the verb's job.
    pub(crate) fn run(self) -> Result<u8> {
        check_threshold(self.threshold).context("--threshold")?;
        let machine = self.device_memory.map(|memory| self.machine(memory)).transpose()?;
        self.check_outputs()?;
        let (source, accesses, code) = self.open()?;
        let Some(source) = source else { return Ok(code) };
        self.profile(&source, machine, accesses)?;
        Ok(code)
    }

    /// Whether a program runs first.
    pub(crate) fn runs_a_program(&self) -> bool {
        !self.program.is_empty()
    }

    /// The run, counts of accesses where they are known, and the program's exit code. A program that was not seen has
    /// no run.
    fn open(&self) -> Result<(Option<Source>, Option<String>, u8)> {
        let Some(path) = &self.path else {
            let watched = self.watching.run(&self.program, self.device_memory.is_some())?;
            let Some((record, accesses)) = watched.largest() else { return Ok((None, None, watched.code)) };
            if let Some(path) = &self.record {
                output::write(path, &record.to_json())?;
            }
            return Ok((Some(Source::Record(record.data)), accesses, watched.code));
        };
        let accesses = self.accesses.as_ref();
        let accesses = accesses.map(|path| read_text(path).with_context(|| path.display().to_string()));
        Ok((Some(self.given(path)?), accesses.transpose()?, 0))
    }

    /// The run that a path names.
    fn given(&self, path: &Path) -> Result<Source> {
        let pattern = self.pattern.as_deref().map(str::parse).transpose().context("--pattern")?;
        Source::open(path, pattern.as_ref(), self.dtype)
    }

    fn profile(&self, source: &Source, machine: Option<PlanRequest>, accesses: Option<String>) -> Result<()> {
        let measured = self.measure(source)?;
        let plan = machine.map(|machine| self.with_accesses(machine, accesses, &measured)).transpose()?;
        let spec = self.spec(plan.as_ref());
        let settings =
            Settings { threshold: self.threshold, policy: self.policy, codec: self.codec_choice()?, plan };
        let (mut found, chosen) = profile(&measured, &settings)?;
        if let (Some(snapshot), Source::Snapshots(run)) = (self.verify, source) {
            let last = run.info().snapshots.len() - 1;
            let bar = Bar::new(run.info().bytes());
            let rows = &found.targets.allocations;
            let snapshot = snapshot.unwrap_or(last);
            let verified = verify(run, snapshot, &measured, &chosen, rows, &|read| bar.add(read))?;
            bar.finish();
            found.verified = Some(verified);
        }
        let mut record = Record::new(found);
        record.spec = spec;
        self.write(&record)?;
        io::stdout().write_all(profile_text(&record.data).as_bytes()).context("cannot write to stdout")
    }

    fn machine(&self, device_memory: u64) -> Result<PlanRequest> {
        let (gpu, link) = (Gpu::named(&self.spec)?, Link::named(&self.link)?);
        if device_memory > gpu.dram.capacity_bytes {
            bail!("--device-memory {device_memory}: {} has {} bytes", gpu.name, gpu.dram.capacity_bytes);
        }
        Ok(PlanRequest { device_memory, gpu, link, accesses: None })
    }

    fn with_accesses(
        &self,
        plan: PlanRequest,
        accesses: Option<String>,
        measured: &Measured,
    ) -> Result<PlanRequest> {
        let Some(text) = accesses else { return Ok(plan) };
        let name =
            self.accesses.as_ref().map_or_else(|| "accesses".to_owned(), |path| path.display().to_string());
        Ok(PlanRequest { accesses: Some(read_accesses(&name, &text, &measured.run)?), ..plan })
    }

    /// Everything that was configured.
    fn spec(&self, plan: Option<&PlanRequest>) -> serde_json::Value {
        let plan = plan.map(|plan| {
            serde_json::json!({
                "device_memory": plan.device_memory, "spec": plan.gpu.name, "link": plan.link.name,
                "accesses": plan.accesses,
            })
        });
        serde_json::json!({
            "threshold": self.threshold, "policy": self.policy, "codec": self.codec, "codecs": self.codecs, "plan": plan,
        })
    }

    fn codec_choice(&self) -> Result<CodecChoice> {
        match self.codec.as_str() {
            "auto" => Ok(CodecChoice::Auto),
            name => Ok(CodecChoice::Fixed(name.parse()?)),
        }
    }

    /// The paper's codec first, then those asked for.
    fn tried(&self) -> Tried {
        let asked = |name: &str| self.codecs.iter().chain([&self.codec]).any(|codec| codec == name);
        let wanted = |kind: &CodecKind| *kind == CodecKind::Bpc || asked("all") || asked(kind.name());
        let kinds = CodecKind::ALL.into_iter().filter(wanted).collect();
        Tried { kinds, auto: asked("auto"), threshold: self.threshold }
    }

    fn measure(&self, source: &Source) -> Result<Measured> {
        let tried = self.tried();
        match source {
            Source::Snapshots(run) => {
                let info = run.info();
                if let Some(Some(snapshot)) =
                    self.verify.filter(|s| s.is_some_and(|s| s >= info.snapshots.len()))
                {
                    bail!("--verify {snapshot}: the run has {} snapshots, from 0", info.snapshots.len());
                }
                let bar = Bar::new(info.bytes().saturating_mul(info.snapshots.len() as u64));
                let measured = Measured::from_run(run, &tried, &|read| bar.add(read));
                bar.finish();
                Ok(measured?)
            }
            Source::Record(_) if self.verify.is_some() => {
                bail!("--verify needs the snapshots; {} is a record without them", self.name())
            }
            Source::Record(record) => {
                // A record keeps the codecs that may be the best choice; those it must have are the two that count.
                let kinds = tried
                    .kinds
                    .iter()
                    .copied()
                    .filter(|kind| [CodecKind::Bpc.name(), &self.codec].contains(&kind.name()));
                let tried = Tried { kinds: kinds.collect(), ..tried };
                Measured::from_record(record, &tried).with_context(|| self.name())
            }
        }
    }

    /// What is profiled, in messages.
    fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "a watched program".to_owned(), |path| path.display().to_string())
    }

    fn check_outputs(&self) -> Result<()> {
        let mut inputs: Vec<PathBuf> = self.path.iter().chain(&self.accesses).cloned().collect();
        if let Some(path) = self.path.as_ref().filter(|path| path.is_dir()) {
            inputs.extend(files_below(path));
        }
        let outputs = [
            ("--targets", &self.targets),
            ("--json", &self.json),
            ("--html", &self.html),
            ("--record", &self.record),
        ];
        output::check(&outputs.map(|(option, path)| (option, path.as_ref())), &inputs)
    }

    fn write(&self, record: &Record<Profile>) -> Result<()> {
        if let Some(path) = &self.targets {
            output::write(path, &targets_text(record))?;
        }
        if let Some(path) = &self.json {
            output::write(path, &record.to_json())?;
        }
        if let Some(path) = &self.html {
            output::write(path, &profile_page(record))?;
        }
        Ok(())
    }
}

impl Source {
    fn open(path: &Path, pattern: Option<&Pattern>, dtype: Option<Dtype>) -> Result<Self> {
        if path.is_dir() {
            let run = Run::open_dumps(path, pattern, dtype)?;
            if let Some(note) = run.note() {
                eprintln!("{}: dumps read as {note}", path.display());
            }
            return Ok(Self::Snapshots(run));
        }
        let name = || path.display().to_string();
        let text = match read_text(path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(anyhow!("neither a run's directory nor a record")).with_context(name);
            }
            text => text.with_context(name)?,
        };
        Ok(Self::Record(Record::from_json(&text).with_context(name)?.data))
    }
}

/// The files of a run, two levels deep.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let list = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let (dirs, mut files): (Vec<PathBuf>, Vec<PathBuf>) =
        list(dir).into_iter().partition(|path| path.is_dir());
    files.extend(dirs.iter().flat_map(|dir| list(dir)));
    files
}

/// The file of targets, with what each of them costs.
fn targets_text(record: &Record<Profile>) -> String {
    let profile = &record.data;
    let about = format!(
        "Targets for {}, made by {} from {} snapshots: policy {}, codec {}, threshold {:.1}%.\n",
        profile.run.program,
        record.tool,
        profile.run.snapshots.len(),
        profile.policy,
        profile.codec,
        profile.threshold * 100.0
    );
    let note = |index: usize| {
        let found = &profile.allocations[index];
        let entries = profile.run.allocations[index].entries().max(1) as f64;
        let worst = found.overflowing.iter().max().copied().unwrap_or(0) as f64 / entries;
        let mean =
            found.overflowing.iter().sum::<u64>() as f64 / entries / found.overflowing.len().max(1) as f64;
        let learned = if found.learned.is_empty() { String::new() } else { format!("; {}", found.learned) };
        format!("{:.2}% of its entries overflow, {:.2}% at worst{learned}", mean * 100.0, worst * 100.0)
    };
    write_targets(&profile.targets, &about, note)
}
