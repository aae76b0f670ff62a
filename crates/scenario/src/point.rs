//! The settings of one simulation, each of which can be swept.

use buddy_core::spec::{Gpu, Link, SpecError};
use buddy_sim::{Config, Mode};

/// What decides a simulation, by name; the program's memory and the files that it names come to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The workload, the network, the trace or the generated program.
    pub program: String,
    /// The GPU: a preset or a file.
    pub gpu: String,
    /// The link: a preset, a file or a bandwidth in GB/s, in each direction.
    pub link: String,
    /// How memory works: whether and where entries are compressed, and what lies in host memory.
    pub mode: Mode,
    /// A ratio for all allocations or a file; none for the policy's targets.
    pub targets: Option<String>,
    /// Bytes of metadata cache in each slice of L2, if not the GPU's own.
    pub metadata_bytes: Option<u32>,
    /// With Unified Memory, how much of the memory does not fit the device: 0 to 0.5.
    pub oversubscription: Share,
}

/// A share in millionths, so that points can be told apart and put in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// A share of so many hundredths.
    pub const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }

    /// A share from 0 to 0.5, to six decimals.
    ///
    /// # Errors
    /// A sentence, for anything else.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(share) if (0.0..=0.5).contains(&share) => Ok(Self((share * 1e6).round() as u32)),
            _ => Err(format!("'{text}' is no share from 0 to 0.5")),
        }
    }

    /// In hundredths: from the millionths themselves, so that 7% is 7.
    pub fn as_percent(self) -> f64 {
        f64::from(self.0) / 1e4
    }

    /// It as a fraction of 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl Point {
    /// Names of the settings that [`set`](Self::set) takes.
    pub const KEYS: &str = "spec, mode, link, targets, metadata and oversubscription";

    /// A simulation on the paper's GPU with its link.
    pub fn new(program: &str, mode: Mode) -> Self {
        Self {
            program: program.to_owned(),
            gpu: "paper".to_owned(),
            link: "150 GB/s".to_owned(),
            mode,
            targets: None,
            metadata_bytes: None,
            oversubscription: Share::default(),
        }
    }

    /// With a link of this many GB/s.
    #[must_use]
    pub fn link(self, gb_per_s: u32) -> Self {
        Self { link: format!("{gb_per_s} GB/s"), ..self }
    }

    /// Changes one setting, given by its name on the command line.
    ///
    /// # Errors
    /// A sentence, for a setting or a value that is none.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "spec" => self.gpu = value.to_owned(),
            "mode" => self.mode = parse_mode(value)?,
            "link" => self.link = value.to_owned(),
            "targets" => self.targets = Some(value.to_owned()),
            "metadata" => {
                let bytes = value.parse().map_err(|_| format!("'{value}' is no number of bytes"))?;
                self.metadata_bytes = Some(bytes);
            }
            "oversubscription" => self.oversubscription = Share::parse(value)?,
            _ => return Err(format!("'{key}' cannot be swept; {} can", Self::KEYS)),
        }
        Ok(())
    }

    /// Its name in messages.
    pub fn name(&self) -> String {
        let Self { program, mode, link, .. } = self;
        let metadata = self.metadata_bytes.map(|bytes| format!(", {bytes} B of metadata a slice"));
        let over = (self.oversubscription > Share::default())
            .then(|| format!(", {}% over", self.oversubscription.as_percent()));
        let more = [metadata, over].into_iter().flatten().collect::<String>();
        format!("{program} {} at {link}{more}", mode.name())
    }

    /// The configuration, without the program's allocations.
    ///
    /// # Errors
    /// If there is no such GPU or link, or a metadata cache of this size cannot be.
    pub fn config(&self) -> Result<Config, SpecError> {
        let mut gpu = Gpu::named(&self.gpu)?;
        if let Some(bytes) = self.metadata_bytes {
            gpu.buddy.metadata_bytes = bytes;
            gpu.check().map_err(|why| SpecError::File { file: self.gpu.clone(), why })?;
        }
        let oversubscription = self.oversubscription.get();
        Ok(Config { mode: self.mode, oversubscription, ..Config::new(gpu, Link::named(&self.link)?) })
    }
}

/// A mode by its name.
///
/// # Errors
/// A sentence with the names that there are.
pub fn parse_mode(name: &str) -> Result<Mode, String> {
    let names = Mode::ALL.map(Mode::name).join(", ");
    Mode::ALL
        .into_iter()
        .find(|mode| mode.name() == name)
        .ok_or(format!("there is no mode '{name}'; there are {names}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_reaches_the_configuration() {
        let mut point = Point::new("cg", Mode::Ideal);
        let keys = Point::KEYS.replace(" and ", ", ");
        for (key, value) in keys.split(", ").zip(["v100", "um", "75", "2x", "8192", "0.07"]) {
            point.set(key, value).unwrap();
        }
        let config = point.config().unwrap();
        assert_eq!((config.gpu.name.as_str(), config.mode), ("v100", Mode::Um));
        assert_eq!((config.link.name.as_str(), config.link.gb_per_s), ("75", 75.0));
        assert_eq!((config.gpu.buddy.metadata_bytes, config.oversubscription), (8192, 0.07));
        assert_eq!(point.targets.as_deref(), Some("2x"));
        assert_eq!(point.name(), "cg um at 75, 8192 B of metadata a slice, 7% over");
        assert!(point.set("colour", "red").unwrap_err().contains("'colour' cannot be swept; spec, mode"));
        assert!(point.set("metadata", "many").is_err() && point.set("oversubscription", "0.6").is_err());
    }

    #[test]
    fn a_link_is_a_preset_or_a_bandwidth() {
        let link = |point: Point| point.config().map(|config| (config.link.name, config.link.gb_per_s));
        let point = || Point::new("cg", Mode::Buddy);
        assert_eq!(link(point()).unwrap(), ("150 GB/s".to_owned(), 150.0));
        assert_eq!(link(point().link(64)).unwrap(), ("64 GB/s".to_owned(), 64.0));
        let named = |name: &str| link(Point { link: name.to_owned(), ..point() });
        assert_eq!(named("c2c").unwrap().0, "c2c");
        assert!(named("fast").unwrap_err().to_string().contains("there is no link 'fast'"));
        assert!(named("-1").unwrap_err().to_string().starts_with("link -1: "));
    }
}
