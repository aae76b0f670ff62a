//! `buddy bench codec`.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result, bail, ensure};
use buddy_codec::{CodecKind, samples};
use buddy_core::{ENTRY_BYTES, Entry, Layout, Nibble, SizeClass, ZERO_ENTRY, as_entries};
use buddy_record::{Record, RecordKind};
use buddy_snapshot::write_atomic;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::timing::best_seconds;

/// Entries per timed piece: 256 KiB, which fits a second-level cache.
const PIECE: usize = 2048;
/// Limit of timed entries: 16 MiB.
const MOST: usize = (16 << 20) / ENTRY_BYTES;

/// Time the codecs on one core and compare with lz4, zstd and a copy
///
/// Speeds are GB/s of uncompressed bytes on one core, the best of 15 runs over pieces of 256 KiB.
/// lz4 and zstd compress each piece as one stream; our codecs allow random access to every 128
/// bytes.
#[derive(Args)]
#[command(after_help = "Examples:
  buddy bench codec
  buddy bench codec --file model.safetensors --codec bf16")]
pub(crate) struct Codec {
    /// Time this file (its first 16 MiB) instead of mixed synthetic data
    #[arg(long)]
    file: Option<PathBuf>,
    /// Time only these codecs
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    codec: Vec<CodecKind>,
    /// Write the results as a record
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// Results of one run.
#[derive(Debug, Serialize, Deserialize)]
struct CodecBench {
    data: String,
    bytes: u64,
    rows: Vec<Row>,
}

impl RecordKind for CodecBench {
    const KIND: &'static str = "bench-codec";
    const VERSION: u32 = 1;
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    name: String,
    ratio: f64,
    /// GB/s; `None` if the codec has no such operation.
    size: Option<f64>,
    encode: f64,
    decode: Option<f64>,
}

impl Codec {
    pub(crate) fn run(self) -> Result<()> {
        let (data, entries) = self.entries()?;
        let kinds = if self.codec.is_empty() { CodecKind::ALL.to_vec() } else { self.codec };
        let mut rows = vec![copy(&entries), lz4(&entries)?, zstd(&entries)?];
        for kind in kinds {
            rows.push(ours(kind, &entries)?);
        }
        let bench = CodecBench { data, bytes: (entries.len() * ENTRY_BYTES) as u64, rows };
        print(&bench)?;
        if let Some(path) = self.json {
            let record = Record::new(bench).to_json();
            write_atomic(&path, |out| out.write_all(record.as_bytes()))?;
        }
        Ok(())
    }

    fn entries(&self) -> Result<(String, Vec<Entry>)> {
        let Some(path) = &self.file else {
            return Ok(("mixed".to_owned(), samples::mixed(MOST)));
        };
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let (entries, _) = as_entries(&bytes);
        if entries.is_empty() {
            bail!("{} has no whole entry of 128 bytes", path.display());
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok((name, entries[..entries.len().min(MOST)].to_vec()))
    }
}

fn gigabytes_a_second(entries: &[Entry], seconds: f64) -> f64 {
    (entries.len() * ENTRY_BYTES) as f64 / seconds / 1e9
}

fn copy(entries: &[Entry]) -> Row {
    let mut to = vec![ZERO_ENTRY; entries.len()];
    let seconds = best_seconds(entries.len(), PIECE, |range| {
        to[range.clone()].copy_from_slice(&entries[range]);
    });
    assert_eq!(to, entries, "a copy is a copy");
    Row {
        name: "copy".to_owned(),
        ratio: 1.0,
        size: None,
        encode: gigabytes_a_second(entries, seconds),
        decode: None,
    }
}

/// Times a compressor that maps a piece to a vector and back.
fn peer(
    name: &str,
    entries: &[Entry],
    encode: impl Fn(&[u8]) -> Vec<u8>,
    decode: impl Fn(&[u8], usize) -> Result<Vec<u8>>,
) -> Result<Row> {
    let mut packed = vec![Vec::new(); entries.len().div_ceil(PIECE)];
    let encoding = best_seconds(entries.len(), PIECE, |range| {
        let piece = range.start / PIECE;
        packed[piece] = encode(entries[range].as_flattened());
    });
    let mut back = vec![Vec::new(); packed.len()];
    let mut failed = None;
    let decoding = best_seconds(entries.len(), PIECE, |range| {
        let piece = range.start / PIECE;
        match decode(&packed[piece], range.len() * ENTRY_BYTES) {
            Ok(bytes) => back[piece] = bytes,
            Err(error) => failed = Some(error),
        }
    });
    if let Some(error) = failed {
        return Err(error.context(format!("{name} cannot decode its own output")));
    }
    ensure!(back.concat() == entries.as_flattened(), "{name} decoded different bytes");
    let bytes: usize = packed.iter().map(Vec::len).sum();
    Ok(Row {
        name: name.to_owned(),
        ratio: (entries.len() * ENTRY_BYTES) as f64 / bytes as f64,
        size: None,
        encode: gigabytes_a_second(entries, encoding),
        decode: Some(gigabytes_a_second(entries, decoding)),
    })
}

fn lz4(entries: &[Entry]) -> Result<Row> {
    let decode = |bytes: &[u8], len| Ok(lz4_flex::block::decompress(bytes, len)?);
    peer("lz4_flex", entries, lz4_flex::block::compress, decode)
}

fn zstd(entries: &[Entry]) -> Result<Row> {
    let encode = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).expect("the vector is large enough");
    peer("zstd -1", entries, encode, |bytes, len| Ok(zstd::bulk::decompress(bytes, len)?))
}

fn ours(kind: CodecKind, entries: &[Entry]) -> Result<Row> {
    let codec = kind.train(entries);
    let mut bits = vec![0; entries.len()];
    let sizing =
        best_seconds(entries.len(), PIECE, |range| codec.sizes(&entries[range.clone()], &mut bits[range]));
    let mut nibbles = vec![Nibble::new(SizeClass::Zero, Layout::A); entries.len()];
    let mut slots = vec![ZERO_ENTRY; entries.len()];
    let encoding = best_seconds(entries.len(), PIECE, |range| {
        codec.pack_all(&entries[range.clone()], &mut nibbles[range.clone()], &mut slots[range]);
    });
    let mut back = vec![ZERO_ENTRY; entries.len()];
    let mut failed = None;
    let decoding = best_seconds(entries.len(), PIECE, |range| {
        let done = codec.unpack_all(&nibbles[range.clone()], &slots[range.clone()], &mut back[range]);
        failed = failed.take().or(done.err());
    });
    if let Some(error) = failed {
        bail!("{kind} cannot decode its own output: {error}");
    }
    ensure!(back == entries, "{kind} decoded different bytes");
    let bytes: usize = nibbles.iter().map(|nibble| nibble.class().bytes()).sum();
    Ok(Row {
        name: kind.name().to_owned(),
        ratio: (entries.len() * ENTRY_BYTES) as f64 / bytes.max(1) as f64,
        size: Some(gigabytes_a_second(entries, sizing)),
        encode: gigabytes_a_second(entries, encoding),
        decode: Some(gigabytes_a_second(entries, decoding)),
    })
}

fn print(bench: &CodecBench) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let megabytes = bench.bytes as f64 / 1e6;
    writeln!(out, "{}, {megabytes:.1} MB, one core, GB/s of uncompressed bytes\n", bench.data)?;
    writeln!(
        out,
        "{:<10} {:>8} {:>8} {:>8} {:>8} {:>12}",
        "", "ratio", "size", "encode", "decode", "decode/copy"
    )?;
    let copy = bench.rows[0].encode;
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    for row in &bench.rows {
        writeln!(
            out,
            "{:<10} {:>8.2} {:>8} {:>8.2} {:>8} {:>12}",
            row.name,
            row.ratio,
            figure(row.size),
            row.encode,
            figure(row.decode),
            figure(row.decode.map(|decode| decode / copy)),
        )?;
    }
    Ok(())
}
