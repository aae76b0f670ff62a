//! What a codec is, and how an entry is stored with one. Which codecs there are stands in `kinds.rs`.

use buddy_core::{ENTRY_BYTES, Entry, Layout, Nibble, SizeClass, ZERO_ENTRY, is_zero};

use crate::{
    Codec, Error, Stream,
    bits::{BitCount, BitReader, BitSink},
    kinds::each,
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
    /// What [`EntryCodec::max_bits`] gives for it.
    fn longest(&self) -> u32;

    /// What [`EntryCodec::parameter_bytes`] gives for it.
    fn table_bytes(&self) -> usize {
        0
    }

    /// Writes an entry's stream.
    fn write(&self, entry: &Entry, sink: &mut impl BitSink);

    /// Reads what [`write`](Self::write) wrote, or says where that cannot be.
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
        only_a(layout)?;
        self.read(&mut BitReader::new(stream))
    }
}

/// Refuses what a codec of one layout never writes.
#[inline(always)]
pub(crate) fn only_a(layout: Layout) -> Result<(), Error> {
    if layout == Layout::A { Ok(()) } else { Err(Error::Layout(layout)) }
}

impl Codec {
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
