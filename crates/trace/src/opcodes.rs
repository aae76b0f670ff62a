//! Numbered opcodes of a traced kernel, with counts of those that have no timing model.

use std::collections::{BTreeMap, HashMap};

use crate::{
    Op, Problem,
    opcode::{classify, is_barrier_object},
};

/// Largest number of opcodes per kernel; all of SASS with its suffixes is fewer.
const MAX_OPCODES: usize = 1 << 12;

/// Opcodes in order of first appearance.
#[derive(Debug, Default)]
pub(crate) struct Opcodes {
    names: Vec<String>,
    numbers: HashMap<(String, bool), u16>,
    /// By number: executions, and the suffix for reports if the opcode is unknown.
    executed: Vec<(u64, Option<&'static str>)>,
}

impl Opcodes {
    /// Returns the number of an opcode traced with or without addresses.
    ///
    /// # Errors
    /// [`Problem`] if there are more than 4096 opcodes.
    pub(crate) fn intern(&mut self, name: &str, addresses: bool) -> Result<u16, Problem> {
        let key = (name.to_owned(), addresses);
        if let Some(&number) = self.numbers.get(&key) {
            return Ok(number);
        }
        if self.names.len() == MAX_OPCODES {
            let what = "the number of different opcodes";
            return Err(Problem::Range { what, found: MAX_OPCODES as u64 + 1, range: "at most 4096" });
        }
        let number = self.names.len() as u16;
        self.names.push(name.to_owned());
        self.executed.push((0, unknown_suffix(name, addresses)));
        self.numbers.insert(key, number);
        Ok(number)
    }

    /// Counts an execution by these lanes. With all lanes predicated off, the opcode needs no
    /// addresses.
    #[inline]
    pub(crate) fn count(&mut self, number: u16, mask: u32) {
        self.executed[usize::from(number)].0 += u64::from(mask != 0);
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the executions of opcodes without a timing model.
    pub(crate) fn unknown(&self) -> BTreeMap<String, u64> {
        let executed = self.names.iter().zip(&self.executed);
        executed
            .filter_map(|(name, &(count, unknown_suffix))| {
                Some((format!("{name}{}", unknown_suffix?), count))
            })
            .collect()
    }
}

/// Returns the report suffix of an unknown opcode, or of one traced unexpectedly with or without
/// addresses.
fn unknown_suffix(name: &str, addresses: bool) -> Option<&'static str> {
    let op = classify(name);
    match (addresses, op) {
        (_, Some(Op::Unknown)) => Some(""),
        (true, _) if is_barrier_object(name) => None,
        (true, Some(op)) if !has_addresses(op) => Some(" (with addresses)"),
        (false, None) => Some(" (without addresses)"),
        (false, Some(op)) if has_addresses(op) && op != Op::LoadConstant => Some(" (without addresses)"),
        _ => None,
    }
}

/// Returns whether instructions of a class have addresses.
pub(crate) fn has_addresses(op: Op) -> bool {
    op.is_global() || op.is_shared() || op == Op::LoadConstant
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_opcodes_are_counted_by_name() {
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
            ("SYNCS.ARRIVE.TRANS64.A1T0", true, None),
            ("WARPGROUP.ARRIVE", false, None),
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
    fn more_than_4096_opcodes_are_refused() {
        let mut opcodes = Opcodes::default();
        (0..MAX_OPCODES)
            .for_each(|n| assert_eq!(usize::from(opcodes.intern(&format!("O{n}"), false).unwrap()), n));
        assert!(opcodes.intern("ONE.MORE", false).unwrap_err().to_string().contains("at most 4096"));
    }
}
