//! SASS opcodes to [`Op`]s and back.

use crate::Op;

/// The class of a traced opcode; `None` for the generic `LD` and `ST`, whose address decides.
///
/// An opcode that is not listed counts as an integer instruction: it takes an issue slot and a short latency.
pub(crate) fn classify(opcode: &str) -> Option<Op> {
    let mut parts = opcode.split('.');
    let name = parts.next().unwrap_or_default();
    Some(match name {
        "LD" | "ST" => return None,
        "LDG" if opcode.contains(".STRONG.GPU") || opcode.contains(".STRONG.SYS") => Op::LoadStrong,
        "LDG" | "LDL" | "TEX" | "TLD" | "TLD4" | "TXD" | "SULD" => Op::LoadGlobal,
        "STG" | "STL" | "SUST" => Op::StoreGlobal,
        "LDGSTS" => Op::LoadGlobal,
        "LDS" | "LDSM" => Op::LoadShared,
        "STS" | "ATOMS" => Op::StoreShared,
        "LDC" | "LDCU" => Op::LoadConstant,
        "ATOM" | "ATOMG" | "SUATOM" => Op::Atomic,
        "RED" | "SURED" => Op::Reduce,
        "BAR" => Op::Barrier,
        "EXIT" => Op::Exit,
        "FADD" | "FADD32I" | "FMUL" | "FMUL32I" | "FFMA" | "FFMA32I" | "FCHK" | "FCMP" | "FMNMX" | "FSEL"
        | "FSET" | "FSETP" | "FSWZADD" => Op::Fp32,
        "DADD" | "DMUL" | "DFMA" | "DMNMX" | "DSET" | "DSETP" => Op::Fp64,
        "HFMA2" if parts.next() == Some("MMA") => Op::Fp16,
        "HADD2" | "HMUL2" | "HFMA2" | "HSET2" | "HSETP2" | "HMNMX2" | "HADD2_32I" | "HMUL2_32I"
        | "HFMA2_32I" => Op::Fp16,
        "HMMA" | "IMMA" | "BMMA" | "DMMA" | "QMMA" | "HGMMA" | "IGMMA" | "BGMMA" | "QGMMA" => Op::Tensor,
        "MUFU" | "RRO" | "F2F" | "F2I" | "I2F" | "I2I" | "FRND" | "POPC" | "FLO" => Op::Sfu,
        "BRA" | "BRX" | "JMP" | "JMX" | "CALL" | "RET" | "BSSY" | "BSYNC" | "BREAK" | "BMOV" | "WARPSYNC"
        | "YIELD" | "NANOSLEEP" | "NOP" | "SSY" | "SYNC" | "PBK" | "BRK" | "DEPBAR" | "MEMBAR" | "CCTL"
        | "ERRBAR" | "S2R" | "CS2R" | "S2UR" | "B2R" | "R2B" | "VOTE" | "KILL" | "BPT" | "ULDC" | "LEPC"
        | "LDGDEPBAR" => Op::Control,
        _ => Op::Int,
    })
}

/// Bytes per lane, from the opcode's suffix.
pub(crate) fn width(opcode: &str) -> u8 {
    let mut width = 4;
    for part in opcode.split('.').skip(1) {
        match part {
            "128" => width = 16,
            "64" => width = 8,
            "32" => width = 4,
            "U16" | "S16" | "16" => width = 2,
            "U8" | "S8" | "8" => width = 1,
            _ => {}
        }
    }
    width
}

/// An opcode that reads back as this instruction class and width.
pub(crate) fn spell(op: Op, width: u8) -> String {
    let name = match op {
        Op::Int => "IADD3",
        Op::Fp32 => "FFMA",
        Op::Fp64 => "DFMA",
        Op::Fp16 => "HFMA2",
        Op::Sfu => "MUFU",
        Op::Tensor => "HMMA",
        Op::Control => "BRA",
        Op::LoadConstant => "LDC",
        Op::LoadGlobal => "LDG.E",
        Op::LoadStrong => "LDG.E.STRONG.GPU",
        Op::StoreGlobal => "STG.E",
        Op::LoadShared => "LDS",
        Op::StoreShared => "STS",
        Op::Atomic => "ATOMG.E",
        Op::Reduce => "RED.E",
        Op::Barrier => "BAR.SYNC",
        Op::Exit => "EXIT",
    };
    let suffix = match width {
        1 => ".U8",
        2 => ".U16",
        8 => ".64",
        16 => ".128",
        _ => "",
    };
    format!("{name}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spelt_reads_back() {
        for op in Op::ALL {
            for bytes in [1, 2, 4, 8, 16] {
                let text = spell(op, bytes);
                assert_eq!((classify(&text), width(&text)), (Some(op), bytes), "{text}");
            }
        }
    }

    #[test]
    fn traced_opcodes_have_their_class() {
        let cases = [
            ("IMAD.WIDE", Op::Int),
            ("HFMA2.MMA", Op::Fp16),
            ("LDG.E.128.STRONG.GPU", Op::LoadStrong),
            ("ATOMG.E.ADD", Op::Atomic),
            ("BAR.SYNC.DEFER_BLOCKING", Op::Barrier),
            ("SOMETHING.NEW", Op::Int),
        ];
        for (opcode, op) in cases {
            assert_eq!(classify(opcode), Some(op), "{opcode}");
        }
        assert_eq!((classify("LD.E.64"), width("LD.E.64")), (None, 8));
        assert_eq!(width("IMAD.WIDE.U32"), 4);
    }
}
