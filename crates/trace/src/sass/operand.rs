//! The operands of an instruction.

/// Location of a value: a source or destination.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Location {
    /// A register; 255 is RZ.
    Register(u8),
    /// A uniform register; 63 and up is URZ.
    Uniform(u8),
    Immediate(u32),
    /// A floating-point immediate, single or half precision.
    Float(f64),
    /// A constant: bank, offset and index register.
    Constant(u8, u32, u8),
    /// An unsupported operand with unknown value.
    Other,
}

/// A source: a location and modifiers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Source {
    pub(super) location: Location,
    pub(super) negated: bool,
    pub(super) inverted: bool,
    pub(super) absolute: bool,
}

/// A predicate register; 7 is PT. Uniform ones are numbered separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Predicate {
    pub(super) number: u8,
    pub(super) uniform: bool,
    pub(super) not: bool,
}

/// An address: a register, optionally a uniform register, and an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) register: u8,
    /// Left shift of the register.
    pub(super) scale: u8,
    /// If true, the register is a 64-bit pair.
    pub(super) wide: bool,
    pub(super) uniform: Option<u8>,
    pub(super) offset: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operand {
    Source(Source),
    Predicate(Predicate),
    Address(Address),
    /// A label.
    Label(String),
    /// A special register.
    Special(String),
}

/// RZ.
pub(super) const ZERO: u8 = 255;
/// PT: always true.
pub(super) const TRUE: Predicate = Predicate { number: 7, uniform: false, not: false };

/// Parses one operand.
pub(super) fn parse(text: &str) -> Operand {
    let text = text.trim();
    if let Some(label) = text.strip_prefix("`(") {
        return Operand::Label(label.trim_end_matches(')').to_owned());
    }
    if text.starts_with("SR") {
        return Operand::Special(text.to_owned());
    }
    if let Some(address) = address(text) {
        return Operand::Address(address);
    }
    if let Some(predicate) = predicate(text) {
        return Operand::Predicate(predicate);
    }
    Operand::Source(source(text))
}

/// `P0`, `!PT`, `UP3`.
pub(super) fn predicate(text: &str) -> Option<Predicate> {
    let (not, name) = text.strip_prefix('!').map_or((false, text), |name| (true, name));
    let (uniform, name) = name.strip_prefix('U').map_or((false, name), |name| (true, name));
    let number = match name.strip_prefix('P')? {
        "T" => 7,
        digits => digits.parse().ok().filter(|&number| number < 8)?,
    };
    Some(Predicate { number, uniform, not })
}

fn source(text: &str) -> Source {
    let mut source = Source { location: Location::Other, negated: false, inverted: false, absolute: false };
    let mut rest = text;
    loop {
        rest = match rest.as_bytes().first() {
            Some(b'-') => {
                source.negated = !source.negated;
                &rest[1..]
            }
            Some(b'~') => {
                source.inverted = true;
                &rest[1..]
            }
            Some(b'+') => &rest[1..],
            Some(b'|') => {
                source.absolute = true;
                rest[1..].trim_end_matches('|')
            }
            _ => break,
        };
    }
    source.location = location(rest.trim());
    source
}

fn location(text: &str) -> Location {
    // Suffixes as in `R4.reuse` and `R2.64` do not change the value; half selectors as in
    // `UR4.H0_H0` make it unknown.
    let (name, suffix) = text.split_once('.').unwrap_or((text, ""));
    if let Some(number) = register(name, "UR") {
        return if suffix.starts_with('H') { Location::Other } else { Location::Uniform(number) };
    }
    if let Some(number) = register(name, "R") {
        return if suffix.starts_with('H') { Location::Other } else { Location::Register(number) };
    }
    if let Some(constant) = constant(text) {
        return constant;
    }
    match text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16)) {
        Some(Ok(value)) => Location::Immediate(value as u32),
        Some(Err(_)) => Location::Other,
        None if text == "INF" => Location::Float(f64::INFINITY),
        None => text.parse().map_or(Location::Other, Location::Float),
    }
}

/// Returns the number of `R12` or `RZ` after a prefix.
fn register(name: &str, prefix: &str) -> Option<u8> {
    match name.strip_prefix(prefix)? {
        "Z" => Some(ZERO),
        digits => digits.parse().ok(),
    }
}

/// `c[0x0][0x210]`, `c[0x0][RZ]`, `c[0x0][R2+0x4]`.
fn constant(text: &str) -> Option<Location> {
    let (bank, rest) = text.strip_prefix("c[")?.split_once("][")?;
    let bank = u8::from_str_radix(bank.strip_prefix("0x")?, 16).ok()?;
    let (mut offset, mut added) = (0, ZERO);
    for part in rest.trim_end_matches(']').split('+') {
        match register(part, "R") {
            Some(number) => added = number,
            None => offset = u32::from_str_radix(part.strip_prefix("0x")?, 16).ok()?,
        }
    }
    Some(Location::Constant(bank, offset, added))
}

/// `[R2.64+0x10]`, `desc[UR4][R2.64+UR6+-0x4]`, `[R3.X4+0x400]`.
fn address(text: &str) -> Option<Address> {
    let inner = match text.strip_prefix("desc[") {
        Some(rest) => rest.split_once("][")?.1,
        None => text.strip_prefix('[')?,
    };
    let mut address = Address { register: ZERO, scale: 0, wide: false, uniform: None, offset: 0 };
    for part in inner.strip_suffix(']')?.split('+') {
        let (negative, size) = part.strip_prefix('-').map_or((false, part), |size| (true, size));
        if let Some(digits) = size.strip_prefix("0x") {
            let offset = i64::from_str_radix(digits, 16).ok()?;
            address.offset += if negative { -offset } else { offset };
            continue;
        }
        let mut words = part.split('.');
        let name = words.next()?;
        match register(name, "UR") {
            Some(number) => address.uniform = Some(number),
            None => address.register = register(name, "R")?,
        }
        for suffix in words {
            match suffix {
                "64" => address.wide = true,
                "X4" => address.scale = 2,
                "X8" => address.scale = 3,
                "X16" => address.scale = 4,
                _ => {}
            }
        }
    }
    Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_parse_as_written() {
        let source = |location| Source { location, negated: false, inverted: false, absolute: false };
        assert_eq!(parse("R4.reuse"), Operand::Source(source(Location::Register(4))));
        let negated = Source { negated: true, ..source(Location::Uniform(ZERO)) };
        assert_eq!(parse("-URZ"), Operand::Source(negated));
        assert_eq!(parse("0x1f"), Operand::Source(source(Location::Immediate(31))));
        assert_eq!(parse("1.875"), Operand::Source(source(Location::Float(1.875))));
        assert_eq!(parse("c[0x0][0x210]"), Operand::Source(source(Location::Constant(0, 0x210, ZERO))));
        assert_eq!(parse("c[0x0][RZ]"), Operand::Source(source(Location::Constant(0, 0, ZERO))));
        assert_eq!(parse("!PT"), Operand::Predicate(Predicate { not: true, ..TRUE }));
        assert_eq!(parse("`(.L_x_3)"), Operand::Label(".L_x_3".to_owned()));
        let address = Address { register: 2, scale: 0, wide: true, uniform: None, offset: -4 };
        assert_eq!(parse("desc[UR4][R2.64+-0x4]"), Operand::Address(address));
        let shared = Address { register: 3, scale: 2, wide: false, uniform: Some(5), offset: 0x400 };
        assert_eq!(parse("[R3.X4+UR5+0x400]"), Operand::Address(shared));
    }
}
