//! The opcodes of a traced kernel by number, and how often those were executed whose timing is a guess.

use std::collections::{BTreeMap, HashMap};

use crate::{Op, Problem, opcode::classify};

/// The most opcodes that a kernel may have; all of SASS with its suffixes is fewer.
const MOST: usize = 1 << 12;

/// Opcodes in the order of their first appearance.
#[derive(Debug, Default)]
pub(crate) struct Opcodes {
    names: Vec<String>,
    numbers: HashMap<(String, bool), u16>,
    /// By number: how often it was executed, and what to say of it if it is a guess.
    executed: Vec<(u64, Option<&'static str>)>,
}

impl Opcodes {
    /// The number of an opcode that was traced with or without addresses.
    ///
    /// # Errors
    /// [`Problem`] if there are more opcodes than any machine has.
    pub(crate) fn intern(&mut self, name: &str, addresses: bool) -> Result<u16, Problem> {
        let key = (name.to_owned(), addresses);
        if let Some(&number) = self.numbers.get(&key) {
            return Ok(number);
        }
        if self.names.len() == MOST {
            let what = "the number of different opcodes";
            return Err(Problem::Range { what, found: MOST as u64 + 1, range: "at most 4096" });
        }
        let number = self.names.len() as u16;
        self.names.push(name.to_owned());
        self.executed.push((0, doubt(name, addresses)));
        self.numbers.insert(key, number);
        Ok(number)
    }

    /// Notes that an opcode was executed by these lanes. Where there are none, it has no addresses and needs none.
    #[inline]
    pub(crate) fn count(&mut self, number: u16, mask: u32) {
        self.executed[usize::from(number)].0 += u64::from(mask != 0);
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// How often opcodes were executed whose timing is a guess.
    pub(crate) fn unknown(&self) -> BTreeMap<String, u64> {
        let executed = self.names.iter().zip(&self.executed);
        executed.filter_map(|(name, &(count, doubt))| Some((format!("{name}{}", doubt?), count))).collect()
    }
}

/// What is behind the name of an opcode that is not known, or not known to be used so.
fn doubt(name: &str, addresses: bool) -> Option<&'static str> {
    let op = classify(name);
    match (addresses, op) {
        (_, Some(Op::Unknown)) => Some(""),
        (true, Some(op)) if !has_addresses(op) => Some(" (with addresses)"),
        (false, None) => Some(" (without addresses)"),
        (false, Some(op)) if has_addresses(op) && op != Op::LoadConstant => Some(" (without addresses)"),
        _ => None,
    }
}

/// Whether instructions of a class come with addresses.
pub(crate) fn has_addresses(op: Op) -> bool {
    op.is_global() || op.is_shared() || op == Op::LoadConstant
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_guess_is_counted_by_name() {
        let mut opcodes = Opcodes::default();
        let cases = [
            ("IMAD.WIDE", false, None),
            ("UIADD3.X", false, None),
            ("LDG.E.64", true, None),
            ("LDC", false, None),
            ("LDG.E", false, Some("LDG.E (without addresses)")),
            ("LD.E", false, Some("LD.E (without addresses)")),
            ("IADD3", true, Some("IADD3 (with addresses)")),
            ("NEVER.HEARD.OF", true, Some("NEVER.HEARD.OF")),
            ("UBLKCP", false, Some("UBLKCP")),
        ];
        for (index, (name, addresses, _)) in cases.into_iter().enumerate() {
            let number = opcodes.intern(name, addresses).unwrap();
            assert_eq!((usize::from(number), opcodes.intern(name, addresses).unwrap()), (index, number));
            opcodes.count(number, 1);
            opcodes.count(number, 0);
        }
        let expected = cases.into_iter().filter_map(|(_, _, shown)| Some((shown?.to_owned(), 1)));
        assert_eq!(opcodes.unknown(), expected.collect());
    }

    #[test]
    fn more_opcodes_than_any_machine_has_are_refused() {
        let mut opcodes = Opcodes::default();
        (0..MOST).for_each(|n| assert_eq!(usize::from(opcodes.intern(&format!("O{n}"), false).unwrap()), n));
        assert!(opcodes.intern("ONE.MORE", false).unwrap_err().to_string().contains("at most 4096"));
    }
}
