//! A compressed, paged KV cache on a GPU (docs/explain/attention.md).

use buddy_cuda::{Attend, CudaStream, Fresh, HostKv, HostRows, KvCache, KvMemory, KvRows, KvShape};
use pyo3::prelude::*;

use crate::{
    device::{Device, Range, bytes, bytes_mut, gpu, numbers, on_gpu},
    error,
};

/// Layers, pages per layer, KV heads, head dimension, tokens per page.
type Shape = (u32, u32, u32, u32, u32);
/// Shape; memory of the entries, of the overflow and of the metadata; of the windows and the fault,
/// or nothing if the metadata holds them.
type Cache = (Shape, Range, Range, Range, Range);
/// Keys, values, layer stride, token stride, first layer, layers, tokens.
type Rows = (Range, Range, u64, u64, u32, u32, u32);

const NO_GPU: &str = "attention of a compressed KV cache, and its scratch memory, are on a GPU only";

fn shape((layers, pages, heads, head_values, page_tokens): Shape) -> KvShape {
    KvShape { layers, pages, heads, head_values, page_tokens }
}

fn rows((keys, values, layer_stride, token_stride, layer, layers, tokens): Rows) -> KvRows<'static> {
    KvRows { keys: on_gpu(keys), values: on_gpu(values), layer_stride, token_stride, layer, layers, tokens }
}

/// Calls `enqueue` with a cache and the current stream.
fn with(
    device: Device,
    (of, entries, overflow, metadata, windows): Cache,
    enqueue: impl FnOnce(&KvCache<'_>, &CudaStream) -> Result<(), buddy_cuda::Error>,
) -> PyResult<()> {
    let (gpu, stream) = gpu(device)?.ok_or_else(|| error::value(NO_GPU))?;
    let memory =
        KvMemory { entries: on_gpu(entries), overflow: on_gpu(overflow), metadata: on_gpu(metadata) };
    let cache = match windows.bytes {
        0 => KvCache::over(&gpu, shape(of), memory),
        _ => KvCache::with_windows(&gpu, shape(of), memory, on_gpu(windows)),
    };
    cache.and_then(|cache| enqueue(&cache, &stream)).map_err(error::gpu)
}

/// Calls `change` with a cache in host memory, which has memory of its own for windows.
fn on_host(
    (of, entries, overflow, metadata, windows): Cache,
    change: impl FnOnce(&mut HostKv<'_>) -> Result<(), buddy_cuda::Error>,
) -> PyResult<()> {
    let memory = [entries, overflow, metadata, windows].map(bytes_mut);
    HostKv::over(shape(of), memory).and_then(|mut cache| change(&mut cache)).map_err(error::gpu)
}

/// Returns the bytes of entries, overflow, nibbles, and windows with the fault.
#[pyfunction]
pub(crate) fn kv_parts(of: Shape) -> PyResult<(u64, u64, u64, u64)> {
    let bytes = shape(of).check().map_err(error::gpu)?.bytes();
    Ok((bytes.entries, bytes.overflow, bytes.nibbles, bytes.windows))
}

/// Returns true if attention in place runs on a GPU.
#[pyfunction]
pub(crate) fn kv_attends(device: Device) -> PyResult<bool> {
    Ok(gpu(device)?.is_some_and(|(gpu, _)| gpu.attends().is_ok()))
}

/// Returns the bytes of entries, overflow, metadata, and attention's scratch memory for this number
/// of sequences. Fails on a GPU without attention in place, with the reason.
#[pyfunction]
pub(crate) fn kv_bytes(device: Device, of: Shape, sequences: u32) -> PyResult<(u64, u64, u64, u64)> {
    let (gpu, _) = gpu(device)?.ok_or_else(|| error::value(NO_GPU))?;
    gpu.attends().map_err(error::gpu)?;
    let shape = shape(of).check().map_err(error::gpu)?;
    let bytes = shape.bytes();
    let scratch = shape.scratch_bytes(sequences, gpu.multiprocessors());
    Ok((bytes.entries, bytes.overflow, bytes.metadata, scratch))
}

/// Sets every token to zero.
#[pyfunction]
pub(crate) fn kv_clear(device: Device, cache: Cache) -> PyResult<()> {
    if device.0 < 0 {
        return on_host(cache, |cache| {
            cache.clear();
            Ok(())
        });
    }
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is of one lifetime, the closure of any"
    )]
    with(device, cache, |cache, stream| cache.clear(stream))
}

/// Loads the kernels of attention of one token with this number of query heads per KV head.
#[pyfunction]
pub(crate) fn kv_load(device: Device, cache: Cache, group: u32) -> PyResult<()> {
    with(device, cache, |cache, _| cache.load_attention(group))
}

/// Chooses windows and shifts from the first tokens. Without slots, on a GPU: call it before any token
/// is appended. With slots: chooses what is not chosen yet, from tokens whose slot is not negative.
#[pyfunction]
pub(crate) fn kv_train(device: Device, cache: Cache, of: Rows, slots: Range) -> PyResult<()> {
    if device.0 < 0 {
        let (layer, rows, slots) = host_rows(of, slots)?;
        return on_host(cache, |cache| cache.train(layer, rows, slots));
    }
    let has_slots = slots.bytes > 0;
    with(device, cache, |cache, stream| cache.train(stream, &rows(of), has_slots.then(|| on_gpu(slots))))
}

/// Returns the layer, rows and slots of tokens in host memory.
fn host_rows<'a>(of: Rows, slots: Range) -> PyResult<(u32, HostRows<'a>, &'a [i64])> {
    let (keys, values, _, token_stride, layer, _, tokens) = of;
    let slots = numbers::<i64>(slots)?.get(..tokens as usize);
    let slots = slots.ok_or_else(|| error::value("a slot for each token"))?;
    Ok((
        layer,
        HostRows { keys: bytes(keys), values: bytes(values), stride: 2 * token_stride as usize },
        slots,
    ))
}

/// Appends tokens at slots (64-bit indices). On the CPU, to one layer.
#[pyfunction]
pub(crate) fn kv_append(device: Device, cache: Cache, of: Rows, slots: Range) -> PyResult<()> {
    if device.0 < 0 {
        let (layer, rows, slots) = host_rows(of, slots)?;
        return on_host(cache, |cache| cache.append(layer, rows, slots));
    }
    with(device, cache, |cache, stream| cache.append(stream, &rows(of), on_gpu(slots)))
}

/// Computes attention of the last tokens of each sequence. `spans`: queries, output, page table,
/// lengths, scratch.
#[pyfunction]
pub(crate) fn kv_attend(
    device: Device,
    cache: Cache,
    asked: (u32, u32, u32, u32, f32),
    spans: [Range; 5],
) -> PyResult<()> {
    let (layer, sequences, tokens, group, scale) = asked;
    let [queries, out, table, lengths, scratch] = spans.map(on_gpu);
    let attend = Attend { layer, sequences, tokens, group, scale, queries, out, table, lengths, scratch };
    // SAFETY: the package passes lengths of appended tokens and their pages.
    with(device, cache, |cache, stream| unsafe { cache.attend(stream, &attend) })
}

/// Applies RoPE to one token of each sequence, appends its keys and values, and computes its
/// attention. `spans`: the token's QKV rows, RoPE table, output, page table, lengths, scratch.
#[pyfunction]
pub(crate) fn kv_append_attend(
    device: Device,
    cache: Cache,
    asked: (u32, u32, u32, f32),
    spans: [Range; 6],
) -> PyResult<()> {
    let (layer, sequences, group, scale) = asked;
    let [rows, rope, out, table, lengths, scratch] = spans.map(on_gpu);
    let (tokens, queries, fresh) = (1, out, Fresh { rows, rope });
    let attend = Attend { layer, sequences, tokens, group, scale, queries, out, table, lengths, scratch };
    // SAFETY: page and RoPE tables cover the capacity, and no kernel of this step writes lengths or
    // tokens.
    with(device, cache, |cache, stream| unsafe { cache.attend_fresh(stream, &attend, &fresh) })
}

/// Unpacks tokens of one sequence. `spans`: its pages, keys, values.
#[pyfunction]
pub(crate) fn kv_read(
    device: Device,
    cache: Cache,
    asked: (u32, u32, u32),
    spans: [Range; 3],
) -> PyResult<()> {
    let (layer, first, count) = asked;
    if device.0 < 0 {
        let (pages, to) = (numbers::<i32>(spans[0])?, [spans[1], spans[2]].map(bytes_mut));
        return on_host(cache, |cache| cache.read(layer, pages, (first, count), to));
    }
    let [pages, keys, values] = spans.map(on_gpu);
    // SAFETY: the package passes the pages that hold these tokens.
    with(device, cache, |cache, stream| unsafe {
        cache.read(stream, layer, pages, (first, count), [keys, values])
    })
}
