//! `buddy inspect`: the compressed form of each entry of a file.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use buddy_codec::{Codec, CodecKind, EntryCodec, Stream};
use buddy_core::{ENTRY_BYTES, Entry, Layout, Nibble, SizeClass, is_zero};
use buddy_snapshot::{Error, Format as FileFormat};
use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde::Serialize;

use crate::{input::Input, say};

/// Show how each 128-byte entry of a file compresses
///
/// Prints one line per entry: the encoded length in bits, its size class, and the encoded stream in
/// hexadecimal. The classes are zero, b8, s1, s2, s3 and raw: 0, 8, 32, 64, 96 and 128 bytes. A raw
/// entry is stored uncompressed and has no stream, but its encoded length is shown. The table shows
/// the first 24 bytes of a stream; jsonl has all of it.
///
/// The last entry is zero-padded to 128 bytes. A codec with parameters per allocation (fvc, bf16)
/// is first trained on a sample of the whole input; the others need one pass. jsonl also names the
/// layout of an entry if it is B or C of bf16.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Inspect {
    /// File, of which every byte is shown, headers too; - reads stdin
    file: PathBuf,

    /// Codec to compress with
    #[arg(long, value_name = "NAME", default_value = "bpc", value_parser = codec_parser())]
    codec: CodecKind,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  A table, and a summary on stderr:
    buddy inspect model.safetensors

  One JSON object per entry:
    buddy inspect dump.bin --format jsonl

  Output of another program:
    head -c 4096 /dev/urandom | buddy inspect -";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Readable columns, and a summary on stderr
    Table,
    /// One JSON object per line
    Jsonl,
}

/// Returns a parser of codec names.
fn codec_parser() -> impl TypedValueParser<Value = CodecKind> {
    PossibleValuesParser::new(CodecKind::ALL.map(CodecKind::name)).try_map(|name| name.parse::<CodecKind>())
}

impl Inspect {
    /// Runs the verb.
    pub(crate) fn run(self) -> Result<()> {
        let mut input = Input::open(&self.file)?;
        self.note_container();
        let summary = if self.codec.has_parameters() {
            let (sample, again) = input.sample(SAMPLE)?;
            input = again;
            self.print(self.codec.train(&sample), input.by_ref())?
        } else {
            self.print(self.codec.train(&[]), input.by_ref())?
        };
        if summary.entries() == 0 {
            bail!("{} is empty: there is no entry to inspect", input.name());
        }
        if input.padding() > 0 {
            say(format_args!(
                "note: the last entry of {} is padded with {} zero bytes",
                input.name(),
                input.padding()
            ));
        }
        if self.format == Format::Table {
            summary.print(self.codec);
        }
        Ok(())
    }

    /// Says that the bytes of a container are not those of its arrays.
    fn note_container(&self) {
        if !self.file.is_file() {
            return;
        }
        let (what, more) = match FileFormat::of_file(&self.file) {
            Ok(FileFormat::Raw) => return,
            Ok(format) => (format.name(), "; buddy analyze reads its arrays"),
            Err(Error::Container { what, .. }) => (what, ""),
            Err(_) => return, // a file that cannot be mapped, such as an empty one
        };
        let name = self.file.display();
        say(format_args!("note: {name} is {what}; its bytes are shown as they lie in the file{more}"));
    }

    /// Prints a line for each entry and counts them.
    fn print(&self, codec: Codec, entries: impl Iterator<Item = Result<Entry>>) -> Result<Summary> {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let mut summary = Summary { parameter_bytes: codec.parameter_bytes(), ..Summary::default() };
        let (mut stream, mut hex) = (Stream::default(), String::new());
        for entry in entries {
            let line = Line::new(summary.entries(), &entry?, &codec, &mut stream, &mut hex);
            summary.count(line.class);
            match self.format {
                Format::Table => line.write_row(&mut out),
                Format::Jsonl => line.write_json(&mut out),
            }
            .context(STDOUT)?;
        }
        out.flush().context(STDOUT)?;
        Ok(summary)
    }
}

const STDOUT: &str = "cannot write to stdout";

/// Evenly spaced entries that a codec is trained on: enough for its few parameters, and quick.
const SAMPLE: usize = 1 << 14;

/// One entry's output; as JSON, exactly these fields in this order. Layout A is omitted.
#[derive(Serialize)]
struct Line<'a> {
    entry: u64,
    bits: u32,
    class: SizeClass,
    #[serde(skip_serializing_if = "is_first")]
    layout: Layout,
    stream: Option<&'a str>,
}

fn is_first(layout: &Layout) -> bool {
    *layout == Layout::A
}

impl<'a> Line<'a> {
    fn new(index: u64, entry: &Entry, codec: &Codec, stream: &mut Stream, hex: &'a mut String) -> Self {
        codec.encode(entry, stream);
        let bits = stream.bits();
        let class = if is_zero(entry) { SizeClass::Zero } else { SizeClass::from_bits(bits) };
        write_hex(stream.bytes(), hex);
        let layout = Nibble::new(class, stream.layout()).layout();
        Self { entry: index, bits, class, layout, stream: (class != SizeClass::Raw).then_some(hex) }
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }

    /// Writes a row of the table; the first row writes the header too.
    fn write_row(&self, out: &mut impl Write) -> io::Result<()> {
        const DIGITS: usize = 48;
        if self.entry == 0 {
            writeln!(out, "   entry   bits  class  size  stream")?;
        }
        let stream = self.stream.unwrap_or("-");
        let (shown, more) = match stream.get(..DIGITS) {
            Some(start) if stream.len() > DIGITS => (start, "…"),
            _ => (stream, ""),
        };
        let Self { entry, bits, class, .. } = self;
        writeln!(out, "{entry:>8} {bits:>6}  {class:<5}  {}  {shown}{more}", bar(*class))
    }
}

/// Draws the share of the entry's four sectors that `class` fills.
fn bar(class: SizeClass) -> &'static str {
    ["····", "▪···", "■···", "■■··", "■■■·", "■■■■"][class.index()]
}

/// Replaces `hex` with the bytes in hexadecimal.
fn write_hex(bytes: &[u8], hex: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    hex.clear();
    hex.extend(digits.map(|digit| char::from(DIGITS[usize::from(digit)])));
}

/// Counts of entries by class, and the size of the codec's parameters.
#[derive(Default)]
struct Summary {
    counts: [u64; SizeClass::ALL.len()],
    parameter_bytes: usize,
}

impl Summary {
    fn count(&mut self, class: SizeClass) {
        self.counts[class.index()] += 1;
    }

    fn entries(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn stored_bytes(&self) -> u64 {
        SizeClass::ALL.map(|class| self.counts[class.index()] * class.bytes() as u64).iter().sum()
    }

    /// Prints counts and ratio to stderr.
    fn print(&self, kind: CodecKind) {
        let counts = SizeClass::ALL.map(|class| format!("{class} {}", self.counts[class.index()]));
        let (bytes, stored) = (self.entries() * ENTRY_BYTES as u64, self.stored_bytes());
        let ratio = match stored {
            0 => "every entry is zero".to_owned(),
            _ => format!("ratio {:.2}", bytes as f64 / stored as f64),
        };
        say(format_args!("{} entries: {}", self.entries(), counts.join(", ")));
        let parameters = match self.parameter_bytes {
            0 => String::new(),
            1 => ", plus 1 byte of parameters".to_owned(),
            bytes => format!(", plus {bytes} bytes of parameters"),
        };
        say(format_args!("{kind}: {bytes} bytes in {stored}, {ratio}{parameters}"));
    }
}
