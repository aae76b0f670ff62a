//! Prints which share of their bytes weights take in a tight matrix and in a frozen buffer; then which
//! share codes of the same kind could reach for weights in e4m3 and in fp16, which have no codec.
//!
//!     cargo run --release -p buddy-codec --example tight_shares [FILE COLUMNS]
//!
//! Without arguments the weights are synthetic. FILE holds plain bf16 values, rows of COLUMNS.

mod exponents;
mod random;

use buddy_codec::{CodecKind, Tight, freeze, tighten};
use buddy_core::{ENTRY_BYTES, Entry, Target};
use random::Random;

/// Rows and columns of the synthetic matrices.
const ROWS: usize = 512;
const COLUMNS: usize = 4096;

/// Rounds to bf16.
fn bf16(value: f64) -> [u8; 2] {
    let bits = (value as f32).to_bits();
    (((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16).to_le_bytes()
}

fn print_shares(name: &str, columns: usize, data: &[u8]) {
    let packed = tighten((columns / 64) as u32, data).expect("whole rows");
    assert_eq!(Tight::open(&packed).and_then(|open| open.read()).as_deref(), Ok(data), "{name} round-trips");
    let entries: &[Entry] = data.as_chunks::<ENTRY_BYTES>().0;
    let codec = CodecKind::Bf16.train(entries);
    let frozen = freeze(&codec, Target::X4Over3, (columns / 64) as u32, data).expect("bf16 can be frozen");
    let share = |bytes: usize| bytes as f64 / data.len() as f64;
    println!("| {name} | {:.4} | {:.4} |", share(packed.len()), share(frozen.len()));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [file, columns] = arguments.as_slice() {
        let data = std::fs::read(file).expect("a file that can be read");
        let columns = columns.parse().expect("a number of columns");
        print_shares(file, columns, &data);
        let values = data.as_chunks().0.iter().map(|&[low, high]| f32::from_le_bytes([0, 0, low, high]));
        exponents::print(file, columns, &values.map(f64::from).collect::<Vec<f64>>());
        return;
    }
    println!("| weights | tight | frozen |\n|---|---|---|");
    let mut random = Random(1);
    let mut print = |name: &str, value: &mut dyn FnMut(&mut Random, usize, usize) -> f64| {
        let values = (0..ROWS * COLUMNS).map(|at| value(&mut random, at / COLUMNS, at % COLUMNS));
        print_shares(name, COLUMNS, &values.flat_map(bf16).collect::<Vec<u8>>());
    };
    for sigma in [0.01, 0.0125, 0.015, 0.0175, 0.02] {
        print(&format!("normal, sigma {sigma}"), &mut |random, _, _| sigma * random.normal());
    }
    let mut scales = Random(2);
    for spread in [0.5, 1.0] {
        let rows: Vec<f64> = (0..ROWS).map(|_| 0.02 * (spread * scales.normal()).exp()).collect();
        print(&format!("rows scaled by exp({spread} normal)"), &mut |random, row, _| {
            rows[row] * random.normal()
        });
    }
    let columns: Vec<f64> = (0..COLUMNS).map(|_| 0.02 * (0.5 * scales.normal()).exp()).collect();
    print("columns scaled by exp(0.5 normal)", &mut |random, _, column| columns[column] * random.normal());
    for scale in [0.01, 0.0125, 0.015] {
        print(&format!("Laplace, scale {scale}"), &mut |random, _, _| scale * random.laplace());
    }
    for freedom in [8, 5, 3] {
        print(&format!("Student t, {freedom} degrees of freedom"), &mut |random, _, _| {
            0.02 * random.student(freedom)
        });
    }
    print("uniform", &mut |random, _, _| 0.1 * random.uniform() - 0.05);
    exponents::print_synthetic();
}
