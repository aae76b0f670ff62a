//! Arrays of codes with the same number of bits, the lowest bit first.

/// Bytes behind an array that reading and writing may touch.
pub(super) const SLACK: usize = 16;

/// Returns the bytes of `count` codes, whole words of 8 bytes.
pub(super) fn room(count: usize, bits: u8) -> usize {
    (count * usize::from(bits)).div_ceil(64) * 8
}

/// Returns the bits that hold `most` and every smaller number.
pub(super) fn width(most: u64) -> u8 {
    (64 - most.leading_zeros()) as u8
}

fn mask(bits: u8) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (64 - bits) }
}

/// Returns code `at` of an array; zeros past the bytes.
pub(super) fn get(from: &[u8], at: usize, bits: u8) -> u64 {
    let bit = at * usize::from(bits);
    let Some(window) = from.get(bit / 8..).and_then(<[u8]>::first_chunk) else { return 0 };
    (u128::from_le_bytes(*window) >> (bit % 8)) as u64 & mask(bits)
}

/// Passes the first codes of an array to `to`, one for each place.
pub(super) fn each<T>(from: &[u8], bits: u8, to: &mut [T], value: impl Fn(u64) -> T) {
    let (mask, bits) = (mask(bits), usize::from(bits));
    // A code of up to 57 bits lies in eight bytes from its first one on.
    if bits > 57 {
        for (at, to) in to.iter_mut().enumerate() {
            let bit = at * bits;
            let window = from.get(bit / 8..).and_then(<[u8]>::first_chunk);
            let window = window.map_or(0, |&window| u128::from_le_bytes(window));
            *to = value((window >> (bit % 8)) as u64 & mask);
        }
        return;
    }
    for (at, to) in to.iter_mut().enumerate() {
        let bit = at * bits;
        let word =
            from.get(bit / 8..).and_then(<[u8]>::first_chunk).map_or(0, |&word| u64::from_le_bytes(word));
        *to = value(word >> (bit % 8) & mask);
    }
}

/// Appends an array of codes to `to`.
pub(super) fn put(to: &mut Vec<u8>, bits: u8, codes: impl ExactSizeIterator<Item = u64>) {
    let (begin, bytes) = (to.len(), room(codes.len(), bits));
    to.resize(begin + bytes + SLACK, 0);
    for (at, code) in codes.enumerate() {
        let bit = at * usize::from(bits);
        let window: &mut [u8; SLACK] =
            to[begin + bit / 8..].first_chunk_mut().expect("the slack is behind the last code");
        *window = (u128::from_le_bytes(*window) | u128::from(code) << (bit % 8)).to_le_bytes();
    }
    to.truncate(begin + bytes);
}
