//! Keys and values of attention in compressed memory on a GPU (docs/explain/attention.md).

use buddy_cuda::{Attend, CudaStream, Fresh, KvCache, KvMemory, KvRows, KvShape};
use pyo3::prelude::*;

use crate::{
    failure,
    place::{Place, Span, gpu, on_gpu},
};

/// Layers, pages of each, heads, values of a head, tokens of a page.
type Shape = (u32, u32, u32, u32, u32);
/// A cache: its shape; memory for entries, for what overflows, and for metadata.
type Cache = (Shape, Span, Span, Span);
/// Keys and values of tokens: strides from layer to layer and from token to token, the first layer, how many, and how many tokens.
type Rows = (Span, Span, u64, u64, u32, u32, u32);

const NO_GPU: &str = "compressed keys and values are for GPUs";

fn shape((layers, pages, heads, head_values, page_tokens): Shape) -> KvShape {
    KvShape { layers, pages, heads, head_values, page_tokens }
}

fn rows((keys, values, layer_stride, token_stride, layer, layers, tokens): Rows) -> KvRows<'static> {
    KvRows { keys: on_gpu(keys), values: on_gpu(values), layer_stride, token_stride, layer, layers, tokens }
}

/// Does something with a cache on the current stream.
fn with(
    place: Place,
    (of, entries, overflow, metadata): Cache,
    work: impl FnOnce(&KvCache<'_>, &CudaStream) -> Result<(), buddy_cuda::Error>,
) -> PyResult<()> {
    let (gpu, stream) = gpu(place)?.ok_or_else(|| failure::value(NO_GPU))?;
    let memory =
        KvMemory { entries: on_gpu(entries), overflow: on_gpu(overflow), metadata: on_gpu(metadata) };
    KvCache::over(&gpu, shape(of), memory).and_then(|cache| work(&cache, &stream)).map_err(failure::gpu)
}

/// Bytes for entries, for what overflows, for metadata, and for attention of so many sequences to work in.
#[pyfunction]
pub(crate) fn kv_bytes(place: Place, of: Shape, sequences: u32) -> PyResult<(u64, u64, u64, u64)> {
    let (gpu, _) = gpu(place)?.ok_or_else(|| failure::value(NO_GPU))?;
    let shape = shape(of).check().map_err(failure::gpu)?;
    let bytes = shape.bytes();
    let scratch = shape.scratch_bytes(sequences, gpu.multiprocessors());
    Ok((bytes.entries, bytes.overflow, bytes.metadata, scratch))
}

/// Makes every token zeros.
#[pyfunction]
pub(crate) fn kv_clear(place: Place, cache: Cache) -> PyResult<()> {
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is of one lifetime, the closure of any"
    )]
    with(place, cache, |cache, stream| cache.clear(stream))
}

/// Chooses windows by the first tokens; before any token is appended, and never after.
#[pyfunction]
pub(crate) fn kv_train(place: Place, cache: Cache, of: Rows) -> PyResult<()> {
    with(place, cache, |cache, stream| cache.train(stream, &rows(of)))
}

/// Appends tokens at slots, 64 bits each.
#[pyfunction]
pub(crate) fn kv_append(place: Place, cache: Cache, of: Rows, slots: Span) -> PyResult<()> {
    with(place, cache, |cache, stream| cache.append(stream, &rows(of), on_gpu(slots)))
}

/// Attention of the last tokens of each sequence. `spans`: queries, results, table, lengths and scratch.
#[pyfunction]
pub(crate) fn kv_attend(
    place: Place,
    cache: Cache,
    asked: (u32, u32, u32, u32, f32),
    spans: [Span; 5],
) -> PyResult<()> {
    let (layer, sequences, tokens, group, scale) = asked;
    let [queries, out, table, lengths, scratch] = spans.map(on_gpu);
    let attend = Attend { layer, sequences, tokens, group, scale, queries, out, table, lengths, scratch };
    // SAFETY: the package gives lengths of tokens that were appended, and their pages.
    with(place, cache, |cache, stream| unsafe { cache.attend(stream, &attend) })
}

/// Turns queries and keys of one token of each sequence by its position, appends keys and values, and attends. `spans`: the token's rows,
/// turns, results, table, lengths and scratch.
#[pyfunction]
pub(crate) fn kv_attend_fresh(
    place: Place,
    cache: Cache,
    asked: (u32, u32, u32, f32),
    spans: [Span; 6],
) -> PyResult<()> {
    let (layer, sequences, group, scale) = asked;
    let [rows, turns, out, table, lengths, scratch] = spans.map(on_gpu);
    let (tokens, queries, fresh) = (1, out, Fresh { rows, turns });
    let attend = Attend { layer, sequences, tokens, group, scale, queries, out, table, lengths, scratch };
    // SAFETY: the package gives tables and turns for every position that a sequence may reach, and writes lengths and tokens in
    // other steps alone.
    with(place, cache, |cache, stream| unsafe { cache.attend_fresh(stream, &attend, &fresh) })
}

/// Reads tokens of one sequence as they were. `spans`: its pages, keys and values.
#[pyfunction]
pub(crate) fn kv_read(place: Place, cache: Cache, asked: (u32, u32, u32), spans: [Span; 3]) -> PyResult<()> {
    let (layer, first, count) = asked;
    let [pages, keys, values] = spans.map(on_gpu);
    // SAFETY: the package gives the pages of the cache that hold these tokens.
    with(place, cache, |cache, stream| unsafe {
        cache.read(stream, layer, pages, (first, count), [keys, values])
    })
}
