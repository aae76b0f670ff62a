use proptest::prelude::*;

use super::*;

/// A matrix, by rows of columns and values.
struct Plain<V> {
    columns: u32,
    starts: Vec<u64>,
    indices: Vec<u32>,
    values: Vec<V>,
}

impl<V: Real> Plain<V> {
    fn new(columns: u32, rows: impl IntoIterator<Item = Vec<(u32, V)>>) -> Self {
        let mut all = Self { columns, starts: vec![0], indices: Vec::new(), values: Vec::new() };
        for row in rows {
            let (indices, values): (Vec<u32>, Vec<V>) = row.into_iter().unzip();
            all.indices.extend(indices);
            all.values.extend(values);
            all.starts.push(all.indices.len() as u64);
        }
        all
    }

    fn pack(&self) -> Csr {
        Csr::pack(self.columns, &self.starts, &self.indices, &self.values).unwrap()
    }

    fn row(&self, row: usize) -> impl Iterator<Item = (usize, V)> + '_ {
        let elements = self.starts[row] as usize..self.starts[row + 1] as usize;
        elements.map(|at| (self.indices[at] as usize, self.values[at]))
    }

    /// Column `j` of the product by a plain loop over each row.
    fn multiply(&self, x: &[V], columns: usize, j: usize) -> Vec<V> {
        let sum = |row| {
            let mut sum = V::default();
            self.row(row).for_each(|(column, value)| sum += value * x[column * columns + j]);
            sum
        };
        (0..self.starts.len() - 1).map(sum).collect()
    }

    /// Packs, and compares what comes back with what went in.
    fn keeps_its_bits(&self) -> Csr {
        let packed = self.pack();
        let (starts, indices, values) = packed.unpack::<V>().unwrap();
        assert_eq!((starts, indices), (self.starts.clone(), self.indices.clone()));
        assert!(values.iter().map(|v| v.bits()).eq(self.values.iter().map(|v| v.bits())));
        packed
    }
}

/// Numbers without order, the same each time.
fn hash(i: u64) -> u64 {
    let mixed = (i ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 32
}

fn uneven(i: u64) -> f64 {
    (hash(i) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
}

/// The five-point Laplacian on a square.
fn laplacian(n: u32) -> Plain<f64> {
    let row = |at: u32| {
        let (x, y) = (at % n, at / n);
        let around = [(y > 0, at.wrapping_sub(n)), (x > 0, at.wrapping_sub(1)), (true, at)];
        let after = [(x + 1 < n, at + 1), (y + 1 < n, at + n)];
        let inside = around.into_iter().chain(after).filter(|(inside, _)| *inside);
        inside.map(|(_, column)| (column, if column == at { 4.0 } else { -1.0 })).collect()
    };
    Plain::new(n * n, (0..n * n).map(row))
}

/// Rows of very different lengths, among them empty ones and one over several tiles.
fn graph() -> Plain<f64> {
    let columns = 20_000;
    let row = |row: u64| {
        let length = match row {
            150 => 18_000,
            151 => 8192,
            400 => 5_000,
            _ if row.is_multiple_of(37) => 65 + hash(row) % 200,
            _ => hash(row) % 12,
        };
        let element = |k| ((hash(row * 50_000 + k) % u64::from(columns)) as u32, uneven(row + 31 * k));
        (0..length).map(element).collect()
    };
    Plain::new(columns, (0..1000).map(row))
}

#[test]
fn a_stencil_takes_a_fifteenth_and_its_product_is_that_of_a_plain_loop() {
    let plain = laplacian(100);
    let packed = plain.keeps_its_bits();
    assert!(packed.bytes() * 15 < packed.plain_bytes(), "{} of {}", packed.bytes(), packed.plain_bytes());
    let x: Vec<f64> = (0..10_000).map(uneven).collect();
    let mut y = vec![1.0; 10_000];
    packed.multiply(&x, &mut y, 1).unwrap();
    assert_eq!(y, plain.multiply(&x, 1, 0));
}

#[test]
fn rows_of_a_segment_are_added_in_order_and_longer_rows_by_segments() {
    let plain = graph();
    let packed = plain.keeps_its_bits();
    assert_eq!((packed.joins().len(), packed.parts()), (1, 3));
    for columns in [1, 3, 8] {
        let x: Vec<f64> = (0..20_000 * columns as u64).map(uneven).collect();
        let mut y = vec![1.0; 1000 * columns];
        packed.multiply(&x, &mut y, columns).unwrap();
        for j in 0..columns {
            let expected = plain.multiply(&x, columns, j);
            for (row, expected) in expected.into_iter().enumerate() {
                let (found, length) = (y[row * columns + j], plain.row(row).count());
                assert!((found - expected).abs() <= 1e-15 * length as f64, "row {row}");
                assert!(length > SEGMENT_ELEMENTS || found == expected, "row {row}");
            }
        }
    }
}

#[test]
fn the_transposed_product_is_that_of_the_transposed_matrix() {
    let plain = graph();
    let (packed, x) = (plain.pack(), (0..1000).map(uneven).collect::<Vec<f64>>());
    let (mut y, mut expected) = (vec![1.0; 20_000], vec![0.0; 20_000]);
    packed.multiply_transposed(&x, &mut y).unwrap();
    for (row, x) in x.iter().enumerate() {
        plain.row(row).for_each(|(column, value)| expected[column] += value * x);
    }
    assert_eq!(y, expected);
}

#[test]
fn values_that_are_floats_and_columns_of_a_band_take_the_bits_that_they_need() {
    let row = |row: u32| {
        let near = |k: u32| (row + (hash(u64::from(row * 8 + k)) % 1000) as u32, k);
        (0..8).map(near).map(|(column, k)| (column, f64::from(uneven(u64::from(row + k)) as f32))).collect()
    };
    let plain = Plain::<f64>::new(5000, (0..4000).map(row));
    let packed = plain.keeps_its_bits();
    // 10 or 11 bits for 32 of a column; sign, 23 bits and some exponents for 64 of a value.
    assert!(packed.tiles().iter().all(|tile| tile.column_bits <= 11 && tile.value_bits <= 38));
    assert!(packed.bytes() * 18 < packed.plain_bytes() * 10);
}

#[test]
fn empty_and_rectangular_matrices_are_matrices() {
    for (rows, columns) in [(0, 0), (0, 5), (300, 0), (1, 1)] {
        let plain = Plain::<f32>::new(columns, vec![Vec::new(); rows]);
        let packed = plain.keeps_its_bits();
        let mut y = vec![1.0; rows];
        packed.multiply(&vec![1.0f32; columns as usize], &mut y, 1).unwrap();
        assert!(y.iter().all(|&y| y == 0.0));
    }
}

#[test]
fn arrays_that_are_no_matrix_are_refused() {
    let refused = |columns, starts: &[u64], indices: &[u32], values: &[f32]| {
        Csr::pack(columns, starts, indices, values).unwrap_err().to_string()
    };
    assert!(refused(2, &[], &[], &[]).contains("starts"));
    assert!(refused(2, &[1, 1], &[0], &[1.0]).contains("starts"));
    assert!(refused(2, &[0, 2], &[0], &[1.0]).contains("starts"));
    assert!(refused(2, &[0, 2, 1], &[0], &[1.0]).contains("decrease"));
    assert_eq!(refused(2, &[0, 1], &[2], &[1.0]), "column 2 of a matrix with 2 columns");
    let packed = Csr::pack(2, &[0, 1], &[1], &[1.0f32]).unwrap();
    assert!(packed.unpack::<f64>().is_err());
    assert!(packed.multiply(&[1.0f64; 2], &mut [0.0], 1).is_err());
    assert!(packed.multiply(&[1.0f32; 3], &mut [0.0], 1).is_err());
    assert!(packed.multiply(&[1.0f32; 18], &mut [0.0; 9], 9).is_err());
    assert!(packed.multiply_transposed(&[1.0f32; 2], &mut [0.0; 2]).is_err());
}

/// Values of one tile as programs have them, and any bits.
fn values() -> impl Strategy<Value = Vec<f64>> {
    let kinds = prop_oneof![
        proptest::collection::vec(any::<u64>().prop_map(f64::from_bits), 1..40),
        proptest::collection::vec((-4i32..4).prop_map(f64::from), 1..40),
        proptest::collection::vec((0u32..1 << 20).prop_map(|v| 1.0 + f64::from(v)), 1..40),
        proptest::collection::vec(prop_oneof![Just(0.0), Just(-0.0), Just(f64::NAN)], 1..40),
        proptest::collection::vec((1.0f64..2.0).prop_map(|v| -v), 1..400),
    ];
    kinds.boxed()
}

proptest! {
    #[test]
    fn any_matrix_comes_back(values in values(), seeds in proptest::collection::vec(0u64..300, 1..200), wide: bool) {
        let columns = if wide { u32::MAX } else { 70 };
        let element = |at: u64| ((hash(at) % u64::from(columns)) as u32, values[at as usize % values.len()]);
        let rows = seeds.iter().map(|&seed| (seed..seed + seed % 90).map(element).collect());
        let double = Plain::new(columns, rows);
        double.keeps_its_bits();
        let narrow = |at: usize| (double.indices[at], double.values[at] as f32);
        let rows = double.starts.windows(2).map(|pair| (pair[0] as usize..pair[1] as usize).map(narrow).collect());
        Plain::new(columns, rows).keeps_its_bits();
    }
}
