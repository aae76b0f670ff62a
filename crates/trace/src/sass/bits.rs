//! Integer arithmetic of one lane.

/// Evaluates a three-input lookup table of eight bits (`LOP3`).
pub(super) fn lut(a: u32, b: u32, c: u32, table: u32) -> u32 {
    (0..8).filter(|bit| table >> bit & 1 == 1).fold(0, |sum, bit| {
        let pick = |value: u32, wanted: u32| if wanted == 1 { value } else { !value };
        sum | pick(a, bit >> 2 & 1) & pick(b, bit >> 1 & 1) & pick(c, bit & 1)
    })
}

/// Evaluates a comparison named as in an opcode.
pub(super) fn compare<T: PartialOrd>(name: &str, a: T, b: T) -> Option<bool> {
    // Comparisons ending in U are also true for unordered operands.
    let unordered = a.partial_cmp(&b).is_none();
    Some(match name {
        "LT" => a < b,
        "LE" => a <= b,
        "GT" => a > b,
        "GE" => a >= b,
        "EQ" => a == b,
        "NE" => a != b && !unordered,
        "LTU" => a < b || unordered,
        "LEU" => a <= b || unordered,
        "GTU" => a > b || unordered,
        "GEU" => a >= b || unordered,
        "EQU" => a == b || unordered,
        "NEU" => a != b || unordered,
        "NUM" => !unordered,
        "NAN" => unordered,
        "T" => true,
        "F" => false,
        _ => return None,
    })
}

/// Funnel shift, `SHF`: shifts a 64-bit value given as low and high word. `L` forms shift both
/// words, `HI` forms return the upper word.
pub(super) fn funnel(
    [low, by, high]: [u32; 3],
    right: bool,
    (long, signed): (bool, bool),
    upper: bool,
) -> u32 {
    let both = u64::from(high) << 32 | u64::from(low);
    let by64 = by.min(63);
    let by32 = by.min(32);
    match (long, right, upper) {
        (true, true, _) => {
            let shifted = if signed { (both as i64 >> by64) as u64 } else { both >> by64 };
            if upper { (shifted >> 32) as u32 } else { shifted as u32 }
        }
        (true, false, true) => ((both << by64) >> 32) as u32,
        (true, false, false) => (both << by64) as u32,
        (false, true, true) if signed => (i64::from(high as i32) >> by32) as u32,
        (false, true, true) => (u64::from(high) >> by32) as u32,
        (false, true, false) => (both >> by32) as u32,
        (false, false, true) => ((both << by32) >> 32) as u32,
        (false, false, false) => (u64::from(low) << by32) as u32,
    }
}

/// Returns the half-precision bits of a number.
pub(super) fn half(value: f64) -> u32 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let size = value.abs();
    if size == 0.0 {
        return sign;
    }
    if size.is_infinite() || size >= 65520.0 {
        return sign | 0x7c00;
    }
    let exponent = (size.log2().floor() as i32).max(-14);
    let steps = (size / 2f64.powi(exponent - 10)).round() as u32;
    // Subnormals have no leading bit; rounding up carries into the exponent.
    sign | if steps < 1024 { steps } else { ((exponent + 15) as u32) * 1024 + steps - 1024 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luts_shifts_and_halves_match_hand_computed_values() {
        assert_eq!(lut(0b1100, 0b1010, 0, 0xc0), 0b1000, "and");
        assert_eq!(lut(0b1100, 0b1010, 0, 0x3c), 0b0110, "exclusive or");
        assert_eq!(lut(0b1100, 0b1010, 0b0001, 0xf8), 0b1000 | 0b1100, "a or (b and c)");
        assert_eq!(funnel([0, 4, 0x80], true, (false, false), true), 8);
        assert_eq!(funnel([0, 31, 0x8000_0000], true, (false, true), true), u32::MAX);
        assert_eq!(funnel([3, 2, 0], false, (false, false), false), 12);
        assert_eq!(funnel([0xffff_ffff, 4, 1], false, (true, false), true), 0x1f);
        assert_eq!(
            [half(1.875), half(5.960_464_477_539_063e-8), half(0.0), half(-2.0)],
            [0x3f80, 1, 0, 0xc000]
        );
        assert_eq!([half(1.0), half(65504.0), half(2.384_185_791_015_625e-7)], [0x3c00, 0x7bff, 4]);
    }
}
