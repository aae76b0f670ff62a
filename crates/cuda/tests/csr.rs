//! The kernels of sparse products, run on the CPU by `emu.h`: they equal the Rust product to the
//! bit.
#![cfg(target_arch = "x86_64")]

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    sync::LazyLock,
};

use buddy_codec::{Csr, CsrJoin, CsrTile, Real};

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("csr");
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"])
        .args(["-fsanitize=undefined", "-fno-sanitize-recover=all"])
        .args(buddy_cuda::constants().iter().map(|define| format!("-D{define}")))
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/csr.cpp"), "-o"])
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "csr.cpp does not compile");
    program
});

/// Numbers without order, the same each time.
fn hash(i: u64) -> u64 {
    let mixed = (i ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 32
}

fn uneven(i: u64) -> f64 {
    (hash(i) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
}

/// The matrix `length` of the row, `element` of the row and its place.
fn pack<V: Real>(
    (rows, columns): (u64, u32),
    length: impl Fn(u64) -> u64,
    element: impl Fn(u64, u64) -> (u32, V),
) -> Csr {
    let (mut starts, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..rows {
        for k in 0..length(row) {
            let (column, value) = element(row, k);
            indices.push(column);
            values.push(value);
        }
        starts.push(indices.len() as u64);
    }
    Csr::pack(columns, &starts, &indices, &values).unwrap()
}

fn bytes<V: Real>(values: &[V]) -> Vec<u8> {
    values.iter().flat_map(|value| value.bits().to_le_bytes()[..V::BYTES as usize].to_vec()).collect()
}

/// Compares the kernels with the Rust product for a number of columns.
fn compare<V: Real>(matrix: &Csr, columns: usize, value: impl Fn(u64) -> V) {
    let x: Vec<V> = (0..u64::from(matrix.columns()) * columns as u64).map(value).collect();
    let mut y = vec![V::default(); matrix.rows() as usize * columns];
    matrix.multiply(&x, &mut y, columns).unwrap();
    let (tiles, joins) = (matrix.tiles(), matrix.joins());
    let counts =
        [V::BYTES, columns as u32, tiles.len() as u32, joins.len() as u32, matrix.parts(), matrix.rows()];
    let mut message: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
    message.extend((matrix.payload().len() as u64).to_le_bytes());
    message.extend((bytes(&x).len() as u64).to_le_bytes());
    message.extend(tiles.iter().flat_map(CsrTile::to_bytes));
    message.extend(matrix.payload());
    message.extend(joins.iter().flat_map(CsrJoin::to_bytes));
    message.extend(bytes(&x));
    let mut child = Command::new(&*PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&message));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == bytes(&y), "{columns} columns");
}

#[test]
fn stencils_multiply_as_on_the_cpu() {
    let (n, around) = (30, [-900i64, -30, -1, 0, 1, 30, 900]);
    let length = |_| 7;
    let column = |row: u64, k: u64| (row as i64 + around[k as usize]).rem_euclid(n * n * n / 9) as u32;
    let matrix = pack((3000, 3000), length, |row, k| (column(row, k), if k == 3 { 6.0 } else { -1.0 }));
    assert!(matrix.tiles().iter().all(|tile| tile.column_codes > 0 && tile.value_codes > 0));
    for columns in [1, 2, 3, 5, 8] {
        compare(&matrix, columns, uneven);
    }
}

#[test]
fn rows_of_any_length_and_columns_far_apart_multiply_as_on_the_cpu() {
    let length = |row: u64| match row {
        3 => 17_000,
        4 => 8193,
        10 => 6000,
        _ if row.is_multiple_of(11) => 65 + hash(row) % 300,
        _ => hash(row) % 9,
    };
    let column = |row: u64, k: u64| (hash(row * 99_991 + k) % 20_000) as u32;
    // Magnitudes from zero to 1e200 take all bits.
    let far = |row: u64, k: u64| match row % 20 {
        7 => 1e200 * uneven(row ^ k << 20),
        8 => 0.0,
        _ => uneven(row ^ k << 20),
    };
    for (raw, value) in [(true, &far as &dyn Fn(u64, u64) -> f64), (false, &|row, k| uneven(row ^ k << 20))] {
        let matrix = pack((700, 20_000), length, |row, k| (column(row, k), value(row, k)));
        assert_eq!(matrix.joins().len(), 2);
        assert_eq!(matrix.tiles().iter().any(|tile| tile.value_bits == 64), raw);
        assert!(
            matrix.tiles().iter().any(|tile| tile.value_codes == 0 && (33..64).contains(&tile.value_bits))
        );
        for columns in [1, 4, 7] {
            compare(&matrix, columns, uneven);
        }
    }
}

#[test]
fn values_with_few_bits_and_floats_multiply_as_on_the_cpu() {
    let length = |row: u64| hash(row) % 30;
    let column = |row: u64, k: u64| (row + hash(row * 64 + k) % 500) as u32;
    let narrow = |row: u64, k: u64| (column(row, k), f64::from(uneven(row * 64 + k) as f32));
    let matrix = pack((1000, 1500), length, narrow);
    assert!(matrix.tiles().iter().any(|tile| tile.value_codes == 0 && tile.value_bits < 33));
    compare(&matrix, 1, uneven);
    let float = pack((1000, 1500), length, |row, k| (column(row, k), uneven(row * 64 + k) as f32));
    let small =
        pack((1000, 1500), length, |row, k| (column(row, k), 1.0 + (hash(row * 64 + k) % 1000) as f32));
    assert!(small.tiles().iter().any(|tile| tile.value_codes == 0 && tile.value_bits < 32));
    for columns in [1, 2, 6] {
        compare(&float, columns, |i| uneven(i) as f32);
        compare(&small, columns, |i| uneven(i) as f32);
    }
}

#[test]
fn empty_rows_are_zeros() {
    compare(&pack((300, 5), |_| 0, |_, _| (0, 0.0)), 1, uneven);
    compare(&pack((1, 5), |_| 5, |_, k| (k as u32, 0.0)), 8, uneven);
}
