//! The codec trait, and storing an entry with a codec. `kinds.rs` lists the codecs.

use buddy_core::{ENTRY_BYTES, Entry, Layout, Nibble, SizeClass, ZERO_ENTRY, is_zero};

use crate::{
    Codec, Error, Stream,
    bits::{BitCount, BitReader, BitSink},
    kinds::each,
    simd::vectorised,
};

/// A lossless codec of single entries.
pub trait EntryCodec {
    /// Returns the bound on the stream length in bits.
    fn max_bits(&self) -> u32;

    /// Returns the bytes of per-allocation parameters, stored outside the streams.
    fn parameter_bytes(&self) -> usize {
        0
    }

    /// Returns the number of bits that [`encode`](Self::encode) would write.
    fn size_bits(&self, entry: &Entry) -> u32;

    /// Encodes the entry, replacing the contents of `stream`.
    fn encode(&self, entry: &Entry, stream: &mut Stream);

    /// Encodes the entry if its stream has at most `limit` bits and returns whether it has.
    /// Otherwise the contents of `stream` are unspecified.
    #[inline(always)]
    fn encode_within(&self, entry: &Entry, limit: u32, stream: &mut Stream) -> bool {
        let fits = self.size_bits(entry) <= limit;
        if fits {
            self.encode(entry, stream);
        }
        fits
    }

    /// Decodes a stream of the given layout; bytes after the stream are ignored.
    ///
    /// # Errors
    /// If the bytes are not a valid stream. Never panics.
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error>;
}

/// A single-layout codec that writes and reads bit by bit; writing into a counter gives its size.
pub(crate) trait BitCodec {
    /// Returns [`EntryCodec::max_bits`].
    fn max_stream_bits(&self) -> u32;

    /// Returns [`EntryCodec::parameter_bytes`].
    fn table_bytes(&self) -> usize {
        0
    }

    /// Writes an entry's stream.
    fn write(&self, entry: &Entry, sink: &mut impl BitSink);

    /// Reads an entry written by [`write`](Self::write).
    fn read(&self, reader: &mut BitReader) -> Result<Entry, Error>;
}

impl<C: BitCodec> EntryCodec for C {
    fn max_bits(&self) -> u32 {
        self.max_stream_bits()
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
        require_layout_a(layout)?;
        self.read(&mut BitReader::new(stream))
    }
}

/// Rejects every layout but A.
#[inline(always)]
pub(crate) fn require_layout_a(layout: Layout) -> Result<(), Error> {
    if layout == Layout::A { Ok(()) } else { Err(Error::Layout(layout)) }
}

impl Codec {
    /// Returns the size class of an entry.
    #[inline]
    pub fn class(&self, entry: &Entry) -> SizeClass {
        if is_zero(entry) { SizeClass::Zero } else { SizeClass::from_bits(self.size_bits(entry)) }
    }

    /// Packs an entry as a Buddy memory stores it: zero entries as nothing, streams over three
    /// sectors as the raw entry, others as the stream zero-padded to its class.
    pub fn pack(&self, entry: &Entry, packed: &mut Packed) {
        packed.nibble = each!(self, codec => vectorised(
            #[inline(always)]
            || pack(codec, entry, &mut packed.bytes)
        ));
    }

    /// Unpacks an entry packed by [`pack`](Self::pack).
    ///
    /// # Errors
    /// If the bytes are invalid or too short. Never panics.
    pub fn unpack(&self, nibble: Nibble, bytes: &[u8]) -> Result<Entry, Error> {
        each!(self, codec => vectorised(
            #[inline(always)]
            || unpack(codec, nibble, bytes)
        ))
    }
}

/// Implements [`Codec::pack`] for one codec.
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

/// Implements [`Codec::unpack`] for one codec.
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

/// A packed entry: its nibble and the bytes of its class.
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
    /// Returns the class and layout.
    #[inline]
    pub fn nibble(&self) -> Nibble {
        self.nibble
    }

    /// Returns the stored bytes; the length is that of the class.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.nibble.class().bytes()]
    }
}
