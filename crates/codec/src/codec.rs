//! What a codec is, which ones there are, and how an entry is stored with one.
//!
//! To add a codec: write its folder beside `bpc`, with a line in `lib.rs`. Here, give [`CodecKind`] and [`Codec`]
//! a variant each, add it to [`CodecKind::ALL`], and fill the arms that the compiler then asks for, also in
//! `tests/contract.rs`. Give `docs/format.md` a section with an example. The tests of this crate go over `ALL` and
//! over the examples, so they prove it without being told.

use std::{fmt, str::FromStr};

use buddy_core::{ENTRY_BYTES, Entry, Layout, Nibble, SizeClass, ZERO_ENTRY, is_zero};
use serde::{Deserialize, Serialize};

use crate::{
    Bdi, Bf16, Bpc, Cpack, Delta64, Error, Fp16, Fp32, Fpc, Fvc, Planes, Stream, Zeros,
    bits::{BitCount, BitReader, BitSink},
    simd::vectorised,
};

/// An entry to bits and back.
pub trait EntryCodec {
    /// The longest stream that it writes, in bits.
    fn max_bits(&self) -> u32;

    /// Bytes of the parameters that it keeps for an allocation, beside the streams.
    fn parameter_bytes(&self) -> usize {
        0
    }

    /// How many bits [`encode`](Self::encode) would write.
    fn size_bits(&self, entry: &Entry) -> u32;

    /// Replaces `stream` by the entry's stream.
    fn encode(&self, entry: &Entry, stream: &mut Stream);

    /// Replaces `stream` by the entry's stream if that has at most `limit` bits, and says whether it has; otherwise
    /// the stream is anything.
    #[inline(always)]
    fn encode_within(&self, entry: &Entry, limit: u32, stream: &mut Stream) -> bool {
        let fits = self.size_bits(entry) <= limit;
        if fits {
            self.encode(entry, stream);
        }
        fits
    }

    /// Rebuilds the entry from a stream of the given layout; bytes after the stream are ignored.
    ///
    /// # Errors
    /// Any bytes give an entry or an error.
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error>;
}

/// A codec of one layout that writes and reads its stream bit by bit; what it writes into a count is its size.
pub(crate) trait BitCodec {
    /// Its [`EntryCodec::max_bits`].
    fn longest(&self) -> u32;

    /// Its [`EntryCodec::parameter_bytes`].
    fn table_bytes(&self) -> usize {
        0
    }

    /// Writes an entry's stream.
    fn write(&self, entry: &Entry, sink: &mut impl BitSink);

    /// Reads it.
    fn read(&self, reader: &mut BitReader) -> Result<Entry, Error>;
}

impl<C: BitCodec> EntryCodec for C {
    fn max_bits(&self) -> u32 {
        self.longest()
    }

    fn parameter_bytes(&self) -> usize {
        self.table_bytes()
    }

    fn size_bits(&self, entry: &Entry) -> u32 {
        let mut count = BitCount::default();
        self.write(entry, &mut count);
        count.0
    }

    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        stream.clear();
        self.write(entry, stream);
    }

    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        match layout {
            Layout::A => self.read(&mut BitReader::new(stream)),
            _ => Err(Error::Layout(layout)),
        }
    }
}

/// The name of a codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CodecKind {
    /// Bit-Plane Compression, the paper's choice.
    Bpc,
    /// Base-Delta-Immediate.
    Bdi,
    /// Frequent Pattern Compression.
    Fpc,
    /// Frequent Value Compression.
    Fvc,
    /// C-Pack.
    Cpack,
    /// Bit planes over 8-bit lanes.
    Planes8,
    /// Bit planes over 16-bit lanes.
    Planes16,
    /// Bit planes over 32-bit lanes.
    Planes32,
    /// Bit planes over 64-bit lanes.
    Planes64,
    /// A zero bitmap over 16-bit words.
    Zeros16,
    /// A zero bitmap over 32-bit words.
    Zeros32,
    /// A zero bitmap over 64-bit words.
    Zeros64,
    /// bf16 values.
    Bf16,
    /// Half-precision values.
    Fp16,
    /// Single-precision values, many of them zero.
    Fp32,
    /// Differences of 64-bit words.
    Delta64,
}

impl CodecKind {
    /// Every codec.
    pub const ALL: [Self; 16] = [
        Self::Bpc,
        Self::Bdi,
        Self::Fpc,
        Self::Fvc,
        Self::Cpack,
        Self::Planes8,
        Self::Planes16,
        Self::Planes32,
        Self::Planes64,
        Self::Zeros16,
        Self::Zeros32,
        Self::Zeros64,
        Self::Bf16,
        Self::Fp16,
        Self::Fp32,
        Self::Delta64,
    ];

    /// The five that the paper compares.
    pub const PAPER: [Self; 5] = [Self::Bpc, Self::Bdi, Self::Fpc, Self::Fvc, Self::Cpack];

    /// The name in tables, files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpc => "bpc",
            Self::Bdi => "bdi",
            Self::Fpc => "fpc",
            Self::Fvc => "fvc",
            Self::Cpack => "cpack",
            Self::Planes8 => "planes8",
            Self::Planes16 => "planes16",
            Self::Planes32 => "planes32",
            Self::Planes64 => "planes64",
            Self::Zeros16 => "zeros16",
            Self::Zeros32 => "zeros32",
            Self::Zeros64 => "zeros64",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp32 => "fp32",
            Self::Delta64 => "delta64",
        }
    }

    /// Whether the codec keeps parameters per allocation, so that [`train`](Self::train) looks at its sample.
    pub fn learns(self) -> bool {
        matches!(self, Self::Fvc | Self::Bf16)
    }

    /// Makes the codec ready for an allocation, of which `sample` holds entries. Only codecs that keep
    /// parameters per allocation look at it.
    pub fn train(self, sample: &[Entry]) -> Codec {
        match self {
            Self::Bpc => Codec::Bpc(Bpc),
            Self::Bdi => Codec::Bdi(Bdi),
            Self::Fpc => Codec::Fpc(Fpc),
            Self::Fvc => Codec::Fvc(Fvc::train(sample)),
            Self::Cpack => Codec::Cpack(Cpack),
            Self::Planes8 => Codec::Planes8(Planes),
            Self::Planes16 => Codec::Planes16(Planes),
            Self::Planes32 => Codec::Planes32(Planes),
            Self::Planes64 => Codec::Planes64(Planes),
            Self::Zeros16 => Codec::Zeros16(Zeros),
            Self::Zeros32 => Codec::Zeros32(Zeros),
            Self::Zeros64 => Codec::Zeros64(Zeros),
            Self::Bf16 => Codec::Bf16(Bf16::train(sample)),
            Self::Fp16 => Codec::Fp16(Fp16),
            Self::Fp32 => Codec::Fp32(Fp32),
            Self::Delta64 => Codec::Delta64(Delta64),
        }
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
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| Error::Name { name: name.to_owned(), known: Self::ALL.map(Self::name).join(", ") })
    }
}

/// A codec that is ready for one allocation. It serialises with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "codec", rename_all = "lowercase")]
pub enum Codec {
    /// Bit-Plane Compression.
    Bpc(Bpc),
    /// Base-Delta-Immediate.
    Bdi(Bdi),
    /// Frequent Pattern Compression.
    Fpc(Fpc),
    /// Frequent Value Compression.
    Fvc(Fvc),
    /// C-Pack.
    Cpack(Cpack),
    /// Bit planes over 8-bit lanes.
    Planes8(Planes<8>),
    /// Bit planes over 16-bit lanes.
    Planes16(Planes<16>),
    /// Bit planes over 32-bit lanes.
    Planes32(Planes<32>),
    /// Bit planes over 64-bit lanes.
    Planes64(Planes<64>),
    /// A zero bitmap over 16-bit words.
    Zeros16(Zeros<16>),
    /// A zero bitmap over 32-bit words.
    Zeros32(Zeros<32>),
    /// A zero bitmap over 64-bit words.
    Zeros64(Zeros<64>),
    /// bf16 values.
    Bf16(Bf16),
    /// Half-precision values.
    Fp16(Fp16),
    /// Single-precision values, many of them zero.
    Fp32(Fp32),
    /// Differences of 64-bit words.
    Delta64(Delta64),
}

/// Calls the same code for whichever codec it is, with the codec's own type.
macro_rules! each {
    ($self:expr, $codec:ident => $call:expr) => {
        match $self {
            Codec::Bpc($codec) => $call,
            Codec::Bdi($codec) => $call,
            Codec::Fpc($codec) => $call,
            Codec::Fvc($codec) => $call,
            Codec::Cpack($codec) => $call,
            Codec::Planes8($codec) => $call,
            Codec::Planes16($codec) => $call,
            Codec::Planes32($codec) => $call,
            Codec::Planes64($codec) => $call,
            Codec::Zeros16($codec) => $call,
            Codec::Zeros32($codec) => $call,
            Codec::Zeros64($codec) => $call,
            Codec::Bf16($codec) => $call,
            Codec::Fp16($codec) => $call,
            Codec::Fp32($codec) => $call,
            Codec::Delta64($codec) => $call,
        }
    };
}
pub(crate) use each;

impl Codec {
    /// Which codec it is.
    pub fn kind(&self) -> CodecKind {
        match self {
            Self::Bpc(_) => CodecKind::Bpc,
            Self::Bdi(_) => CodecKind::Bdi,
            Self::Fpc(_) => CodecKind::Fpc,
            Self::Fvc(_) => CodecKind::Fvc,
            Self::Cpack(_) => CodecKind::Cpack,
            Self::Planes8(_) => CodecKind::Planes8,
            Self::Planes16(_) => CodecKind::Planes16,
            Self::Planes32(_) => CodecKind::Planes32,
            Self::Planes64(_) => CodecKind::Planes64,
            Self::Zeros16(_) => CodecKind::Zeros16,
            Self::Zeros32(_) => CodecKind::Zeros32,
            Self::Zeros64(_) => CodecKind::Zeros64,
            Self::Bf16(_) => CodecKind::Bf16,
            Self::Fp16(_) => CodecKind::Fp16,
            Self::Fp32(_) => CodecKind::Fp32,
            Self::Delta64(_) => CodecKind::Delta64,
        }
    }

    /// The size class of an entry.
    #[inline]
    pub fn class(&self, entry: &Entry) -> SizeClass {
        if is_zero(entry) { SizeClass::Zero } else { SizeClass::from_bits(self.size_bits(entry)) }
    }

    /// Stores an entry the way a Buddy memory does: nothing for zeros, itself where the stream needs more than
    /// three sectors, otherwise the stream, zero-padded to its class.
    pub fn pack(&self, entry: &Entry, packed: &mut Packed) {
        packed.nibble = each!(self, codec => vectorised(
            #[inline(always)]
            || pack(codec, entry, &mut packed.bytes)
        ));
    }

    /// Rebuilds an entry from what [`pack`](Self::pack) stored.
    ///
    /// # Errors
    /// Any bytes and any nibble give an entry or an error.
    pub fn unpack(&self, nibble: Nibble, bytes: &[u8]) -> Result<Entry, Error> {
        each!(self, codec => vectorised(
            #[inline(always)]
            || unpack(codec, nibble, bytes)
        ))
    }
}

/// What [`Codec::pack`] does, for one codec.
#[inline(always)]
pub(crate) fn pack(codec: &impl EntryCodec, entry: &Entry, bytes: &mut Entry) -> Nibble {
    if is_zero(entry) {
        return Nibble::new(SizeClass::Zero, Layout::A);
    }
    let mut stream = Stream::default();
    if !codec.encode_within(entry, 8 * SizeClass::S3.bytes() as u32, &mut stream) {
        *bytes = *entry;
        return Nibble::new(SizeClass::Raw, Layout::A);
    }
    let class = SizeClass::from_bits(stream.bits());
    stream.copy_to(&mut bytes[..class.bytes()]);
    Nibble::new(class, stream.layout())
}

/// What [`Codec::unpack`] does, for one codec.
#[inline(always)]
pub(crate) fn unpack(codec: &impl EntryCodec, nibble: Nibble, bytes: &[u8]) -> Result<Entry, Error> {
    let class = nibble.class();
    let bytes = bytes.get(..class.bytes()).ok_or(Error::Short { class, found: bytes.len() })?;
    match class {
        SizeClass::Zero => Ok(ZERO_ENTRY),
        SizeClass::Raw => Ok(bytes.try_into().expect("a raw entry has 128 bytes")),
        _ => codec.decode(bytes, nibble.layout()),
    }
}

impl EntryCodec for Codec {
    fn max_bits(&self) -> u32 {
        each!(self, codec => codec.max_bits())
    }

    fn parameter_bytes(&self) -> usize {
        each!(self, codec => codec.parameter_bytes())
    }

    #[inline]
    fn size_bits(&self, entry: &Entry) -> u32 {
        each!(self, codec => codec.size_bits(entry))
    }

    #[inline]
    fn encode(&self, entry: &Entry, stream: &mut Stream) {
        each!(self, codec => codec.encode(entry, stream));
    }

    #[inline]
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error> {
        each!(self, codec => codec.decode(stream, layout))
    }
}

/// One entry as it is stored: its nibble and the bytes of its class.
#[derive(Debug, Clone)]
pub struct Packed {
    nibble: Nibble,
    bytes: [u8; ENTRY_BYTES],
}

impl Default for Packed {
    fn default() -> Self {
        Self { nibble: Nibble::new(SizeClass::Zero, Layout::A), bytes: ZERO_ENTRY }
    }
}

impl Packed {
    /// Its class and layout.
    #[inline]
    pub fn nibble(&self) -> Nibble {
        self.nibble
    }

    /// The stored bytes, as many as the class has.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.nibble.class().bytes()]
    }
}
