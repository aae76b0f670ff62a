//! The program to run, its size, and the parts of its memory to use.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use buddy_codec::CodecKind;
use buddy_core::{digest, parse_share};
use buddy_dl::Network;
use buddy_record::RunRecord;
use buddy_trace::{Item, accel, is_kernel};
use buddy_workloads::{Info, SNAPSHOTS};
use serde_json::{Value, json};

use crate::{
    Error, Scale, Source, Stage, parse_mib, parse_scale,
    recorded::{recorded_run, recorded_text},
};

/// Simulated warp instructions per second and core, for networks and traces.
const INSTRUCTIONS_PER_SECOND: f64 = 12e6;
/// Core seconds per megabyte of a generated program.
const GENERATED_SECONDS_PER_MB: f64 = 0.02;
/// Approximate bytes per warp instruction in a text trace.
const TRACE_BYTES_PER_INSTRUCTION: f64 = 60.0;

/// The program side of a simulation. Settings that do not concern the program, such as a workload's
/// batch size, are ignored.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// A workload, a network, a generated program, or the path of a trace.
    pub program: String,
    /// Footprint of a workload.
    pub scale: Scale,
    /// Seed of a workload's random numbers.
    pub seed: u64,
    /// Snapshot of a workload's run; `None` for the typical one.
    pub snapshot: Option<usize>,
    /// Codec of a workload's or network's memory.
    pub codec: CodecKind,
    /// Batch size of a network.
    pub batch: u64,
    /// Share of a network's iteration to simulate, above 0 to 1.
    pub sample: f64,
    /// Memory of a generated program in MiB.
    pub size: u64,
    /// Shares of zero, b8, s1, s2, s3 and raw entries in the memory of traces and generated
    /// programs.
    pub shares: [f64; 6],
    /// Folder of the networks' records; `None` for the built-in ones.
    pub recorded: Option<PathBuf>,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            program: String::new(),
            scale: Scale::Bytes(16_000_000),
            seed: 1,
            snapshot: None,
            codec: CodecKind::Bpc,
            batch: 32,
            sample: 0.01,
            size: 64,
            shares: [0.0, 0.0, 0.3, 0.6, 0.0, 0.1],
            recorded: None,
        }
    }
}

impl Input {
    /// Names of the settings that [`set`](Self::set) accepts.
    pub const KEYS: [&str; 9] =
        ["program", "scale", "seed", "snapshot", "codec", "batch", "sample", "size", "shares"];

    /// Changes one setting by name; `None` for an unknown name.
    pub fn set(&mut self, key: &str, value: &str) -> Option<Result<(), String>> {
        Some(self.try_set(key, value)?.map_err(|why| format!("{key}: {why}")))
    }

    fn try_set(&mut self, key: &str, value: &str) -> Option<Result<(), String>> {
        let set = match key {
            "program" | "network" | "trace" => {
                self.program = value.to_owned();
                Ok(())
            }
            "scale" => parse_scale(value).map(|scale| self.scale = scale),
            "seed" => whole(value, 0, u64::MAX).map(|seed| self.seed = seed),
            "snapshot" => whole(value, 0, SNAPSHOTS - 1).map(|index| self.snapshot = Some(index as usize)),
            "codec" => value
                .parse()
                .map(|codec| self.codec = codec)
                .map_err(|error: buddy_codec::Error| error.to_string()),
            "batch" => whole(value, 1, 4096).map(|batch| self.batch = batch),
            "sample" => parse_sample(value).map(|sample| self.sample = sample),
            "size" => parse_mib(value).map(|size| self.size = size),
            "shares" => parse_shares(value).map(|shares| self.shares = shares),
            _ => return None,
        };
        Some(set)
    }

    /// Returns all settings that decide the result, with files as digests of their contents.
    ///
    /// # Errors
    /// An unknown program, an impossible footprint, or an unreadable file.
    pub fn spec(&self) -> Result<Value, Error> {
        let (program, codec) = (&self.program, self.codec.name());
        Ok(match Source::find(program)? {
            Source::Workload(info) => json!({
                "program": program, "bytes": self.scale.bytes(info)?, "seed": self.seed, "codec": codec,
                "snapshot": self.snapshot,
            }),
            Source::Network(_) => {
                let dir = self.recorded.as_deref();
                let text = || Ok(recorded_text(dir, program)?.unwrap_or_default().into_owned().into_bytes());
                let record = remembered(dir.unwrap_or(Path::new("")).join(program), text)?;
                json!({
                    "program": program, "batch": self.batch, "sample": self.sample, "codec": codec, "record": record,
                })
            }
            Source::Generated(_) => json!({ "program": program, "mib": self.size, "shares": self.shares }),
            Source::Trace(path) => json!({ "trace": trace_digest(&path)?, "shares": self.shares }),
        })
    }

    /// Returns the settings that decide the memory of a workload's run, which many simulations
    /// share; `None` for programs that are not run first.
    ///
    /// # Errors
    /// As [`spec`](Self::spec).
    pub fn run_spec(&self) -> Result<Option<Value>, Error> {
        let Source::Workload(info) = Source::find(&self.program)? else { return Ok(None) };
        let bytes = self.scale.bytes(info)?;
        Ok(Some(
            json!({ "program": self.program, "bytes": bytes, "seed": self.seed, "codec": self.codec.name() }),
        ))
    }

    /// Returns the workload and its footprint in bytes; `None` for other programs.
    ///
    /// # Errors
    /// As [`spec`](Self::spec).
    pub fn workload(&self) -> Result<Option<(&'static Info, u64)>, Error> {
        let Source::Workload(info) = Source::find(&self.program)? else { return Ok(None) };
        Ok(Some((info, self.scale.bytes(info)?)))
    }

    /// Prepares the program. A workload needs the record of its run if the mode depends on its
    /// data.
    ///
    /// # Errors
    /// A missing or invalid program, file or record.
    pub fn stage(&self, compressed: bool, run: Option<&RunRecord>) -> Result<Stage, Error> {
        match Source::find(&self.program)? {
            Source::Workload(info) => {
                let application = (info.build)(self.scale.bytes(info)?, self.seed).application();
                match run {
                    Some(run) => Stage::of_run(application, run, self.codec, self.snapshot),
                    None => Ok(Stage::unseen(application)),
                }
            }
            Source::Network(network) => self.iteration(&network, compressed),
            Source::Generated(name) => Ok(Stage::generated(name, self.size << 20, Some(self.shares))),
            Source::Trace(path) => Stage::trace(&path, self.shares),
        }
    }

    fn iteration(&self, network: &Network, compressed: bool) -> Result<Stage, Error> {
        let record = recorded_run(self.recorded.as_deref(), &self.program)?;
        if record.is_none() && compressed {
            let why = format!(
                "--recorded has no {}.json, so the compressibility of its tensors is unknown",
                self.program
            );
            return Err(Error::Setting(why));
        }
        let record = record.filter(|_| compressed);
        Stage::iteration(network, self.batch, self.sample, self.codec, record.as_ref())
    }

    /// Estimates the core seconds of a workload's run; 0 for programs that are not run first.
    pub fn run_seconds(&self) -> f64 {
        let workload = self.workload().ok().flatten();
        workload.map_or(0.0, |(info, bytes)| info.seconds_per_mb * bytes as f64 / 1e6)
    }

    /// Estimates the core seconds of one simulation.
    pub fn seconds(&self) -> f64 {
        match Source::find(&self.program) {
            Ok(Source::Workload(info)) => {
                info.simulated_seconds_per_mb * self.scale.bytes(info).unwrap_or(0) as f64 / 1e6
            }
            Ok(Source::Network(network)) => {
                self.sample * network.warp_instructions(self.batch) as f64 / INSTRUCTIONS_PER_SECOND
            }
            Ok(Source::Generated(_)) => GENERATED_SECONDS_PER_MB * (self.size << 20) as f64 / 1e6,
            Ok(Source::Trace(path)) => {
                trace_bytes(&path) / TRACE_BYTES_PER_INSTRUCTION / INSTRUCTIONS_PER_SECOND
            }
            Err(_) => 0.0,
        }
    }

    /// Estimates the bytes of the program's memory; 0 if unknown.
    pub fn footprint(&self) -> u64 {
        match Source::find(&self.program) {
            Ok(Source::Workload(info)) => self.scale.bytes(info).unwrap_or(0),
            Ok(Source::Generated(_)) => self.size << 20,
            _ => 0,
        }
    }
}

fn whole(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("'{text}' is not a whole number from {least} to {most}"))
}

/// Parses a share above 0, at most 1.
///
/// # Errors
/// A message for any other text.
pub fn parse_sample(text: &str) -> Result<f64, String> {
    match parse_share(text) {
        Some(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("'{text}' is not a share above 0, at most 1")),
    }
}

/// Parses the shares of zero, b8, s1, s2, s3 and raw entries.
///
/// # Errors
/// A message for any other text.
pub fn parse_shares(text: &str) -> Result<[f64; 6], String> {
    let all: Option<Vec<f64>> = text.split(',').map(|share| parse_share(share.trim())).collect();
    let six = all.and_then(|all| all.try_into().ok());
    six.ok_or_else(|| format!("'{text}' is not six shares, such as 0,0,0.3,0.6,0,0.1"))
}

/// Returns the files of a trace: its list and its kernels.
fn trace_files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if is_kernel(&path.to_string_lossy()) {
        return Ok(vec![path.to_owned()]);
    }
    let list = if path.is_dir() { path.join("kernelslist.g") } else { path.to_owned() };
    let kernel = |item| if let Item::Kernel(path) = item { Some(path) } else { None };
    Ok([list].into_iter().chain(accel::read_list(path)?.into_iter().filter_map(kernel)).collect())
}

fn trace_digest(path: &Path) -> Result<String, Error> {
    let read = |path: PathBuf| fs::read(&path).map_err(|source| Error::Read { path, source });
    remembered(path.to_owned(), || {
        let digests = trace_files(path)?.into_iter().map(|path| Ok(format!("{:032x}", digest(&read(path)?))));
        Ok(digests.collect::<Result<String, Error>>()?.into_bytes())
    })
}

/// Returns the digest of a file's contents, cached per process because a plan needs it often.
fn remembered(path: PathBuf, read: impl FnOnce() -> Result<Vec<u8>, Error>) -> Result<String, Error> {
    static KNOWN: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(digest) = known().get(&path) {
        return Ok(digest.clone());
    }
    let text = format!("{:032x}", digest(&read()?));
    known().insert(path, text.clone());
    Ok(text)
}

fn trace_bytes(path: &Path) -> f64 {
    let files = trace_files(path).unwrap_or_default();
    files.iter().filter_map(|path| Some(fs::metadata(path).ok()?.len() as f64)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(settings: &[(&str, &str)]) -> Input {
        let mut input = Input::default();
        settings.iter().for_each(|(key, value)| input.set(key, value).unwrap().unwrap());
        input
    }

    #[test]
    fn settings_of_other_programs_are_not_part_of_the_spec() {
        let cg = input(&[("program", "cg"), ("scale", "4MB"), ("batch", "8"), ("size", "1")]);
        assert_eq!(cg.spec().unwrap(), input(&[("program", "cg"), ("scale", "4MB")]).spec().unwrap());
        let other = input(&[("program", "cg"), ("scale", "4MB"), ("seed", "2")]);
        assert_ne!(cg.spec().unwrap(), other.spec().unwrap());
        assert_ne!(cg.run_spec().unwrap(), other.run_spec().unwrap());
        // Snapshots of one run share its record.
        let third = input(&[("program", "cg"), ("scale", "4MB"), ("snapshot", "3")]);
        assert_ne!(cg.spec().unwrap(), third.spec().unwrap());
        assert_eq!(cg.run_spec().unwrap(), third.run_spec().unwrap());
    }

    #[test]
    fn invalid_values_are_rejected_with_the_setting() {
        for (key, value) in [
            ("scale", "x"),
            ("seed", "-1"),
            ("snapshot", "10"),
            ("codec", "zip"),
            ("batch", "0"),
            ("sample", "2"),
            ("shares", "1"),
        ] {
            let error = Input::default().set(key, value).unwrap().unwrap_err();
            assert!(error.starts_with(&format!("{key}: ")), "{error}");
        }
        assert!(Input::default().set("colour", "red").is_none());
    }
}
