//! Frozen buffers in tensors of bytes: packed by the CPU or by a GPU, the same bits.

use buddy_codec::{Codec, FROZEN_HEADER_BYTES, Frozen, FrozenHeader};
use buddy_core::Target;
use buddy_cuda::FrozenBuffer;
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
/// not begin as one, and its header says how many there are; on a GPU so does the 32-bit word of pinned memory at `told`, unless 0.
#[pyfunction]
pub(crate) fn freeze(
    py: Python<'_>,
    place: Place,
    how: How,
    from: Span,
    to: Span,
    told: u64,
) -> PyResult<()> {
    let (codec, target, row) = parse(&how)?;
    if let Some((gpu, stream)) = gpu(place)? {
        let (from, to) = (on_gpu(from), on_gpu(to));
        // SAFETY: Python keeps the word until it was written.
        let packed =
            unsafe { FrozenBuffer::pack_and_tell(&gpu, &stream, (&codec, target, row), from, to, told) };
        return packed.map(|_| ()).map_err(failure::gpu);
    }
    let (from, to) = (bytes(from)?, bytes_mut(to)?);
    py.detach(|| freeze_here((&codec, target, row), from, to))
}

fn freeze_here((codec, target, row): (&Codec, Target, u32), from: &[u8], to: &mut [u8]) -> PyResult<()> {
    let frozen = buddy_codec::freeze(codec, target, row, from).map_err(failure::value)?;
    to.fill(0);
    if let Some(room) = to.get_mut(..frozen.len()) {
        room.copy_from_slice(&frozen);
    } else if to.len() >= FROZEN_HEADER_BYTES {
        let sectors = AT_SECTORS..AT_SECTORS + 4;
        to[sectors.clone()].copy_from_slice(&frozen[sectors]);
    } else {
        return Err(failure::value("a buffer has at least the 128 bytes of its header"));
    }
    Ok(())
}

/// Unpacks all entries of a buffer when the stream gets there. On the CPU its header and its streams are checked, on a GPU an
/// entry that does not decode becomes zeros.
#[pyfunction]
pub(crate) fn read_frozen(py: Python<'_>, place: Place, how: How, from: Span, to: Span) -> PyResult<()> {
    let (codec, target, row) = parse(&how)?;
    if let Some((gpu, stream)) = gpu(place)? {
        let frozen = FrozenBuffer::over(&gpu, (&codec, target, row), to.1, on_gpu(from));
        return frozen.and_then(|frozen| frozen.read(&stream, 0, on_gpu(to))).map_err(failure::gpu);
    }
    let (from, to) = (bytes(from)?, bytes_mut(to)?);
    py.detach(|| read_here((codec, target, row), from, to))
}

fn read_here((codec, target, row): (Codec, Target, u32), from: &[u8], to: &mut [u8]) -> PyResult<()> {
    let header = FrozenHeader::parse(from).map_err(failure::value)?;
    let asked = FrozenHeader { codec, target, bytes: to.len() as u64, row, sectors: header.sectors };
    if header != asked {
        return Err(failure::value(format!("the buffer is {header:?}, not {asked:?}")));
    }
    let whole = from.get(..header.parts().total as usize);
    let whole = whole.ok_or_else(|| failure::value("the buffer is shorter than its header says"))?;
    let frozen = Frozen::open(whole).map_err(failure::value)?;
    frozen.read_piece(0, to).map_err(failure::value)
}
