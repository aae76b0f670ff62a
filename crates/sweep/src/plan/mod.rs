//! A sweep as a file: axes, custom GPUs and filters.

mod place;

use std::{collections::BTreeMap, fs, path::Path};

use buddy_record::spec::Link;
use buddy_scenario::{Case, Source};
use serde::Deserialize;
use toml::{Table, Value};

use crate::{Axis, Error, filter::Filter, values};

/// Maximum number of points before filters.
const MOST: u128 = 50_000_000;

/// The file as TOML.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    name: String,
    axes: Table,
    #[serde(default)]
    zip: Vec<Table>,
    #[serde(default)]
    gpu: BTreeMap<String, Table>,
    #[serde(default)]
    skip: Vec<Table>,
    #[serde(default)]
    only: Vec<Table>,
}

/// A sweep: the shared settings and the axes. Each point follows from its index; nothing is stored
/// per point.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name given in the file, or the file's own.
    pub name: String,
    pub(crate) base: Case,
    pub(crate) axes: Vec<Axis>,
    /// GPUs defined by the plan: a built-in one or a file, and the changed fields.
    pub(crate) gpus: BTreeMap<String, Changed>,
    skip: Vec<Filter>,
    only: Vec<Filter>,
}

/// A GPU derived from another by changing fields.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Changed {
    pub(crate) base: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Plan {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`Error::Plan`] with the invalid table or setting.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| Error::plan(&file, error))?;
        let mut plan = Self::parse(&text).map_err(|why| Error::plan(&file, why))?;
        if plan.name.is_empty() {
            plan.name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        }
        Ok(plan)
    }

    /// Parses and checks the text of a file.
    ///
    /// # Errors
    /// A message that names the line, the table and the setting.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| place::of_form(text, &error))?;
        let at = |table: &'static str| move |(key, why): Mistake| place::of_setting(text, table, &key, &why);
        let gpus = file.gpu.into_iter().map(|(name, table)| Ok((name, changed(&table)?)));
        let gpus = gpus.collect::<Result<_, Mistake>>().map_err(at("gpu"))?;
        let mut axes = crossed(&file.axes).map_err(at("axes"))?;
        for table in &file.zip {
            axes.push(zipped(table).map_err(at("zip"))?);
            refuse_many(&axes)?;
        }
        axes.sort_by_key(Axis::rank);
        let mut plan = Self::new(&file.name, Case::default(), axes, gpus)?;
        plan.check_values().map_err(at("axes"))?;
        let read = |tables: &[Table], what: &'static str| -> Result<Vec<Filter>, String> {
            tables.iter().map(|table| Filter::read(table, &plan.axes).map_err(at(what))).collect()
        };
        let (skip, only) = (read(&file.skip, "skip")?, read(&file.only, "only")?);
        (plan.skip, plan.only) = (skip, only);
        Ok(plan)
    }

    /// Creates a sweep from options and axes; axes of programs move to the front.
    ///
    /// # Errors
    /// A setting on two axes, an invalid value, or too many points.
    pub fn of(base: Case, mut axes: Vec<Axis>) -> Result<Self, String> {
        axes.sort_by_key(|axis| !axis.changes_input());
        let plan = Self::new("", base, axes, BTreeMap::new())?;
        plan.check_values().map_err(|(_, why)| why)?;
        Ok(plan)
    }

    fn new(name: &str, base: Case, axes: Vec<Axis>, gpus: BTreeMap<String, Changed>) -> Result<Self, String> {
        let mut keys: Vec<&String> = axes.iter().flat_map(|axis| &axis.keys).collect();
        keys.sort();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("'{}' is given twice", pair[0]));
        }
        refuse_many(&axes)?;
        Ok(Self { name: name.to_owned(), base, axes, gpus, skip: Vec::new(), only: Vec::new() })
    }

    /// Sets every value of every axis once, so that later settings cannot fail.
    fn check_values(&self) -> Result<(), Mistake> {
        for axis in &self.axes {
            let mut case = self.base.clone();
            for (key, value) in axis.rows.iter().flat_map(|row| axis.keys.iter().zip(row)) {
                let set = self.set(&mut case, key, value);
                set.and_then(|()| exists(&case, key, value)).map_err(|why| (key.clone(), why))?;
            }
        }
        Ok(())
    }

    /// Describes the varying axes with their numbers of values: `program 2 × link 4, less what
    /// filters leave out`.
    pub fn shape(&self) -> String {
        let varied = self.axes.iter().filter(|axis| axis.rows.len() > 1);
        let axes: Vec<String> =
            varied.map(|axis| format!("{} {}", axis.keys.join(" with "), axis.rows.len())).collect();
        let filtered = !(self.skip.is_empty() && self.only.is_empty());
        let rest = if filtered { ", less what filters leave out" } else { "" };
        if axes.is_empty() { "nothing varies".to_owned() } else { axes.join(" × ") + rest }
    }

    /// Returns the axes; the first varies slowest.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Returns the number of points before filters.
    pub fn size(&self) -> usize {
        self.axes.iter().map(|axis| axis.rows.len()).product()
    }

    /// Computes the position of a point along each axis from its index; the first axis varies
    /// slowest.
    pub(crate) fn places(&self, mut number: usize, places: &mut Vec<usize>) {
        places.clear();
        places.resize(self.axes.len(), 0);
        for (place, axis) in places.iter_mut().zip(&self.axes).rev() {
            (number, *place) = (number / axis.rows.len(), number % axis.rows.len());
        }
    }

    /// Returns whether the filters keep a point.
    pub(crate) fn keeps(&self, places: &[usize]) -> bool {
        let wanted = self.only.is_empty() || self.only.iter().any(|filter| filter.holds(places));
        wanted && !self.skip.iter().any(|filter| filter.holds(places))
    }

    /// Iterates over the settings of all kept points, in order.
    pub fn cases(&self) -> impl Iterator<Item = Case> {
        let mut places = Vec::new();
        let kept = move |number: &usize| {
            self.places(*number, &mut places);
            self.keeps(&places)
        };
        (0..self.size()).filter(kept).map(|number| self.case(number))
    }

    /// Returns the settings of the point with this index.
    pub(crate) fn case(&self, number: usize) -> Case {
        let mut places = Vec::new();
        self.places(number, &mut places);
        let mut case = self.base.clone();
        for (axis, place) in self.axes.iter().zip(&places) {
            self.set_row(&mut case, axis, &axis.rows[*place]).expect("every value was set once before");
        }
        case
    }

    fn set_row(&self, case: &mut Case, axis: &Axis, row: &[String]) -> Result<(), String> {
        axis.keys.iter().zip(row).try_for_each(|(key, value)| self.set(case, key, value))
    }

    /// Changes a setting; a GPU may be one defined by the plan.
    pub(crate) fn set(&self, case: &mut Case, key: &str, value: &str) -> Result<(), String> {
        let Some(own) = self.gpus.get(value).filter(|_| key == "spec") else { return case.set(key, value) };
        case.point.gpu.clone_from(&own.base);
        // Axes of fields follow that of the GPU and change it further.
        case.point.fields.insert("name".to_owned(), value.to_owned());
        own.fields.iter().for_each(|(field, value)| case.point.change(field, value));
        Ok(())
    }
}

/// Checks that a program, link or GPU exists. Fields of a GPU are checked together with the whole
/// point.
fn exists(case: &Case, key: &str, value: &str) -> Result<(), String> {
    match key {
        "program" => Source::find(value).map(drop).map_err(|error| error.to_string()),
        "link" => Link::named(value).map(drop).map_err(|error| error.to_string()),
        "spec" => case.point.config().map(drop).map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

/// A setting and the error in it.
pub(crate) type Mistake = (String, String);

/// Returns an axis for each setting of a table; programs, networks and traces share one.
fn crossed(table: &Table) -> Result<Vec<Axis>, Mistake> {
    let mut axes: Vec<Axis> = Vec::new();
    for (key, value) in flatten(table) {
        let axis =
            values(&value).and_then(|values| Axis::new(&key, values)).map_err(|why| (key.clone(), why))?;
        match axes.iter_mut().find(|other| other.keys == axis.keys && axis.keys == ["program"]) {
            Some(programs) => programs.rows.extend(axis.rows),
            None => axes.push(axis),
        }
        refuse_many(&axes).map_err(|why| (key, why))?;
    }
    Ok(axes)
}

/// Rejects axes with too many points before more values are expanded.
fn refuse_many(axes: &[Axis]) -> Result<(), String> {
    let size = axes.iter().fold(1u128, |size, axis| size.saturating_mul(axis.rows.len() as u128));
    if size <= MOST {
        return Ok(());
    }
    Err(format!("{size} points are too many; {MOST} is the most, before filters"))
}

/// Returns the axis of a table of zipped settings.
fn zipped(table: &Table) -> Result<Axis, Mistake> {
    let mut settings = Vec::new();
    for (key, value) in flatten(table) {
        let values = values(&value).map_err(|why| (key.clone(), why))?;
        settings.push((key, values));
    }
    let first = settings.first().map_or_else(String::new, |(key, _)| key.clone());
    Axis::zipped(settings).map_err(|why| (first, why))
}

fn changed(table: &Table) -> Result<Changed, Mistake> {
    let mut table = table.clone();
    let base = table.remove("base");
    let base = base.as_ref().and_then(Value::as_str).ok_or_else(|| {
        ("base".to_owned(), "a GPU of a plan needs the GPU it changes: base = \"h200\"".to_owned())
    })?;
    let field = |(key, value): (String, Value)| match values(&value) {
        Ok(values) if values.len() == 1 => Ok((key, values[0].clone())),
        Ok(_) => Err((key, "several values are only possible on an axis".to_owned())),
        Err(why) => Err((key, why)),
    };
    Ok(Changed {
        base: base.to_owned(),
        fields: flatten(&table).into_iter().map(field).collect::<Result<_, _>>()?,
    })
}

/// Returns the values of a table and its nested tables by dotted name.
pub(crate) fn flatten(table: &Table) -> Vec<(String, Value)> {
    let inner = |(key, value): (&String, &Value)| match value {
        Value::Table(table) => {
            flatten(table).into_iter().map(|(name, value)| (format!("{key}.{name}"), value)).collect()
        }
        value => vec![(key.clone(), value.clone())],
    };
    table.iter().flat_map(inner).collect()
}

#[cfg(test)]
mod tests;
