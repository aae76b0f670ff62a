//! The wave on the CPU, in plain arrays: the kernels' expected result, bit for bit.

use rayon::prelude::*;

use super::model::{Grid, LAYER, RADIUS, SMALLEST, VELOCITIES, WEIGHTS, push};

/// The wave after a number of steps, in rows along x, unpadded.
#[derive(Debug, Clone)]
pub struct Reference {
    grid: Grid,
    table: Vec<f32>,
    squares: Vec<f32>,
    here: Vec<f32>,
    before: Vec<f32>,
    step: u32,
}

impl Reference {
    /// Creates a zero field.
    pub fn new(grid: Grid) -> Self {
        let table = grid.table();
        let places =
            (0..grid.z).flat_map(|z| (0..grid.y).flat_map(move |y| (0..grid.x).map(move |x| [x, y, z])));
        let squares = places.map(|place| table[grid.velocity_index(place)]).collect();
        let zero = vec![0.0; grid.cells() as usize];
        Self { grid, table, squares, here: zero.clone(), before: zero, step: 0 }
    }

    /// Creates a field with one velocity everywhere, of this Courant number.
    #[cfg(test)]
    fn uniform(grid: Grid, courant: f32) -> Self {
        let mut wave = Self::new(grid);
        wave.squares.fill(courant * courant);
        wave
    }

    /// Returns all values, x fastest.
    pub fn values(&self) -> &[f32] {
        &self.here
    }

    /// Computes one step.
    pub fn advance(&mut self) {
        let Self { grid, table, squares, here, before, step } = self;
        let (row, plane) = (grid.x as usize, grid.plane() as usize);
        let view = View { grid: *grid, here, row, plane, damping: &table[VELOCITIES..] };
        before.par_chunks_mut(row).zip(squares.par_chunks(row)).enumerate().for_each(
            |(index, (out, squares))| {
                view.row(index % grid.y as usize, index / grid.y as usize, squares, out);
            },
        );
        let [x, y, z] = grid.source().map(|at| at as usize);
        let source = &mut before[z * plane + y * row + x];
        *source = flush(*source + push(*step));
        std::mem::swap(here, before);
        *step += 1;
    }
}

/// Inputs of one row.
struct View<'a> {
    grid: Grid,
    here: &'a [f32],
    row: usize,
    plane: usize,
    damping: &'a [f32],
}

impl View<'_> {
    fn row(&self, y: usize, z: usize, squares: &[f32], out: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the machine has the instructions.
            return unsafe { self.row_by_fma(y, z, squares, out) };
        }
        self.row_by_any(y, z, squares, out);
    }

    /// The same with FMA instructions instead of a call per operation: ten times as fast.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "fma")]
    fn row_by_fma(&self, y: usize, z: usize, squares: &[f32], out: &mut [f32]) {
        self.row_by_any(y, z, squares, out);
    }

    #[inline(always)]
    fn row_by_any(&self, y: usize, z: usize, squares: &[f32], out: &mut [f32]) {
        let keep = |at: usize, of: u32| self.damping[depth(at, of as usize)];
        let keep_yz = keep(y, self.grid.y) * keep(z, self.grid.z);
        let first = z * self.plane + y * self.row;
        let here = &self.here[first..][..self.row];
        let mut lap: Vec<f32> = here.iter().map(|value| WEIGHTS[0] * value).collect();
        let mut wide = vec![0.0; self.row + 2 * RADIUS];
        wide[RADIUS..][..self.row].copy_from_slice(here);
        for (k, &weight) in WEIGHTS.iter().enumerate().skip(1) {
            add(&mut lap, weight, &wide[RADIUS - k..], &wide[RADIUS + k..]);
        }
        self.along(&mut lap, first, y, self.grid.y as usize, self.row);
        self.along(&mut lap, first, z, self.grid.z as usize, self.plane);
        for (x, out) in out.iter_mut().enumerate() {
            let keep = keep(x, self.grid.x) * keep_yz;
            *out = flush(keep * squares[x].mul_add(lap[x], (-keep).mul_add(*out, here[x] + here[x])));
        }
    }

    /// Adds the contributions of the rows before and after along an axis, near ones first; outside
    /// the grid is zero.
    #[inline(always)]
    fn along(&self, lap: &mut [f32], first: usize, at: usize, end: usize, stride: usize) {
        let zeros = vec![0.0; self.row];
        for (k, &weight) in WEIGHTS.iter().enumerate().skip(1) {
            let low = if at >= k { &self.here[first - k * stride..][..self.row] } else { &zeros };
            let high = if at + k < end { &self.here[first + k * stride..][..self.row] } else { &zeros };
            add(lap, weight, low, high);
        }
    }
}

#[inline(always)]
fn add(sums: &mut [f32], weight: f32, low: &[f32], high: &[f32]) {
    for ((sum, low), high) in sums.iter_mut().zip(low).zip(high) {
        *sum = weight.mul_add(low + high, *sum);
    }
}

/// Returns a cell's depth in a damping layer along one axis; 0 outside.
fn depth(at: usize, of: usize) -> usize {
    LAYER.saturating_sub(at).max((at + LAYER + 1).saturating_sub(of))
}

fn flush(value: f32) -> f32 {
    if value.abs() < SMALLEST { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In uniform rock, u at a distance of n cells is the source n / c steps earlier, over 4 pi c^2
    /// n.
    #[test]
    fn a_wave_in_uniform_rock_is_the_known_one() {
        let (courant, steps, distance) = (0.4_f32, 120, 20);
        let mut wave = Reference::uniform(Grid { x: 128, y: 96, z: 96 }, courant);
        let mut heard = Vec::new();
        let [x, y, z] = wave.grid.source();
        for _ in 0..steps {
            wave.advance();
            heard.push(f64::from(wave.values()[((z * 96 + y) * 128 + x + distance) as usize]));
        }
        let (c, n) = (f64::from(courant), f64::from(distance));
        // The source of a step is visible after it; between steps it is interpolated.
        let expected = |step: usize| {
            let time = (step + 1) as f64 - n / c;
            let (low, part) = (time.floor(), time - time.floor());
            let at = |t: f64| if t < 0.0 { 0.0 } else { f64::from(push(t as u32)) };
            ((1.0 - part) * at(low) + part * at(low + 1.0)) / (4.0 * std::f64::consts::PI * c * c * n)
        };
        let expected: Vec<f64> = (0..steps as usize).map(expected).collect();
        let largest = expected.iter().fold(0.0_f64, |a, &b| a.max(b.abs()));
        let apart = heard.iter().zip(&expected).fold(0.0_f64, |a, (b, c)| a.max((b - c).abs()));
        assert!(apart < 0.05 * largest, "{apart} apart of {largest}");
    }

    #[test]
    fn layers_take_what_reaches_them() {
        let mut wave = Reference::new(Grid { x: 64, y: 64, z: 64 });
        let energy = |wave: &Reference| wave.values().iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
        (0..120).for_each(|_| wave.advance());
        let full = energy(&wave);
        (0..250).for_each(|_| wave.advance());
        assert!(full > 0.0 && energy(&wave) < 0.01 * full, "{} of {full}", energy(&wave));
    }
}
