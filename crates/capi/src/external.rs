//! The functions of `buddy.h` for buffers in the caller's memory. None waits or allocates; a struct
//! of the caller describes the buffer, so that there are no handles.

use std::ffi::c_char;

use buddy_codec::CodecKind;
use buddy_cuda::{BufferBytes, BufferMemory, CudaStream, DeviceSpan, ExternalBuffer, Gpu};

use crate::{
    codec::codec,
    error::{Failure, guard},
    functions::{borrow, some},
    state,
    types::{Code, DevicePointer, Stream, target},
};

/// A buffer over the caller's memory: `buddyBuffer` of `buddy.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Buffer {
    /// Compressed parts of the entries.
    pub device: DevicePointer,
    /// Metadata: four bits per entry, and the fault.
    pub metadata: DevicePointer,
    /// Overflow slots.
    pub overflow: DevicePointer,
    /// Length in bytes, whole entries.
    pub bytes: usize,
    /// The codec's name.
    pub codec: *const c_char,
    /// The target's number.
    pub target: i32,
    /// 0, or the address of bf16's window in device memory.
    pub window: DevicePointer,
}

/// Bytes of a buffer's parts: `buddyRoom` of `buddy.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Parts {
    /// Bytes of `device`.
    pub device: usize,
    /// Bytes of `metadata`.
    pub metadata: usize,
    /// Bytes of `overflow`.
    pub overflow: usize,
}

impl From<BufferBytes> for Parts {
    fn from(BufferBytes { device, metadata, overflow }: BufferBytes) -> Self {
        Self { device: device as usize, metadata: metadata as usize, overflow: overflow as usize }
    }
}

/// Wraps the parts of a buffer or a matrix at these addresses.
///
/// # Safety
/// They have these sizes until the stream has passed the call that uses them.
pub(crate) unsafe fn parts(
    [device, metadata, overflow]: [DevicePointer; 3],
    room: BufferBytes,
) -> BufferMemory<'static> {
    // SAFETY: the caller's promise.
    let span = |address, bytes| unsafe { DeviceSpan::from_raw(address, bytes) };
    BufferMemory {
        device: span(device, room.device),
        metadata: span(metadata, room.metadata),
        overflow: span(overflow, room.overflow),
    }
}

/// Writes the sizes of a buffer's parts.
///
/// # Safety
/// `room` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyBufferRoom(bytes: usize, target_number: i32, room: *mut Parts) -> Code {
    guard(|| {
        let room = some(room, "room")?;
        let parts = BufferBytes::of(target(target_number)?, bytes as u64).into();
        // SAFETY: the caller's promise.
        unsafe { room.write(parts) };
        Ok(())
    })
}

/// Fills a buffer with zeros, as every buffer must be first.
///
/// # Safety
/// `buffer` is null or a buffer whose parts are as large as [`buddyBufferRoom`] says, until the
/// stream has passed this call; its codec is null or a string that ends in NUL; `stream` is one of
/// the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyBufferClear(buffer: *const Buffer, stream: Stream) -> Code {
    // SAFETY: the caller's promises.
    guard(|| unsafe { on(buffer, |gpu, buffer| Ok(buffer.clear(&*gpu.borrow_stream(stream)?)?)) })
}

/// Compresses device memory into a buffer, from a multiple of 128 bytes on.
///
/// # Safety
/// As for [`buddyBufferClear`]; `from` has `bytes` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyBufferWrite(
    buffer: *const Buffer,
    offset: usize,
    from: DevicePointer,
    bytes: usize,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's promises.
    unsafe {
        transfer(buffer, offset, (from, bytes), stream, |buffer, on, (first, memory)| {
            buffer.write(on, first, memory)
        })
    }
}

/// Decompresses a buffer into device memory.
///
/// # Safety
/// As for [`buddyBufferClear`]; `to` has `bytes` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyBufferRead(
    buffer: *const Buffer,
    offset: usize,
    to: DevicePointer,
    bytes: usize,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's promises.
    unsafe {
        transfer(buffer, offset, (to, bytes), stream, |buffer, on, (first, memory)| {
            buffer.read(on, first, memory)
        })
    }
}

/// Reads and waits for the stream: data that fails to decode is an error.
///
/// # Safety
/// As for [`buddyBufferRead`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyBufferReadChecked(
    buffer: *const Buffer,
    offset: usize,
    to: DevicePointer,
    bytes: usize,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's promises.
    unsafe {
        transfer(buffer, offset, (to, bytes), stream, |buffer, on, (first, memory)| {
            buffer.read_checked(on, first, memory)
        })
    }
}

/// Trains bf16's window on a sample of device memory, and leaves it in device memory.
///
/// # Safety
/// `data` has `bytes` readable bytes and `window` 4 writable ones until the stream has passed this
/// call; `stream` is one of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyTrainWindow(
    data: DevicePointer,
    bytes: usize,
    window: DevicePointer,
    stream: Stream,
) -> Code {
    guard(|| {
        let gpu = state::gpu()?;
        // SAFETY: the caller's promises.
        let (stream, data, window) = unsafe {
            (
                gpu.borrow_stream(stream)?,
                DeviceSpan::from_raw(data, bytes as u64),
                DeviceSpan::from_raw(window, 4),
            )
        };
        Ok(gpu.train_window(&stream, data.check_reach()?, window.check_reach()?)?)
    })
}

/// Moves data between a buffer, from `offset` on, and the caller's device memory.
///
/// # Safety
/// As for [`buddyBufferClear`]; the memory has `bytes` bytes.
unsafe fn transfer(
    buffer: *const Buffer,
    offset: usize,
    memory: (DevicePointer, usize),
    stream: Stream,
    go: impl FnOnce(&ExternalBuffer<'_>, &CudaStream, (u64, DeviceSpan<'_>)) -> Result<(), buddy_cuda::Error>,
) -> Code {
    guard(|| {
        let first = entry(offset)?;
        let go = |gpu: &Gpu, buffer: &ExternalBuffer<'_>| {
            // SAFETY: the caller's promises.
            let (stream, memory) = unsafe { borrow(gpu, stream, (memory.0, memory.1 as u64))? };
            Ok(go(buffer, &stream, (first, memory.check_reach()?))?)
        };
        // SAFETY: the caller's promises.
        unsafe { on(buffer, go) }
    })
}

/// Calls `go` with a buffer of the caller.
///
/// # Safety
/// As for [`buddyBufferClear`].
unsafe fn on(
    buffer: *const Buffer,
    go: impl FnOnce(&Gpu, &ExternalBuffer<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let buffer = some(buffer.cast_mut(), "buffer")?;
    // SAFETY: the caller's promise.
    let (gpu, buffer) = (state::gpu()?, unsafe { buffer.read() });
    let target = target(buffer.target)?;
    let room = BufferBytes::of(target, buffer.bytes as u64);
    // SAFETY: the caller's promises.
    let (codec, given) =
        unsafe { (codec(buffer.codec)?, parts([buffer.device, buffer.metadata, buffer.overflow], room)) };
    let bytes = buffer.bytes as u64;
    if buffer.window == 0 {
        return go(&gpu, &ExternalBuffer::new(&gpu, &codec, target, bytes, given)?);
    }
    if codec.kind() != CodecKind::Bf16 {
        return Err(Failure::Value(format!("{} has no window; window must be 0", codec.kind())));
    }
    // SAFETY: the caller's promise.
    let window = unsafe { DeviceSpan::from_raw(buffer.window, 4) };
    go(&gpu, &ExternalBuffer::with_window(&gpu, window, target, bytes, given)?)
}

/// Returns the entry at an offset.
pub(crate) fn entry(offset: usize) -> Result<u64, Failure> {
    let whole = offset.is_multiple_of(128).then_some(offset as u64 / 128);
    whole.ok_or_else(|| Failure::Value(format!("offset {offset} is no multiple of 128")))
}
