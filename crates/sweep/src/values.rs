//! Notation of axis values: a single value, a list, a range or powers of two.

use buddy_scenario::parse_bytes;
use toml::Value;

/// Maximum number of values of a range.
const MOST: f64 = 1e6;

/// Parses one value, a list, or texts such as `50..200 step 50`, `1..4`, `2^10..2^16` and
/// `4KiB..64KiB times 2`. Ranges include their end.
///
/// # Errors
/// A message for an empty list, a table, or an endless range.
pub fn values(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(all) if all.is_empty() => Err("a list needs at least one value".to_owned()),
        Value::Array(all) => all.iter().try_fold(Vec::new(), |mut found, value| {
            found.extend(one(value)?);
            if found.len() as f64 <= MOST {
                Ok(found)
            } else {
                Err("a list has over a million values".to_owned())
            }
        }),
        value => one(value),
    }
}

fn one(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::String(text) => texts(text),
        Value::Integer(number) => Ok(vec![number.to_string()]),
        Value::Float(number) => Ok(vec![number.to_string()]),
        other => Err(format!("'{other}' is not a number, a text or a range")),
    }
}

/// Expands a range; any other text is returned unchanged.
pub(crate) fn texts(text: &str) -> Result<Vec<String>, String> {
    let Some(range) = Range::parse(text) else { return Ok(vec![text.to_owned()]) };
    range.expand().ok_or_else(|| {
        format!(
            "'{text}' is not a valid range: its step never reaches the end, or it has over a million values"
        )
    })
}

/// From one number to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    pub(crate) from: f64,
    pub(crate) to: f64,
    step: Option<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Plus(f64),
    Times(f64),
}

impl Range {
    /// Parses a range; `None` for any other text, such as a path with two dots.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (from, rest) = text.split_once("..")?;
        let mut words = rest.split_whitespace();
        let to = words.next()?;
        let step = match (words.next(), words.next(), words.next()) {
            (None, ..) if is_power(from) && is_power(to) => Some(Step::Times(2.0)),
            (None, ..) => None,
            (Some("step"), Some(by), None) => Some(Step::Plus(number(by)?)),
            (Some("times"), Some(by), None) => Some(Step::Times(number(by)?)),
            _ => return None,
        };
        Some(Self { from: number(from.trim())?, to: number(to)?, step })
    }

    fn expand(self) -> Option<Vec<String>> {
        let Self { from, to, step } = self;
        let step = step.unwrap_or(Step::Plus(1.0));
        let steps = match step {
            Step::Plus(by) => (to - from) / by,
            Step::Times(by) if by > 1.0 && from > 0.0 => (to / from).ln() / by.ln(),
            Step::Times(_) => return None,
        };
        // Slightly more than the quotient, so that rounding does not lose the last value.
        let steps = (steps + 1e-9).floor();
        if !(0.0..MOST).contains(&steps) {
            return None;
        }
        let at = |i: i32| match step {
            Step::Plus(by) => from + by * f64::from(i),
            Step::Times(by) => from * by.powi(i),
        };
        Some((0..=steps as i32).map(|i| written(at(i))).collect())
    }

    /// Returns whether it has no step; a filter then matches everything in between.
    pub(crate) fn is_plain(self) -> bool {
        self.step.is_none()
    }
}

fn is_power(text: &str) -> bool {
    text.trim().starts_with("2^")
}

/// Parses `2^10`, a number, or a size with its unit.
pub(crate) fn number(text: &str) -> Option<f64> {
    if let Some(exponent) = text.strip_prefix("2^") {
        return exponent
            .parse()
            .ok()
            .filter(|exponent| *exponent < 64)
            .map(|exponent: i32| 2f64.powi(exponent));
    }
    let plain = text.parse::<f64>().ok().filter(|number| number.is_finite());
    plain.or_else(|| parse_bytes(text).map(|bytes| bytes as f64))
}

/// Formats a number without binary rounding errors: 0.1 + 0.2 is 0.3.
fn written(number: f64) -> String {
    let rounded = (number * 1e9).round() / 1e9;
    (if number.abs() < 1e6 { rounded } else { number }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        values(&Value::String(text.to_owned())).unwrap()
    }

    #[test]
    fn ranges_hold_both_ends() {
        assert_eq!(of("50..200 step 50"), ["50", "100", "150", "200"]);
        assert_eq!(of("1..4"), ["1", "2", "3", "4"]);
        assert_eq!(of("0.1..0.4 step 0.1"), ["0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(of("2^10..2^13"), ["1024", "2048", "4096", "8192"]);
        assert_eq!(of("4KiB..16KiB times 2"), ["4096", "8192", "16384"]);
        assert_eq!(of("200..50 step -50"), ["200", "150", "100", "50"]);
        assert_eq!(of("50..199 step 50"), ["50", "100", "150"]);
    }

    #[test]
    fn other_texts_are_themselves_and_lists_may_hold_ranges() {
        for text in ["../trace", "a..b", "2x", "0,0,0.3,0.6,0,0.1", "1..2 by 3"] {
            assert_eq!(of(text), [text]);
        }
        let list: toml::Table = toml::from_str("x = [\"1..3\", \"c2c\", 64, 0.5]").unwrap();
        assert_eq!(values(&list["x"]).unwrap(), ["1", "2", "3", "c2c", "64", "0.5"]);
    }

    #[test]
    fn endless_ranges_are_rejected() {
        for text in ["1..5 step 0", "5..1", "1..1e9", "0..8 times 2", "1..8 times 1"] {
            assert!(values(&Value::String(text.to_owned())).unwrap_err().contains(text), "{text}");
        }
        assert!(values(&Value::Array(Vec::new())).is_err());
        let long = Value::Array(vec![Value::String("1..900000".to_owned()); 1000]);
        assert!(values(&long).unwrap_err().contains("over a million values"));
    }
}
