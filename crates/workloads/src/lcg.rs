//! The NAS Parallel Benchmarks' random numbers: `x' = 5^13 x mod 2^46`, as a fraction of `2^46`.
//!
//! The modulus is a power of two that divides `2^64`, so wrapping integer products give the exact
//! state.

const MULTIPLIER: u64 = 1_220_703_125;
const MASK: u64 = (1 << 46) - 1;
const FRACTION: f64 = 1.0 / (1_u64 << 46) as f64;

/// A position in the sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lcg {
    state: u64,
}

/// A jump ahead by a fixed count, at the cost of one product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leap(u64);

impl Leap {
    /// Computes the jump over `count` numbers in log2(`count`) steps.
    pub(crate) fn over(count: u64) -> Self {
        let (mut power, mut square, mut left) = (1_u64, MULTIPLIER, count);
        while left > 0 {
            if left & 1 == 1 {
                power = power.wrapping_mul(square) & MASK;
            }
            square = square.wrapping_mul(square) & MASK;
            left >>= 1;
        }
        Self(power)
    }
}

impl Lcg {
    /// Starts after the odd number `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed & MASK }
    }

    /// Returns the next number in (0, 1).
    #[inline]
    pub(crate) fn draw(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(MULTIPLIER) & MASK;
        self.state as f64 * FRACTION
    }

    /// Returns the sequence after a jump.
    #[inline]
    pub(crate) fn after(self, leap: Leap) -> Self {
        Self { state: self.state.wrapping_mul(leap.0) & MASK }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_equals_single_draws() {
        let start = Lcg::new(314_159_265);
        let mut walked = start;
        for count in 0..300 {
            assert_eq!(start.after(Leap::over(count)), walked);
            walked.draw();
        }
    }

    #[test]
    fn numbers_are_fractions_of_the_exact_product() {
        let mut random = Lcg::new(271_828_183);
        let exact = u128::from(271_828_183_u64) * 1_220_703_125 % (1 << 46);
        assert_eq!(random.draw(), exact as f64 / (1_u64 << 46) as f64);
    }
}
