//! Pages of fixed size in slots of fixed size: frozen buffers with room for a share of overflow, many
//! in one call (`buddy.kv`).

use buddy_codec::Codec;
use buddy_core::Target;
use pyo3::prelude::*;

use crate::{
    device::{Device, Range, bytes, bytes_mut, gpu, on_gpu},
    error,
    packing::{Format, open, pack_on_cpu, parse, unpack_on_cpu},
    threads::detach,
};

/// Bytes of a page, of a slot, and of the frozen buffer that a slot begins with.
type Sizes = (u64, u64, u64);

/// A page and its frozen buffer.
type Pair = (Range, Range);

/// Returns the pages and frozen buffers of two ranges that hold equally many pages and slots.
fn pairs(pages: Range, slots: Range, (page, slot, frozen): Sizes) -> PyResult<impl Iterator<Item = Pair>> {
    let count = pages.bytes.checked_div(page).unwrap_or_default();
    if frozen > slot || pages.bytes != count * page || count.checked_mul(slot) != Some(slots.bytes) {
        return Err(error::value(format!(
            "{} bytes of pages of {page} and {} bytes of slots of {slot} with {frozen} each do not belong together",
            pages.bytes, slots.bytes
        )));
    }
    let part = |of: Range, at: u64, bytes: u64| Range { address: of.address + at, bytes };
    Ok((0..count).map(move |i| (part(pages, i * page, page), part(slots, i * slot, frozen))))
}

/// Packs each page into the slot of the same index, in stream order. A buffer whose overflow has no
/// room gets no magic number. `counters` are those of `pack`.
#[pyfunction]
#[pyo3(signature = (device, format, pages, slots, sizes, counters = None))]
pub(crate) fn pack_pages(
    py: Python<'_>,
    device: Device,
    format: Format,
    pages: Range,
    slots: Range,
    sizes: Sizes,
    counters: Option<Range>,
) -> PyResult<()> {
    let (codec, target, row) = parse(&format)?;
    let mut pairs = pairs(pages, slots, sizes)?;
    if let Some((gpu, stream)) = gpu(device)? {
        let counters = counters.unwrap_or_default();
        return pairs
            .try_for_each(|(page, slot)| {
                let buffer = open(&gpu, (&codec, target, row), page.bytes, (slot, Range::default()))?;
                let buffer = match counters.bytes {
                    0 => buffer,
                    _ => buffer.with_sums(on_gpu(counters))?,
                };
                // SAFETY: there is no status word.
                unsafe { buffer.pack_from(&stream, on_gpu(page), 0) }
            })
            .map_err(error::gpu);
    }
    detach(py, || {
        pairs.try_for_each(|(page, slot)| {
            pack_on_cpu((&codec, target, row), bytes(page), bytes_mut(slot), &mut []).map(drop)
        })
    })
}

/// Unpacks each slot into the page of the same index, in stream order. Returns the slots that do not
/// hold a whole page or are damaged; a GPU does not look, and writes other bytes for them.
#[pyfunction]
pub(crate) fn unpack_pages(
    py: Python<'_>,
    device: Device,
    format: Format,
    slots: Range,
    pages: Range,
    sizes: Sizes,
) -> PyResult<Vec<usize>> {
    let how = parse(&format)?;
    let mut pairs = pairs(pages, slots, sizes)?;
    if let Some((gpu, stream)) = gpu(device)? {
        return pairs
            .try_for_each(|(page, slot)| {
                open(&gpu, (&how.0, how.1, how.2), page.bytes, (slot, Range::default()))?.read(
                    &stream,
                    0,
                    on_gpu(page),
                )
            })
            .map(|()| Vec::new())
            .map_err(error::gpu);
    }
    Ok(detach(py, || damaged(&how, pairs)))
}

/// Unpacks on the CPU and returns the indices of the slots that cannot be unpacked.
fn damaged((codec, target, row): &(Codec, Target, u32), pairs: impl Iterator<Item = Pair>) -> Vec<usize> {
    let unpacked = pairs
        .map(|(page, slot)| unpack_on_cpu((codec.clone(), *target, *row), bytes(slot), bytes_mut(page), &[]));
    unpacked.enumerate().filter(|(_, result)| result.is_err()).map(|(i, _)| i).collect()
}
