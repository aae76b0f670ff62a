//! Parses machine code printed by `nvdisasm -c`: the instructions of each function, and their
//! successors.

use std::collections::HashMap;

use crate::Error;

/// Bytes of an instruction, from Volta on.
pub const INSTRUCTION_BYTES: u32 = 16;

/// Successors of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The next instruction.
    On,
    /// One of these, or the next instruction if conditional.
    Jump(Vec<usize>),
    /// A function, and the next instruction after its return.
    Call(Option<usize>),
    /// The caller.
    Return,
    /// None, for the lanes whose predicate holds.
    Exit,
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The opcode with suffixes, such as `LDG.E.64`.
    pub opcode: String,
    /// True if the instruction is predicated.
    pub conditional: bool,
    /// The general register it writes.
    pub written: Option<u8>,
    /// The general registers it reads.
    pub read: Vec<u8>,
    /// Successors.
    pub next: Next,
}

impl Instruction {
    /// Returns the opcode without suffixes.
    pub fn base(&self) -> &str {
        self.opcode.split('.').next().unwrap_or_default()
    }

    /// Returns true if diverged lanes reconverge here.
    pub fn reconverges(&self) -> bool {
        matches!(self.base(), "BSYNC" | "WARPSYNC" | "BAR")
    }
}

/// The machine code of each section, by kernel.
pub type Sections = HashMap<String, Vec<Instruction>>;

/// Parses the output of `nvdisasm -c`.
///
/// # Errors
/// [`Error::Sass`] with the invalid line.
pub fn parse(text: &str) -> Result<Sections, Error> {
    let mut sections = Sections::new();
    let mut open: Option<(String, Vec<&str>, HashMap<&str, usize>)> = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix(".section") {
            close(&mut sections, open.take())?;
            let name = section.trim().split(',').next().unwrap_or_default();
            open = name.strip_prefix(".text.").map(|name| (name.to_owned(), Vec::new(), HashMap::new()));
        }
        let Some((_, lines, labels)) = &mut open else { continue };
        if line.starts_with("/*") {
            lines.push(line);
        } else if let Some(label) = line.strip_suffix(':') {
            labels.insert(label, lines.len());
        }
    }
    close(&mut sections, open)?;
    Ok(sections)
}

type Open<'a> = (String, Vec<&'a str>, HashMap<&'a str, usize>);

fn close(sections: &mut Sections, open: Option<Open<'_>>) -> Result<(), Error> {
    let Some((name, lines, labels)) = open else { return Ok(()) };
    let code: Result<Vec<_>, Error> = lines.iter().map(|line| instruction(line, &labels)).collect();
    sections.insert(name, code?);
    Ok(())
}

/// Parses a line: an address in a comment, an optional predicate, the opcode, and operands up to a
/// semicolon.
fn instruction(line: &str, labels: &HashMap<&str, usize>) -> Result<Instruction, Error> {
    let wrong = || Error::Sass(line.to_owned());
    let code = line.split_once("*/").ok_or_else(wrong)?.1;
    let end = code.find(';').ok_or_else(wrong)?;
    // Targets of an indirect branch are in a comment before the semicolon.
    let (code, targets) = code[..end].split_once("(*").unwrap_or((&code[..end], ""));
    let mut code = code.trim().trim_start_matches('{').trim();
    let mut conditional = false;
    if code.starts_with('@') {
        let (predicate, rest) = code.split_once(char::is_whitespace).ok_or_else(wrong)?;
        conditional = predicate != "@PT" && predicate != "@UPT";
        code = rest.trim();
    }
    let (opcode, operands) = code.split_once(char::is_whitespace).unwrap_or((code, ""));
    let (written, read) = registers(opcode, operands);
    let label = |text: &str| labels.get(text.trim_matches(|c| "`() ".contains(c))).copied();
    let base = opcode.split('.').next().unwrap_or_default();
    let target = || operands.split(',').find_map(|operand| label(operand.trim()));
    let next = match base {
        "BRA" | "JMP" => Next::Jump(target().into_iter().collect()),
        "BRX" | "JMX" | "BRXU" => Next::Jump(branch_targets(targets).filter_map(label).collect()),
        "CALL" => Next::Call(target().or_else(|| operands.split('`').nth(1).and_then(label))),
        "RET" => Next::Return,
        "EXIT" | "KILL" => Next::Exit,
        _ => Next::On,
    };
    // `BRA P1, target` and `BRA.DIV` fall through if the operand does not hold.
    conditional |=
        matches!(next, Next::Jump(_)) && base == "BRA" && (operands.contains(',') || opcode.contains("DIV"));
    Ok(Instruction { opcode: opcode.to_owned(), conditional, written, read, next })
}

fn branch_targets(comment: &str) -> impl Iterator<Item = &str> {
    let list = comment.split_once("BRANCH_TARGETS").map_or("", |(_, list)| list);
    list.split(',').map(|target| target.trim_matches(|c: char| " \"*)".contains(c)))
}

/// Opcodes that write no general register although one comes first.
const WRITE_NOTHING: [&str; 16] = [
    "ST", "STG", "STS", "STL", "STAS", "RED", "REDG", "REDS", "BAR", "BRX", "RET", "CALL", "WARPSYNC",
    "R2UR", "MEMBAR", "UBLKCP",
];

/// Returns the general registers among the operands: the first one is written if it comes first.
fn registers(opcode: &str, operands: &str) -> (Option<u8>, Vec<u8>) {
    let base = opcode.split('.').next().unwrap_or_default();
    let mut found = Vec::new();
    let bytes = operands.as_bytes();
    for (at, _) in operands.match_indices('R') {
        let before = at.checked_sub(1).map_or(b' ', |index| bytes[index]);
        let digits: String = operands[at + 1..].chars().take_while(char::is_ascii_digit).collect();
        if before.is_ascii_alphanumeric() || before == b'_' {
            continue;
        }
        if let Ok(register) = digits.parse::<u8>() {
            found.push((at, register));
        }
    }
    let first = found.first().copied();
    let predicates =
        |text: &str| text.split(',').all(|part| part.trim().is_empty() || is_predicate(part.trim()));
    match first {
        Some((at, register))
            if !WRITE_NOTHING.contains(&base) && predicates(&operands[..at]) && comes_first(base, at) =>
        {
            (Some(register), found[1..].iter().map(|&(_, register)| register).collect())
        }
        _ => (None, found.iter().map(|&(_, register)| register).collect()),
    }
}

/// Returns true if an operand is the written one. Comparisons write predicates, which come first,
/// and read every register; others may write a register after a predicate.
fn comes_first(base: &str, at: usize) -> bool {
    at == 0 || !base.ends_with("SETP") && base != "PLOP3" && base != "R2P" && base != "VOTE"
}

fn is_predicate(text: &str) -> bool {
    let name = text.trim_start_matches('!').trim_start_matches('U');
    name == "PT" || name.strip_prefix('P').is_some_and(|digits| digits.parse::<u8>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
	.section	.text._Z1fPf,\"ax\",@progbits
.text._Z1fPf:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   ISETP.GE.AND P0, PT, R9, UR4, PT ;
        /*0020*/               @P0 BRA P1, `(.L_x_1) ;
        /*0030*/                   LDG.E.64 R2, desc[UR4][R4.64+0x8] ;
        /*0040*/              @!P0 STG.E desc[UR4][R6.64], R2 ;
        /*0050*/                   BRX R4 -0x2f0 (*\"BRANCH_TARGETS .L_x_1,.L_x_2\"*);
.L_x_1:
        /*0060*/                   CALL.REL.NOINC `($div) ;
.L_x_2:
        /*0070*/               @P1 EXIT ;
        /*0080*/                   SHFL.DOWN PT, R5, R2, 0x10, 0x1f ;
$div:
        /*0090*/                   RET.REL.NODEC R10 `(_Z1fPf) ;
	.section	.nv.info,\"\"
        junk
";

    #[test]
    fn instructions_lead_where_their_labels_are() {
        let sections = parse(TEXT).unwrap();
        let code = &sections["_Z1fPf"];
        assert_eq!(code.len(), 10);
        assert_eq!((code[2].next.clone(), code[2].conditional), (Next::Jump(vec![6]), true));
        assert_eq!(code[5].next, Next::Jump(vec![6, 7]));
        assert_eq!(code[6].next, Next::Call(Some(9)));
        assert_eq!((code[7].next.clone(), code[7].conditional), (Next::Exit, true));
        assert_eq!(code[9].next, Next::Return);
    }

    #[test]
    fn registers_are_written_first_and_then_read() {
        let sections = parse(TEXT).unwrap();
        let of = |index: usize| (sections["_Z1fPf"][index].written, sections["_Z1fPf"][index].read.clone());
        assert_eq!(of(0), (Some(1), vec![]));
        assert_eq!(of(1), (None, vec![9]));
        assert_eq!(of(3), (Some(2), vec![4]));
        assert_eq!(of(4), (None, vec![6, 2]));
        assert_eq!(of(8), (Some(5), vec![2]));
    }

    #[test]
    fn a_line_that_is_no_instruction_is_named() {
        let text = "\t.section\t.text.f,\"ax\"\n/*0000*/ NOP";
        assert!(parse(text).unwrap_err().to_string().contains("NOP"));
    }
}
