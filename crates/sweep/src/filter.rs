//! Filters that leave out points of a sweep.

use toml::{Table, Value};

use crate::{
    Axis,
    plan::{Mistake, flatten},
    values::{Range, number, texts},
};

/// Terms that all must hold. Each term lists the rows of its axis that it holds for.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    terms: Vec<(usize, Vec<bool>)>,
}

impl Filter {
    /// Reads the settings of a `[[skip]]` or `[[only]]` table; each must be on an axis.
    pub(crate) fn read(table: &Table, axes: &[Axis]) -> Result<Self, Mistake> {
        let term = |(key, value): &(String, Value)| {
            let place = axes.iter().enumerate().find_map(|(axis, one)| {
                let key = buddy_scenario::canonical(key);
                Some((axis, one.keys.iter().position(|other| other == key)?))
            });
            let (axis, column) =
                place.ok_or_else(|| format!("no axis has '{key}', so it filters nothing"))?;
            let test = Test::read(value)?;
            let rows: Vec<bool> = axes[axis].rows.iter().map(|row| test.holds(&row[column])).collect();
            match rows.contains(&true) {
                true => Ok((axis, rows)),
                false => Err(format!("no value of '{key}' is {value}")),
            }
        };
        let named = |setting: (String, Value)| term(&setting).map_err(|why: String| (setting.0, why));
        Ok(Self { terms: flatten(table).into_iter().map(named).collect::<Result<_, _>>()? })
    }

    /// Returns whether all terms hold for the point at these positions along the axes.
    pub(crate) fn holds(&self, places: &[usize]) -> bool {
        self.terms.iter().all(|(axis, rows)| rows[places[*axis]])
    }
}

/// Comparison of a value with a bound.
type Compare = fn(f64, f64) -> bool;

/// Test of a value.
enum Test {
    OneOf(Vec<String>),
    Between(f64, f64),
    Compare(Compare, f64),
    Not(String),
}

impl Test {
    fn read(value: &Value) -> Result<Self, String> {
        let Value::String(text) = value else { return Ok(Self::OneOf(crate::values(value)?)) };
        let compared: [(&str, Compare); 4] =
            [("<=", |a, b| a <= b), (">=", |a, b| a >= b), ("<", |a, b| a < b), (">", |a, b| a > b)];
        for (sign, compare) in compared {
            if let Some(rest) = text.strip_prefix(sign) {
                let than =
                    number(rest.trim()).ok_or_else(|| format!("'{text}' does not compare with a number"))?;
                return Ok(Self::Compare(compare, than));
            }
        }
        if let Some(rest) = text.strip_prefix("!=") {
            return Ok(Self::Not(rest.trim().to_owned()));
        }
        match Range::parse(text).filter(|range| range.is_plain()) {
            Some(Range { from, to, .. }) => Ok(Self::Between(from, to)),
            None => Ok(Self::OneOf(texts(text)?)),
        }
    }

    fn holds(&self, value: &str) -> bool {
        let is = |test: &dyn Fn(f64) -> bool| number(value).is_some_and(test);
        match self {
            Self::OneOf(all) => all.iter().any(|one| same(one, value)),
            Self::Between(from, to) => is(&|number| (*from..=*to).contains(&number)),
            Self::Compare(compare, than) => is(&|number| compare(number, *than)),
            Self::Not(other) => !same(other, value),
        }
    }
}

fn same(a: &str, b: &str) -> bool {
    a == b || number(a).is_some_and(|a| number(b) == Some(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(filter: &str) -> Vec<(usize, usize)> {
        let axes = [Axis::parse("mode=ideal,buddy").unwrap(), Axis::parse("link=50,100,150,200").unwrap()];
        let filter = Filter::read(&toml::from_str(filter).unwrap(), &axes).unwrap();
        let all = (0..2).flat_map(|mode| (0..4).map(move |link| (mode, link)));
        all.filter(|(mode, link)| filter.holds(&[*mode, *link])).collect()
    }

    #[test]
    fn terms_are_values_lists_ranges_and_comparisons() {
        assert_eq!(kept("mode = 'ideal'\nlink = '> 50'"), [(0, 1), (0, 2), (0, 3)]);
        assert_eq!(kept("link = '60..150'"), [(0, 1), (0, 2), (1, 1), (1, 2)]);
        assert_eq!(kept("link = [50, '150..200 step 50']\nmode = '!= ideal'"), [(1, 0), (1, 2), (1, 3)]);
        assert_eq!(kept("link = '<= 50.0'"), [(0, 0), (1, 0)]);
    }

    #[test]
    fn a_filter_that_filters_nothing_is_a_mistake() {
        let axes = [Axis::parse("mode=ideal,buddy").unwrap()];
        let error = |text: &str| Filter::read(&toml::from_str(text).unwrap(), &axes).unwrap_err().1;
        assert!(error("link = 50").contains("no axis has 'link'"));
        assert!(error("mode = 'um'").contains("no value of 'mode'"));
        assert!(error("mode = '< x'").contains("does not compare with a number"));
    }
}
