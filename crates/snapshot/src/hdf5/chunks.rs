//! The values of chunked datasets: each chunk is decoded and copied to its place, so that memory
//! holds one at a time.

use hdf5_reader::{
    Dataset,
    dataset::DatasetChunk,
    messages::layout::{ChunkIndexing, DataLayout},
    object_header::ObjectHeader,
};

use super::{Reader, bad, fill_value, index, layout, unsupported};
use crate::Error;

/// Chunks that a dataset may have whatever its file's length.
const LEAST_CHUNKS: u64 = 1 << 20;

impl Reader {
    /// Writes the elements of a dataset, of `element` bytes each, into zeros.
    pub(super) fn fill(
        &mut self,
        dataset: &Dataset,
        header: &ObjectHeader,
        element: usize,
        into: &mut [u8],
    ) -> Result<(), Error> {
        let value = fill_value(header).and_then(|fill| fill.value.as_deref());
        if let Some(value) =
            value.filter(|value| value.len() == element && value.iter().any(|&byte| byte != 0))
        {
            into.chunks_exact_mut(element).for_each(|into| into.copy_from_slice(value));
        }
        match layout(header) {
            Some(DataLayout::Chunked { address, chunk_indexing, .. })
                if self.is_defined(*address) && !into.is_empty() =>
            {
                match chunk_indexing {
                    Some(ChunkIndexing::FixedArray { .. }) => {
                        index::verify_fixed_array(&mut self.blocks, *address)?;
                    }
                    Some(ChunkIndexing::ExtensibleArray { .. }) => {
                        index::verify_extensible_array(&mut self.blocks, *address)?;
                    }
                    _ => {}
                }
                self.chunks(dataset, element, into)
            }
            _ => Ok(()),
        }
    }

    fn chunks(&mut self, dataset: &Dataset, element: usize, into: &mut [u8]) -> Result<(), Error> {
        let shape = dataset.shape();
        let chunk = dataset.chunks().unwrap_or_default();
        if chunk.len() != shape.len() || chunk.contains(&0) {
            return Err(bad(format!("its chunks {chunk:?} do not fit its shape {shape:?}")));
        }
        let counts: Vec<u64> =
            shape.iter().zip(&chunk).map(|(&n, &chunk)| n.div_ceil(chunk.into())).collect();
        let count = counts.iter().try_fold(1u64, |all, &n| all.checked_mul(n));
        let most = LEAST_CHUNKS.max(self.source.bytes().len() as u64 / 4);
        if count.is_none_or(|count| count > most) {
            return Err(bad(format!("its shape {shape:?} has more than {most} chunks {chunk:?}")));
        }
        let explain = |error| match unsupported(&error) {
            Some(why) => Error::Unsupported(why),
            None => bad(error),
        };
        let mut places = Vec::new();
        for chunk in dataset.iter_chunks().map_err(explain)? {
            let chunk = chunk.map_err(explain)?;
            let mut steps = chunk.offsets().iter().zip(chunk.shape()).zip(&counts);
            let place = steps.try_fold(0u64, |place, ((&offset, &step), &count)| {
                let index = (offset % step == 0).then_some(offset / step).filter(|&index| index < count)?;
                Some(place * count + index)
            });
            places.push(
                place.ok_or_else(|| bad(format!("a chunk at {:?} is none of its grid", chunk.offsets())))?,
            );
            let copied = copy(&chunk, shape, element, into).ok_or_else(|| bad("a chunk has another size"))?;
            self.excess += (chunk.bytes().len() - copied) as u64;
            if self.excess > self.scratch.limit() {
                return Err(Error::Bomb { inflated: self.excess, limit: self.scratch.limit() });
            }
        }
        places.sort_unstable();
        match places.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(bad(format!("its chunk {} appears twice", pair[0]))),
            None => Ok(()),
        }
    }
}

/// Copies the part of a chunk that lies in the dataset, row by row, and returns its bytes.
fn copy(chunk: &DatasetChunk, shape: &[u64], element: usize, into: &mut [u8]) -> Option<usize> {
    let extent =
        |((&offset, &length), &n): ((&u64, &u64), &u64)| length.min(n.saturating_sub(offset)) as usize;
    let extents: Vec<usize> = chunk.offsets().iter().zip(chunk.shape()).zip(shape).map(extent).collect();
    let Some((&row, outer)) = extents.split_last() else {
        into.copy_from_slice(chunk.bytes().get(..into.len())?);
        return Some(into.len());
    };
    let row = row * element;
    let mut indices = vec![0usize; outer.len()];
    let rows = outer.iter().product::<usize>();
    for _ in 0..rows {
        let (mut from, mut to) = (0, 0);
        let sizes = chunk.shape().iter().zip(shape).zip(chunk.offsets());
        for (((&of_chunk, &of_all), &offset), index) in sizes.zip(indices.iter().chain([&0])) {
            from = from * of_chunk as usize + index;
            to = to * of_all as usize + offset as usize + index;
        }
        let (from, to) = (from * element, to * element);
        into.get_mut(to..to + row)?.copy_from_slice(chunk.bytes().get(from..from + row)?);
        for (index, &extent) in indices.iter_mut().zip(outer).rev() {
            *index += 1;
            if *index < extent {
                break;
            }
            *index = 0;
        }
    }
    Some(rows * row)
}
