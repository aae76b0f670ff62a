//! The list of codecs.
//!
//! To add one: write its file or folder next to `bpc`, add its `mod` and `pub use` to `lib.rs`, and
//! a row here. State its bound in `tests/contract.rs`, and add a section with an example to
//! `docs/reference/format.md`. The tests iterate over [`CodecKind::ALL`] and over the examples.

use std::{fmt, str::FromStr};

use buddy_core::{ENTRY_BYTES, Entry};
use serde::{Deserialize, Serialize};

use crate::{
    Bdi, Bf16, Bpc, BpcBest, Cpack, Delta64, EntryCodec, Error, Fp16, Fp32, Fpc, Fvc, Near64, Planes, Prefix,
    Rank, Scaled, Stride, Table, Zeros,
};

/// Defines the two enums and their dispatch. Codec calls must be monomorphic so that loops over
/// entries vectorise; a trait object or a table of functions would prevent that.
macro_rules! codecs {
    ($d:tt $($(#[$doc:meta])* $kind:ident($codec:ty) = $name:literal, $train:expr;)*) => {
        /// Kind of a codec.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum CodecKind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)*
        }

        /// A codec with the parameters of one allocation. Serialises with its parameters.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "codec")]
        pub enum Codec {
            $($(#[$doc])* #[serde(rename = $name)] $kind($codec),)*
        }

        impl CodecKind {
            /// Every codec that is decoded: [`ALL`](Self::ALL), then the dropped ones.
            pub const EVERY: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// Returns the name used in tables, files and on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Creates the codec for an allocation, trained on `sample`. Codecs without parameters
            /// ignore it.
            pub fn train(self, sample: &[Entry]) -> Codec {
                let train: fn(&[Entry]) -> Codec = match self {
                    $(Self::$kind => |sample| Codec::$kind(($train)(sample)),)*
                };
                train(sample)
            }
        }

        impl Codec {
            /// Returns the kind.
            pub fn kind(&self) -> CodecKind {
                match self { $(Self::$kind(_) => CodecKind::$kind,)* }
            }
        }

        /// Dispatches on the codec and evaluates the expression with its concrete type.
        macro_rules! each {
            ($d value:expr, $d codec:ident => $d call:expr) => {
                match $d value { $($crate::Codec::$kind($d codec) => $d call,)* }
            };
        }
    };
}

// The dollar token lets this macro define another macro.
codecs! { $
    /// Bit-Plane Compression, the paper's choice.
    Bpc(Bpc) = "bpc", |_| Bpc;
    /// Base-Delta-Immediate, one of the five codecs compared in the paper.
    Bdi(Bdi) = "bdi", |_| Bdi;
    /// Frequent Pattern Compression, one of the five codecs compared in the paper.
    Fpc(Fpc) = "fpc", |_| Fpc;
    /// Frequent Value Compression with a trained table; one of the five codecs compared in the
    /// paper.
    Fvc(Fvc) = "fvc", Fvc::train;
    /// C-Pack, one of the five codecs compared in the paper.
    Cpack(Cpack) = "cpack", |_| Cpack;
    /// BPC with or without its transform, whichever is shorter, as in Compresso (MICRO 2018).
    BpcBest(BpcBest) = "bpc-best", |_| BpcBest;
    /// Bit-planes over 64-bit lanes.
    Planes64(Planes<64>) = "planes64", |_| Planes;
    /// A zero bitmap over 16-bit words.
    Zeros16(Zeros<16>) = "zeros16", |_| Zeros;
    /// A zero bitmap over 32-bit words.
    Zeros32(Zeros<32>) = "zeros32", |_| Zeros;
    /// bf16 values with a trained exponent window.
    Bf16(Bf16) = "bf16", Bf16::train;
    /// Half-precision values with many zeros.
    Fp16(Fp16) = "fp16", |_| Fp16::default();
    /// Single-precision values with many zeros.
    Fp32(Fp32) = "fp32", |_| Fp32::default();
    /// Indices into a trained dictionary of 32-bit values.
    Table32(Table<32>) = "table32", Table::train;
    /// Indices into a trained dictionary of 64-bit values.
    Table64(Table<16>) = "table64", Table::train;
    /// Doubles as multiples of a trained unit.
    Scaled64(Scaled) = "scaled64", Scaled::train;
    /// Prefix-coded lengths of 32-bit residuals, trained.
    Prefix32(Prefix<32>) = "prefix32", Prefix::train;
    /// Prefix-coded lengths of 64-bit residuals, trained.
    Prefix64(Prefix<16>) = "prefix64", Prefix::train;
    /// Prefix-coded indices into a trained dictionary of 32-bit values.
    Rank32(Rank<32>) = "rank32", Rank::train;
    /// Prefix-coded indices into a trained dictionary of 64-bit values.
    Rank64(Rank<16>) = "rank64", Rank::train;
    /// Doubles close to a common base, in a layout for kernels that compute in compressed memory.
    Near64(Near64) = "near64", |_| Near64;
    /// Bit-planes over 8-bit lanes.
    Planes8(Planes<8>) = "planes8", |_| Planes;
    /// Bit-planes over 16-bit lanes.
    Planes16(Planes<16>) = "planes16", |_| Planes;
    /// Bit-planes over 32-bit lanes.
    Planes32(Planes<32>) = "planes32", |_| Planes;
    /// A zero bitmap over 64-bit words.
    Zeros64(Zeros<64>) = "zeros64", |_| Zeros;
    /// Differences of 64-bit words.
    Delta64(Delta64) = "delta64", |_| Delta64;
    /// Differences of 32-bit words at a trained stride.
    Stride32(Stride<32>) = "stride32", Stride::train;
    /// Differences of 64-bit words at a trained stride.
    Stride64(Stride<16>) = "stride64", Stride::train;
}
// The lint mistakes the macro export for an import.
#[allow(clippy::single_component_path_imports)]
pub(crate) use each;

impl CodecKind {
    /// Every codec on offer, in table order: the paper's five, Compresso's BPC, then ours.
    ///
    /// The last seven of [`EVERY`](Self::EVERY) are dropped (docs/notes/ablation.md): none is
    /// recommended or has GPU kernels, but files of version 0.1.0 that hold them stay readable.
    pub const ALL: [Self; 20] = *Self::EVERY.first_chunk().expect("more codecs than are on offer");

    /// The five codecs compared in the paper.
    pub const PAPER: [Self; 5] = [Self::Bpc, Self::Bdi, Self::Fpc, Self::Fvc, Self::Cpack];

    /// Returns whether the header of a frozen buffer holds the codec with its parameters.
    pub fn freezes(self) -> bool {
        self == Self::Bf16 || !self.has_parameters()
    }

    /// Returns whether the codec has trained parameters, so that [`train`](Self::train) uses its
    /// sample.
    pub fn has_parameters(self) -> bool {
        self.train(&[[1; ENTRY_BYTES]]).parameter_bytes() > 0
    }
}

impl fmt::Display for CodecKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CodecKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::EVERY.into_iter().find(|kind| kind.name() == name);
        found
            .ok_or_else(|| Error::Name { name: name.to_owned(), known: Self::ALL.map(Self::name).join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_codecs_are_read_but_not_offered() {
        let names: Vec<&str> =
            CodecKind::EVERY[CodecKind::ALL.len()..].iter().map(|kind| kind.name()).collect();
        assert_eq!(names, ["planes8", "planes16", "planes32", "zeros64", "delta64", "stride32", "stride64"]);
        assert_eq!("delta64".parse(), Ok(CodecKind::Delta64));
        assert!(!"x".parse::<CodecKind>().unwrap_err().to_string().contains("delta64"));
    }

    #[test]
    fn trained_codecs_are_those_with_parameters() {
        let learn: Vec<CodecKind> =
            CodecKind::EVERY.into_iter().filter(|kind| kind.has_parameters()).collect();
        use CodecKind::{
            Bf16, Fvc, Prefix32, Prefix64, Rank32, Rank64, Scaled64, Stride32, Stride64, Table32, Table64,
        };
        let all =
            [Fvc, Bf16, Table32, Table64, Scaled64, Prefix32, Prefix64, Rank32, Rank64, Stride32, Stride64];
        assert_eq!(learn, all);
    }
}
