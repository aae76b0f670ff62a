//! The codecs with kernels, and the groups of them that a survey sizes in one pass.

use buddy_codec::CodecKind;

use crate::Error;

/// Launch shape of the survey kernels: warps per CTA, and resident CTAs per SM. The warps of a CTA
/// run through the same instructions at about the same time: with two per CTA, single codecs take
/// 2% longer on an H200, and a pass of all codecs 20%.
pub const SURVEY_SHAPE: (u32, u32) = (8, 3);

/// The codecs with kernels: kind, struct, and approximate instructions to size 32 entries.
const CODECS: [(CodecKind, &str, u32); 16] = [
    (CodecKind::Bpc, "Bpc", 350),
    (CodecKind::Planes64, "Planes64", 110),
    (CodecKind::Zeros16, "Zeros<16>", 70),
    (CodecKind::Zeros32, "Zeros<32>", 70),
    (CodecKind::Bf16, "Bf16", 450),
    (CodecKind::Fp16, "Fp16", 300),
    (CodecKind::Fp32, "Fp32", 210),
    (CodecKind::Table32, "Table32", 830),
    (CodecKind::Table64, "Table64", 560),
    (CodecKind::Scaled64, "Scaled64", 620),
    (CodecKind::Prefix32, "Prefix32", 360),
    (CodecKind::Prefix64, "Prefix64", 330),
    (CodecKind::Rank32, "Rank32", 800),
    (CodecKind::Rank64, "Rank64", 500),
    (CodecKind::Near64, "Near64", 80),
    (CodecKind::BpcBest, "BpcBest", 600),
];

/// The most instructions of codecs in one pass; more would not stay in the SM's instruction cache.
const MOST_INSTRUCTIONS: u32 = 2000;

/// Lists the codecs with kernels.
pub fn codecs() -> impl Iterator<Item = CodecKind> {
    CODECS.iter().map(|&(kind, ..)| kind)
}

/// Groups codecs whose sizes are counted in one pass, each once and in the order of [`codecs`].
/// Codecs without kernels are left out.
pub fn survey_groups(kinds: &[CodecKind]) -> Vec<Vec<CodecKind>> {
    let (mut groups, mut taken) = (Vec::<Vec<CodecKind>>::new(), 0);
    for &(kind, _, instructions) in CODECS.iter().filter(|(kind, ..)| kinds.contains(kind)) {
        taken += instructions;
        match groups.last_mut() {
            Some(group) if taken <= MOST_INSTRUCTIONS => group.push(kind),
            _ => {
                groups.push(vec![kind]);
                taken = instructions;
            }
        }
    }
    groups
}

/// Returns the codec's struct in the kernels.
pub(crate) fn struct_of(kind: CodecKind) -> Result<&'static str, Error> {
    let found = CODECS.iter().find(|(known, ..)| *known == kind);
    found.map(|&(_, name, _)| name).ok_or(Error::NoKernels { codec: kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_is_in_one_group_and_few_are_in_the_same() {
        let all: Vec<CodecKind> = codecs().collect();
        assert_eq!(survey_groups(&all).concat(), all);
        assert!(survey_groups(&all).len() < all.len() / 3);
        let few = [CodecKind::Fp32, CodecKind::Bpc, CodecKind::Fpc, CodecKind::Bpc];
        assert_eq!(survey_groups(&few), [[CodecKind::Bpc, CodecKind::Fp32]]);
        assert!(survey_groups(&[]).is_empty());
    }
}
