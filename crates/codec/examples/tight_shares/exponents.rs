//! Shares of weights in narrow formats by codes for their exponents, as a tight matrix has them: counted,
//! not packed.
//!
//! A value keeps sign and mantissa. Its exponent is a code of a few bits in a window of its row. In a
//! group of sixteen values one of which lies outside, all codes are wider; values outside the wider
//! window are exceptions of four bytes. A group has a bit. Nothing else is counted.

use crate::random::Random;

/// Rows and columns of the synthetic matrices.
const ROWS: usize = 96;
const COLUMNS: usize = 1024;
const GROUP: usize = 16;
const EXCEPTION_BITS: usize = 32;
/// Bits of a code, and bits more in a group: those that decode without a branch.
const CODES: [[u32; 2]; 4] = [[2, 1], [2, 2], [3, 1], [3, 2]];

/// A floating-point format with subnormal numbers.
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    /// The largest value.
    most: f64,
}

const E4M3: Format = Format { exponent_bits: 4, mantissa_bits: 3, bias: 7, most: 448.0 };
const FP16: Format = Format { exponent_bits: 5, mantissa_bits: 10, bias: 15, most: 65504.0 };

impl Format {
    fn bits(&self) -> u32 {
        1 + self.exponent_bits + self.mantissa_bits
    }

    /// Returns the exponent field of a value rounded to nearest, ties to even.
    fn exponent(&self, value: f64) -> usize {
        let size = value.abs().min(self.most);
        if size == 0.0 {
            return 0;
        }
        let exponent = (size.log2().floor() as i32).max(1 - self.bias);
        let one = f64::from(1u32 << self.mantissa_bits);
        let units = (size / f64::from(exponent).exp2() * one).round_ties_even();
        let carried = i32::from(units >= 2.0 * one);
        if units < one { 0 } else { (exponent + carried + self.bias) as usize }
    }

    /// Returns the entropy of the exponents with signs and mantissas, as a share of the format.
    fn ideal(&self, exponents: &[usize]) -> f64 {
        let mut counts = vec![0u32; 1 << self.exponent_bits];
        exponents.iter().for_each(|&one| counts[one] += 1);
        let share = |&count: &u32| f64::from(count) / exponents.len() as f64;
        let entropy: f64 = counts.iter().map(share).filter(|&p| p > 0.0).map(|p| -p * p.log2()).sum();
        (f64::from(1 + self.mantissa_bits) + entropy) / f64::from(self.bits())
    }

    /// Returns the share by the best of the codes, with the best windows of each row.
    fn coded(&self, columns: usize, exponents: &[usize]) -> f64 {
        let rows = || exponents.chunks(columns);
        let bits = CODES.map(|code| rows().map(|row| self.row_bits(code, row)).sum::<usize>());
        let best = bits.into_iter().min().unwrap_or(0);
        best as f64 / (exponents.len() * self.bits() as usize) as f64
    }

    /// Returns the bits of a row with its best windows.
    fn row_bits(&self, [code, more]: [u32; 2], row: &[usize]) -> usize {
        let all = 1usize << self.exponent_bits;
        let (narrow, wide) = (1 << code, (1 << (code + more)).min(all));
        // The lowest and the highest exponent of each group, and the exponents of the row.
        let range = |group: &[usize]| (group.iter().min().copied(), group.iter().max().copied());
        let ranges: Vec<_> = row.chunks(GROUP).map(range).collect();
        let mut counts = vec![0; all];
        row.iter().for_each(|&one| counts[one] += 1);
        let cost = |first: usize, wide_first: usize| {
            let fits = |one: Option<usize>| one.is_some_and(|one| (first..first + narrow).contains(&one));
            let widened = ranges.iter().filter(|&&(low, high)| !fits(low) || !fits(high)).count();
            let outside: usize = row.len() - counts[wide_first..wide_first + wide].iter().sum::<usize>();
            widened * GROUP * more as usize + outside * EXCEPTION_BITS
        };
        let windows = (0..=all - wide).flat_map(|at| (at..=at + wide - narrow).map(move |first| (first, at)));
        let best = windows.map(|(first, at)| cost(first, at)).min().unwrap_or(0);
        row.len() * (1 + self.mantissa_bits + code) as usize + ranges.len() + best
    }

    fn shares(&self, columns: usize, values: &[f64]) -> String {
        let exponents: Vec<usize> = values.iter().map(|&value| self.exponent(value)).collect();
        format!("{:.3}, {:.3}", self.ideal(&exponents), self.coded(columns, &exponents))
    }
}

/// Scales values so that the largest is the format's.
fn scaled(values: &[f64]) -> impl Iterator<Item = f64> {
    let most = values.iter().fold(f64::MIN_POSITIVE, |most, value| most.max(value.abs()));
    values.iter().map(move |value| value / most * E4M3.most)
}

/// Prints the shares of a matrix in e4m3, with a scale for the tensor and for each row, and in fp16.
pub(crate) fn print(name: &str, columns: usize, values: &[f64]) {
    let tensor: Vec<f64> = scaled(values).collect();
    let rows: Vec<f64> = values.chunks(columns).flat_map(scaled).collect();
    let shares = [E4M3.shares(columns, &tensor), E4M3.shares(columns, &rows), FP16.shares(columns, values)];
    println!("| {name} | {} |", shares.join(" | "));
}

/// Prints the shares of synthetic matrices.
pub(crate) fn print_synthetic() {
    println!(
        "\n| weights | e4m3, a scale for each tensor: ideal, coded | e4m3, a scale for each row | fp16 |"
    );
    println!("|---|---|---|---|");
    let mut random = Random(3);
    let scales: Vec<f64> = (0..ROWS).map(|_| (0.5 * random.normal()).exp()).collect();
    let mut print_each = |name: &str, value: &mut dyn FnMut(&mut Random, usize) -> f64| {
        let values = (0..ROWS * COLUMNS).map(|at| 0.02 * value(&mut random, at / COLUMNS));
        print(name, COLUMNS, &values.collect::<Vec<f64>>());
    };
    print_each("normal", &mut |random, _| random.normal());
    print_each("Laplace", &mut |random, _| random.laplace());
    print_each("Student t, 5 degrees of freedom", &mut |random, _| random.student(5));
    print_each("rows scaled by exp(0.5 normal)", &mut |random, row| scales[row] * random.normal());
}
