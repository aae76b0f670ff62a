//! Reference implementations of all codecs, written from `docs/reference/format.md`: text of zeros
//! and ones, made by arithmetic on wide integers. The library must write the same bits. This file
//! has the paper's five; `own`, `floats`, `fields`, `prefix` and `rank` have our own formats;
//! `learned` compares trained codecs.

mod fields;
mod floats;
mod learned;
mod own;
mod prefix;
mod rank;

use buddy_codec::{
    Bdi, Bpc, Cpack, EntryCodec, Fpc, Fvc,
    testing::{entries, samples, stream_of},
};
use buddy_core::{Entry, words32};
use proptest::prelude::*;

/// Formats the low `bits` bits of a number, two's complement.
fn binary(value: i128, bits: usize) -> String {
    (0..bits).rev().map(|bit| if value >> bit & 1 == 1 { '1' } else { '0' }).collect()
}

fn fits(value: i128, bits: u32) -> bool {
    (-(1 << (bits - 1))..1 << (bits - 1)).contains(&value)
}

/// Returns the entry as signed numbers of `bytes` bytes.
fn values(entry: &Entry, bytes: usize) -> Vec<i128> {
    let value = |chunk: &[u8]| chunk.iter().rev().fold(0, |value, &byte| value << 8 | i128::from(byte));
    entry.chunks(bytes).map(|chunk| wrap(value(chunk), bytes)).collect()
}

/// Wraps a number to the signed range of `bytes` bytes.
fn wrap(value: i128, bytes: usize) -> i128 {
    let range = 1i128 << (8 * bytes);
    (value + range / 2).rem_euclid(range) - range / 2
}

fn bpc(entry: &Entry) -> String {
    let words = values(entry, 4);
    let mut text = match words[0] {
        0 => "000".to_owned(),
        base if fits(base, 4) => format!("001{}", binary(base, 4)),
        base if fits(base, 8) => format!("010{}", binary(base, 8)),
        base if fits(base, 16) => format!("011{}", binary(base, 16)),
        base => format!("1{}", binary(base, 32)),
    };
    // Each plane as text, its bit 30 first.
    let plane = |j: usize| -> String {
        (0..31).rev().map(|i| if (words[i + 1] - words[i]) >> j & 1 == 1 { '1' } else { '0' }).collect()
    };
    let xor = |a: &str, b: &str| -> String {
        a.chars().zip(b.chars()).map(|(a, b)| if a == b { '0' } else { '1' }).collect()
    };
    let zero = "0".repeat(31);
    let mut zeros = 0;
    for j in (0..33).rev() {
        let dbx = if j == 32 { plane(32) } else { xor(&plane(j), &plane(j + 1)) };
        if dbx == zero {
            zeros += 1;
            continue;
        }
        text += &zero_planes(zeros);
        zeros = 0;
        let ones = dbx.matches('1').count();
        let lowest = 30 - dbx.rfind('1').unwrap() as i128;
        text += &match ones {
            _ if plane(j) == zero => "00001".to_owned(),
            31 => "00000".to_owned(),
            1 => format!("00011{}", binary(lowest, 5)),
            2 if dbx.contains("11") => format!("00010{}", binary(lowest, 5)),
            _ => format!("1{dbx}"),
        };
    }
    text + &zero_planes(zeros)
}

fn zero_planes(run: i128) -> String {
    match run {
        0 => String::new(),
        1 => "001".to_owned(),
        run => format!("01{}", binary(run - 2, 5)),
    }
}

fn bdi(entry: &Entry) -> String {
    let eights = values(entry, 8);
    if eights.iter().all(|&value| value == 0) {
        return "000000000000".to_owned();
    }
    if eights.iter().all(|&value| value == eights[0]) {
        return format!("0001{}", binary(eights[0], 64));
    }
    let raw = format!("1111{}", entry.iter().map(|&byte| binary(byte.into(), 8)).collect::<String>());
    let forms = [(2, 8, 1), (3, 8, 2), (4, 8, 4), (5, 4, 1), (6, 4, 2), (7, 2, 1)];
    let held = forms.into_iter().filter_map(|(tag, value, delta)| base_delta(entry, tag, value, delta));
    held.chain([raw]).min_by_key(String::len).unwrap()
}

fn base_delta(entry: &Entry, tag: i128, value_bytes: usize, delta_bytes: usize) -> Option<String> {
    let values = values(entry, value_bytes);
    let immediate = |value: i128| fits(value, 8 * delta_bytes as u32);
    let base = values.iter().copied().find(|&value| !immediate(value)).unwrap_or(0);
    let mask: String = values.iter().map(|&value| if immediate(value) { '0' } else { '1' }).collect();
    let mut text = binary(tag, 4) + &binary(base, 8 * value_bytes) + &mask;
    for value in values {
        let delta = if immediate(value) { value } else { wrap(value - base, value_bytes) };
        if !immediate(delta) {
            return None;
        }
        text += &binary(delta, 8 * delta_bytes);
    }
    Some(text)
}

fn fpc(entry: &Entry) -> String {
    let mut text = String::new();
    let mut zeros = 0;
    for word in values(entry, 4) {
        if word == 0 {
            zeros += 1;
            continue;
        }
        text += &zero_words(zeros);
        zeros = 0;
        let hex = format!("{:08x}", word as u32);
        let (high, low) = (wrap(word >> 16, 2), wrap(word, 2));
        text += &match word {
            _ if fits(word, 4) => format!("001{}", binary(word, 4)),
            _ if fits(word, 8) => format!("010{}", binary(word, 8)),
            _ if hex == hex[..2].repeat(4) => format!("110{}", binary(word, 8)),
            _ if fits(word, 16) => format!("011{}", binary(word, 16)),
            _ if low == 0 => format!("100{}", binary(high, 16)),
            _ if fits(high, 8) && fits(low, 8) => format!("101{}{}", binary(high, 8), binary(low, 8)),
            _ => format!("111{}", binary(word, 32)),
        };
    }
    text + &zero_words(zeros)
}

/// Runs of eight, then the rest.
fn zero_words(count: usize) -> String {
    let rest = if count.is_multiple_of(8) {
        String::new()
    } else {
        format!("000{}", binary(count as i128 % 8 - 1, 3))
    };
    "000111".repeat(count / 8) + &rest
}

fn fvc(table: &[u32], entry: &Entry) -> String {
    let width = (1..=8).find(|&width| table.len() < 1 << width).unwrap();
    let code = |word: u32| match table.iter().position(|&value| value == word) {
        Some(code) => binary(code as i128, width),
        None => "1".repeat(width) + &binary(word.into(), 32),
    };
    words32(entry).map(code).concat()
}

fn cpack(entry: &Entry) -> String {
    let mut text = String::new();
    // Slot and word; only the last sixteen pushed are searched.
    let mut pushed: Vec<(usize, String)> = vec![];
    for word in words32(entry).map(|word| binary(word.into(), 32)) {
        let mut live = pushed[pushed.len().saturating_sub(16)..].to_vec();
        live.sort();
        let slot = |bits: usize| {
            let found = live.iter().find(|(_, known)| known[..bits] == word[..bits]);
            found.map(|&(slot, _)| binary(slot as i128, 4))
        };
        let (code, kept) = if !word.contains('1') {
            ("00".to_owned(), false)
        } else if let Some(slot) = slot(32) {
            (format!("10{slot}"), false)
        } else if !word[..24].contains('1') {
            (format!("1101{}", &word[24..]), false)
        } else if let Some(slot) = slot(24) {
            (format!("1110{slot}{}", &word[24..]), true)
        } else if let Some(slot) = slot(16) {
            (format!("1100{slot}{}", &word[16..]), true)
        } else {
            (format!("01{word}"), true)
        };
        text += &code;
        if kept {
            pushed.push((pushed.len() % 16, word));
        }
    }
    text
}

fn assert_same(codec: &impl EntryCodec, entry: &Entry, expected: &str) {
    let (bits, bytes) = stream_of(codec, entry);
    let written: String = bytes.iter().map(|&byte| binary(byte.into(), 8)).collect();
    let padding = "0".repeat(8 * bytes.len() - bits as usize);
    assert_eq!(written, format!("{expected}{padding}"), "{entry:02x?}");
}

fn assert_all_same(entry: &Entry, table: &Fvc) {
    assert_same(&Bpc, entry, &bpc(entry));
    assert_same(&Bdi, entry, &bdi(entry));
    assert_same(&Fpc, entry, &fpc(entry));
    assert_same(&Cpack, entry, &cpack(entry));
    assert_same(table, entry, &fvc(table.values(), entry));
}

#[test]
fn sample_streams_match_the_reference() {
    let table = Fvc::train(&samples());
    for entry in samples() {
        assert_all_same(&entry, &table);
    }
}

proptest! {
    #[test]
    fn any_entry_matches_the_reference(entry in entries(), other in entries()) {
        assert_all_same(&entry, &Fvc::train(&[entry, other]));
    }
}
