//! Frozen buffers in byte tensors. The CPU and the GPU write the same bits.

use buddy_codec::{Codec, FROZEN_HEADER_BYTES, Frozen, FrozenHeader, Tight, TightHeader};
use buddy_core::{SECTOR_BYTES, Target};
use buddy_cuda::{Error, FrozenBuffer, Gpu};
use pyo3::prelude::*;

use crate::{
    device::{Device, Range, bytes, bytes_mut, gpu, on_gpu},
    error,
    threads::detach,
};

/// Codec with its parameters (`bf16:112`), target (`4/3x`), and entries per matrix row (0 if not a
/// matrix).
pub(crate) type Format = (String, String, u32);

/// Offset of the count of overflowing sectors in the header.
const SECTORS_OFFSET: usize = 48;

pub(crate) fn parse((codec, target, row): &Format) -> PyResult<(Codec, Target, u32)> {
    Ok((codec.parse().map_err(error::value)?, target.parse().map_err(error::value)?, *row))
}

/// Returns the size of a buffer for `data_bytes` of data with room for `sectors` overflowing
/// sectors.
#[pyfunction]
pub(crate) fn packed_bytes(format: Format, data_bytes: u64, sectors: u32) -> PyResult<u64> {
    let (codec, target, row) = parse(&format)?;
    let most = FrozenHeader::MOST_BYTES;
    if data_bytes > most {
        return Err(error::value(format!("{data_bytes} bytes; a frozen buffer holds at most {most}")));
    }
    Ok(FrozenBuffer::room(&codec, target, row, data_bytes, sectors))
}

/// Parses the first 128 bytes of a buffer in host memory: codec, target, entries per row, data
/// bytes, overflowing sectors.
#[pyfunction]
pub(crate) fn parse_header(header: Range) -> PyResult<(String, &'static str, u32, u64, u32)> {
    let header = FrozenHeader::parse(bytes(header)).map_err(error::value)?;
    Ok((
        header.codec.word().map_err(error::value)?,
        header.target.name(),
        header.row,
        header.bytes,
        header.sectors,
    ))
}

/// Compares a buffer in host memory with its checksum. Returns whether it has one.
#[pyfunction]
pub(crate) fn check_packed(py: Python<'_>, packed: Range) -> PyResult<bool> {
    let packed = bytes(packed);
    detach(py, || Frozen::open(packed).and_then(|frozen| frozen.check())).map_err(error::value)
}

/// Parses the first 128 bytes of a tight matrix: entries per row, bytes of the plain matrix, and bytes
/// of the whole tight one. Returns nothing for a buffer of another layout.
#[pyfunction]
pub(crate) fn parse_tight(header: Range) -> PyResult<Option<(u32, u64, u64)>> {
    let header = bytes(header);
    if !TightHeader::is_tight(header) {
        return Ok(None);
    }
    let header = TightHeader::parse(header).map_err(error::value)?;
    Ok(Some((header.row, header.bytes, header.parts().total)))
}

/// Unpacks a tight matrix in host memory on all threads, compared with its checksum.
#[pyfunction]
pub(crate) fn read_tight(py: Python<'_>, packed: Range, to: Range) -> PyResult<()> {
    let (packed, to) = (bytes(packed), bytes_mut(to));
    py.detach(|| {
        let tight = Tight::open(packed)?;
        tight.check()?;
        tight.read_entries(0, to)
    })
    .map_err(error::value)
}

/// Packs whole entries into a buffer, in stream order.
///
/// If more sectors overflow than there is room for, the buffer gets no magic number and its header
/// holds the count. The CPU returns the count; a GPU writes it to the 32-bit word of pinned memory
/// at `status`, unless that is 0. Overflow goes to the end of the buffer, or to `overflow` (pinned
/// memory for a GPU). `counters`: 1024 zero bytes of device memory that save a kernel launch and
/// are zero again afterwards.
#[pyfunction]
#[pyo3(signature = (device, format, from, to, status, overflow = None, counters = None))]
#[allow(clippy::too_many_arguments)] // Python's arguments are flat
pub(crate) fn pack(
    py: Python<'_>,
    device: Device,
    format: Format,
    from: Range,
    to: Range,
    status: u64,
    overflow: Option<Range>,
    counters: Option<Range>,
) -> PyResult<Option<u32>> {
    let (codec, target, row) = parse(&format)?;
    let (overflow, counters) = (overflow.unwrap_or_default(), counters.unwrap_or_default());
    if let Some((gpu, stream)) = gpu(device)? {
        let buffer = open(&gpu, (&codec, target, row), from.bytes, (to, overflow)).map_err(error::gpu)?;
        let buffer = match counters.bytes {
            0 => buffer,
            _ => buffer.with_sums(on_gpu(counters)).map_err(error::gpu)?,
        };
        // SAFETY: Python holds the status word until the GPU has written it.
        let packed = unsafe { buffer.pack_from(&stream, on_gpu(from), status) };
        return packed.map(|()| None).map_err(error::gpu);
    }
    let (from, to, overflow) = (bytes(from), bytes_mut(to), bytes_mut(overflow));
    detach(py, || pack_on_cpu((&codec, target, row), from, to, overflow)).map(Some)
}

/// Opens a buffer for `data_bytes` of data on a GPU.
pub(crate) fn open<'a>(
    gpu: &Gpu,
    format: (&Codec, Target, u32),
    data_bytes: u64,
    (packed, overflow): (Range, Range),
) -> Result<FrozenBuffer<'a>, Error> {
    let buffer = FrozenBuffer::over(gpu, format, data_bytes, on_gpu(packed))?;
    if overflow.bytes == 0 { Ok(buffer) } else { buffer.with_overflow(on_gpu(overflow)) }
}

pub(crate) fn pack_on_cpu(
    (codec, target, row): (&Codec, Target, u32),
    from: &[u8],
    to: &mut [u8],
    overflow: &mut [u8],
) -> PyResult<u32> {
    let frozen = buddy_codec::freeze(codec, target, row, from).map_err(error::value)?;
    let header = FrozenHeader::parse(&frozen).map_err(error::value)?;
    let (first, rest) = if overflow.is_empty() { (&frozen[..], &[][..]) } else { split(&header, &frozen) };
    to.fill(0);
    if to.len() >= first.len() && overflow.len() >= rest.len() {
        to[..first.len()].copy_from_slice(first);
        overflow[..rest.len()].copy_from_slice(rest);
    } else if to.len() >= FROZEN_HEADER_BYTES {
        let sectors = SECTORS_OFFSET..SECTORS_OFFSET + 4;
        to[sectors.clone()].copy_from_slice(&frozen[sectors]);
    } else {
        return Err(error::value(format!(
            "{} bytes are too few for the 128-byte header of a buffer",
            to.len()
        )));
    }
    Ok(header.sectors)
}

/// Splits a buffer before its overflow section, which is returned without padding.
fn split<'a>(header: &FrozenHeader, frozen: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let (first, rest) = frozen.split_at(header.parts().overflow.start as usize);
    (first, &rest[..header.sectors as usize * SECTOR_BYTES])
}

/// Unpacks all entries of a buffer, in stream order. The CPU checks header and streams; a GPU
/// writes zeros for an entry that does not decode. `overflow` is that of `pack`.
#[pyfunction]
#[pyo3(signature = (device, format, from, to, overflow = None))]
pub(crate) fn unpack(
    py: Python<'_>,
    device: Device,
    format: Format,
    from: Range,
    to: Range,
    overflow: Option<Range>,
) -> PyResult<()> {
    let (codec, target, row) = parse(&format)?;
    let overflow = overflow.unwrap_or_default();
    if let Some((gpu, stream)) = gpu(device)? {
        let buffer = open(&gpu, (&codec, target, row), to.bytes, (from, overflow));
        return buffer.and_then(|buffer| buffer.read(&stream, 0, on_gpu(to))).map_err(error::gpu);
    }
    let (from, to, overflow) = (bytes(from), bytes_mut(to), bytes(overflow));
    detach(py, || unpack_on_cpu((codec, target, row), from, to, overflow))
}

pub(crate) fn unpack_on_cpu(
    (codec, target, row): (Codec, Target, u32),
    from: &[u8],
    to: &mut [u8],
    overflow: &[u8],
) -> PyResult<()> {
    let header = FrozenHeader::parse(from).map_err(error::value)?;
    let asked = FrozenHeader { codec, target, bytes: to.len() as u64, row, sectors: header.sectors };
    if header != asked {
        return Err(error::value(format!("the buffer is {header:?}, not {asked:?}")));
    }
    let (parts, joined) = (header.parts(), join(&header, from, overflow));
    let whole = joined.as_deref().unwrap_or(from).get(..parts.total as usize);
    let whole = whole.ok_or_else(|| error::value("the buffer is shorter than its header says"))?;
    let frozen = Frozen::open(whole).map_err(error::value)?;
    frozen.read_piece(0, to).map_err(error::value)
}

/// Joins a buffer with its separate overflow; `None` if there is none or bytes are missing.
fn join(header: &FrozenHeader, from: &[u8], overflow: &[u8]) -> Option<Vec<u8>> {
    if overflow.is_empty() {
        return None;
    }
    let parts = header.parts();
    let rest = overflow.get(..header.sectors as usize * SECTOR_BYTES)?;
    let mut whole = [from.get(..parts.overflow.start as usize)?, rest].concat();
    whole.resize(parts.total as usize, 0);
    Some(whole)
}
