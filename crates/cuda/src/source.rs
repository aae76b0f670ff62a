//! The kernels' sources, and what Rust tells them: which codec, and the constants of the address map.

use buddy_codec::{Codec, CodecKind};
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, SECTOR_BYTES, Target};

use crate::Error;

/// A header as the kernels name it, and its text.
pub(crate) const HEADERS: [(&str, &str); 10] = [
    ("bf16.cuh", include_str!("../kernels/bf16.cuh")),
    ("bits.cuh", include_str!("../kernels/bits.cuh")),
    ("bpc.cuh", include_str!("../kernels/bpc.cuh")),
    ("fill.cuh", include_str!("../kernels/fill.cuh")),
    ("map.cuh", include_str!("../kernels/map.cuh")),
    ("planes.cuh", include_str!("../kernels/planes.cuh")),
    ("sparse.cuh", include_str!("../kernels/sparse.cuh")),
    ("stream.cuh", include_str!("../kernels/stream.cuh")),
    ("tile.cuh", include_str!("../kernels/tile.cuh")),
    ("zeros.cuh", include_str!("../kernels/zeros.cuh")),
];

/// Warps of a block in the codecs' kernels; two measured best on an H200, by a few percent over four.
pub(crate) const WARPS: u32 = 2;
/// Blocks that a multiprocessor shall hold: at most 80 registers a thread.
pub(crate) const BLOCKS: u32 = 12;

/// The codecs that have kernels: name, header, and struct in it.
const CODECS: [(CodecKind, &str, &str); 8] = [
    (CodecKind::Bpc, "bpc.cuh", "Bpc"),
    (CodecKind::Planes64, "planes.cuh", "Planes64"),
    (CodecKind::Zeros16, "zeros.cuh", "Zeros<16>"),
    (CodecKind::Zeros32, "zeros.cuh", "Zeros<32>"),
    (CodecKind::Zeros64, "zeros.cuh", "Zeros<64>"),
    (CodecKind::Bf16, "bf16.cuh", "Bf16"),
    (CodecKind::Fp16, "sparse.cuh", "Fp16"),
    (CodecKind::Fp32, "sparse.cuh", "Fp32"),
];

/// The codecs that have kernels.
pub fn codecs() -> impl Iterator<Item = CodecKind> {
    CODECS.iter().map(|&(kind, ..)| kind)
}

/// One program to compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name in messages.
    pub name: String,
    /// Its text.
    pub text: &'static str,
    /// Macros it is compiled with, as `NAME=value`.
    pub defines: Vec<String>,
}

impl Source {
    /// The kernels of a codec.
    ///
    /// # Errors
    /// [`Error::NoKernels`] if it has none.
    pub fn codec(kind: CodecKind) -> Result<Self, Error> {
        let text = include_str!("../kernels/codec.cu");
        Ok(Self { name: format!("{kind}.cu"), text, defines: codec_defines(kind)? })
    }

    /// The kernel that counts the sizes of many spans with a codec.
    ///
    /// # Errors
    /// [`Error::NoKernels`] if the codec has none.
    pub fn survey(kind: CodecKind) -> Result<Self, Error> {
        let text = include_str!("../kernels/survey.cu");
        Ok(Self { name: format!("{kind}-survey.cu"), text, defines: codec_defines(kind)? })
    }

    /// The kernels that belong to no codec.
    pub fn common() -> Self {
        Self {
            name: "common.cu".to_owned(),
            text: include_str!("../kernels/common.cu"),
            defines: constants(),
        }
    }

    /// The compiler's options for an architecture such as `sm_90`.
    pub fn options(&self, architecture: &str) -> Vec<String> {
        let mut options = vec![format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()];
        options.extend(self.defines.iter().map(|define| format!("--define-macro={define}")));
        options
    }

    /// All that the compiled program depends on.
    pub(crate) fn key(&self, options: &[String], driver: i32) -> String {
        let headers = HEADERS.iter().map(|(name, text)| format!("{name}\n{text}"));
        let parts = [format!("driver {driver}"), options.join(" "), self.text.to_owned()];
        parts.into_iter().chain(headers).collect::<Vec<_>>().join("\n\u{1}\n")
    }

    /// The headers that every program may include: name and text.
    pub fn headers() -> &'static [(&'static str, &'static str)] {
        &HEADERS
    }

    /// Every program there is.
    pub fn all() -> Vec<Self> {
        let of_codec =
            |kind| [Self::codec(kind), Self::survey(kind)].map(|one| one.expect("a codec of the table"));
        codecs().flat_map(of_codec).chain([Self::common()]).collect()
    }
}

/// Macros of a program that is written once for all codecs.
fn codec_defines(kind: CodecKind) -> Result<Vec<String>, Error> {
    let found = CODECS.iter().find(|(known, ..)| *known == kind);
    let &(_, header, name) = found.ok_or(Error::NoKernels { codec: kind })?;
    let mut defines = constants();
    defines.extend([
        format!("BUDDY_CODEC={name}"),
        format!("BUDDY_CODEC_FILE=\"{header}\""),
        format!("BUDDY_WARPS={WARPS}"),
        format!("BUDDY_BLOCKS={BLOCKS}"),
    ]);
    Ok(defines)
}

/// The constants of the address map, which the kernels do not write down themselves.
pub fn constants() -> Vec<String> {
    vec![
        format!("BUDDY_ENTRY_BYTES={ENTRY_BYTES}"),
        format!("BUDDY_SECTOR_BYTES={SECTOR_BYTES}"),
        format!("BUDDY_PAGE_ENTRIES={ENTRIES_PER_PAGE}"),
        format!("BUDDY_SMALL_BYTES={}", Target::X16.device_bytes()),
    ]
}

/// What a kernel needs to know of a trained codec: the struct `Params` of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Params {
    window: u32,
}

impl Params {
    /// The parameters of a codec.
    pub fn of(codec: &Codec) -> Self {
        match codec {
            Codec::Bf16(bf16) => Self { window: u32::from(bf16.window()) },
            _ => Self::default(),
        }
    }

    /// First exponent of bf16's window.
    pub fn window(self) -> u32 {
        self.window
    }
}
