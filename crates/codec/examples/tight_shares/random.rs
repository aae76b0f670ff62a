//! Random numbers of several distributions, the same each time.

/// Random numbers, the same each time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number of 0 to 1, without both.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    pub(crate) fn laplace(&mut self) -> f64 {
        let sign = if self.uniform() < 0.5 { -1.0 } else { 1.0 };
        -sign * self.uniform().ln()
    }

    pub(crate) fn student(&mut self, freedom: u32) -> f64 {
        let squares: f64 = (0..freedom).map(|_| self.normal().powi(2)).sum();
        self.normal() / (squares / f64::from(freedom)).sqrt()
    }
}
