//! Reference of the floating-point formats.

use buddy_codec::{Bf16, Fp16, Fp32};
use buddy_core::{Entry, Layout};

use super::own::{Page, Rest, field, joined, numbers};

/// Returns sign, exponent and mantissa.
pub(crate) fn parts(value: i128, e: usize, m: usize) -> (i128, i128, i128) {
    (value >> (e + m), (value >> m) % (1 << e), value % (1 << m))
}

/// Encodes layout A of floats with `e` exponent and `m` mantissa bits.
fn loose(entry: &Entry, e: usize, m: usize) -> String {
    let values = numbers(entry, 1 + e + m);
    let stored: Vec<_> =
        values.iter().filter(|&&value| value != 0).map(|&value| parts(value, e, m)).collect();
    let base = stored.iter().map(|&(_, exponent, _)| exponent).max().unwrap_or(0);
    let c = (0..=e).find(|&c| stored.iter().all(|&(_, exponent, _)| base - exponent < 1 << c)).unwrap();
    let t = (0..=m).rfind(|&t| stored.iter().all(|&(_, _, mantissa)| mantissa % (1 << t) == 0)).unwrap();
    let signs = stored.iter().any(|&(sign, _, _)| sign == 1);
    let dense = stored.len() == values.len();
    let mut text = field(base, 8) + &field(c as i128, 6);
    text += if signs { "1" } else { "0" };
    text += if dense { "1" } else { "0" };
    text += &field(t as i128, 8);
    if !dense {
        text.extend(values.iter().map(|&value| if value == 0 { '0' } else { '1' }));
    }
    for (sign, exponent, mantissa) in stored {
        text += &(field(mantissa >> t, m - t) + &field(base - exponent, c) + &field(sign, signs.into()));
    }
    text
}

fn read_loose(stream: &[u8], e: usize, m: usize) -> Option<Entry> {
    let mut rest = Rest::of(stream);
    let (base, c, signs, dense, t) = (
        rest.number(8)?,
        rest.number(6)? as usize,
        rest.number(1)?,
        rest.number(1)?,
        rest.number(8)? as usize,
    );
    if c > e || t > m || base >= 1 << e {
        return None;
    }
    let n = 1024 / (1 + e + m);
    let map = if dense == 1 { "1".repeat(n) } else { rest.text(n)? };
    let value = |bit| {
        if bit == '0' {
            return Some(0);
        }
        let (mantissa, distance, sign) = (rest.number(m - t)?, rest.number(c)?, rest.number(signs as usize)?);
        Some(sign << (e + m) | (base - distance).rem_euclid(1 << e) << m | mantissa << t)
    };
    Some(joined(&map.chars().map(value).collect::<Option<Vec<_>>>()?, 1 + e + m))
}

impl Page for Fp16 {
    fn write(&self, entry: &Entry) -> (Layout, String) {
        (Layout::A, loose(entry, 5, 10))
    }

    fn read(&self, stream: &[u8], layout: Layout) -> Option<Entry> {
        (layout == Layout::A).then(|| read_loose(stream, 5, 10))?
    }
}

impl Page for Fp32 {
    fn write(&self, entry: &Entry) -> (Layout, String) {
        (Layout::A, loose(entry, 8, 23))
    }

    fn read(&self, stream: &[u8], layout: Layout) -> Option<Entry> {
        (layout == Layout::A).then(|| read_loose(stream, 8, 23))?
    }
}

/// Returns the bit position of the code of value i in layout B.
fn code_place(i: usize) -> usize {
    let (group, place) = (i / 8, i % 8);
    32 * group + 4 * (place / 2) + if place % 2 == 1 { 16 } else { 0 }
}

impl Page for Bf16 {
    fn write(&self, entry: &Entry) -> (Layout, String) {
        let loose = loose(entry, 8, 7);
        if loose.len() <= 512 {
            return (Layout::A, loose);
        }
        let values: Vec<_> = numbers(entry, 16).into_iter().map(|value| parts(value, 8, 7)).collect();
        let head: String =
            values.iter().map(|&(sign, _, mantissa)| field(mantissa, 7) + &field(sign, 1)).collect();
        let exponents: Vec<i128> = values.iter().map(|&(_, exponent, _)| exponent).collect();
        let window = i128::from(self.window());
        if exponents.iter().all(|&exponent| (window..window + 16).contains(&exponent)) {
            let mut codes = "?".repeat(256);
            for (i, exponent) in exponents.iter().enumerate() {
                codes.replace_range(code_place(i)..code_place(i) + 4, &field(exponent - window, 4));
            }
            return (Layout::B, head + &codes);
        }
        let largest = *exponents.iter().max().unwrap();
        let escapes: Vec<i128> =
            exponents.iter().copied().filter(|exponent| largest - exponent >= 7).collect();
        if escapes.len() > 7 {
            return (Layout::A, loose);
        }
        let plane = |bit: usize| -> String {
            exponents.iter().map(|exponent| field((largest - exponent).min(7) >> bit, 1)).collect()
        };
        let escapes: String = escapes.into_iter().map(|exponent| field(exponent, 8)).collect();
        (Layout::C, head + &plane(0) + &plane(1) + &plane(2) + &field(largest, 8) + &escapes)
    }

    fn read(&self, stream: &[u8], layout: Layout) -> Option<Entry> {
        if layout == Layout::A {
            return read_loose(stream, 8, 7);
        }
        let mut rest = Rest::of(stream);
        let head: Vec<(i128, i128)> =
            (0..64).map(|_| Some((rest.number(7)?, rest.number(1)?))).collect::<Option<_>>()?;
        let mut exponents = vec![];
        if layout == Layout::B {
            let codes = rest.text(256)?;
            for i in 0..64 {
                let code = Rest(codes[code_place(i)..].to_owned()).number(4)?;
                exponents.push(i128::from(self.window()) + code);
            }
        } else {
            let planes = [rest.text(64)?, rest.text(64)?, rest.text(64)?];
            let largest = rest.number(8)?;
            let code = |i: usize| Rest(planes.iter().map(|plane| &plane[i..=i]).collect()).number(3).unwrap();
            if (0..64).filter(|&i| code(i) == 7).count() > 7 {
                return None;
            }
            for i in 0..64 {
                let near = (largest - code(i)).rem_euclid(256);
                exponents.push(if code(i) == 7 { rest.number(8)? } else { near });
            }
        }
        let value =
            |((mantissa, sign), exponent): (&(i128, i128), &i128)| sign << 15 | exponent << 7 | mantissa;
        Some(joined(&head.iter().zip(&exponents).map(value).collect::<Vec<_>>(), 16))
    }
}
