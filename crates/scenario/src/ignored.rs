//! Settings that a mode ignores, and the ideal memory that a point is compared with.

use std::collections::HashMap;

use buddy_sim::Mode;
use buddy_workloads::ALL;

use crate::{Case, Point, TargetChoice};

impl Point {
    /// Returns whether the mode ignores a setting or a field of the GPU. A file of targets may place
    /// memory on the host, which no mode ignores.
    pub fn ignores(&self, key: &str) -> bool {
        let is_compressed = self.mode.compresses();
        match key {
            "targets" => !is_compressed && !matches!(self.target_choice(), TargetChoice::File(_)),
            "policy" | "threshold" => !is_compressed,
            "oversubscription" => self.mode != Mode::Um,
            "buddy.codec_clocks" => !is_compressed || self.mode == Mode::Compressible,
            "metadata" => self.mode != Mode::Buddy,
            "link" => !self.uses_link(),
            field if field.starts_with("buddy.") => self.mode != Mode::Buddy,
            field => field.starts_with("um.") && self.mode != Mode::Um,
        }
    }

    /// Returns whether anything crosses the link besides timed copies: buddy sectors, all data, pages, or
    /// memory that the program or a file of targets places on the host.
    fn uses_link(&self) -> bool {
        let is_crossed = matches!(self.mode, Mode::Buddy | Mode::Pinned | Mode::Um);
        let has_host = || ALL.iter().any(|info| info.name == self.program && info.has_host_memory);
        is_crossed || matches!(self.target_choice(), TargetChoice::File(_)) || has_host()
    }

    /// Returns the point with every ignored setting at its default.
    #[must_use]
    pub fn effective(&self) -> Self {
        let mut point = self.clone();
        let plain = Self::new(&self.program, self.mode);
        for key in Self::KEYS.into_iter().filter(|key| self.ignores(key)) {
            match key {
                "targets" => point.targets = plain.targets.clone(),
                "policy" => point.policy = plain.policy,
                "threshold" => point.threshold = plain.threshold,
                "oversubscription" => point.oversubscription = plain.oversubscription,
                "link" => point.link.clone_from(&plain.link),
                _ => point.metadata_bytes = plain.metadata_bytes,
            }
        }
        point.fields.retain(|field, _| !self.ignores(field));
        point
    }
}

impl Case {
    /// Returns a text that is equal for cases with equal results.
    pub fn effective_key(&self) -> String {
        key(self, self.point.mode, Some(&self.point.effective().link))
    }
}

/// Returns a text of the settings that decide the result in this mode, with this link.
fn key(case: &Case, mode: Mode, link: Option<&String>) -> String {
    let mut point = Point { mode, ..case.point.clone() }.effective();
    point.link = link.cloned().unwrap_or_default();
    format!("{:?} {point:?}", case.input)
}

/// Returns, for each case, the index of the case with ideal memory, the same program and the same
/// GPU: with the same link, or else the first with another. `None` if any case lacks one.
pub fn baselines(cases: &[Case]) -> Option<Vec<usize>> {
    let mut ideal: HashMap<String, usize> = HashMap::new();
    for (index, case) in cases.iter().enumerate().filter(|(_, case)| case.point.mode == Mode::Ideal) {
        for link in [Some(&case.point.link), None] {
            ideal.entry(key(case, Mode::Ideal, link)).or_insert(index);
        }
    }
    let of = |case: &Case| {
        let find = |link| ideal.get(&key(case, Mode::Ideal, link)).copied();
        find(Some(&case.point.link)).or_else(|| find(None))
    };
    if ideal.is_empty() { None } else { cases.iter().map(of).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(settings: &[(&str, &str)]) -> Case {
        let mut case = Case::default();
        settings.iter().for_each(|(key, value)| case.set(key, value).unwrap());
        case
    }

    #[test]
    fn a_mode_s_key_lacks_what_the_mode_ignores() {
        let same = |mode: &str, key: &str, value: &str| {
            let with = case(&[("program", "cg"), ("mode", mode), (key, value)]);
            with.effective_key() == case(&[("program", "cg"), ("mode", mode)]).effective_key()
        };
        for (key, value, used) in [
            ("metadata", "8192", &["buddy"][..]),
            ("oversubscription", "0.1", &["um"]),
            ("targets", "2x", &["bandwidth", "compressible", "buddy"]),
            ("policy", "naive", &["bandwidth", "compressible", "buddy"]),
            ("threshold", "0.2", &["bandwidth", "compressible", "buddy"]),
            ("buddy.codec_clocks", "3", &["bandwidth", "buddy"]),
            ("buddy.metadata_ways", "2", &["buddy"]),
            ("um.batch_us", "20", &["um"]),
            ("link", "50", &["buddy", "pinned", "um"]),
            ("l2.bytes", "8388608", &["ideal", "bandwidth", "compressible", "buddy", "pinned", "um"]),
            ("targets", "some.toml", &["ideal", "bandwidth", "compressible", "buddy", "pinned", "um"]),
        ] {
            for mode in Mode::ALL.map(Mode::name) {
                assert_eq!(same(mode, key, value), !used.contains(&mode), "{key} in mode {mode}");
            }
        }
    }

    #[test]
    fn every_mode_uses_the_link_of_memory_on_the_host() {
        for (program, targets) in [("hpgmg", "2x"), ("cg", "some.toml")] {
            for mode in Mode::ALL.map(Mode::name) {
                let of = |link| {
                    let set = [("program", program), ("mode", mode), ("targets", targets), ("link", link)];
                    case(&set).effective_key()
                };
                assert_ne!(of("50"), of("100"), "{program} in mode {mode}");
            }
        }
    }

    #[test]
    fn the_baseline_is_ideal_memory_of_the_same_gpu() {
        let of = |mode, gpu, link| case(&[("program", "cg"), ("mode", mode), ("spec", gpu), ("link", link)]);
        let cases = [
            of("buddy", "v100", "50"),
            of("ideal", "v100", "150"),
            of("ideal", "h200", "50"),
            of("ideal", "h200", "150"),
            of("buddy", "h200", "150"),
            of("buddy", "h200", "75"),
        ];
        assert_eq!(baselines(&cases), Some(vec![1, 1, 2, 3, 3, 2]));
        assert_eq!(baselines(&cases[2..]), Some(vec![0, 1, 1, 0]));
        assert_eq!(baselines(&cases[..3]), Some(vec![1, 1, 2]));
        assert_eq!(baselines(&[of("buddy", "v100", "50"), of("ideal", "h200", "50")]), None);
    }
}
