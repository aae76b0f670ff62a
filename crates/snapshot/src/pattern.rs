//! Patterns for the names of dumps: their allocation and their step.

use std::str::FromStr;

use crate::Error;

/// Names of dumps, such as `{name}_{step}.dat` or `step_{step}/{name}.f32`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The allocation.
    Name,
    /// The step, in decimal digits.
    Step,
}

/// The allocation and the step of a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DumpName {
    pub(crate) step: u64,
    pub(crate) name: String,
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (word, after) = after.split_once('}').ok_or_else(|| Error::Pattern(text.to_owned()))?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(match word {
                "name" => Part::Name,
                "step" => Part::Step,
                _ => return Err(Error::Pattern(text.to_owned())),
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        let count = |wanted: &Part| parts.iter().filter(|part| *part == wanted).count();
        if count(&Part::Name) != 1 || count(&Part::Step) > 1 {
            return Err(Error::Pattern(text.to_owned()));
        }
        Ok(Self(parts))
    }
}

impl Pattern {
    /// Matches a path relative to the dumps' directory; returns `None` if it does not match.
    pub(crate) fn read(&self, path: &str) -> Option<DumpName> {
        let mut dump = DumpName { step: 0, name: String::new() };
        follow(&self.0, path, &mut dump).then_some(dump)
    }
}

/// Returns true if `parts` match all of `text`.
fn follow(parts: &[Part], text: &str, dump: &mut DumpName) -> bool {
    let Some((first, rest)) = parts.split_first() else { return text.is_empty() };
    match first {
        Part::Text(wanted) => text.strip_prefix(wanted.as_str()).is_some_and(|text| follow(rest, text, dump)),
        Part::Step => {
            let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            text[..digits].parse().is_ok_and(|step| {
                dump.step = step;
                follow(rest, &text[digits..], dump)
            })
        }
        Part::Name => text.char_indices().skip(1).map(|(at, _)| at).chain([text.len()]).any(|end| {
            let (name, after) = text.split_at(end);
            let fits = !name.is_empty() && !name.contains('/') && follow(rest, after, dump);
            if fits {
                dump.name = name.to_owned();
            }
            fits
        }),
    }
}

/// Guesses the step of a dump in a series: two or more digits after a separator at the end of the
/// stem, as in `rho_00100.dat`. Also returns the number of digits.
pub(crate) fn guess(file: &str) -> Option<(DumpName, usize)> {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let name = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &stem[name.len()..];
    let short = name.strip_suffix(['_', '-', '.']).filter(|name| !name.is_empty())?;
    if digits.len() < 2 {
        return None;
    }
    Some((DumpName { step: digits.parse().ok()?, name: short.to_owned() }, digits.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(pattern: &str, path: &str) -> Option<(u64, String)> {
        pattern.parse::<Pattern>().unwrap().read(path).map(|dump| (dump.step, dump.name))
    }

    #[test]
    fn patterns_read_names() {
        assert_eq!(dump("{name}_{step}.dat", "rho_x_00100.dat"), Some((100, "rho_x".to_owned())));
        assert_eq!(dump("step_{step}/{name}.f32", "step_7/u.f32"), Some((7, "u".to_owned())));
        assert_eq!(dump("{name}", "layer_00.bin"), Some((0, "layer_00.bin".to_owned())));
        assert_eq!(dump("{name}_{step}.dat", "rho_.dat"), None);
        assert_eq!(dump("{name}.dat", "a/b.dat"), None);
        for bad in ["{nmae}", "{name", "{step}", "{name}{step}{step}"] {
            assert!(bad.parse::<Pattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_guess_wants_a_separator_and_two_digits() {
        let read = |file: &str| guess(file).map(|(dump, digits)| (dump.step, dump.name, digits));
        assert_eq!(read("rho_00100.dat"), Some((100, "rho".to_owned(), 5)));
        assert_eq!(read("u-01"), Some((1, "u".to_owned(), 2)));
        for none in ["rho.dat", "rho_1.dat", "rho100.dat", "_00.dat", "v_99999999999999999999999.dat"] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
