//! What a codec is, which ones there are, and how an entry is stored with one.

use std::{fmt, str::FromStr};

use buddy_core::{ENTRY_BYTES, Entry, Layout, Nibble, SizeClass, ZERO_ENTRY, is_zero};
use serde::{Deserialize, Serialize};

use crate::{Bpc, Error, Stream};

/// An entry to bits and back.
pub trait EntryCodec {
    /// How many bits [`encode`](Self::encode) would write.
    fn size_bits(&self, entry: &Entry) -> u32;

    /// Replaces `stream` by the entry's stream.
    fn encode(&self, entry: &Entry, stream: &mut Stream);

    /// Rebuilds the entry from a stream of the given layout; bytes after the stream are ignored.
    ///
    /// # Errors
    /// Any bytes give an entry or an error.
    fn decode(&self, stream: &[u8], layout: Layout) -> Result<Entry, Error>;
}

/// The name of a codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CodecKind {
    /// Bit-Plane Compression, the paper's choice.
    Bpc,
}

impl CodecKind {
    /// Every codec.
    pub const ALL: [Self; 1] = [Self::Bpc];

    /// The name in tables, files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpc => "bpc",
        }
    }

    /// Makes the codec ready for an allocation, of which `sample` holds entries. Only codecs that keep
    /// parameters per allocation look at it.
    pub fn train(self, _sample: &[Entry]) -> Codec {
        match self {
            Self::Bpc => Codec::Bpc(Bpc),
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

/// A codec that is ready for one allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Codec {
    /// Bit-Plane Compression.
    Bpc(Bpc),
}

/// Calls the same method of whichever codec it is.
macro_rules! each {
    ($self:expr, $codec:ident => $call:expr) => {
        match $self {
            Codec::Bpc($codec) => $call,
        }
    };
}

impl Codec {
    /// Which codec it is.
    pub fn kind(&self) -> CodecKind {
        match self {
            Self::Bpc(_) => CodecKind::Bpc,
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
        if is_zero(entry) {
            packed.nibble = Nibble::new(SizeClass::Zero, Layout::A);
            return;
        }
        let mut stream = Stream::default();
        self.encode(entry, &mut stream);
        let class = SizeClass::from_bits(stream.bits());
        packed.nibble = Nibble::new(class, stream.layout());
        match class {
            SizeClass::Raw => packed.bytes = *entry,
            _ => {
                let bytes = stream.bytes();
                packed.bytes[..bytes.len()].copy_from_slice(bytes);
                packed.bytes[bytes.len()..class.bytes()].fill(0);
            }
        }
    }

    /// Rebuilds an entry from what [`pack`](Self::pack) stored.
    ///
    /// # Errors
    /// Any bytes and any nibble give an entry or an error.
    pub fn unpack(&self, nibble: Nibble, bytes: &[u8]) -> Result<Entry, Error> {
        let class = nibble.class();
        let bytes = bytes.get(..class.bytes()).ok_or(Error::Short { class, found: bytes.len() })?;
        match class {
            SizeClass::Zero => Ok(ZERO_ENTRY),
            SizeClass::Raw => Ok(bytes.try_into().expect("a raw entry has 128 bytes")),
            _ => self.decode(bytes, nibble.layout()),
        }
    }
}

impl EntryCodec for Codec {
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
