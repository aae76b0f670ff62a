//! The kernels' sources, and their defines: the codec, and the constants of the address map.

use std::borrow::Cow;

use buddy_codec::{Bf16, Codec, CodecKind};
use buddy_core::{ENTRIES_PER_PAGE, ENTRY_BYTES, SECTOR_BYTES, Target};

use crate::{
    Activation, AttentionPlan, Error, cache,
    codecs::{SURVEY_SHAPE, codecs, struct_of, survey_groups},
    driver, linear,
};

/// A header as kernels name it, and its text.
pub type Header = (&'static str, &'static str);

const HEADERS: [Header; 46] = [
    ("activation.cuh", include_str!("../kernels/activation.cuh")),
    ("bf16.cuh", include_str!("../kernels/bf16.cuh")),
    ("bits.cuh", include_str!("../kernels/bits.cuh")),
    ("bpc.cuh", include_str!("../kernels/bpc.cuh")),
    ("bpc_best.cuh", include_str!("../kernels/bpc_best.cuh")),
    ("buddy_device.cuh", include_str!("../kernels/buddy_device.cuh")),
    ("buddy_stencil.cuh", include_str!("../kernels/buddy_stencil.cuh")),
    ("bulk.cuh", include_str!("../kernels/bulk.cuh")),
    ("entry.cuh", include_str!("../kernels/entry.cuh")),
    ("fields.cuh", include_str!("../kernels/fields.cuh")),
    ("frozen.cuh", include_str!("../kernels/frozen.cuh")),
    ("kv.cuh", include_str!("../kernels/kv.cuh")),
    ("kv_append.cuh", include_str!("../kernels/kv_append.cuh")),
    ("linear_producer.cuh", include_str!("../kernels/linear_producer.cuh")),
    ("linear_consumer.cuh", include_str!("../kernels/linear_consumer.cuh")),
    ("linear_fragment.cuh", include_str!("../kernels/linear_fragment.cuh")),
    ("linear_pipeline.cuh", include_str!("../kernels/linear_pipeline.cuh")),
    ("linear_tight.cuh", include_str!("../kernels/linear_tight.cuh")),
    ("map.cuh", include_str!("../kernels/map.cuh")),
    ("matrix.cuh", include_str!("../kernels/matrix.cuh")),
    ("narrow_pipeline.cuh", include_str!("../kernels/narrow_pipeline.cuh")),
    ("near64.cuh", include_str!("../kernels/near64.cuh")),
    ("planes.cuh", include_str!("../kernels/planes.cuh")),
    ("positive.cuh", include_str!("../kernels/positive.cuh")),
    ("quad.cuh", include_str!("../kernels/quad.cuh")),
    ("quarter.cuh", include_str!("../kernels/quarter.cuh")),
    ("prefix.cuh", include_str!("../kernels/prefix.cuh")),
    ("rank.cuh", include_str!("../kernels/rank.cuh")),
    ("scaled.cuh", include_str!("../kernels/scaled.cuh")),
    ("shared.cuh", include_str!("../kernels/shared.cuh")),
    ("sparse.cuh", include_str!("../kernels/sparse.cuh")),
    ("stencil_cells.cuh", include_str!("../kernels/stencil_cells.cuh")),
    ("stencil_pages.cuh", include_str!("../kernels/stencil_pages.cuh")),
    ("stencil_plain.cuh", include_str!("../kernels/stencil_plain.cuh")),
    ("stencil_step.cuh", include_str!("../kernels/stencil_step.cuh")),
    ("stencil_units.cuh", include_str!("../kernels/stencil_units.cuh")),
    ("stream.cuh", include_str!("../kernels/stream.cuh")),
    ("stride.cuh", include_str!("../kernels/stride.cuh")),
    ("table.cuh", include_str!("../kernels/table.cuh")),
    ("tight.cuh", include_str!("../kernels/tight.cuh")),
    ("tight_view.cuh", include_str!("../kernels/tight_view.cuh")),
    ("tile.cuh", include_str!("../kernels/tile.cuh")),
    ("wgmma.cuh", include_str!("../kernels/wgmma.cuh")),
    ("window.cuh", include_str!("../kernels/window.cuh")),
    ("window32.cuh", include_str!("../kernels/window32.cuh")),
    ("zeros.cuh", include_str!("../kernels/zeros.cuh")),
];

/// The headers of attention alone.
const ATTENTION_HEADERS: [Header; 6] = [
    ("attention.cuh", include_str!("../kernels/attention.cuh")),
    ("attention_plan.cuh", include_str!("../kernels/attention_plan.cuh")),
    ("attention_ptx.cuh", include_str!("../kernels/attention_ptx.cuh")),
    ("attention_short.cuh", include_str!("../kernels/attention_short.cuh")),
    ("attention_source.cuh", include_str!("../kernels/attention_source.cuh")),
    ("attention_sum.cuh", include_str!("../kernels/attention_sum.cuh")),
];

/// Attention's lowest architecture, since it uses bulk copies.
const ATTENTION_LEAST: u32 = 90;

/// Shape of an attention CTA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttentionBlock {
    /// Teams of two consumer warps.
    pub(crate) teams: u32,
    /// Shared memory in bytes.
    pub(crate) shared: u32,
    /// The most CTAs of a cluster; 1 for no clusters.
    pub(crate) cluster: u32,
}

impl AttentionBlock {
    /// The most shared memory of a CTA of any shape.
    pub(crate) const MOST_SHARED: u32 = 227 << 10;

    /// Returns the stream-K shape: one CTA per SM, with all its shared memory. Four teams were 2%
    /// faster than five and six on an H200; more columns take more registers.
    pub(crate) fn of_runs(columns: u32) -> Self {
        Self { teams: if columns <= 8 { 4 } else { 3 }, shared: Self::MOST_SHARED, cluster: 1 }
    }

    /// Returns the shape for clusters, of up to 8 columns: two CTAs per SM.
    pub(crate) fn of_clusters() -> Self {
        Self { teams: 2, shared: 113 << 10, cluster: 8 }
    }
}

/// Warps of a CTA in the codecs' kernels. Two were a few percent faster than four on an H200.
pub(crate) const WARPS: u32 = 2;
/// Resident CTAs per SM: at most 80 registers per thread.
pub(crate) const BLOCKS: u32 = 12;

/// The same for frozen bf16 buffers, whose kernels need only 64 registers.
const FROZEN_BLOCKS: u32 = 16;

/// One program to compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name in messages.
    pub name: String,
    /// CUDA C++, with `extern "C"` kernels.
    pub text: Cow<'static, str>,
    /// Macros, as `NAME=value`.
    pub defines: Vec<String>,
    /// Headers besides the library's.
    pub headers: &'static [Header],
    /// The lowest architecture: 80 for `sm_80`.
    pub least: u32,
    /// True if the program uses instructions of that architecture alone: `sm_90a`.
    pub alone: bool,
    /// Compiler options besides the architecture, the language and the macros.
    pub extra: &'static [&'static str],
}

impl Source {
    /// Creates a program of your own, which may include `buddy_device.cuh`, with macros as
    /// `NAME=value`. The macros of the address map are added.
    ///
    /// ```ignore
    /// let source = Source::new("halve.cu", include_str!("halve.cu"), &[]);
    /// let kernel = gpu.module(&source)?.load_function("halve")?;
    /// let view = buffer.view();
    /// let grid = LaunchConfig::for_num_elems(buffer.entries() as u32);
    /// // SAFETY: the kernel's argument; it uses the buffer's codec, and the buffer outlives the stream's work.
    /// unsafe { stream.launch_builder(&kernel).arg(&view).launch(grid) }?;
    /// ```
    pub fn new(name: impl Into<String>, text: impl Into<Cow<'static, str>>, defines: &[String]) -> Self {
        let defines = [&constants(), defines].concat();
        Self {
            name: name.into(),
            text: text.into(),
            defines,
            headers: &[],
            least: 80,
            alone: false,
            extra: &[],
        }
    }

    /// Returns the kernels of a codec.
    ///
    /// # Errors
    /// [`Error::NoKernels`] if it has none.
    pub fn codec(kind: CodecKind) -> Result<Self, Error> {
        let text = include_str!("../kernels/codec.cu");
        Ok(Self::new(format!("{kind}.cu"), text, &codec_defines(kind, BLOCKS)?))
    }

    /// Returns the kernel that sizes many spans with these codecs in one pass.
    ///
    /// # Errors
    /// [`Error::NoKernels`] if a codec has none.
    pub fn survey(kinds: &[CodecKind]) -> Result<Self, Error> {
        let structs = kinds.iter().map(|&kind| struct_of(kind)).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let (warps, blocks) = SURVEY_SHAPE;
        let defines = [
            format!("BUDDY_CODECS={}", structs.join(",")),
            format!("BUDDY_WARPS={warps}"),
            format!("BUDDY_BLOCKS={blocks}"),
        ];
        let text = include_str!("../kernels/survey.cu");
        Ok(Self::new(format!("{}-survey.cu", names.join("+")), text, &defines))
    }

    /// Returns the kernels that pack and read frozen buffers with a codec.
    ///
    /// # Errors
    /// [`Error::NoKernels`] if the codec has none, or has parameters that a frozen buffer cannot
    /// hold.
    pub fn frozen(kind: CodecKind) -> Result<Self, Error> {
        if !freezes(kind) {
            return Err(Error::NoKernels { codec: kind });
        }
        let text = include_str!("../kernels/frozen.cu");
        let blocks = if kind == CodecKind::Bf16 { FROZEN_BLOCKS } else { BLOCKS };
        Ok(Self::new(format!("{kind}-frozen.cu"), text, &codec_defines(kind, blocks)?))
    }

    /// Returns the kernels of an activation of bf16 values, packed as bf16.
    pub fn activation(activation: Activation) -> Self {
        let mut defines = defines("Positive", FROZEN_BLOCKS);
        defines.push(format!("BUDDY_ACTIVATION={}", activation.struct_name()));
        defines.push(format!("BUDDY_PACK_BLOCKS={BLOCKS}"));
        Self::new(format!("bf16-{}.cu", activation.name()), include_str!("../kernels/frozen.cu"), &defines)
    }

    /// Returns the kernel of a linear layer for few tokens; macros set its shape.
    pub(crate) fn narrow(name: String, defines: &[String]) -> Self {
        let source = Self::new(name, include_str!("../kernels/narrow.cu"), defines);
        // TMA multicast is fast only in sm_90a code.
        let alone = defines.iter().any(|define| define == "BUDDY_NARROW_CLUSTER=2");
        Self { least: 90, alone, ..source }
    }

    /// Returns the kernel of a linear layer for more tokens; macros set its shape.
    pub(crate) fn wide(name: String, defines: &[String]) -> Self {
        let source = Self::new(name, include_str!("../kernels/linear.cu"), defines);
        // wgmma exists on sm_90a alone.
        Self { least: 90, alone: true, ..source }
    }

    /// Returns the kernel that unpacks rows of a frozen matrix, with a macro for its shared memory.
    pub(crate) fn unpack(defines: &[String]) -> Self {
        let source = Self::new("unpack.cu", include_str!("../kernels/unpack.cu"), defines);
        Self { least: 90, ..source }
    }

    /// The steps of a mixture of experts besides its linear layers.
    pub(crate) fn route() -> Self {
        Self { least: 90, ..Self::new("route.cu", include_str!("../kernels/route.cu"), &[]) }
    }

    /// The portable kernel of linear layers with few tokens, with macros that set its shape.
    pub(crate) fn portable(name: String, defines: &[String]) -> Self {
        Self::new(name, include_str!("../kernels/portable.cu"), defines)
    }

    /// Returns the kernels that read tight matrices.
    pub fn tight() -> Self {
        Self::new("tight.cu", include_str!("../kernels/tight.cu"), &[])
    }

    /// Returns the products of sparse matrices.
    pub fn csr() -> Self {
        Self::new("csr.cu", include_str!("../kernels/csr.cu"), &[])
    }

    /// Returns true if the program runs on an architecture: 90 for `sm_90`.
    pub fn is_for(&self, architecture: u32) -> bool {
        if self.alone { architecture == self.least } else { architecture >= self.least }
    }

    /// Returns the kernels of KV caches.
    pub fn kv() -> Self {
        let text = include_str!("../kernels/kv.cu");
        Self { least: ATTENTION_LEAST, ..Self::new("kv.cu", text, &[untrained_window()]) }
    }

    /// Returns the kernels of given memory that no codec has: windows, and writable matrices.
    pub fn external() -> Self {
        let defines = [untrained_window(), format!("BUDDY_WARPS={WARPS}")];
        Self::new("external.cu", include_str!("../kernels/external.cu"), &defines)
    }

    /// Returns the kernels between a decode step's linear layers.
    pub fn decode() -> Self {
        Self { least: ATTENTION_LEAST, ..Self::new("decode.cu", include_str!("../kernels/decode.cu"), &[]) }
    }

    /// Returns batch normalisation with ReLU.
    pub fn norm() -> Self {
        Self::new("norm.cu", include_str!("../kernels/norm.cu"), &[])
    }

    /// Returns attention over a source of `attention_source.cuh`, for a head dimension and a number
    /// of columns, of appended tokens or of a fresh one.
    pub(crate) fn attention(
        source: &str,
        values: u32,
        columns: u32,
        fresh: bool,
        block: AttentionBlock,
    ) -> Self {
        let AttentionBlock { teams, shared, cluster } = block;
        let defines = [
            format!("BUDDY_ATTENTION_SOURCE={source}"),
            format!("BUDDY_ATTENTION_VALUES={values}"),
            format!("BUDDY_ATTENTION_COLUMNS={columns}"),
            format!("BUDDY_ATTENTION_TEAMS={teams}"),
            format!("BUDDY_ATTENTION_SHARED={shared}"),
            format!("BUDDY_ATTENTION_FRESH={}", u32::from(fresh)),
            format!("BUDDY_ATTENTION_CLUSTER={cluster}"),
        ];
        let (kind, end) = (if fresh { "fresh" } else { source }, if cluster > 1 { "-clusters" } else { "" });
        let name = format!("attention-{}-{values}-{columns}{end}.cu", kind.to_lowercase());
        let text = include_str!("../kernels/attention.cu");
        Self { headers: &ATTENTION_HEADERS, least: ATTENTION_LEAST, ..Self::new(name, text, &defines) }
    }

    /// Returns the compiler's options for an architecture such as `sm_90`.
    pub fn options(&self, architecture: &str) -> Vec<String> {
        let alone = if self.alone { "a" } else { "" };
        let mut options = vec![format!("--gpu-architecture={architecture}{alone}"), "--std=c++17".to_owned()];
        options.extend(self.defines.iter().map(|define| format!("--define-macro={define}")));
        options.extend(self.extra.iter().map(ToString::to_string));
        options
    }

    /// Compiles the program for an architecture such as `sm_90`. Needs the compiler's library, and
    /// no GPU.
    ///
    /// # Errors
    /// [`Error::NoCompiler`], or [`Error::Compile`] with the compiler's log.
    pub fn compile(&self, architecture: &str) -> Result<Vec<u8>, Error> {
        let program = self.name.clone();
        if !driver::has_compiler() {
            return Err(Error::NoCompiler { program });
        }
        driver::compile(&self.name, &self.text, &self.all_headers(), &self.options(architecture))
            .map_err(|log| Error::Compile { program, log })
    }

    /// Returns the machine code for an architecture, such as 90, from the cache or compiled and
    /// cached. Needs no GPU.
    ///
    /// # Errors
    /// As for [`compile`](Self::compile).
    pub fn cached(&self, architecture: u32) -> Result<Vec<u8>, Error> {
        let architecture = format!("sm_{architecture}");
        let key = self.key(&self.options(&architecture), driver::version().unwrap_or(0));
        let dir = cache::cache_dir();
        if let Some(image) = dir.as_deref().and_then(|dir| cache::load(dir, &key)) {
            return Ok(image);
        }
        let image = self.compile(&architecture)?;
        if let Some(dir) = dir {
            cache::store(&dir, &key, &image);
        }
        Ok(image)
    }

    /// Returns the cache key: everything that the compiled program depends on.
    pub(crate) fn key(&self, options: &[String], driver: i32) -> String {
        let headers = self.all_headers().into_iter().map(|(name, text)| format!("{name}\n{text}"));
        let parts = [format!("driver {driver}"), options.join(" "), self.text.to_string()];
        parts.into_iter().chain(headers).collect::<Vec<_>>().join("\n\u{1}\n")
    }

    /// Returns the library's headers, which every program may include.
    pub fn headers() -> &'static [Header] {
        &HEADERS
    }

    /// Returns the library's headers and the program's own.
    pub(crate) fn all_headers(&self) -> Vec<Header> {
        [&HEADERS, self.headers].concat()
    }

    /// Lists every program of the library.
    pub fn all() -> Vec<Self> {
        let of_codec = |kind| {
            let frozen = freezes(kind).then(|| Self::frozen(kind));
            let sources = [Some(Self::codec(kind)), Some(Self::survey(&[kind])), frozen];
            sources.into_iter().flatten().map(|one| one.expect("a codec of the table"))
        };
        let attention = AttentionPlan::ALL_KINDS.into_iter().flat_map(|(values, columns, plan)| {
            [false, true].map(|fresh| plan.source("Packed", values, columns, fresh))
        });
        let kinds: Vec<CodecKind> = codecs().collect();
        let surveys = survey_groups(&kinds).into_iter().map(|group| Self::survey(&group));
        codecs()
            .flat_map(of_codec)
            .chain(surveys.map(|one| one.expect("codecs of the table")))
            .chain(Activation::ALL.map(Self::activation))
            .chain(linear::sources())
            .chain([Self::external(), Self::kv(), Self::decode(), Self::norm(), Self::tight(), Self::csr()])
            .chain(attention)
            .collect()
    }
}

/// Returns true if a frozen buffer can hold the codec's parameters.
fn freezes(kind: CodecKind) -> bool {
    kind == CodecKind::Bf16 || !kind.has_parameters()
}

/// Returns the macro of an untrained bf16 codec's window.
fn untrained_window() -> String {
    format!("BUDDY_WINDOW={}", Bf16::default().window())
}

/// Returns the macros of a program that is generic over codecs.
fn codec_defines(kind: CodecKind, blocks: u32) -> Result<Vec<String>, Error> {
    Ok(defines(struct_of(kind)?, blocks))
}

/// The same for a codec's struct.
fn defines(name: &str, blocks: u32) -> Vec<String> {
    vec![format!("BUDDY_CODEC={name}"), format!("BUDDY_WARPS={WARPS}"), format!("BUDDY_BLOCKS={blocks}")]
}

/// Returns the constants of the address map as macros.
pub fn constants() -> Vec<String> {
    vec![
        format!("BUDDY_ENTRY_BYTES={ENTRY_BYTES}"),
        format!("BUDDY_SECTOR_BYTES={SECTOR_BYTES}"),
        format!("BUDDY_PAGE_ENTRIES={ENTRIES_PER_PAGE}"),
        format!("BUDDY_SMALL_BYTES={}", Target::X16.device_bytes()),
    ]
}

/// Returns the constants as the header `buddy_constants.cuh`, for compilers other than NVRTC.
pub fn constants_header() -> String {
    let line = |constant: &String| format!("#define {}\n", constant.replacen('=', " ", 1));
    let lines: String = constants().iter().map(line).collect();
    format!("// The constants of the address map, as the library has them.\n#pragma once\n{lines}")
}

/// A trained codec's parameters for kernels: the struct `Params`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Params {
    window: u32,
    reserved: u32,
    /// Address of `Codec::block` in device memory, or of a bf16 window there, or 0.
    learned: u64,
}

impl Params {
    /// Returns the parameters of a codec without a block.
    pub fn of(codec: &Codec) -> Self {
        match codec {
            Codec::Bf16(bf16) => Self { window: u32::from(bf16.window()), ..Self::default() },
            _ => Self::default(),
        }
    }

    /// Returns the parameters of a codec whose block has this address.
    pub(crate) fn with_block(learned: u64) -> Self {
        Self { learned, ..Self::default() }
    }

    /// Returns the parameters of bf16 whose window has this address.
    pub(crate) fn with_window(address: u64) -> Self {
        Self::with_block(address)
    }

    /// Returns the first exponent of bf16's window.
    pub fn window(self) -> u32 {
        self.window
    }

    /// Returns the address of the codec's parameters, or 0.
    pub fn learned(self) -> u64 {
        self.learned
    }
}
