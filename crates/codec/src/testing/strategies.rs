//! Property-test strategies for entries typical of programs. Noise alone would only exercise raw
//! forms.

use buddy_core::{Entry, ZERO_ENTRY};
use proptest::{array::uniform32, prelude::*};

use super::entry_of;
use crate::samples::fill;

/// Entries of any kind: all strategies below, and zeros.
pub fn entries() -> impl Strategy<Value = Entry> {
    prop_oneof![Just(ZERO_ENTRY), ramps(), floats(), pointers(), sparse(), repeated(), mixed(), noise()]
}

/// Integers of 16, 32 or 64 bits with a constant step, some slightly perturbed.
pub fn ramps() -> impl Strategy<Value = Entry> {
    let jitter = proptest::collection::vec(0u64..4, 64);
    (integer(), integer(), prop_oneof![Just(0), Just(1)], jitter, 0..3).prop_map(
        |(base, step, off, jitter, width)| {
            let value =
                |i: u64| base.wrapping_add(step.wrapping_mul(i)).wrapping_add(off * jitter[i as usize]);
            match width {
                0 => fill(|i| (value(i) as u16).to_le_bytes()),
                1 => fill(|i| (value(i) as u32).to_le_bytes()),
                _ => fill(|i| value(i).to_le_bytes()),
            }
        },
    )
}

/// A signed integer of uniformly distributed bit length.
fn integer() -> impl Strategy<Value = u64> {
    (any::<i64>(), 0u32..64).prop_map(|(value, shift)| (value >> shift) as u64)
}

/// A wave in half, bfloat16, single or double precision: smooth, or noisy in the last or all bits.
pub fn floats() -> impl Strategy<Value = Entry> {
    let noise = prop_oneof![Just(0.0), Just(1e-6), Just(1e-3), Just(1.0)];
    let offsets = proptest::collection::vec(-1.0..1.0f64, 64);
    (-8.0..8.0f64, 0.0..0.5f64, -2.0..2.0f64, noise, offsets, 0..4).prop_map(
        |(size, frequency, level, noise, offsets, format)| {
            let value = |i: u64| {
                let wave = (frequency * i as f64).sin() + level + noise * offsets[i as usize];
                size.exp2() * wave
            };
            match format {
                0 => fill(|i| half(value(i) as f32).to_le_bytes()),
                1 => fill(|i| (((value(i) as f32).to_bits() >> 16) as u16).to_le_bytes()),
                2 => fill(|i| (value(i) as f32).to_le_bytes()),
                _ => fill(|i| value(i).to_le_bytes()),
            }
        },
    )
}

/// Converts to half precision, truncating; underflow becomes zero.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    if exponent < 1 {
        return sign;
    }
    sign | (exponent.min(30) as u16) << 10 | (bits >> 13 & 0x3ff) as u16
}

/// Aligned 64-bit addresses in one region, some of them null.
pub fn pointers() -> impl Strategy<Value = Entry> {
    let offset = prop_oneof![1 => Just(None), 6 => (0u64..1 << 20).prop_map(Some)];
    (0u64..1 << 27, 0u32..16, proptest::collection::vec(offset, 16)).prop_map(|(region, spread, offsets)| {
        let base = region << 20;
        let address = |offset: u64| base + (offset >> spread) * 8;
        fill(|i| offsets[i as usize].map_or(0, address).to_le_bytes())
    })
}

/// Zeros with a few non-zero 32-bit words.
pub fn sparse() -> impl Strategy<Value = Entry> {
    let word = prop_oneof![4 => Just(0), 1 => integer().prop_map(|word| word as u32)];
    uniform32(word).prop_map(|words| entry_of(words.map(u32::to_le_bytes)))
}

/// A few values of 1, 2, 4 or 8 bytes, repeated.
pub fn repeated() -> impl Strategy<Value = Entry> {
    (proptest::collection::vec(integer(), 1..4), proptest::collection::vec(0usize..4, 128), 0..4).prop_map(
        |(values, order, width)| {
            let value = |i: u64| values[order[i as usize] % values.len()];
            match width {
                0 => fill(|i| (value(i) as u8).to_le_bytes()),
                1 => fill(|i| (value(i) as u16).to_le_bytes()),
                2 => fill(|i| (value(i) as u32).to_le_bytes()),
                _ => fill(|i| value(i).to_le_bytes()),
            }
        },
    )
}

/// An array of structs of mixed fields: an index, a float, two shorts, a few flags, an address.
pub fn mixed() -> impl Strategy<Value = Entry> {
    (any::<u32>(), -1.0..1.0f32, any::<[i8; 4]>(), 0u32..1 << 16).prop_map(
        |(first, level, shorts, region)| {
            let field = |i: u32| {
                let of = i / 8;
                match i % 8 {
                    0 => first.wrapping_add(of),
                    1 => (level * (of + 1) as f32).to_bits(),
                    2 => u32::from(shorts[of as usize] as i16 as u16) << 16 | of,
                    3 => 1 << (first >> (4 * of) & 7),
                    4 => (region << 16) + of * 0x40,
                    5 => 0x7f,
                    6 => u32::MAX,
                    _ => 0,
                }
            };
            fill(|i| field(i as u32).to_le_bytes())
        },
    )
}

/// Random bytes.
pub fn noise() -> impl Strategy<Value = Entry> {
    uniform32(any::<u32>()).prop_map(|words| entry_of(words.map(u32::to_le_bytes)))
}
