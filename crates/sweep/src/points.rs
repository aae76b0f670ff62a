//! Points of a plan, each with the digest of everything that decides its result.
//!
//! A million points are planned in seconds, because a point's inputs are assembled from JSON
//! fragments made once per axis value. Settings that a point's mode ignores are null. Points with
//! equal inputs are merged.

use std::collections::HashSet;

use buddy_core::digest;
use buddy_profile::DEFAULT_THRESHOLD;
use buddy_record::{Policy, spec::Link};
use buddy_scenario::{Case, Input, Point, Share, TargetChoice, parse_mode};
use buddy_sim::Mode;
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::{Error, Key, Plan, key::digest_of};

/// Number of points checked in full before anything runs.
const CHECKED: usize = 500;
/// Points that one thread plans at a time.
const BATCH: usize = 4096;

/// The kept points of a plan, in order.
#[derive(Debug)]
pub struct Points {
    plan: Plan,
    /// Index of the point in the plan, and its digest.
    kept: Vec<(u32, u128)>,
    /// Names of the settings in order, each with its piece.
    pieces: Vec<(String, Piece)>,
    /// JSON and simulation seconds for each combination of the program's settings.
    inputs: Vec<(String, f64)>,
    /// Points of the plan per combination.
    per_input: usize,
}

/// One field of a point's inputs, in order of names.
#[derive(Debug)]
enum Piece {
    Input,
    Same(String),
    Along { axis: usize, values: Vec<String> },
}

impl Points {
    /// Plans every point: applies filters, computes digests and merges duplicates.
    ///
    /// # Errors
    /// An unknown program, machine or file. Of many points only an evenly spaced sample is checked;
    /// errors in the others surface when they run.
    pub fn of(plan: Plan) -> Result<Self, Error> {
        let inputs = plan.axes.iter().take_while(|axis| axis.changes_input());
        let combinations: usize = inputs.map(|axis| axis.rows.len()).product();
        let per_input = plan.size() / combinations.max(1);
        let input = |at: usize| {
            let input = plan.case(at * per_input).input;
            Ok((format!("\"input\":{}", input.spec()?), input.seconds()))
        };
        let inputs = (0..combinations).into_par_iter().map(input).collect::<Result<_, Error>>()?;
        let pieces = pieces(&plan)?;
        let mut points = Self { plan, kept: Vec::new(), pieces, inputs, per_input };
        points.kept = points.all();
        let mut seen = HashSet::with_capacity(points.kept.len());
        points.kept.retain(|(_, digest)| seen.insert(*digest));
        points.check()?;
        Ok(points)
    }

    fn all(&self) -> Vec<(u32, u128)> {
        let size = self.plan.size();
        let batch = |first: usize| {
            let (mut places, mut text, mut kept) = (Vec::new(), String::new(), Vec::new());
            for number in first * BATCH..((first + 1) * BATCH).min(size) {
                self.plan.places(number, &mut places);
                if self.plan.keeps(&places) {
                    self.write(number, &places, &mut text);
                    kept.push((number as u32, digest_of(&text)));
                }
            }
            kept
        };
        (0..size.div_ceil(BATCH)).into_par_iter().flat_map_iter(batch).collect()
    }

    fn check(&self) -> Result<(), Error> {
        let step = self.len().div_ceil(CHECKED).max(1);
        for point in (0..self.len()).step_by(step) {
            let case = self.case(point);
            case.check().map_err(|error| Error::plan(&case.point.name(), error))?;
        }
        Ok(())
    }

    /// Writes the inputs of a point as compact JSON with sorted keys.
    fn write(&self, number: usize, places: &[usize], text: &mut String) {
        text.clear();
        let point = self.machine(places);
        for (index, (key, piece)) in self.pieces.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            match piece {
                Piece::Input => text.push_str(&self.inputs[number / self.per_input].0),
                _ if point.ignores(key) => text.push_str(&format!("{}:null", json!(key))),
                Piece::Same(value) => text.push_str(value),
                Piece::Along { axis, values } => text.push_str(&values[places[*axis]]),
            }
        }
        text.push('}');
    }

    /// Returns the settings of a point that decide which others its mode ignores.
    fn machine(&self, places: &[usize]) -> Point {
        let program = self.value("program", places).unwrap_or(&self.plan.base.point.program);
        Point { targets: self.targets(places), ..Point::new(program, self.mode(places)) }
    }

    /// Returns the mode of a point.
    fn mode(&self, places: &[usize]) -> Mode {
        let value = self.value("mode", places).and_then(|mode| parse_mode(mode).ok());
        value.unwrap_or(self.plan.base.point.mode)
    }

    /// Returns the targets of a point.
    fn targets(&self, places: &[usize]) -> Option<String> {
        self.value("targets", places).cloned().or_else(|| self.plan.base.point.targets.clone())
    }

    /// Returns the value of a setting that an axis varies.
    fn value(&self, key: &str, places: &[usize]) -> Option<&String> {
        self.plan.axes.iter().zip(places).find_map(|(axis, place)| {
            let column = axis.keys.iter().position(|other| other == key)?;
            Some(&axis.rows[*place][column])
        })
    }

    /// Returns whether the mode of a point ignores a setting.
    pub(crate) fn ignores(&self, point: usize, key: &str) -> bool {
        self.machine(&self.places(point)).ignores(key)
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the number of points.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns whether the filters leave no point.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns the settings of a point.
    pub fn case(&self, point: usize) -> Case {
        self.plan.case(self.kept[point].0 as usize)
    }

    /// Returns the position of a point along each axis.
    pub(crate) fn places(&self, point: usize) -> Vec<usize> {
        let mut places = Vec::new();
        self.plan.places(self.kept[point].0 as usize, &mut places);
        places
    }

    /// Returns the digest of a point.
    pub fn digest(&self, point: usize) -> u128 {
        self.kept[point].1
    }

    /// Returns the key of a point's record.
    pub fn key(&self, point: usize) -> Key {
        let mut text = String::new();
        self.write(self.kept[point].0 as usize, &self.places(point), &mut text);
        Key::point(&text)
    }

    /// Returns the index of a point's combination of program settings.
    pub(crate) fn input(&self, point: usize) -> usize {
        self.kept[point].0 as usize / self.per_input
    }

    /// Returns the program settings of a combination.
    pub(crate) fn input_case(&self, input: usize) -> Input {
        self.plan.case(input * self.per_input).input
    }

    /// Returns whether a point depends on the program's data.
    pub(crate) fn is_compressed(&self, point: usize) -> bool {
        self.mode(&self.places(point)).compresses()
    }

    /// Estimates the core seconds of a point.
    pub fn seconds(&self, point: usize) -> f64 {
        self.inputs[self.input(point)].1
    }
}

/// Returns the fields of the inputs of all points, in order of names.
fn pieces(plan: &Plan) -> Result<Vec<(String, Piece)>, Error> {
    let mut named: Vec<(String, Piece)> = vec![("input".to_owned(), Piece::Input)];
    let machine = |key: &&String| !Input::KEYS.contains(&key.as_str());
    for (index, axis) in plan.axes.iter().enumerate() {
        for key in axis.keys.iter().filter(machine) {
            let column = axis.keys.iter().position(|other| other == key).unwrap_or(0);
            let value = |row: &Vec<String>| piece(plan, key, Some(&row[column]));
            let values = axis.rows.iter().map(value).collect::<Result<_, _>>()?;
            named.push((key.clone(), Piece::Along { axis: index, values }));
        }
    }
    let fields: Vec<String> = plan.base.point.fields.keys().cloned().collect();
    for key in Point::KEYS.into_iter().map(str::to_owned).chain(fields) {
        if !named.iter().any(|(other, _)| *other == key) {
            let same = Piece::Same(piece(plan, &key, None)?);
            named.push((key, same));
        }
    }
    named.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(named)
}

/// Returns a machine setting as it appears in the inputs: presets and files by their contents.
fn piece(plan: &Plan, key: &str, value: Option<&str>) -> Result<String, Error> {
    let mut case = plan.base.clone();
    if let Some(value) = value {
        plan.set(&mut case, key, value).map_err(|why| Error::plan(key, why))?;
    }
    let point = &case.point;
    let value = match key {
        "spec" => {
            let gpu =
                Point { fields: only_name(plan, point), ..point.clone() }.config().map_err(scenario)?.gpu;
            json!({ "name": gpu.name, "digest": hex(&serde_json::to_string(&gpu).unwrap_or_default()) })
        }
        "link" => json!(Link::named(&point.link).map_err(scenario)?),
        "mode" => json!(point.mode),
        "targets" => targets(point)?,
        "metadata" => json!(point.metadata_bytes),
        "oversubscription" => json!(point.oversubscription.get()),
        "policy" => json!(point.policy.unwrap_or(Policy::Allocation16x)),
        "threshold" => json!(point.threshold.map_or(DEFAULT_THRESHOLD, Share::get)),
        field => json!(point.fields.get(field)),
    };
    Ok(format!("{}:{value}", json!(key)))
}

/// Returns the fields changed by a GPU of the plan; those of axes are separate.
fn only_name(plan: &Plan, point: &Point) -> std::collections::BTreeMap<String, String> {
    let own = point.fields.get("name").and_then(|name| plan.gpus.get(name));
    let fields =
        own.map(|own| own.fields.iter().map(|(field, _)| field.as_str()).chain(["name"]).collect::<Vec<_>>());
    let fields = fields.unwrap_or_default();
    point
        .fields
        .iter()
        .filter(|(field, _)| fields.contains(&field.as_str()))
        .map(|(a, b)| (a.clone(), b.clone()))
        .collect()
}

fn targets(point: &Point) -> Result<Value, Error> {
    match TargetChoice::named(point.targets.as_deref()) {
        TargetChoice::File(path) => {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| Error::plan("targets", format!("{path}: {error}")))?;
            Ok(json!({ "digest": hex(&text) }))
        }
        TargetChoice::All(target) => Ok(json!(target.name())),
        TargetChoice::Compressed | TargetChoice::Capacity(_) | TargetChoice::Imposed(_) => {
            Ok(json!(point.targets))
        }
        TargetChoice::Policy | TargetChoice::Rule { .. } | TargetChoice::Table(_) => Ok(Value::Null),
    }
}

fn hex(text: &str) -> String {
    format!("{:032x}", digest(text.as_bytes()))
}

fn scenario(error: buddy_record::spec::SpecError) -> Error {
    Error::Scenario(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(text: &str) -> Points {
        Points::of(Plan::parse(text).unwrap()).unwrap()
    }

    const PLAN: &str = "[axes]\nprogram = ['cg', 'vgg16']\nscale = '4MB'\nmode = ['ideal', 'buddy']\nbatch = [8, 16]\n\
                        l2.bytes = ['4MiB', '8MiB']\nlink = [50, 'c2c']";

    #[test]
    fn inputs_of_a_point_are_canonical_json() {
        let points = points(PLAN);
        // The batch size does not affect cg, nor the link ideal memory.
        assert_eq!(points.len(), (2 + 4) + (4 + 8));
        for point in 0..points.len() {
            let (mut text, key) = (String::new(), points.key(point));
            points.write(points.kept[point].0 as usize, &points.places(point), &mut text);
            assert_eq!(key.inputs.to_string(), text);
            assert_eq!(key.digest(), points.digest(point));
            assert_eq!(points.is_compressed(point), points.case(point).is_compressed());
        }
    }

    #[test]
    fn every_deciding_setting_changes_the_digest() {
        let digest = |more: &str| {
            let all = points(&format!("[axes]\nprogram = 'cg'\nscale = '4MB'\nmode = 'buddy'\n{more}"));
            assert_eq!(all.len(), 1);
            all.digest(0)
        };
        let changes = [
            "",
            "seed = 2",
            "codec = 'bdi'",
            "snapshot = 3",
            "gpu = 'v100'",
            "link = 50",
            "targets = '2x'",
            "metadata = 8192",
            "policy = 'naive'",
            "threshold = 0.2",
            "l2.bytes = 8388608",
            "dram.banks = 8",
            "gpu = 'x'\n[gpu.x]\nbase = 'paper'",
            "gpu = 'x'\n[gpu.x]\nbase = 'paper'\nl2.bytes = 8388608",
        ];
        let all: HashSet<u128> = changes.iter().map(|change| digest(change)).collect();
        assert_eq!(all.len(), changes.len());
        // Stating a default does not.
        for same in [
            "threshold = 0.30",
            "policy = 'allocation-16x'",
            "link = 150",
            "gpu = 'paper'",
            "seed = 1",
            "codec = 'bpc'",
        ] {
            assert_eq!(digest(same), digest(""), "{same}");
        }
    }

    /// Ideal memory has no metadata, no targets and no link: of six points of each mode one is left, and
    /// of Unified Memory those with another oversubscription.
    #[test]
    fn settings_that_a_mode_ignores_make_no_points() {
        let all = points(
            "[axes]\nprogram = 'cg'\nmode = ['ideal', 'buddy', 'um']\nmetadata = [4096, 8192, 16384]\n\
             threshold = [0.1, 0.3]\noversubscription = [0, 0.1]",
        );
        let modes = |mode| (0..all.len()).filter(|point| all.case(*point).point.mode == mode).count();
        assert_eq!([Mode::Ideal, Mode::Buddy, Mode::Um].map(modes), [1, 6, 2]);
        let ideal = (0..all.len()).find(|point| all.case(*point).point.mode == Mode::Ideal).unwrap();
        assert!(all.ignores(ideal, "metadata") && all.ignores(ideal, "link"));
        assert!(all.key(ideal).inputs.to_string().contains("\"metadata\":null"));
    }

    #[test]
    fn invalid_points_are_rejected_before_anything_runs() {
        let refused = |text: &str| Points::of(Plan::parse(text).unwrap()).unwrap_err().to_string();
        let error = refused("[axes]\nprogram = 'cg'\nl2.slices = [32, 33]");
        assert!(error.contains("l2.slices is 33"), "{error}");
        assert!(refused("[axes]\nprogram = 'stream'\nmode = 'buddy'").contains("needs targets"));
        assert!(refused("[axes]\nprogram = 'cg'\nscale = '1kB'").contains("the scale must be"));
    }
}
