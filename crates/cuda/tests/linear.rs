//! The linear kernels, narrow and wide, run on the CPU by `hopper.h`: correct for weights in every
//! layout, tiles shared by CTAs, panels of x, and partial tiles of tokens and rows.
#![cfg(target_arch = "x86_64")]

use std::{
    borrow::Cow,
    io::Write,
    ops::Range,
    path::PathBuf,
    process::{Command, Stdio},
};

use buddy_codec::{Bf16, Codec, Frozen, Tight, freeze, tighten};
use buddy_core::Target;
use buddy_cuda::Trial;

const WINDOW: u8 = 108;
/// The nibble of a raw entry.
const RAW: u8 = 5;
/// A small wide shape: tokens of a tile, two entries per k-block, warpgroups with split-K, three
/// stages, and CTAs of a cluster.
fn wide(tokens: u32, slices: u32, cluster: u32) -> Trial {
    format!("w:{tokens},{slices},{slices},2,3,{cluster}").parse().unwrap()
}

/// A small narrow shape: two consumer warps with two columns each per k-block, three stages, and two
/// epilogue warps.
fn narrow(cluster: u32) -> Trial {
    format!("n:1,2,3,2,2,{cluster}").parse().unwrap()
}

fn portable(eights: u32) -> Trial {
    format!("m:{eights}").parse().unwrap()
}

/// Compiles the kernel of a shape. Its sources assert that the size of shared memory among the macros
/// is that of their layout.
fn build(of: &str, shape: Trial) -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(of);
    let status = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()))
        .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-psabi"])
        .args(["-fsanitize=undefined", "-fno-sanitize-recover=all", "-DBUDDY_LINEAR_STAGED_IDS=32"])
        .args(buddy_cuda::constants().iter().chain(&shape.macros()).map(|define| format!("-D{define}")))
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/linear.cpp"), "-o"])
        .arg(&program)
        .status();
    assert!(status.expect("a C++ compiler ($CXX or g++)").success(), "linear.cpp does not compile");
    program
}

/// Random numbers with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 % below
    }

    /// Returns a bf16 value with an exponent in `exponent..=exponent + spread`.
    fn value(&mut self, exponent: u32, spread: u32) -> u16 {
        ((self.below(2) << 15) | ((exponent + self.below(spread)) << 7) | self.below(128)) as u16
    }

    /// Returns the values of an entry: regular, or, once in `odd`, all zeros, few values, one far
    /// from the others, or random bits.
    fn entry(&mut self, odd: u32) -> [u16; 64] {
        let kind = if odd > 0 && self.below(odd) == 0 { 1 + self.below(4) } else { 0 };
        std::array::from_fn(|i| match kind {
            1 => 0,
            2 if i % 5 > 0 => 0,
            3 if i == 7 => self.value(WINDOW.into(), 1),
            3 => self.value(120, 5),
            4 => self.value(100, 30),
            _ => self.value(118, 5),
        })
    }
}

fn number(bf16: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bf16) << 16))
}

fn bytes_of(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Weights as kernels take them: device parts, nibbles, index, overflow, and the number of its
/// sectors.
struct Parts<'a>(Vec<Cow<'a, [u8]>>, u32);

impl<'a> Parts<'a> {
    fn frozen(frozen: &'a [u8]) -> Self {
        let header = Frozen::open(frozen).unwrap().header().clone();
        let parts = header.parts();
        let part = |range: Range<u64>| Cow::from(&frozen[range.start as usize..range.end as usize]);
        let ranges = [parts.device, parts.nibbles, parts.index, parts.overflow];
        Self(ranges.map(part).to_vec(), header.sectors)
    }

    /// The same without an index, as a writable matrix: one overflow slot per entry.
    fn written(frozen: &'a [u8]) -> Self {
        let [device, nibbles, _, compact] = <[_; 4]>::try_from(Self::frozen(frozen).0).unwrap();
        let places = device.len() / 96;
        let (mut slots, mut sectors) = (vec![0xeeu8; places * 32], compact.chunks_exact(32));
        for place in (0..places).filter(|place| nibbles[place / 2] >> (place % 2 * 4) & 15 == RAW) {
            slots[place * 32..][..32].copy_from_slice(sectors.next().unwrap());
        }
        assert!(sectors.next().is_none(), "every sector has a slot");
        Self(vec![device, nibbles, Cow::from(vec![]), Cow::from(slots)], places as u32)
    }

    /// A tight matrix; its extra words are counted where frozen weights count sectors.
    fn tight(tight: &'a [u8]) -> Self {
        let header = *Tight::open(tight).unwrap().header();
        let parts = header.parts();
        let part = |range: Range<u64>| Cow::from(&tight[range.start as usize..range.end as usize]);
        // Row bytes lie behind the index.
        let ranges = [parts.columns, parts.flags, parts.index.start..parts.rows.end, parts.words];
        Self(ranges.map(part).to_vec(), header.words)
    }

    /// Plain weights of `columns` columns in the order of tiles, each entry's words as
    /// `linear_fragment.cuh` reads them.
    fn plain(weights: &[u16], columns: usize) -> Self {
        let (rows, per_row) = (weights.len() / columns, columns / 64);
        let mut tiles = vec![0u16; rows.next_multiple_of(16) * columns];
        for (at, pair) in weights.chunks_exact(2).enumerate() {
            let (entry, word) = (at / 32, at % 32);
            let (row, quarter, i) = (entry / per_row, word % 4, word / 4);
            let place = (row / 16 * per_row + entry % per_row) * 16 + row % 16;
            let chunk = (quarter + i / 4 * 4) ^ (row % 16 / 2 % 2 * 4);
            tiles[2 * (place * 32 + chunk * 4 + i % 4)..][..2].copy_from_slice(pair);
        }
        let none = || Cow::from(vec![0; 16]);
        Self(vec![Cow::from(bytes_of(&tiles)), none(), none(), none()], 0)
    }
}

/// Runs the kernel with a number of CTAs and returns y.
fn run(program: &PathBuf, parts: &Parts<'_>, x: &[u16], shape: [u32; 4]) -> Vec<f32> {
    run_with(program, parts, &bytes_of(x), shape)
}

/// Runs the kernel; `x` may be followed by the ids of experts.
fn run_with(
    program: &PathBuf,
    parts: &Parts<'_>,
    x: &[u8],
    [outputs, inputs, tokens, blocks]: [u32; 4],
) -> Vec<f32> {
    let Parts(parts, sectors) = parts;
    let head = [outputs, inputs, tokens, blocks, *sectors, WINDOW.into()];
    let mut message: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    message.extend(parts.iter().flat_map(|part| (part.len() as u64).to_le_bytes()));
    message.extend(parts.iter().flat_map(|part| &part[..]));
    message.extend(x);
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&message));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{outputs} x {inputs}, {tokens} tokens: the emulated kernel failed");
    output.stdout.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// Fails unless each assignment's results equal its expert's up to rounding, each token's sum is
/// exact, and assignments without an expert have no results.
fn check_experts(program: &PathBuf, random: &mut Random, experts: u32, top: u32, shape: [u32; 4], odd: u32) {
    let codec = Codec::Bf16(Bf16::new(WINDOW).unwrap());
    let [outputs, inputs, tokens, _] = shape;
    let weights: Vec<u16> = (0..experts * outputs * inputs / 64).flat_map(|_| random.entry(odd)).collect();
    let x: Vec<u16> = (0..tokens * inputs).map(|_| random.value(124, 5)).collect();
    let frozen = freeze(&codec, Target::X4Over3, inputs / 64, &bytes_of(&weights)).unwrap();
    // Most tokens have expert 1; some have none.
    let ids: Vec<u32> = (0..tokens * top)
        .map(|_| match random.below(4) {
            0 | 1 => 1,
            2 => random.below(experts),
            _ => [experts, u32::MAX, random.below(experts)][random.below(3) as usize],
        })
        .collect();
    let words = [&[experts, top], &ids[..]].concat();
    let more: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let found = run_with(program, &Parts::frozen(&frozen), &[bytes_of(&x), more].concat(), shape);
    let (rows, columns) = (outputs as usize, inputs as usize);
    let (each, sums) = found.split_at(ids.len() * rows);
    assert_eq!(sums.len(), tokens as usize * rows);
    let mut wanted = vec![0f32; sums.len()];
    for (i, (&id, got)) in ids.iter().zip(each.chunks(rows)).enumerate() {
        if id >= experts {
            assert!(
                got.iter().all(|value| value.is_nan()),
                "{shape:?}: nothing is written without an expert"
            );
            continue;
        }
        let token = i / top as usize;
        for (row, &got) in got.iter().enumerate() {
            let at = id as usize * rows + row;
            let pairs = weights[at * columns..][..columns].iter().zip(&x[token * columns..][..columns]);
            let terms = pairs.map(|(&w, &x)| number(w) * number(x));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            let bias = (at % 7) as f64;
            assert!(
                (f64::from(got) - sum - bias).abs() <= 1e-5 * (size + bias),
                "{shape:?}: {got} at {i}, {row}"
            );
            let rounded = round_bf16(got);
            wanted[token * rows + row] += rounded * ((1 + i % 5) as f32 / 4.0);
        }
    }
    assert!(wanted.iter().zip(sums).all(|(&wanted, &sum)| round_bf16(wanted) == sum), "{shape:?}: sums");
}

/// Rounds to the nearest bf16, to even.
fn round_bf16(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

#[test]
fn each_token_is_multiplied_by_its_experts() {
    let program = build("linear-grouped", wide(16, 2, 1).grouped());
    let mut random = Random(3);
    for (experts, top, shape, odd) in [
        (5, 2, [48, 256, 9, 4], 4),
        (3, 1, [80, 128, 40, 3], 0),
        (40, 4, [16, 128, 1, 6], 3),
        (2, 1, [80, 256, 20, 24], 5),
    ] {
        check_experts(&program, &mut random, experts, top, shape, odd);
    }
    let program = build("linear-grouped-cluster", wide(64, 1, 2).grouped());
    check_experts(&program, &mut random, 6, 2, [144, 192, 70, 4], 5);
}

/// Fails unless `y` equals the exact sums up to rounding.
fn check(shape: [u32; 4], weights: &[u16], x: &[u16], y: &[f32]) {
    let [outputs, inputs, ..] = shape;
    for (i, &got) in y.iter().enumerate() {
        let (token, row) = (i / outputs as usize, i % outputs as usize);
        let columns = inputs as usize;
        let pairs = weights[row * columns..][..columns].iter().zip(&x[token * columns..][..columns]);
        let terms = pairs.map(|(&w, &x)| number(w) * number(x));
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
        assert!((f64::from(got) - sum).abs() <= 1e-5 * size, "{shape:?}: {got} at {i} instead of {sum}");
    }
}

/// Compares layers of several shapes (rows, columns, tokens and CTAs) with exact sums; of each, one
/// entry in a given number is in a rare layout.
fn compare(program: &PathBuf, cases: &[([u32; 4], u32)]) {
    let codec = Codec::Bf16(Bf16::new(WINDOW).unwrap());
    let mut random = Random(1);
    for &(shape, odd) in cases {
        let [outputs, inputs, tokens, _] = shape;
        let weights: Vec<u16> = (0..outputs * inputs / 64).flat_map(|_| random.entry(odd)).collect();
        let x: Vec<u16> = (0..tokens * inputs).map(|_| random.value(124, 5)).collect();
        let frozen = freeze(&codec, Target::X4Over3, inputs / 64, &bytes_of(&weights)).unwrap();
        assert_eq!(Frozen::open(&frozen).unwrap().header().sectors > 0, odd > 0, "whether some overflow");
        let y = run(program, &Parts::frozen(&frozen), &x, shape);
        assert_eq!(y.len(), (tokens * outputs) as usize);
        let written = run(program, &Parts::written(&frozen), &x, shape);
        assert!(written == y, "{shape:?}: weights that may be written have the sums of frozen ones");
        check(shape, &weights, &x, &y);
    }
}

#[test]
fn a_layer_of_many_tokens_is_right_for_weights_in_every_layout() {
    let cases = [
        ([40, 192, 5, 3], 0),
        ([100, 320, 16, 5], 10),
        ([130, 256, 16, 4], 2),
        ([70, 64, 20, 2], 3),
        ([200, 448, 9, 7], 4),
    ];
    compare(&build("linear", wide(16, 1, 1)), &cases);
}

#[test]
fn the_last_cta_reduces_the_partials() {
    compare(&build("linear-many", wide(64, 1, 1)), &[([70, 192, 50, 3], 0), ([130, 256, 64, 5], 2)]);
}

#[test]
fn ctas_of_a_cluster_share_x() {
    compare(&build("linear-cluster", wide(16, 1, 2)), &[([40, 192, 5, 3], 0), ([200, 448, 20, 4], 4)]);
}

/// The form on plain weights, which benchmarks compare with.
#[test]
fn a_layer_on_plain_weights_is_right() {
    let program = build("linear-plain", wide(16, 1, 1).plain());
    let mut random = Random(1);
    for shape in [[40, 192, 5, 3], [100, 320, 16, 5], [200, 448, 20, 7]] {
        let [outputs, inputs, tokens, _] = shape;
        let mut some = |count| (0..count).map(|_| random.value(118, 9)).collect::<Vec<u16>>();
        let (weights, x) = (some(outputs * inputs), some(tokens * inputs));
        let y = run(&program, &Parts::plain(&weights, inputs as usize), &x, shape);
        check(shape, &weights, &x, &y);
    }
}

#[test]
fn warpgroups_split_k() {
    let cases = [([40, 256, 5, 3], 0), ([200, 384, 20, 5], 4), ([130, 256, 16, 4], 2)];
    compare(&build("linear-sliced", wide(16, 2, 1)), &cases);
    compare(&build("linear-sliced-few", wide(8, 2, 1)), &[([40, 256, 5, 3], 0), ([200, 384, 8, 5], 4)]);
}

#[test]
fn a_layer_of_few_tokens_is_right_for_weights_in_every_layout() {
    let cases = [([40, 192, 5, 3], 0), ([100, 320, 8, 5], 10), ([130, 448, 1, 4], 2), ([33, 1024, 3, 2], 4)];
    compare(&build("narrow", narrow(1)), &cases);
}

/// Also covers CTAs of a cluster without a tile, and panels that a cluster's CTAs reach at
/// different times.
#[test]
fn ctas_of_a_cluster_share_x_of_few_tokens() {
    let cases = [
        ([40, 192, 5, 3], 0),
        ([100, 320, 8, 2], 10),
        ([16, 448, 1, 2], 2),
        ([70, 1024, 3, 3], 4),
        ([130, 256, 7, 1], 0),
    ];
    compare(&build("narrow-cluster", narrow(2)), &cases);
}

/// Fails unless results from tight weights equal those from frozen ones to the bit, and are right.
fn compare_tight(frozen_program: &PathBuf, program: &PathBuf, cases: &[([u32; 4], u32)]) {
    let codec = Codec::Bf16(Bf16::new(WINDOW).unwrap());
    let mut random = Random(7);
    for &(shape, odd) in cases {
        let [outputs, inputs, tokens, _] = shape;
        let weights: Vec<u16> = (0..outputs * inputs / 64).flat_map(|_| random.entry(odd)).collect();
        let x: Vec<u16> = (0..tokens * inputs).map(|_| random.value(124, 5)).collect();
        let data = bytes_of(&weights);
        let packed = tighten(inputs / 64, &data).unwrap();
        let y = run(program, &Parts::tight(&packed), &x, shape);
        check(shape, &weights, &x, &y);
        let frozen = freeze(&codec, Target::X4Over3, inputs / 64, &data).unwrap();
        let wanted = run(frozen_program, &Parts::frozen(&frozen), &x, shape);
        assert!(y == wanted, "{shape:?}: tight weights have the sums of frozen ones");
    }
}

/// Covers exceptions that arrive in shared memory, and more, which are read from global memory.
#[test]
fn tight_weights_have_the_sums_of_frozen_ones() {
    let cases =
        [([40, 192, 5, 3], 0), ([100, 320, 16, 5], 10), ([130, 256, 16, 4], 2), ([200, 448, 9, 7], 4)];
    let program = build("linear-tight", wide(16, 1, 1).tight());
    compare_tight(&build("linear-frozen", wide(16, 1, 1)), &program, &cases);
    let program = build("linear-tight-sliced", wide(8, 2, 1).tight());
    compare_tight(&build("linear-frozen-sliced", wide(8, 2, 1)), &program, &[([70, 384, 8, 3], 4)]);
}

#[test]
fn tight_weights_have_the_sums_of_frozen_ones_for_few_tokens() {
    let cases = [([100, 320, 8, 5], 10), ([40, 448, 1, 2], 2)];
    compare_tight(&build("narrow-frozen", narrow(1)), &build("narrow-tight", narrow(1).tight()), &cases);
    let program = build("narrow-tight-cluster", narrow(2).tight());
    compare_tight(&build("narrow-frozen-cluster", narrow(2)), &program, &[([70, 512, 3, 3], 4)]);
}

/// Also covers a warp without columns, and fewer CTAs than tiles.
#[test]
fn the_portable_kernel_is_right_for_weights_in_every_layout() {
    let cases = [([40, 192, 5, 3], 0), ([100, 320, 8, 2], 10), ([33, 1088, 3, 2], 4)];
    compare(&build("portable", portable(1)), &cases);
    compare(&build("portable-many", portable(4)), &[([40, 640, 27, 2], 3)]);
}
