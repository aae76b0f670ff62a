//! SASS opcodes to [`Op`]s and back.

use crate::Op;

/// Classifies a SASS opcode; `None` for the generic `LD` and `ST`, whose address decides.
///
/// Pipes as on Volta and later: comparisons and selections of any type run on the integer pipe,
/// integer multiply-adds on their own. Uniform-datapath instructions take only an issue slot.
pub(crate) fn classify(opcode: &str) -> Option<Op> {
    let name = opcode.split('.').next().unwrap_or_default();
    Some(match name {
        "LD" | "ST" => return None,
        "LDG" if opcode.contains(".STRONG.GPU") || opcode.contains(".STRONG.SYS") => Op::LoadStrong,
        "LDG" | "LDL" | "TEX" | "TLD" | "TLD4" | "TXD" | "SULD" | "LDGSTS" => Op::LoadGlobal,
        "STG" | "STL" | "SUST" => Op::StoreGlobal,
        "LDS" | "LDSM" => Op::LoadShared,
        "STS" | "STSM" => Op::StoreShared,
        // Lanes that increment the same word are combined first.
        "ATOMS" if opcode.starts_with("ATOMS.POPC") => Op::StoreShared,
        "ATOMS" => Op::AtomicShared,
        "LDC" | "LDCU" => Op::LoadConstant,
        "ATOM" | "ATOMG" | "SUATOM" => Op::Atomic,
        "RED" | "REDG" | "SURED" => Op::Reduce,
        "SHFL" | "MOVM" => Op::Shuffle,
        "BAR" => Op::Barrier,
        "EXIT" => Op::Exit,
        "IMAD" | "IMAD32I" | "IMUL" | "IMUL32I" | "XMAD" | "IDP" | "IDP4A" => Op::Imad,
        "FADD" | "FADD32I" | "FMUL" | "FMUL32I" | "FFMA" | "FFMA32I" | "FSWZADD" => Op::Fp32,
        "DADD" | "DMUL" | "DFMA" | "DMNMX" | "DSET" | "DSETP" => Op::Fp64,
        "HADD2" | "HMUL2" | "HFMA2" | "HSET2" | "HSETP2" | "HMNMX2" | "HADD2_32I" | "HMUL2_32I"
        | "HFMA2_32I" | "VHMNMX" => Op::Fp16,
        "HMMA" | "IMMA" | "BMMA" | "DMMA" | "QMMA" | "HGMMA" | "IGMMA" | "BGMMA" | "QGMMA" => Op::Tensor,
        "MUFU" | "RRO" | "F2F" | "F2I" | "I2F" | "I2I" | "FRND" | "FCHK" | "POPC" | "FLO" | "BREV"
        | "REDUX" => Op::Sfu,
        "IADD" | "IADD3" | "IADD32I" | "VIADD" | "VIADDMNMX" | "VIMNMX" | "VIMNMX3" | "IABS" | "IMNMX"
        | "ISETP" | "ISET" | "ICMP" | "ISCADD" | "ISCADD32I" | "LEA" | "LOP" | "LOP3" | "LOP32I" | "SHF"
        | "SHL" | "SHR" | "PRMT" | "SEL" | "MOV" | "MOV32I" | "BFE" | "BFI" | "BMSK" | "SGXT" | "P2R"
        | "R2P" | "PLOP3" | "PSETP" | "PSET" | "CSET" | "CSETP" | "I2FP" | "F2FP" | "F2IP" | "I2IP"
        | "FCMP" | "FMNMX" | "FMNMX3" | "FSEL" | "FSET" | "FSETP" | "VABSDIFF" | "VABSDIFF4" | "R2UR" => {
            Op::Int
        }
        "BRA" | "BRX" | "BRXU" | "JMP" | "JMX" | "CALL" | "RET" | "BRK" | "CONT" | "SYNC" | "BSYNC" => {
            Op::Branch
        }
        "BSSY" | "BREAK" | "BMOV" | "WARPSYNC" | "YIELD" | "NANOSLEEP" | "NOP" | "SSY" | "PBK" | "PCNT"
        | "DEPBAR" | "MEMBAR" | "FENCE" | "CCTL" | "CCTLL" | "CCTLT" | "ERRBAR" | "S2R" | "CS2R" | "S2UR"
        | "CS2UR" | "B2R" | "R2B" | "VOTE" | "VOTEU" | "MATCH" | "KILL" | "BPT" | "ULDC" | "LEPC"
        | "PMTRIG" | "LDGDEPBAR" | "ARRIVES" | "GETLMEMBASE" | "SETLMEMBASE" | "ELECT" | "RPCMOV"
        | "ACQBULK" | "SYNCS" | "WARPGROUP" | "USETMAXREG" | "UCGABAR_ARV" | "UCGABAR_WAIT" => Op::Control,
        // Uniform datapath: `U` and the name of the vector instruction.
        name if name.strip_prefix('U').is_some_and(is_uniform) => Op::Control,
        _ => Op::Unknown,
    })
}

/// Returns whether the uniform datapath has an instruction of this name, after its `U`.
fn is_uniform(name: &str) -> bool {
    matches!(
        name,
        "IADD3"
            | "IMAD"
            | "ISETP"
            | "LOP3"
            | "LOP32I"
            | "LEA"
            | "MOV"
            | "MOV32I"
            | "SEL"
            | "SHF"
            | "SHL"
            | "SHR"
            | "PRMT"
            | "POPC"
            | "FLO"
            | "BREV"
            | "BMSK"
            | "SGXT"
            | "PLOP3"
            | "PSETP"
            | "P2UR"
            | "R2UP"
            | "F2FP"
            | "IABS"
            | "IMNMX"
            | "IADD"
            | "VIADD"
            | "CLEA"
    )
}

/// Returns whether an opcode is a bulk copy by the copy engine, which has no timing model.
pub(crate) fn is_bulk_copy(opcode: &str) -> bool {
    let name = opcode.split('.').next().unwrap_or_default();
    matches!(name, "UTMALDG" | "UTMASTG" | "UTMAPF" | "UTMAREDG" | "UBLKCP" | "UBLKPF" | "UBLKRED")
}

/// Returns whether an opcode with addresses accesses a barrier object in shared memory.
pub(crate) fn is_barrier_object(opcode: &str) -> bool {
    opcode.split('.').next() == Some("SYNCS")
}

/// Returns the columns of a warpgroup product's result, the `N` of `HGMMA.64xNxK`; 0 for all other
/// opcodes.
pub(crate) fn columns(opcode: &str) -> u16 {
    let mut parts = opcode.split('.');
    let is_product = parts.next().is_some_and(|name| name.ends_with("GMMA"));
    let shape = parts.find_map(|part| part.strip_prefix("64x")).filter(|_| is_product);
    shape.and_then(|rest| rest.split('x').next()?.parse().ok()).filter(|columns| *columns <= 256).unwrap_or(0)
}

/// Returns the bytes per lane, from the opcode's suffix.
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

/// Returns an opcode that classifies as this instruction class and width.
pub(crate) fn format_opcode(op: Op, width: u8) -> String {
    let name = match op {
        Op::Int => "IADD3",
        Op::Imad => "IMAD",
        Op::Fp32 => "FFMA",
        Op::Fp64 => "DFMA",
        Op::Fp16 => "HFMA2",
        Op::Sfu => "MUFU",
        Op::Tensor => "HMMA",
        Op::Control => "NOP",
        Op::Branch => "BRA",
        Op::LoadConstant => "LDC",
        Op::LoadGlobal => "LDG.E",
        Op::LoadStrong => "LDG.E.STRONG.GPU",
        Op::StoreGlobal => "STG.E",
        Op::LoadShared => "LDS",
        Op::StoreShared => "STS",
        Op::AtomicShared => "ATOMS",
        Op::Shuffle => "SHFL",
        Op::Atomic => "ATOMG.E",
        Op::Reduce => "RED.E",
        Op::Barrier => "BAR.SYNC",
        Op::Exit => "EXIT",
        Op::Unknown => "UNKNOWN",
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
    fn formatted_opcodes_classify_as_their_op() {
        for op in Op::ALL {
            for bytes in [1, 2, 4, 8, 16] {
                let text = format_opcode(op, bytes);
                assert_eq!((classify(&text), width(&text)), (Some(op), bytes), "{text}");
            }
        }
    }

    #[test]
    fn traced_opcodes_are_classified() {
        let cases = [
            ("IMAD.WIDE", Op::Imad),
            ("FSETP.GEU.AND", Op::Int),
            ("HFMA2.MMA", Op::Fp16),
            ("LDG.E.128.STRONG.GPU", Op::LoadStrong),
            ("ATOMG.E.ADD", Op::Atomic),
            ("BAR.SYNC.DEFER_BLOCKING", Op::Barrier),
            ("REDG.E.ADD.STRONG.GPU", Op::Reduce),
            ("ATOMS.ADD", Op::AtomicShared),
            ("ATOMS.POPC.INC.32", Op::StoreShared),
            ("SHFL.BFLY", Op::Shuffle),
            ("UIADD3.X", Op::Control),
            ("HGMMA.64x256x16.F32.BF16", Op::Tensor),
            ("WARPGROUP.DEPBAR.LE", Op::Control),
            ("SYNCS.PHASECHK.TRANS64.TRYWAIT", Op::Control),
            ("UTMALDG.2D", Op::Unknown),
            ("UNHEARD.OF", Op::Unknown),
            ("SOMETHING.NEW", Op::Unknown),
        ];
        for (opcode, op) in cases {
            assert_eq!(classify(opcode), Some(op), "{opcode}");
        }
        assert_eq!((classify("LD.E.64"), width("LD.E.64")), (None, 8));
        assert_eq!(width("IMAD.WIDE.U32"), 4);
    }

    #[test]
    fn columns_are_those_of_warpgroup_products_alone() {
        for (opcode, wanted) in [
            ("HGMMA.64x256x16.F32.BF16", 256),
            ("QGMMA.SP.64x8x64.F16.E4M3.E4M3", 8),
            ("HGMMA.64x512x16", 0),
            ("HGMMA", 0),
            ("HMMA.16816.F32", 0),
            ("UNHEARD.64x256x16", 0),
        ] {
            assert_eq!(columns(opcode), wanted, "{opcode}");
        }
    }
}
