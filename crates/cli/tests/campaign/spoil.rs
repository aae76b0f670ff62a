//! Deterministic mutations of an input.

/// Marsaglia's xorshift generator, equal on all platforms.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }
}

/// Numbers that tend to break readers.
const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "127",
    "4294967295",
    "4294967296",
    "1125899906842624",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e400",
    "0.1",
];

/// Mutates an input in one to four places.
pub(crate) fn spoil(input: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + dice.below(4) {
        once(&mut bytes, dice);
    }
    bytes
}

fn once(bytes: &mut Vec<u8>, dice: &mut Dice) {
    if bytes.is_empty() {
        return;
    }
    let at = dice.below(bytes.len());
    match dice.below(9) {
        0 => bytes[at] ^= 1 << dice.below(8),
        1 => bytes[at] = dice.below(256) as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.splice(at..(at + dice.below(40)).min(bytes.len()), [])),
        4 => {
            let end = (at + dice.below(200)).min(bytes.len());
            bytes.extend_from_within(at..end);
        }
        5 => {
            let number = [u64::MAX, 1 << 63, 1 << 32, 0, 0xffff_ffff][dice.below(5)].to_le_bytes();
            let end = (at + 1 + dice.below(8)).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
        6 => lines(bytes, dice),
        // The numbers are the most important part of a text.
        _ => number(bytes, at, dice),
    }
}

/// Replaces the next number by one of `NUMBERS`.
fn number(bytes: &mut Vec<u8>, at: usize, dice: &mut Dice) {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|start| at + start) else { return };
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    drop(bytes.splice(start..start + length, NUMBERS[dice.below(NUMBERS.len())].bytes()));
}

/// Duplicates, drops or swaps lines.
fn lines(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let mut all: Vec<Vec<u8>> = bytes.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let (a, b) = (dice.below(all.len()), dice.below(all.len()));
    match dice.below(3) {
        0 => all.insert(a, all[b].clone()),
        1 => drop(all.remove(a)),
        _ => all.swap(a, b),
    }
    *bytes = all.concat();
}
