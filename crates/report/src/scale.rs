//! Maps values to positions on a chart, with round tick values.

/// Desired number of ticks.
const TICKS: f64 = 5.0;

/// An axis in pixels, linear or logarithmic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    step: f64,
    start: f64,
    end: f64,
    log: bool,
}

impl Scale {
    /// Creates a linear scale from `base` to round numbers beyond all values, also below it if a
    /// value is smaller.
    pub(crate) fn about(base: f64, values: impl Iterator<Item = f64>, (start, end): (f64, f64)) -> Self {
        let known = values.filter(|value| value.is_finite());
        let (least, most) = known.fold((base, base), |(least, most), v| (least.min(v), most.max(v)));
        let step = round_step((most - least) / TICKS);
        let below = ((base - least) / step).ceil();
        let above = ((most - base) / step).ceil().max(if below > 0.0 { 0.0 } else { 1.0 });
        Self { from: base - below * step, to: base + above * step, step, start, end, log: false }
    }

    /// Creates a linear scale from the smallest to the largest value.
    pub(crate) fn across(values: impl Iterator<Item = f64> + Clone, (start, end): (f64, f64)) -> Self {
        let from = values.clone().fold(f64::INFINITY, f64::min);
        let to = values.fold(f64::NEG_INFINITY, f64::max);
        let (from, to) = if from < to { (from, to) } else { (0.0, 1.0) };
        Self { from, to, step: round_step((to - from) / TICKS), start, end, log: false }
    }

    /// Creates a logarithmic scale slightly beyond the smallest and largest positive values.
    pub(crate) fn factors(values: impl Iterator<Item = f64> + Clone, (start, end): (f64, f64)) -> Self {
        let known = values.filter(|value| value.is_finite() && *value > 0.0);
        let from = known.clone().fold(f64::INFINITY, f64::min);
        let to = known.fold(f64::NEG_INFINITY, f64::max);
        let (from, to) = if from <= to { (from, to * 1.05) } else { (1.0, 10.0) };
        Self { from, to, step: 0.0, start, end, log: true }
    }

    /// Returns the position of a value, clamped to the axis.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (value / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self.start + (self.end - self.start) * share
    }

    /// Returns round tick values.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        if self.log {
            return self.powers();
        }
        let first = (self.from / self.step).ceil();
        let count = ((self.to / self.step - first) + 1e-6).floor().clamp(0.0, 50.0) as u32;
        (0..=count).map(|i| (first + f64::from(i)) * self.step).collect()
    }

    /// Returns 1, 2 and 5 times powers of ten; finer if too few, powers alone if too many.
    fn powers(&self) -> Vec<f64> {
        let (low, high) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
        let inside = |steps: &[f64]| -> Vec<f64> {
            let all = (low..=high).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
            all.filter(|tick| (self.from * 0.999..=self.to * 1.001).contains(tick)).collect()
        };
        let (fine, plain, coarse) =
            (inside(&[1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0]), inside(&[1.0, 2.0, 5.0]), inside(&[1.0]));
        match plain.len() {
            0..=2 => fine,
            3..=9 => plain,
            _ => coarse,
        }
    }
}

/// Returns the smallest of 1, 2, 2.5 and 5 times a power of ten that is at least `step`.
fn round_step(step: f64) -> f64 {
    if !step.is_finite() || step <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|round| round * power >= step * 0.999);
    round.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        let steps = [0.03, 0.2, 0.21, 1.0, 26.0, 0.0, f64::NAN].map(round_step);
        assert_eq!(steps, [0.05, 0.2, 0.25, 1.0, 50.0, 1.0, 1.0]);
        let ticks = Scale::about(0.0, [0.9].into_iter(), (0.0, 1.0)).ticks();
        assert_eq!(ticks.len(), 6);
        assert!((ticks[5] - 1.0).abs() < 1e-9);
    }

    #[test]
    fn values_below_the_base_are_on_the_axis() {
        let scale = Scale::about(0.0, [-3.0, 1.0].into_iter(), (100.0, 0.0));
        assert_eq!((scale.at(-3.0), scale.at(0.0), scale.at(1.0)), (100.0, 25.0, 0.0));
        let scale = Scale::about(1.0, [0.5, 0.75].into_iter(), (100.0, 0.0));
        assert_eq!((scale.at(0.5), scale.at(1.0)), (100.0, 0.0), "no room above where nothing is more");
    }

    #[test]
    fn equal_factors_have_equal_distances() {
        let scale = Scale::factors([1.0, 100.0 / 1.05].into_iter(), (0.0, 200.0));
        assert!((scale.at(10.0) - 100.0).abs() < 1e-9);
        assert_eq!((scale.at(0.0), scale.at(f64::NAN), scale.at(1e9)), (0.0, 0.0, 200.0));
        assert_eq!(scale.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!(!Scale::factors([].into_iter(), (0.0, 1.0)).ticks().is_empty());
    }
}
