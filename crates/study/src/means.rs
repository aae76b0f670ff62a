//! Means as the paper takes them: geometric for ratios, arithmetic for shares.

/// The geometric mean; none of nothing.
pub fn geometric(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    arithmetic(values.into_iter().map(f64::ln)).map(f64::exp)
}

/// The arithmetic mean; none of nothing.
pub fn arithmetic(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.into_iter().fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// The correlation of pairs; none where there is nothing to correlate.
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
    fn means_of_a_few() {
        assert!((geometric([1.0, 4.0]).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(arithmetic([1.0, 4.0]), Some(2.5));
        assert_eq!((geometric([]), arithmetic([])), (None, None));
    }

    #[test]
    fn correlations_of_a_few() {
        let along = correlation(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).unwrap();
        let against = correlation(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]).unwrap();
        assert!((along - 1.0).abs() < 1e-12 && (against + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&[(1.0, 2.0)]), None);
    }
}
