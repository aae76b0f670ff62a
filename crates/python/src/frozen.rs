//! Frozen buffers in tensors of bytes: packed by the CPU or by a GPU, the same bits.

use buddy_codec::{Codec, FROZEN_HEADER_BYTES, Frozen, FrozenHeader};
use buddy_core::{SECTOR_BYTES, Target};
use buddy_cuda::{Error, FrozenBuffer, Gpu};
use pyo3::prelude::*;

use crate::{
    failure,
    place::{Place, Span, bytes, bytes_mut, gpu, on_gpu},
};

/// A codec's name with what it learned, such as `bf16:112`; a target's, such as `4/3x`; entries of a matrix's row, or 0.
pub(crate) type How = (String, String, u32);

/// Byte of the header at which the number of sectors that overflow stands.
const AT_SECTORS: usize = 48;

pub(crate) fn parse((codec, target, row): &How) -> PyResult<(Codec, Target, u32)> {
    Ok((codec.parse().map_err(failure::value)?, target.parse().map_err(failure::value)?, *row))
}

/// Bytes of a buffer for so many bytes of data, of which so many sectors overflow.
#[pyfunction]
pub(crate) fn frozen_room(how: How, data_bytes: u64, sectors: u32) -> PyResult<u64> {
    let (codec, target, row) = parse(&how)?;
    Ok(FrozenBuffer::room(&codec, target, row, data_bytes, sectors))
}

/// What the first 128 bytes of a buffer, on the CPU, say: codec, target, entries of a row, bytes of data, sectors that overflow.
#[pyfunction]
pub(crate) fn frozen_header(header: Span) -> PyResult<(String, &'static str, u32, u64, u32)> {
    let header = FrozenHeader::parse(bytes(header)?).map_err(failure::value)?;
    Ok((header.codec.to_string(), header.target.name(), header.row, header.bytes, header.sectors))
}

/// Packs whole entries into a buffer when the stream gets there. If more sectors overflow than there is room for, the buffer does
/// not begin as one, and its header says how many there are; on a GPU so does the 32-bit word of pinned memory at `told`, unless 0,
/// and the CPU returns it. What overflows lies at the buffer's end, or in `overflow`, if that is not empty: pinned memory, for a GPU.
/// `sums`, if not empty: 1024 bytes of zeros on the GPU, with which it packs in fewer steps, and which are zeros again then.
#[pyfunction]
#[pyo3(signature = (place, how, from, to, told, overflow = (0, 0), sums = (0, 0)))]
#[allow(clippy::too_many_arguments)] // Python's are flat
pub(crate) fn freeze(
    py: Python<'_>,
    place: Place,
    how: How,
    from: Span,
    to: Span,
    told: u64,
    overflow: Span,
    sums: Span,
) -> PyResult<Option<u32>> {
    let (codec, target, row) = parse(&how)?;
    if let Some((gpu, stream)) = gpu(place)? {
        let buffer = open(&gpu, (&codec, target, row), from.1, (to, overflow)).map_err(failure::gpu)?;
        let buffer =
            if sums.1 == 0 { buffer } else { buffer.with_sums(on_gpu(sums)).map_err(failure::gpu)? };
        // SAFETY: Python keeps the word until it was written.
        let packed = unsafe { buffer.pack_from(&stream, on_gpu(from), told) };
        return packed.map(|()| None).map_err(failure::gpu);
    }
    let (from, to, overflow) = (bytes(from)?, bytes_mut(to)?, bytes_mut(overflow)?);
    py.detach(|| freeze_here((&codec, target, row), from, to, overflow)).map(Some)
}

/// A buffer on a GPU for so many bytes of data, and where it overflows.
fn open<'a>(
    gpu: &Gpu,
    how: (&Codec, Target, u32),
    data_bytes: u64,
    (memory, overflow): (Span, Span),
) -> Result<FrozenBuffer<'a>, Error> {
    let buffer = FrozenBuffer::over(gpu, how, data_bytes, on_gpu(memory))?;
    if overflow.1 == 0 { Ok(buffer) } else { buffer.with_overflow(on_gpu(overflow)) }
}

fn freeze_here(
    (codec, target, row): (&Codec, Target, u32),
    from: &[u8],
    to: &mut [u8],
    overflow: &mut [u8],
) -> PyResult<u32> {
    let frozen = buddy_codec::freeze(codec, target, row, from).map_err(failure::value)?;
    let header = FrozenHeader::parse(&frozen).map_err(failure::value)?;
    let (first, rest) = if overflow.is_empty() { (&frozen[..], &[][..]) } else { split(&header, &frozen) };
    to.fill(0);
    if to.len() >= first.len() && overflow.len() >= rest.len() {
        to[..first.len()].copy_from_slice(first);
        overflow[..rest.len()].copy_from_slice(rest);
    } else if to.len() >= FROZEN_HEADER_BYTES {
        let sectors = AT_SECTORS..AT_SECTORS + 4;
        to[sectors.clone()].copy_from_slice(&frozen[sectors]);
    } else {
        return Err(failure::value("a buffer has at least the 128 bytes of its header"));
    }
    Ok(header.sectors)
}

/// What lies before that which overflows, and that.
fn split<'a>(header: &FrozenHeader, frozen: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let (first, rest) = frozen.split_at(header.parts().overflow.start as usize);
    (first, &rest[..header.sectors as usize * SECTOR_BYTES])
}

/// Unpacks all entries of a buffer when the stream gets there. On the CPU its header and its streams are checked, on a GPU an
/// entry that does not decode becomes zeros. `overflow` as for `freeze`.
#[pyfunction]
#[pyo3(signature = (place, how, from, to, overflow = (0, 0)))]
pub(crate) fn read_frozen(
    py: Python<'_>,
    place: Place,
    how: How,
    from: Span,
    to: Span,
    overflow: Span,
) -> PyResult<()> {
    let (codec, target, row) = parse(&how)?;
    if let Some((gpu, stream)) = gpu(place)? {
        let buffer = open(&gpu, (&codec, target, row), to.1, (from, overflow));
        return buffer.and_then(|buffer| buffer.read(&stream, 0, on_gpu(to))).map_err(failure::gpu);
    }
    let (from, to, overflow) = (bytes(from)?, bytes_mut(to)?, bytes(overflow)?);
    py.detach(|| read_here((codec, target, row), from, to, overflow))
}

fn read_here(
    (codec, target, row): (Codec, Target, u32),
    from: &[u8],
    to: &mut [u8],
    overflow: &[u8],
) -> PyResult<()> {
    let header = FrozenHeader::parse(from).map_err(failure::value)?;
    let asked = FrozenHeader { codec, target, bytes: to.len() as u64, row, sectors: header.sectors };
    if header != asked {
        return Err(failure::value(format!("the buffer is {header:?}, not {asked:?}")));
    }
    let (parts, joined) = (header.parts(), join(&header, from, overflow));
    let whole = joined.as_deref().unwrap_or(from).get(..parts.total as usize);
    let whole = whole.ok_or_else(|| failure::value("the buffer is shorter than its header says"))?;
    let frozen = Frozen::open(whole).map_err(failure::value)?;
    frozen.read_piece(0, to).map_err(failure::value)
}

/// The buffer in one piece, if it is in two and all of it is there.
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
