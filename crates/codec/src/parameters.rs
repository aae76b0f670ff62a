//! Descriptions of trained codec parameters.

use crate::Codec;

impl Codec {
    /// Describes the trained parameters; `None` for a codec without parameters.
    pub fn describe_parameters(&self) -> Option<String> {
        Some(match self {
            Self::Fvc(fvc) => format!("{} frequent values", fvc.values().len()),
            Self::Bf16(bf16) => format!("window {}", bf16.window()),
            Self::Table32(table) => format!("{} values", table.values().len()),
            Self::Table64(table) => format!("{} values", table.values().len()),
            Self::Stride32(codec) => codec.to_string(),
            Self::Stride64(codec) => codec.to_string(),
            Self::Scaled64(codec) => codec.to_string(),
            Self::Prefix32(codec) => codec.to_string(),
            Self::Prefix64(codec) => codec.to_string(),
            Self::Rank32(codec) => codec.to_string(),
            Self::Rank64(codec) => codec.to_string(),
            _ => return None,
        })
    }
}
