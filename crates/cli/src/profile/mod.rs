//! `buddy profile`: targets from snapshots.

mod files;
mod source;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use buddy_codec::CodecKind;
use buddy_core::{Dtype, parse_share, read_text};
use buddy_profile::{
    CodecChoice, DEFAULT_THRESHOLD, LinkLimit, Measured, PlanRequest, Settings, Tried, best_policy,
    check_threshold, profile, read_accesses, verify,
};
use buddy_record::{
    Policy, Profile, Record,
    spec::{Gpu, Link},
};
use buddy_report::{View, bytes, profile_csv, profile_page, profile_text};
use buddy_scenario::{Scale, parse_scale};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use self::{
    files::{files_below, targets_text, warn_without_kernels},
    source::{Reading, Source},
};
use crate::{
    display::DisplayOptions,
    machine,
    output::{self, is_stdout},
    progress::Bar,
    watch::Watching,
};

/// Choose a compression target for every allocation of a program, from snapshots of its memory
///
/// The input is a run: a folder of snapshots or dumps over time, a model's folder, a file of
/// arrays, or the record of a run without its bytes (docs/reference/snapshots.md). The name of a
/// built-in program works too: a network (resnet50), whose training was recorded, or a workload
/// (cg), which runs first.
///
/// Prints how the memory compresses over time, the result of each policy, and the targets that need
/// the least device memory while no allocation is predicted to run slower than --max-slowdown over
/// the link. The other policies keep the share of an allocation's entries that overflow to buddy
/// memory within the threshold (by page: the share of the program's entries). Both hold in every
/// snapshot, so a program that starts with zeroed memory gets targets that suit its end.
///
/// With --device-memory it plans to fit: among all codecs and targets that fit, it chooses those
/// with the least predicted time on the link. Access counts come from --accesses; without them,
/// every entry counts as accessed once.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProfileVerb {
    /// A run's folder or record, a model's folder, a file of arrays, - for stdin, or the name of a
    /// network or workload
    #[arg(value_name = "RUN", required_unless_present = "program", conflicts_with = "program")]
    path: Option<PathBuf>,

    /// A CUDA program and its arguments, after `--`: runs it, records its memory and profiles the
    /// record
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,

    /// Pattern of the names of dumps, such as '{name}_{step}.dat' or 'step_{step}/{name}.raw'
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<String>,

    /// Element type of dumps without one, such as f64
    #[arg(long)]
    dtype: Option<Dtype>,

    /// Footprint of a workload given by name: a share of the paper's (0.25, 25%) or a size (16MB,
    /// 1GiB)
    #[arg(long, value_name = "SCALE", default_value = "16MB", value_parser = parse_scale)]
    scale: Scale,

    /// Share of an allocation's entries (by page: of the program's) that may overflow to buddy
    /// memory, 0 to 1 or 0% to 100% [default: 30%]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, value_parser = share)]
    threshold: Option<f64>,

    /// Largest predicted slowdown of any allocation: 0.05 or 5% is 5% more time [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = slowdown)]
    max_slowdown: Option<f64>,

    /// Choice of targets: one for the program, one per allocation, the same with 16x for
    /// mostly-zero allocations, or one per range of pages; `best` is the one of the last three that
    /// saves the most, and `link` is one per range of pages within --max-slowdown [default: link;
    /// with only --threshold, best]
    #[arg(long, value_parser = policy_parser())]
    policy: Option<PolicyChoice>,

    /// Codec of the chosen targets: any name that `buddy inspect` accepts, or `auto` for the best
    /// one per allocation that memory on a GPU can use [default: auto if --codecs has it]
    #[arg(long, value_name = "NAME", hide_possible_values = true, value_parser = codec_parser())]
    codec: Option<String>,

    /// Codecs to measure: names, `auto`, or `all`
    #[arg(long, value_name = "LIST", default_value = "bpc,auto", hide_possible_values = true, value_delimiter = ',', value_parser = codecs_parser())]
    codecs: Vec<String>,

    /// Plan to fit this much device memory, such as 12GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    device_memory: Option<u64>,

    #[arg(long, value_name = "GPU", default_value = "h200", help = machine::gpu_help("GPU of the prediction"))]
    spec: String,

    #[arg(long, value_name = "LINK", default_value = "pcie5", help = machine::link_help("Link of the prediction"))]
    link: String,

    /// JSON object with the number of accessed entries of each allocation, for predictions; a
    /// PROGRAM's accesses are counted while it runs
    #[arg(long, value_name = "PATH", conflicts_with = "program")]
    accesses: Option<PathBuf>,

    /// Load this snapshot (by default the last) into a working memory with the chosen targets and
    /// compare sizes
    #[arg(long, value_name = "SNAPSHOT", num_args = 0..=1, require_equals = true)]
    verify: Option<Option<usize>>,

    /// Write the record of the PROGRAM's memory to PATH
    #[arg(long, value_name = "PATH", requires = "program")]
    record: Option<PathBuf>,

    /// Write the targets to PATH as editable TOML; - writes them to stdout instead of the tables
    #[arg(long, value_name = "PATH")]
    targets: Option<PathBuf>,

    /// Write the profile as a record to PATH; - is stdout
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,

    /// Write one line per allocation to PATH as comma-separated values; - is stdout
    #[arg(long, value_name = "PATH")]
    csv: Option<PathBuf>,

    /// Write a self-contained HTML page with charts and heat maps to PATH
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,

    #[command(flatten)]
    display: DisplayOptions,

    #[command(flatten)]
    watching: Watching,
}

const EXAMPLES: &str = "\
Examples:
  A built-in network and a built-in workload:
    buddy profile resnet50
    buddy profile cg --html cg.html

  A model, and dumps of a simulation over time (hydro_00000.h5, hydro_00100.h5, ...):
    buddy profile Llama-3.1-8B/ --sort saved --top 10
    buddy profile output/ --targets targets.toml --csv targets.csv

  For a GPU with NVLink-C2C, and for a program that may run a tenth slower:
    buddy profile output/ --spec gh200 --link c2c --max-slowdown 10%

  The paper's design, checked in a working memory:
    buddy profile output/ --policy allocation-16x --codec bpc --verify

  A CUDA program, while it runs:
    buddy profile --html profile.html -- ./my_program arg1 arg2

  A plan for 12 GiB of an H200 that loses the least time on PCIe 5:
    buddy profile run.json --device-memory 12GiB --spec h200 --link pcie5";

/// Default of `--max-slowdown`.
const MAX_SLOWDOWN: f64 = 0.05;

/// A policy; `None` chooses the best by the threshold.
#[derive(Clone, Copy)]
struct PolicyChoice(Option<Policy>);

fn policy_parser() -> impl TypedValueParser<Value = PolicyChoice> {
    let names = Policy::BY_THRESHOLD.into_iter().chain([Policy::Link]).map(Policy::name);
    PossibleValuesParser::new(["best"].into_iter().chain(names))
        .map(|name| PolicyChoice(name.parse::<Policy>().ok()))
}

fn share(text: &str) -> Result<f64, String> {
    parse_share(text).ok_or_else(|| "give a share, such as 0.05 or 5%".to_owned())
}

fn slowdown(text: &str) -> Result<f64, String> {
    let share = parse_share(text).filter(|share| *share >= 0.0 && share.is_finite());
    share.ok_or_else(|| "give the additional time as a share, such as 0.05 or 5%".to_owned())
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

/// Plans for a device memory on the machine of the predictions.
fn plan_for(device_memory: u64, limit: &LinkLimit) -> Result<PlanRequest> {
    let (gpu, link) = (limit.gpu.clone(), limit.link.clone());
    if device_memory > gpu.dram.capacity_bytes {
        let [asked, has] = [device_memory, gpu.dram.capacity_bytes].map(bytes);
        bail!("--device-memory {asked}: {} has {has}", gpu.name);
    }
    Ok(PlanRequest { device_memory, gpu, link, accesses: None })
}

impl ProfileVerb {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<u8> {
        check_threshold(self.threshold()).context("--threshold")?;
        let limit = self.limit()?;
        let machine = self.device_memory.map(|memory| plan_for(memory, &limit)).transpose()?;
        self.check_outputs()?;
        let (source, accesses, code) = self.open()?;
        let Some(source) = source else {
            if code == 0 {
                bail!("there is nothing to profile, so nothing was written; the program itself succeeded");
            }
            return Ok(code);
        };
        self.profile(&source, limit, machine, accesses)?;
        Ok(code)
    }

    /// Returns whether the verb runs a program first.
    pub(crate) fn runs_a_program(&self) -> bool {
        !self.program.is_empty()
    }

    /// Returns the run, its access counts if known, and the program's exit code. The run is `None`
    /// if the program was not observed.
    fn open(&self) -> Result<(Option<Source>, Option<String>, u8)> {
        let Some(path) = &self.path else {
            let watched = self.watching.run(&self.program, self.device_memory.is_some())?;
            let Some((record, accesses)) = watched.largest() else { return Ok((None, None, watched.code)) };
            if let Some(path) = &self.record {
                output::write(path, &record.to_json())?;
            }
            return Ok((Some(Source::Record(Box::new(record.data))), accesses, watched.code));
        };
        let accesses = self.accesses.as_ref();
        let accesses = accesses.map(|path| read_text(path).with_context(|| path.display().to_string()));
        Ok((Some(self.given(path)?), accesses.transpose()?, 0))
    }

    /// Opens the run at `path`.
    fn given(&self, path: &Path) -> Result<Source> {
        let pattern = self.pattern.as_deref().map(str::parse).transpose().context("--pattern")?;
        Source::open(path, &Reading { pattern: pattern.as_ref(), dtype: self.dtype, scale: self.scale })
    }

    fn threshold(&self) -> f64 {
        self.threshold.unwrap_or(DEFAULT_THRESHOLD)
    }

    /// Returns the machine of the predictions, without access counts.
    fn limit(&self) -> Result<LinkLimit> {
        let (gpu, link) = (Gpu::named(&self.spec)?, Link::named(&self.link)?);
        let max_slowdown = self.max_slowdown.unwrap_or(MAX_SLOWDOWN);
        Ok(LinkLimit { gpu, link, max_slowdown, accesses: None })
    }

    /// Returns the policy: by the link, unless only a threshold is given.
    fn policy(&self, measured: &Measured, codec: CodecChoice) -> Result<Policy> {
        let by_threshold = self.threshold.is_some() && self.max_slowdown.is_none();
        let usual = PolicyChoice((!by_threshold).then_some(Policy::Link));
        let best = || best_policy(measured, self.threshold(), codec);
        Ok(self.policy.unwrap_or(usual).0.map_or_else(best, Ok)?)
    }

    fn profile(
        &self,
        source: &Source,
        mut limit: LinkLimit,
        mut plan: Option<PlanRequest>,
        accesses: Option<String>,
    ) -> Result<()> {
        let measured = self.measure(source)?;
        let names = measured.run.allocations.iter().map(|info| info.name.as_str());
        if let Some(filter_error) = self.display.filter_error(names) {
            bail!(filter_error);
        }
        limit.accesses = accesses.map(|text| self.counts(&text, &measured)).transpose()?;
        if let Some(plan) = &mut plan {
            plan.accesses.clone_from(&limit.accesses);
        }
        let (threshold, codec) = (self.threshold(), self.codec_choice()?);
        let policy = self.policy(&measured, codec)?;
        let spec = self.settings(policy, &limit, plan.as_ref());
        let settings = Settings { threshold, policy, codec, plan, link: Some(limit) };
        let (mut found, chosen) = profile(&measured, &settings)?;
        if let (Some(snapshot), Some(run)) = (self.verify, source.snapshots()) {
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
        self.write(&record)
    }

    /// Parses the access counts of every allocation.
    fn counts(&self, text: &str, measured: &Measured) -> Result<Vec<u64>> {
        let name =
            self.accesses.as_ref().map_or_else(|| "accesses".to_owned(), |path| path.display().to_string());
        Ok(read_accesses(&name, text, &measured.run)?)
    }

    /// Returns the settings for the record.
    fn settings(&self, policy: Policy, limit: &LinkLimit, plan: Option<&PlanRequest>) -> serde_json::Value {
        let plan = plan.map(|plan| {
            serde_json::json!({
                "device_memory": plan.device_memory, "spec": plan.gpu.name, "link": plan.link.name,
                "accesses": plan.accesses,
            })
        });
        serde_json::json!({
            "threshold": self.threshold(), "policy": policy, "codec": self.codec(), "codecs": self.codecs, "plan": plan,
            "spec": limit.gpu.name, "link": limit.link.name, "max_slowdown": limit.max_slowdown, "accesses": limit.accesses,
        })
    }

    /// Returns the codec of the targets: --codec, else auto if it is measured, else the first
    /// measured.
    fn codec(&self) -> &str {
        let auto = self.codecs.iter().any(|name| name == "auto" || name == "all");
        let first = self.codecs.first().map_or("auto", String::as_str);
        self.codec.as_deref().unwrap_or(if auto { "auto" } else { first })
    }

    fn codec_choice(&self) -> Result<CodecChoice> {
        match self.codec() {
            "auto" => Ok(CodecChoice::Auto),
            name => Ok(CodecChoice::Fixed(name.parse()?)),
        }
    }

    /// Returns the codecs to measure: the paper's first, then the requested ones.
    fn tried(&self) -> Tried {
        let asked = |name: &str| self.codec() == name || self.codecs.iter().any(|codec| codec == name);
        let wanted = |kind: &CodecKind| *kind == CodecKind::Bpc || asked("all") || asked(kind.name());
        let kinds = CodecKind::ALL.into_iter().filter(wanted).collect();
        Tried { kinds, auto: asked("auto"), threshold: self.threshold() }
    }

    fn measure(&self, source: &Source) -> Result<Measured> {
        self.check_verify(source)?;
        let mut tried = self.tried();
        if let Source::Record(_) = source {
            // A record keeps only the codecs that may be the best; require just the two that
            // matter.
            tried.kinds.retain(|kind| [CodecKind::Bpc.name(), self.codec()].contains(&kind.name()));
            return source.measure(&tried).with_context(|| self.name());
        }
        source.measure(&tried)
    }

    fn check_verify(&self, source: &Source) -> Result<()> {
        let Some(asked) = self.verify else { return Ok(()) };
        let Some(run) = source.snapshots() else {
            bail!("--verify needs snapshots; {} has none of their bytes", self.name());
        };
        let snapshots = run.info().snapshots.len();
        match asked {
            Some(snapshot) if snapshot >= snapshots => {
                bail!("--verify {snapshot}: the run has {snapshots} snapshots, counted from 0")
            }
            _ => Ok(()),
        }
    }

    /// Returns the name of the run for messages.
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
            ("--csv", &self.csv),
            ("--html", &self.html),
            ("--record", &self.record),
        ];
        output::check(&outputs.map(|(option, path)| (option, path.as_ref())), &inputs)
    }

    fn write(&self, record: &Record<Profile>) -> Result<()> {
        let codecs = self.codecs.iter().any(|name| !["bpc", "auto"].contains(&name.as_str()));
        let view = View { codecs, ..self.display.view() };
        if let Some(path) = &self.targets {
            output::write(path, &targets_text(record))?;
            warn_without_kernels(&record.data);
        }
        if let Some(path) = &self.json {
            output::write(path, &record.to_json())?;
        }
        if let Some(path) = &self.csv {
            output::write(path, &profile_csv(&record.data, &view))?;
        }
        if let Some(path) = &self.html {
            output::write(path, &profile_page(record))?;
        }
        let outputs = [&self.targets, &self.json, &self.csv, &self.html];
        match outputs.into_iter().flatten().any(|path| is_stdout(path)) {
            true => Ok(()),
            false => output::print(&profile_text(&record.data, &view)),
        }
    }
}
