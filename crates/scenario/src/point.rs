//! Settings of one simulation; each can be swept.

use std::collections::BTreeMap;

use buddy_core::parse_share;
use buddy_profile::DEFAULT_THRESHOLD;
use buddy_record::{
    Policy,
    spec::{Gpu, Link, SpecError},
};
use buddy_sim::{Config, Mode};

use crate::{TargetChoice, scale::parse_bytes};

/// Settings of a simulation, by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The workload, the network, the trace or the generated program.
    pub program: String,
    /// The GPU: a preset or a file.
    pub gpu: String,
    /// The link: a preset, a file or a bandwidth in GB/s, in each direction.
    pub link: String,
    /// Memory mode: where entries are compressed, and what is in host memory.
    pub mode: Mode,
    /// Changed fields of the GPU, by dotted name.
    pub fields: BTreeMap<String, String>,
    /// A ratio for all allocations or a file; `None` for the policy's targets.
    pub targets: Option<String>,
    /// Policy that chooses targets; `None` for the paper's final design.
    pub policy: Option<Policy>,
    /// Share of entries that may overflow to buddy memory; `None` for the default.
    pub threshold: Option<Share>,
    /// Bytes of metadata cache per L2 slice; `None` for the GPU's own.
    pub metadata_bytes: Option<u32>,
    /// Unified Memory: share of memory that does not fit the device, 0 to 0.5.
    pub oversubscription: Share,
}

/// A share in millionths, so that points are comparable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// Creates a share from a percentage.
    pub const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }

    /// Parses a share from 0 to 0.5, with six decimals.
    ///
    /// # Errors
    /// A message for any other text.
    pub fn parse(text: &str) -> Result<Self, String> {
        match parse_share(text) {
            Some(share) if (0.0..=0.5).contains(&share) => Ok(Self((share * 1e6).round() as u32)),
            _ => Err(format!("'{text}' is not a share from 0 to 0.5")),
        }
    }

    /// Parses a share from 0 to below 1, with six decimals.
    ///
    /// # Errors
    /// A message for any other text.
    pub fn parse_threshold(text: &str) -> Result<Self, String> {
        match parse_share(text) {
            Some(share) if (0.0..=0.999_999).contains(&share) => Ok(Self((share * 1e6).round() as u32)),
            _ => Err(format!("'{text}' is not a threshold from 0 to below 1")),
        }
    }

    /// Returns the percentage, computed from the millionths so that 7% is exactly 7.
    pub fn as_percent(self) -> f64 {
        f64::from(self.0) / 1e4
    }

    /// Returns the share as a fraction of 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl Point {
    /// Names of the settings that [`set`](Self::set) accepts, besides the fields of a GPU.
    pub const KEYS: [&str; 8] =
        ["spec", "mode", "link", "targets", "metadata", "oversubscription", "policy", "threshold"];

    /// Creates a simulation on the paper's GPU and link.
    pub fn new(program: &str, mode: Mode) -> Self {
        Self {
            program: program.to_owned(),
            gpu: "paper".to_owned(),
            link: "150 GB/s".to_owned(),
            mode,
            fields: BTreeMap::new(),
            targets: None,
            policy: None,
            threshold: None,
            metadata_bytes: None,
            oversubscription: Share::default(),
        }
    }

    /// Sets the link's bandwidth in GB/s.
    #[must_use]
    pub fn link(self, gb_per_s: u32) -> Self {
        Self { link: format!("{gb_per_s} GB/s"), ..self }
    }

    /// Changes one setting by its command-line name.
    ///
    /// # Errors
    /// A message for an unknown setting or an invalid value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "spec" => self.gpu = value.to_owned(),
            "mode" => self.mode = parse_mode(value)?,
            "link" => self.link = value.to_owned(),
            "targets" => self.targets = Some(value.to_owned()),
            "metadata" => {
                let bytes = parse_bytes(value).and_then(|bytes| bytes.try_into().ok());
                self.metadata_bytes =
                    Some(bytes.ok_or_else(|| format!("'{value}' is not a number of bytes"))?);
            }
            "oversubscription" => self.oversubscription = Share::parse(value)?,
            "policy" => self.policy = Some(parse_policy(value)?),
            "threshold" => self.threshold = Some(Share::parse_threshold(value)?),
            _ if Gpu::has_field(key) => self.change(key, value),
            _ => return Err(format!("unknown setting '{key}'")),
        }
        Ok(())
    }

    /// Changes a field of the GPU; a size may have a unit (`32MiB`).
    pub fn change(&mut self, field: &str, value: &str) {
        let bytes = parse_bytes(value).filter(|_| value.parse::<f64>().is_err());
        let value = bytes.map_or_else(|| value.to_owned(), |bytes| bytes.to_string());
        self.fields.insert(field.to_owned(), value);
    }

    /// Returns the choice of targets.
    pub fn target_choice(&self) -> TargetChoice {
        match (&self.targets, self.policy, self.threshold) {
            (Some(name), ..) => TargetChoice::named(Some(name)),
            (None, None, None) => TargetChoice::Policy,
            (None, policy, threshold) => TargetChoice::Rule {
                policy: policy.unwrap_or(Policy::Allocation16x),
                threshold: threshold.map_or(DEFAULT_THRESHOLD, Share::get),
            },
        }
    }

    /// Returns its name for messages.
    pub fn name(&self) -> String {
        let Self { program, mode, link, .. } = self;
        let metadata = self.metadata_bytes.map(|bytes| format!(", {bytes} B of metadata a slice"));
        let over = (self.oversubscription > Share::default())
            .then(|| format!(", {}% over", self.oversubscription.as_percent()));
        let targets = self.targets.as_ref().map(|targets| format!(", targets {targets}"));
        let policy = self.policy.map(|policy| format!(", policy {policy}"));
        let threshold = self.threshold.map(|share| format!(", threshold {}%", share.as_percent()));
        let fields: String = self.fields.iter().map(|(field, value)| format!(", {field} {value}")).collect();
        let more = [metadata, over, targets, policy, threshold, Some(fields)].into_iter().flatten();
        format!("{program} {} at {link}{}", mode.name(), more.collect::<String>())
    }

    /// Returns the configuration without the program's allocations.
    ///
    /// # Errors
    /// An unknown GPU or link, or an impossible size of the metadata cache.
    pub fn config(&self) -> Result<Config, SpecError> {
        let fields = self.fields.iter().map(|(field, value)| (field.as_str(), value.as_str()));
        let mut gpu = Gpu::changed(&self.gpu, fields)?;
        if let Some(bytes) = self.metadata_bytes {
            gpu.buddy.metadata_bytes = bytes;
            gpu.check().map_err(|why| SpecError::File { file: self.gpu.clone(), why })?;
        }
        let oversubscription = self.oversubscription.get();
        Ok(Config { mode: self.mode, oversubscription, ..Config::new(gpu, Link::named(&self.link)?) })
    }
}

/// Parses the name of a mode.
///
/// # Errors
/// A message with the known names.
pub fn parse_mode(name: &str) -> Result<Mode, String> {
    let names = Mode::ALL.map(Mode::name).join(", ");
    Mode::ALL
        .into_iter()
        .find(|mode| mode.name() == name)
        .ok_or(format!("unknown mode '{name}'; use one of {names}"))
}

fn parse_policy(name: &str) -> Result<Policy, String> {
    let known = Policy::BY_THRESHOLD;
    let names = || known.iter().map(|policy| policy.name()).collect::<Vec<_>>().join(", ");
    let found = known.iter().find(|policy| policy.name() == name).copied();
    found.ok_or_else(|| format!("unknown policy '{name}'; use one of {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_reaches_the_configuration() {
        let mut point = Point::new("cg", Mode::Ideal);
        let values = ["v100", "um", "75", "2x", "8KiB", "0.07", "naive", "0.2"];
        for (key, value) in Point::KEYS.into_iter().zip(values) {
            point.set(key, value).unwrap();
        }
        let config = point.config().unwrap();
        assert_eq!((config.gpu.name.as_str(), config.mode), ("v100", Mode::Um));
        assert_eq!((config.link.name.as_str(), config.link.gb_per_s), ("75", 75.0));
        assert_eq!((config.gpu.buddy.metadata_bytes, config.oversubscription), (8192, 0.07));
        assert_eq!(point.targets.as_deref(), Some("2x"));
        let name =
            "cg um at 75, 8192 B of metadata a slice, 7% over, targets 2x, policy naive, threshold 20%";
        assert_eq!(point.name(), name);
        assert!(point.set("colour", "red").unwrap_err().contains("unknown setting 'colour'"));
        for (key, value) in
            [("metadata", "many"), ("oversubscription", "0.6"), ("policy", "plan"), ("threshold", "1")]
        {
            assert!(point.set(key, value).is_err(), "{key} {value}");
        }
    }

    #[test]
    fn any_field_of_the_gpu_can_be_changed_and_is_checked() {
        let mut point = Point::new("cg", Mode::Ideal);
        point.set("l2.bytes", "8MiB").unwrap();
        point.set("core.clock_mhz", "1500").unwrap();
        let gpu = point.config().unwrap().gpu;
        assert_eq!((gpu.l2.bytes, gpu.core.clock_mhz), (8 << 20, 1500.0));
        point.set("l2.slices", "33").unwrap();
        let error = point.config().unwrap_err().to_string();
        assert!(error.contains("l2.slices = 33: l2.slices is 33; it must be a multiple of"), "{error}");
        assert!(point.set("l2", "1").is_err() && point.set("l2.colour", "1").is_err());
        assert!(point.name().ends_with(", core.clock_mhz 1500, l2.bytes 8388608, l2.slices 33"));
    }

    #[test]
    fn a_link_is_a_preset_or_a_bandwidth() {
        let link = |point: Point| point.config().map(|config| (config.link.name, config.link.gb_per_s));
        let point = || Point::new("cg", Mode::Buddy);
        assert_eq!(link(point()).unwrap(), ("150 GB/s".to_owned(), 150.0));
        assert_eq!(link(point().link(64)).unwrap(), ("64 GB/s".to_owned(), 64.0));
        let named = |name: &str| link(Point { link: name.to_owned(), ..point() });
        assert_eq!(named("c2c").unwrap().0, "c2c");
        assert!(named("fast").unwrap_err().to_string().contains("unknown link 'fast'"));
        assert!(named("-1").unwrap_err().to_string().starts_with("link -1: "));
    }
}
