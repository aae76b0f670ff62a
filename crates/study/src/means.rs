//! Means as the paper takes them: geometric for ratios, arithmetic for shares.

/// Returns the geometric mean; `None` without values.
pub fn geometric(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    arithmetic(values.into_iter().map(f64::ln)).map(f64::exp)
}

/// Returns the arithmetic mean; `None` without values.
pub fn arithmetic(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.into_iter().fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns the correlation of pairs; `None` if undefined.
pub fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let mean = |value: fn(&(f64, f64)) -> f64| arithmetic(pairs.iter().map(value));
    let (x, y) = (mean(|pair| pair.0)?, mean(|pair| pair.1)?);
    let sum = |of: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|(a, b)| of(a - x, b - y)).sum::<f64>();
    let spread = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    (spread > 0.0).then(|| sum(&|a, b| a * b) / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_match_hand_computed_values() {
        assert!((geometric([1.0, 4.0]).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(arithmetic([1.0, 4.0]), Some(2.5));
        assert_eq!((geometric([]), arithmetic([])), (None, None));
    }

    #[test]
    fn correlations_match_hand_computed_values() {
        let along = correlation(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).unwrap();
        let against = correlation(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]).unwrap();
        assert!((along - 1.0).abs() < 1e-12 && (against + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&[(1.0, 2.0)]), None);
    }
}
