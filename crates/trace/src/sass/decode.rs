//! Decodes instructions once, so that execution compares no strings.

use super::operand::{Location, Operand, Predicate, Source};

macro_rules! kinds {
    ($($kind:ident $name:literal),* $(,)?) => {
        /// Instruction kinds that execution distinguishes. The uniform variant, with a leading `U`,
        /// has the same kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Kind {
            $($kind,)*
            /// An unsupported instruction; its results are unknown.
            Other,
        }

        impl Kind {
            fn of(base: &str) -> Self {
                match base {
                    $($name => Self::$kind,)*
                    _ => base.strip_prefix('U').map_or(Self::Other, Self::of),
                }
            }
        }
    };
}

kinds! {
    Nop "NOP", Bssy "BSSY", Bsync "BSYNC", Warpsync "WARPSYNC", Yield "YIELD", Bra "BRA", Exit "EXIT", Bar "BAR",
    Mov "MOV", Mov32i "MOV32I", R2ur "R2UR", S2r "S2R", S2ur "S2UR", Cs2r "CS2R", Ldc "LDC", Uldc "ULDC", Ldcu "LDCU",
    Imad "IMAD", Iadd3 "IADD3", Viadd "VIADD", Lea "LEA", Lop3 "LOP3", Shf "SHF", Sel "SEL", Fsel "FSEL",
    Imnmx "IMNMX", Vimnmx "VIMNMX", Vimnmx3 "VIMNMX3", Viaddmnmx "VIADDMNMX", Iabs "IABS", Popc "POPC", Flo "FLO", Prmt "PRMT",
    Hfma2 "HFMA2", Isetp "ISETP", Fsetp "FSETP", Plop3 "PLOP3", Shfl "SHFL", Vote "VOTE", Voteu "VOTEU", Redux "REDUX",
    Fadd "FADD", Fmul "FMUL", Ffma "FFMA", Fmnmx "FMNMX", Mufu "MUFU", I2f "I2F", I2fp "I2FP", F2i "F2I",
}

macro_rules! flags {
    ($($flag:ident $name:literal),* $(,)?) => {
        /// Opcode suffixes that change the operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Flag {
            $($flag,)*
        }

        fn flag(suffix: &str) -> u64 {
            match suffix {
                $($name => 1 << Flag::$flag as u64,)*
                _ => 0,
            }
        }
    };
}

flags! {
    Wide "WIDE", Hi "HI", X "X", Sx32 "SX32", U32 "U32", S32 "S32", U64 "U64", S64 "S64", Right "R", B32 "32", B64 "64",
    B128 "128", F64 "F64", U16 "U16", U8 "U8", Ex "EX", Or "OR", Xor "XOR", Up "UP", Down "DOWN", Idx "IDX", All "ALL",
    Sum "SUM", Rcp "RCP", Ex2 "EX2", Rp "RP", Inc "INC", Add "ADD", Popc "POPC",
}

/// A decoded instruction.
#[derive(Debug, Clone)]
pub(super) struct Decoded {
    pub(super) kind: Kind,
    flags: u64,
    /// If true, it executes once per warp.
    pub(super) uniform: bool,
    /// Comparison operator.
    pub(super) comparison: String,
    pub(super) destination: Option<Location>,
    pub(super) sources: Vec<Source>,
    /// Predicates written, before the first source, and read, after it.
    pub(super) outputs: Vec<Predicate>,
    pub(super) inputs: Vec<Predicate>,
    pub(super) special: Option<String>,
}

impl Decoded {
    pub(super) fn has(&self, flag: Flag) -> bool {
        self.flags >> flag as u64 & 1 == 1
    }

    /// Decodes an instruction; `destination` is the index of the operand that it writes.
    pub(super) fn new(opcode: &str, operands: &[Operand], destination: Option<usize>) -> Self {
        let base = opcode.split('.').next().unwrap_or_default();
        let kind = Kind::of(base);
        let after = destination.map_or(0, |index| index + 1);
        let is_source = |operand: &Operand| !matches!(operand, Operand::Predicate(_));
        let first = match kind {
            // These have no other source: a fixed number of outputs is first.
            Kind::Plop3 => 2,
            Kind::Vote | Kind::Voteu => after + 1,
            Kind::Sel | Kind::Fsel | Kind::Fmnmx => after,
            _ => after + operands[after..].iter().position(is_source).unwrap_or(operands.len() - after),
        };
        let first = first.min(operands.len());
        let predicates = |operands: &[Operand]| {
            let one =
                |operand: &Operand| if let Operand::Predicate(one) = operand { Some(*one) } else { None };
            operands.iter().filter_map(one).collect()
        };
        let source =
            |operand: &Operand| if let Operand::Source(source) = operand { Some(*source) } else { None };
        let suffixes = || opcode.split('.').skip(1);
        let destination =
            destination.and_then(|index| source(&operands[index])).map(|source| source.location);
        Self {
            kind,
            flags: suffixes().map(flag).fold(0, |all, one| all | one),
            uniform: base.starts_with('U') || matches!(destination, Some(Location::Uniform(_))),
            comparison: suffixes()
                .find(|word| !matches!(*word, "FTZ" | "U32" | "EX"))
                .unwrap_or_default()
                .to_owned(),
            destination,
            sources: operands[after..].iter().filter_map(source).collect(),
            outputs: predicates(&operands[..first]),
            inputs: predicates(&operands[first..]),
            special: operands.iter().find_map(|operand| match operand {
                Operand::Special(name) => Some(name.clone()),
                _ => None,
            }),
        }
    }
}
