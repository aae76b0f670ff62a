//! The codecs that have kernels: the one list of them, and which of them count sizes together.

use buddy_codec::CodecKind;

use crate::{
    Error,
    source::{BLOCKS, WARPS},
};

/// How the survey kernels are launched: warps of a block, and blocks that a multiprocessor shall hold.
pub const SURVEY_SHAPE: (u32, u32) = (WARPS, BLOCKS);

/// The codecs that have kernels, their structs there, and the group with which their sizes are counted in one pass.
const CODECS: [(CodecKind, &str, usize); 19] = [
    (CodecKind::Bpc, "Bpc", 0),
    (CodecKind::Planes64, "Planes64", 0),
    (CodecKind::Zeros16, "Zeros<16>", 0),
    (CodecKind::Zeros32, "Zeros<32>", 0),
    (CodecKind::Zeros64, "Zeros<64>", 0),
    (CodecKind::Bf16, "Bf16", 0),
    (CodecKind::Fp16, "Fp16", 0),
    (CodecKind::Fp32, "Fp32", 0),
    (CodecKind::Delta64, "Delta64", 0),
    (CodecKind::Table32, "Table32", 1),
    (CodecKind::Table64, "Table64", 1),
    (CodecKind::Stride32, "Stride32", 1),
    (CodecKind::Stride64, "Stride64", 1),
    (CodecKind::Scaled64, "Scaled64", 1),
    (CodecKind::Prefix32, "Prefix32", 1),
    (CodecKind::Prefix64, "Prefix64", 1),
    (CodecKind::Rank32, "Rank32", 1),
    (CodecKind::Rank64, "Rank64", 1),
    (CodecKind::Near64, "Near64", 0),
];

/// The codecs that have kernels.
pub fn codecs() -> impl Iterator<Item = CodecKind> {
    CODECS.iter().map(|&(kind, ..)| kind)
}

/// Codecs of which some may be, cut into those whose sizes are counted in one pass, each group in the order of [`codecs`].
pub fn survey_groups(kinds: &[CodecKind]) -> Vec<Vec<CodecKind>> {
    let of_group = |group| {
        let members = CODECS.iter().filter(move |&&(kind, _, its)| its == group && kinds.contains(&kind));
        members.map(|&(kind, ..)| kind).collect::<Vec<_>>()
    };
    let last = CODECS.iter().map(|&(.., group)| group).max().unwrap_or(0);
    (0..=last).map(of_group).filter(|members| !members.is_empty()).collect()
}

/// The codec's struct in the kernels.
pub(crate) fn struct_of(kind: CodecKind) -> Result<&'static str, Error> {
    let found = CODECS.iter().find(|(known, ..)| *known == kind);
    found.map(|&(_, name, _)| name).ok_or(Error::NoKernels { codec: kind })
}
