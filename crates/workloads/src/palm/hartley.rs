//! The discrete Hartley transform of a level: real, its own inverse, and diagonalises periodic
//! differences.

/// Twiddle tables for transforms of one length, a power of two.
#[derive(Debug)]
pub(super) struct Hartley {
    /// Cosine and sine of each fraction of a circle.
    twiddles: Vec<[f64; 2]>,
}

impl Hartley {
    pub(super) fn new(length: usize) -> Self {
        assert!(length.is_power_of_two(), "a transform of {length} is not a power of two long");
        let angle = |i: usize| std::f64::consts::TAU * i as f64 / length as f64;
        Self { twiddles: (0..length / 2).map(|i| [angle(i).cos(), -angle(i).sin()]).collect() }
    }

    /// Transforms two rows at once, as the real and imaginary parts of a complex row.
    pub(super) fn transform(&self, a: &mut [f64], b: &mut [f64]) {
        let n = a.len();
        let mut z: Vec<[f64; 2]> = a.iter().zip(&*b).map(|(&a, &b)| [a, b]).collect();
        self.fourier(&mut z);
        for k in 0..n {
            let ([re, im], [back_re, back_im]) = (z[k], z[(n - k) % n]);
            let (even, odd) =
                ([0.5 * (re + back_re), 0.5 * (im - back_im)], [0.5 * (im + back_im), 0.5 * (back_re - re)]);
            (a[k], b[k]) = (even[0] - even[1], odd[0] - odd[1]);
        }
    }

    /// Radix-2 FFT in place.
    fn fourier(&self, z: &mut [[f64; 2]]) {
        let n = z.len();
        for i in 0..n {
            let reversed = i.reverse_bits() >> ((n.leading_zeros() + 1) % usize::BITS);
            if i < reversed {
                z.swap(i, reversed);
            }
        }
        let mut half = 1;
        while half < n {
            let step = n / (2 * half);
            for block in z.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for (i, (low, high)) in low.iter_mut().zip(high).enumerate() {
                    let ([c, s], [x, y]) = (self.twiddles[i * step], *high);
                    let turned = [x * c - y * s, x * s + y * c];
                    *high = [low[0] - turned[0], low[1] - turned[1]];
                    *low = [low[0] + turned[0], low[1] + turned[1]];
                }
            }
            half *= 2;
        }
    }
}

/// Transforms a level along x, then along y.
pub(super) fn transform_level(level: &mut [f64], along_x: &Hartley, along_y: &Hartley) {
    let nx = 2 * along_x.twiddles.len();
    let ny = level.len() / nx;
    rows_by_two(level, nx, along_x);
    let mut turned = transposed(level, nx);
    rows_by_two(&mut turned, ny, along_y);
    level.copy_from_slice(&transposed(&turned, ny));
}

fn rows_by_two(level: &mut [f64], length: usize, hartley: &Hartley) {
    for pair in level.chunks_exact_mut(2 * length) {
        let (a, b) = pair.split_at_mut(length);
        hartley.transform(a, b);
    }
}

fn transposed(level: &[f64], row: usize) -> Vec<f64> {
    (0..row).flat_map(|i| level[i..].iter().step_by(row).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transform_is_its_own_inverse_and_isolates_waves() {
        let (nx, ny) = (16, 8);
        let (x, y) = (Hartley::new(nx), Hartley::new(ny));
        let wave = |i: usize, j: usize| {
            (std::f64::consts::TAU * (3 * i) as f64 / nx as f64).cos() + (j as f64 * 0.7).sin()
        };
        let original: Vec<f64> = (0..nx * ny).map(|n| wave(n % nx, n / nx)).collect();
        let mut level = original.clone();
        transform_level(&mut level, &x, &y);
        assert!((level[3] - (nx * ny) as f64 / 2.0).abs() < 1e-12);
        transform_level(&mut level, &x, &y);
        for (back, value) in level.iter().zip(&original) {
            assert!((back / (nx * ny) as f64 - value).abs() < 1e-13);
        }
    }
}
