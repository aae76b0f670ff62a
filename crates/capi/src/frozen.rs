//! The functions of `buddy.h` for frozen buffers and linear layers, in the caller's memory.

use std::ffi::c_char;

use buddy_codec::FrozenHeader;
use buddy_cuda::{DeviceSpan, FrozenBuffer, Gpu, Linear, Output, Weights};

use crate::{
    codec::codec,
    error::{Failure, guard},
    external::entry,
    functions::some,
    state,
    types::{Code, DevicePointer, Stream, target},
};

/// A frozen buffer in the caller's memory: `buddyFrozen` of `buddy.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FrozenMemory {
    /// The memory, aligned to 128 bytes.
    pub memory: DevicePointer,
    /// Bytes at `memory`.
    pub memory_bytes: usize,
    /// The data's length, whole entries, or whole rows of a matrix.
    pub bytes: usize,
    /// Bytes of a matrix's row, a multiple of 128; 0 for no matrix.
    pub row_bytes: usize,
    /// The codec's name.
    pub codec: *const c_char,
    /// The target's number.
    pub target: i32,
}

/// A linear layer: `buddyLayer` of `buddy.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Layer {
    /// A row of bf16 per token.
    pub x: DevicePointer,
    /// A bf16 value per output, or 0.
    pub bias: DevicePointer,
    /// A row of results per token.
    pub y: DevicePointer,
    /// Scratch memory.
    pub scratch: DevicePointer,
    /// Bytes at `scratch`.
    pub scratch_bytes: usize,
    /// Rows of x.
    pub tokens: usize,
    /// Nonzero for fp32 results, 0 for bf16.
    pub wide: i32,
    /// Nonzero for programmatic dependent launch.
    pub overlaps: i32,
}

/// Writes the bytes of a frozen buffer whose data overflows by `sectors` sectors.
///
/// # Safety
/// `room` is null or writable; `codec_name` is null or a string that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyFrozenRoom(
    bytes: usize,
    row_bytes: usize,
    target_number: i32,
    codec_name: *const c_char,
    sectors: usize,
    room: *mut usize,
) -> Code {
    guard(|| {
        let room = some(room, "room")?;
        // SAFETY: the caller's promise.
        let codec = unsafe { codec(codec_name) }?;
        let sectors = u32::try_from(sectors)
            .map_err(|_| Failure::Value("at most 2^32 - 1 sectors overflow".to_owned()))?;
        if bytes as u64 > FrozenHeader::MOST_BYTES {
            let most = FrozenHeader::MOST_BYTES;
            return Err(Failure::Value(format!("{bytes} bytes; a frozen buffer holds at most {most}")));
        }
        let bytes =
            FrozenBuffer::room(&codec, target(target_number)?, row(row_bytes)?, bytes as u64, sectors);
        // SAFETY: the caller's promise.
        unsafe { room.write(bytes as usize) };
        Ok(())
    })
}

/// Packs data into a frozen buffer.
///
/// # Safety
/// `frozen` is null or describes memory that is writable until the stream has passed this call; its
/// codec is null or a string that ends in NUL; `from` has its bytes; `stream` belongs to the
/// current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyFreeze(
    frozen: *const FrozenMemory,
    from: DevicePointer,
    stream: Stream,
) -> Code {
    guard(|| {
        let frozen = some(frozen.cast_mut(), "frozen")?;
        // SAFETY: the caller's promises.
        let (gpu, frozen) = (state::gpu()?, unsafe { frozen.read() });
        // SAFETY: the caller's promises.
        let (stream, from, memory, codec) = unsafe {
            (
                gpu.borrow_stream(stream)?,
                DeviceSpan::from_raw(from, frozen.bytes as u64),
                DeviceSpan::from_raw(frozen.memory, frozen.memory_bytes as u64),
                codec(frozen.codec)?,
            )
        };
        let how = (&codec, target(frozen.target)?, row(frozen.row_bytes)?);
        FrozenBuffer::pack(&gpu, &stream, how, from, memory)?;
        Ok(())
    })
}

/// Decompresses a frozen buffer into device memory.
///
/// # Safety
/// As for [`buddyFreeze`]; `to` has `bytes` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyFrozenRead(
    frozen: *const FrozenMemory,
    offset: usize,
    to: DevicePointer,
    bytes: usize,
    stream: Stream,
) -> Code {
    guard(|| {
        let first = entry(offset)?;
        let go = |gpu: &Gpu, frozen: &FrozenBuffer<'_>| {
            // SAFETY: the caller's promises.
            let (stream, to) =
                unsafe { (gpu.borrow_stream(stream)?, DeviceSpan::from_raw(to, bytes as u64)) };
            Ok(frozen.read(&stream, first, to)?)
        };
        // SAFETY: the caller's promises.
        unsafe { on_frozen(frozen, go) }
    })
}

/// Writes the scratch bytes of layers of up to `tokens` tokens.
///
/// # Safety
/// As for [`buddyFreeze`]; `room` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyLinearRoom(
    frozen: *const FrozenMemory,
    tokens: usize,
    room: *mut usize,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promises.
        let go = |gpu: &Gpu, frozen: &FrozenBuffer<'_>| unsafe { scratch(gpu, frozen.into(), tokens, room) };
        // SAFETY: the caller's promises.
        unsafe { on_frozen(frozen, go) }
    })
}

/// Initialises scratch memory, once.
///
/// # Safety
/// `scratch` has `bytes` writable bytes until the stream has passed this call; `stream` belongs to
/// the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyLinearPrepare(scratch: DevicePointer, bytes: usize, stream: Stream) -> Code {
    guard(|| {
        let gpu = state::gpu()?;
        // SAFETY: the caller's promises.
        let (stream, scratch) =
            unsafe { (gpu.borrow_stream(stream)?, DeviceSpan::from_raw(scratch, bytes as u64)) };
        Ok(Linear::prepare(&gpu, &stream, scratch)?)
    })
}

/// Computes y = W x, plus the bias if given.
///
/// # Safety
/// As for [`buddyFreeze`]; `layer` is null or describes memory of the sizes in `buddy.h`, valid
/// until the stream has passed this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyLinear(
    frozen: *const FrozenMemory,
    layer: *const Layer,
    stream: Stream,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promises.
        let go = |gpu: &Gpu, weights: &FrozenBuffer<'_>| unsafe { start(gpu, weights.into(), layer, stream) };
        // SAFETY: the caller's promises.
        unsafe { on_frozen(frozen, go) }
    })
}

/// Enqueues a layer of the caller.
///
/// # Safety
/// As for [`buddyLinear`].
pub(crate) unsafe fn start(
    gpu: &Gpu,
    weights: Weights<'_>,
    layer: *const Layer,
    stream: Stream,
) -> Result<(), Failure> {
    let layer = some(layer.cast_mut(), "layer")?;
    // SAFETY: the caller's promise.
    let layer = unsafe { layer.read() };
    let header = weights.header();
    let (inputs, tokens) = (u64::from(header.row) * 128, layer.tokens as u64);
    let outputs = header.bytes / inputs.max(1);
    let value = if layer.wide == 0 { 2 } else { 4 };
    // SAFETY: the caller's promises.
    let span = |address, bytes| unsafe { DeviceSpan::from_raw(address, bytes) };
    let linear = Linear {
        weights,
        x: span(layer.x, tokens * inputs),
        bias: (layer.bias != 0).then(|| span(layer.bias, 2 * outputs)),
        y: span(layer.y, tokens * outputs * value),
        output: if layer.wide == 0 { Output::Bf16 } else { Output::Fp32 },
        scratch: span(layer.scratch, layer.scratch_bytes as u64),
        overlaps: layer.overlaps != 0,
    };
    // SAFETY: the caller's promise.
    Ok(linear.start(&*unsafe { gpu.borrow_stream(stream)? })?)
}

/// Writes the scratch bytes of layers with these weights and up to `tokens` tokens.
///
/// # Safety
/// `room` is null or writable.
pub(crate) unsafe fn scratch(
    gpu: &Gpu,
    weights: Weights<'_>,
    tokens: usize,
    room: *mut usize,
) -> Result<(), Failure> {
    let room = some(room, "room")?;
    let tokens = u32::try_from(tokens).map_err(|_| Failure::Value("fewer than 2^32 tokens".to_owned()))?;
    let bytes = Linear::room(gpu, weights.header(), tokens)?;
    // SAFETY: the caller's promise.
    unsafe { room.write(bytes as usize) };
    Ok(())
}

/// Calls `go` with a frozen buffer.
///
/// # Safety
/// As for [`buddyFreeze`].
unsafe fn on_frozen(
    frozen: *const FrozenMemory,
    go: impl FnOnce(&Gpu, &FrozenBuffer<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let frozen = some(frozen.cast_mut(), "frozen")?;
    // SAFETY: the caller's promise.
    let (gpu, frozen) = (state::gpu()?, unsafe { frozen.read() });
    // SAFETY: the caller's promises.
    let (codec, memory) =
        unsafe { (codec(frozen.codec)?, DeviceSpan::from_raw(frozen.memory, frozen.memory_bytes as u64)) };
    let how = (&codec, target(frozen.target)?, row(frozen.row_bytes)?);
    go(&gpu, &FrozenBuffer::over(&gpu, how, frozen.bytes as u64, memory)?)
}

/// Returns the entries of a row.
pub(crate) fn row(bytes: usize) -> Result<u32, Failure> {
    let row = bytes.is_multiple_of(128).then_some(bytes / 128).and_then(|row| u32::try_from(row).ok());
    row.ok_or_else(|| Failure::Value(format!("a row of {bytes} bytes is not whole entries of 128")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_the_format_are_an_error() {
        let most = FrozenHeader::MOST_BYTES as usize;
        // SAFETY: `room` is writable and the codec's name ends in NUL.
        let room_of = |bytes: usize, room: &mut usize| unsafe {
            buddyFrozenRoom(bytes, 0, 1, c"bf16".as_ptr(), 0, room)
        };
        let mut room = 0;
        assert_eq!(room_of(most, &mut room), 0);
        assert!(room > most / 2, "{room}");
        for bytes in [usize::MAX, usize::MAX - 127, most + 1] {
            assert_ne!(room_of(bytes, &mut room), 0, "{bytes}");
        }
    }
}
