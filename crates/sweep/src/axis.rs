//! One axis of a sweep: a setting and its values, or several zipped settings.

use buddy_record::spec::Gpu;
use buddy_scenario::{Case, Input, Point, canonical};

/// Settings that change together, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Names of the settings.
    pub keys: Vec<String>,
    /// Their values, one row per position on the axis.
    pub rows: Vec<Vec<String>>,
}

impl Axis {
    /// Creates an axis of one setting.
    ///
    /// # Errors
    /// An unknown setting.
    pub fn new(key: &str, values: Vec<String>) -> Result<Self, String> {
        let key = known(key)?;
        Ok(Self { keys: vec![key], rows: values.into_iter().map(|value| vec![value]).collect() })
    }

    /// Creates an axis of zipped settings.
    ///
    /// # Errors
    /// An unknown setting, or different numbers of values.
    pub fn zipped(settings: Vec<(String, Vec<String>)>) -> Result<Self, String> {
        let length = settings.first().ok_or("no setting given")?.1.len();
        if let Some((key, values)) = settings.iter().find(|(_, values)| values.len() != length) {
            let (first, many) = (&settings[0].0, values.len());
            return Err(format!(
                "zipped settings need equal numbers of values: {first} has {length}, {key} has {many}"
            ));
        }
        let keys = settings.iter().map(|(key, _)| known(key)).collect::<Result<_, _>>()?;
        let row = |at: usize| settings.iter().map(|(_, values)| values[at].clone()).collect();
        Ok(Self { keys, rows: (0..length).map(row).collect() })
    }

    /// Parses `KEY=VALUES` of `--sweep`: values separated by commas, each of which may be a range.
    ///
    /// # Errors
    /// A message for other forms, unknown settings and invalid values.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (key, values) = text.split_once('=').ok_or("expected KEY=V1,V2")?;
        let values: Vec<String> =
            values.split(',').map(crate::values::texts).collect::<Result<Vec<_>, _>>()?.concat();
        let axis = Self::new(key, values)?;
        let mut case = Case::default();
        axis.rows.iter().try_for_each(|row| case.set(&axis.keys[0], &row[0]))?;
        Ok(axis)
    }

    /// Returns whether it changes the program side of a simulation.
    pub(crate) fn changes_input(&self) -> bool {
        self.keys.iter().any(|key| Input::KEYS.contains(&key.as_str()))
    }

    /// Returns its order among axes: the program first, so that points of a program are adjacent,
    /// then the GPU and its fields, then the rest.
    pub(crate) fn rank(&self) -> (usize, String) {
        let place = |key: &String| {
            let input = Input::KEYS.iter().position(|other| other == key);
            let point = || Point::KEYS.iter().position(|other| other == key);
            input
                .or_else(|| {
                    Some(match point()? {
                        0 => 100,
                        at => 200 + at,
                    })
                })
                .unwrap_or(150)
        };
        self.keys.iter().map(|key| (place(key), key.clone())).min().unwrap_or_default()
    }
}

/// Returns the canonical name of a known setting.
fn known(key: &str) -> Result<String, String> {
    let key = canonical(key);
    let there = Input::KEYS.contains(&key) || Point::KEYS.contains(&key) || Gpu::has_field(key);
    if there { Ok(key.to_owned()) } else { Case::default().set(key, "").map(|()| key.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_on_the_command_line_has_the_same_keys_and_ranges() {
        let axis = Axis::parse("link=50..150 step 50,c2c").unwrap();
        assert_eq!(axis.rows, [["50"], ["100"], ["150"], ["c2c"]]);
        assert_eq!(Axis::parse("gpu=v100").unwrap().keys, ["spec"]);
        assert_eq!(Axis::parse("l2.bytes=4MiB").unwrap().keys, ["l2.bytes"]);
        for (text, why) in [("link", "KEY=V1,V2"), ("colour=red", "setting 'colour'"), ("mode=x", "mode 'x'")]
        {
            assert!(Axis::parse(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn zipped_settings_need_equal_numbers_of_values() {
        let values = |many: usize| (0..many).map(|i| i.to_string()).collect::<Vec<_>>();
        let zip = |a, b| {
            Axis::zipped(vec![("l2.slices".to_owned(), values(a)), ("dram.channels".to_owned(), values(b))])
        };
        assert_eq!(zip(2, 2).unwrap().rows, [["0", "0"], ["1", "1"]]);
        assert!(Axis::zipped(Vec::new()).unwrap_err().contains("no setting"));
        assert!(zip(2, 3).unwrap_err().contains("l2.slices has 2, dram.channels has 3"));
    }

    #[test]
    fn axes_are_ordered_program_gpu_rest() {
        let rank = |key: &str| Axis::new(key, vec![String::new()]).unwrap().rank();
        let order = ["program", "scale", "spec", "dram.banks", "l2.bytes", "mode", "link", "threshold"];
        assert!(order.windows(2).all(|pair| rank(pair[0]) < rank(pair[1])));
    }
}
