//! All settings of one simulation, set by name as in sweeps.

use buddy_record::spec::Gpu;
use buddy_sim::Mode;

use crate::{Error, Input, Point, Source, TargetChoice};

/// A program and a machine, before anything is read or run.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The program.
    pub input: Input,
    /// The machine. Its program is the input's.
    pub point: Point,
}

impl Default for Case {
    fn default() -> Self {
        let point = Point { link: "150".to_owned(), ..Point::new("", Mode::Ideal) };
        Self { input: Input::default(), point }
    }
}

impl Case {
    /// Changes one setting by name.
    ///
    /// # Errors
    /// A message for an unknown setting or an invalid value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let key = canonical(key);
        match self.input.set(key, value) {
            Some(set) => set?,
            None if Point::KEYS.contains(&key) || Gpu::has_field(key) => {
                self.point.set(key, value).map_err(|why| format!("{key}: {why}"))?;
            }
            None => return Err(unknown(key)),
        }
        self.point.program.clone_from(&self.input.program);
        Ok(())
    }

    /// Returns whether the mode depends on the program's data.
    pub fn is_compressed(&self) -> bool {
        self.point.mode.compresses()
    }

    /// Checks for contradictory settings before anything runs.
    ///
    /// # Errors
    /// An unknown GPU or link, invalid targets, or settings that exclude each other.
    pub fn check(&self) -> Result<(), Error> {
        let Point { targets, policy, threshold, .. } = &self.point;
        if targets.is_some() && (policy.is_some() || threshold.is_some()) {
            let why = "targets exclude a policy or a threshold";
            return Err(Error::Setting(why.to_owned()));
        }
        let plain = matches!(Source::find(&self.input.program)?, Source::Trace(_) | Source::Generated(_));
        if plain && self.is_compressed() && targets.is_none() {
            let (name, mode) = (&self.input.program, self.point.mode.name());
            let why = format!("{name} in mode {mode} needs targets: a ratio such as 2x, or a file");
            return Err(Error::Setting(why));
        }
        self.point.config()?;
        if self.input.workload()?.is_some() {
            TargetChoice::named(targets.as_deref()).table(&self.input.program)?;
        }
        Ok(())
    }
}

/// Returns the canonical name of a setting with several names.
pub fn canonical(key: &str) -> &str {
    match key {
        "network" | "trace" => "program",
        "gpu" => "spec",
        "buddy.metadata_bytes" => "metadata",
        _ => key,
    }
}

fn unknown(key: &str) -> String {
    let known: Vec<&str> = Input::KEYS.into_iter().chain(Point::KEYS).collect();
    format!(
        "unknown setting '{key}'; use one of {} or any field of a GPU's file by its dotted name, such as l2.bytes",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_program_machine_and_gpu_fields_are_accepted() {
        let mut case = Case::default();
        for (key, value) in
            [("network", "vgg16"), ("gpu", "v100"), ("l2.ways", "8"), ("seed", "3"), ("mode", "buddy")]
        {
            case.set(key, value).unwrap();
        }
        assert_eq!((case.point.program.as_str(), case.input.seed), ("vgg16", 3));
        assert_eq!(case.point.config().unwrap().gpu.l2.ways, 8);
        assert!(case.is_compressed() && case.check().is_ok());
        let error = case.set("colour", "red").unwrap_err();
        assert!(
            error.contains("'colour'") && error.contains("threshold") && error.contains("l2.bytes"),
            "{error}"
        );
    }

    #[test]
    fn targets_and_a_policy_exclude_each_other() {
        let mut case = Case::default();
        for (key, value) in [("program", "cg"), ("targets", "2x"), ("policy", "naive")] {
            case.set(key, value).unwrap();
        }
        assert!(case.check().unwrap_err().to_string().contains("exclude a policy"));
    }
}
