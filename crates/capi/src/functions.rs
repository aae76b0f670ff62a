//! The functions of `buddy.h`: check pointers, call the library, write the results.

use std::{
    ffi::{CString, c_char},
    ptr::NonNull,
    sync::Arc,
};

use buddy_cuda::{Allocation, CudaStream, DeviceSpan, Gpu, Surveyed};

use crate::{
    codec::codec,
    error::{Failure, guard, last_message, meaning},
    state,
    types::{Code, DevicePointer, Handle, Sizes, Span, Stats, Stream, target},
};

/// Allocates compressed memory, filled with zeros.
///
/// # Safety
/// `handle` is null or writable; `codec_name` is null or a string that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyMalloc(
    handle: *mut Handle,
    bytes: usize,
    target_number: i32,
    codec_name: *const c_char,
) -> Code {
    guard(|| {
        let handle = some(handle, "handle")?;
        if bytes == 0 {
            return Err(Failure::Value("an allocation has at least one byte".to_owned()));
        }
        let target = target(target_number)?;
        // SAFETY: the caller's promise.
        let codec = unsafe { codec(codec_name) }?;
        let allocation = Allocation::new(&state::gpu()?, bytes as u64, target, codec)?;
        // SAFETY: the caller's promise.
        unsafe { handle.write(state::keep(allocation)?) };
        Ok(())
    })
}

/// Changes the target of an allocation; waits for the stream.
///
/// # Safety
/// `stream` is one of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyRetarget(handle: Handle, target_number: i32, stream: Stream) -> Code {
    guard(|| {
        let target = target(target_number)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { state::gpu()?.borrow_stream(stream)? };
        state::change(handle, |allocation| Ok(allocation.retarget(&stream, target)?))
    })
}

/// Writes the `BuddyView` of an allocation for the caller's own kernels.
///
/// # Safety
/// `view` is null or has `bytes` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyView(handle: Handle, view: *mut std::ffi::c_void, bytes: usize) -> Code {
    guard(|| {
        let to = some(view.cast::<buddy_cuda::BuddyView>(), "view")?;
        let expected = size_of::<buddy_cuda::BuddyView>();
        if bytes != expected {
            let why = format!(
                "a BuddyView has {expected} bytes, not {bytes}: take buddy_device.cuh of this version"
            );
            return Err(Failure::Value(why));
        }
        // SAFETY: the caller's promise; C aligns it as its own struct, so no alignment is assumed.
        unsafe { to.write_unaligned(state::find(handle)?.buffer().view()) };
        Ok(())
    })
}

/// Frees an allocation.
#[unsafe(no_mangle)]
pub extern "C" fn buddyFree(handle: Handle) -> Code {
    guard(|| state::take(handle))
}

/// Zeroes an allocation on the device and on the host, and frees it.
#[unsafe(no_mangle)]
pub extern "C" fn buddyFreeScrubbed(handle: Handle) -> Code {
    guard(|| {
        match state::find(handle) {
            Ok(allocation) => allocation.scrub()?,
            // Its memory was freed with the context and cannot be zeroed any more.
            Err(Failure::Destroyed) => {}
            Err(failure) => return Err(failure),
        }
        state::take(handle)
    })
}

/// Compresses device memory into an allocation.
///
/// # Safety
/// `from` has `bytes` readable bytes until the stream has passed this call; `stream` belongs to the
/// current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyWrite(
    handle: Handle,
    offset: usize,
    from: DevicePointer,
    bytes: usize,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's promises.
    unsafe {
        transfer(handle, from, bytes, stream, |allocation, on, from| {
            allocation.write(on, offset as u64, from)
        })
    }
}

/// Decompresses an allocation into device memory.
///
/// # Safety
/// `to` has `bytes` writable bytes until the stream has passed this call; `stream` belongs to the
/// current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyRead(
    handle: Handle,
    offset: usize,
    to: DevicePointer,
    bytes: usize,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's promises.
    unsafe {
        transfer(handle, to, bytes, stream, |allocation, on, to| allocation.read(on, offset as u64, to))
    }
}

/// Reads and waits for the stream: data that fails to decode is an error.
///
/// # Safety
/// As for [`buddyRead`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyReadChecked(
    handle: Handle,
    offset: usize,
    to: DevicePointer,
    bytes: usize,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's promises.
    unsafe {
        transfer(handle, to, bytes, stream, |allocation, on, to| {
            allocation.read_checked(on, offset as u64, to)
        })
    }
}

/// Moves data between an allocation and the caller's device memory.
///
/// # Safety
/// The memory has `bytes` bytes until the stream has passed this call; `stream` belongs to the
/// current context.
unsafe fn transfer(
    handle: Handle,
    memory: DevicePointer,
    bytes: usize,
    stream: Stream,
    go: impl FnOnce(&Allocation, &CudaStream, DeviceSpan<'_>) -> Result<(), buddy_cuda::Error>,
) -> Code {
    guard(|| {
        let allocation = state::find(handle)?;
        // SAFETY: the caller's promises.
        let (stream, memory) = unsafe { borrow(&state::gpu()?, stream, (memory, bytes as u64))? };
        Ok(go(&allocation, &stream, memory)?)
    })
}

/// Writes the statistics of an allocation; waits for the stream.
///
/// # Safety
/// `stats` is null or writable; `stream` is one of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyStats(handle: Handle, stats: *mut Stats, stream: Stream) -> Code {
    guard(|| {
        let stats = some(stats, "stats")?;
        let allocation = state::find(handle)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { state::gpu()?.borrow_stream(stream)? };
        // SAFETY: the caller's promise.
        unsafe { stats.write(Stats::of(&allocation, allocation.stats(&stream)?)) };
        Ok(())
    })
}

/// Computes the compressed sizes of plain device memory; waits for the stream.
///
/// # Safety
/// As for [`buddyHistograms`], with one span.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyHistogram(
    data: DevicePointer,
    bytes: usize,
    codec: *const c_char,
    sizes: *mut Sizes,
    stream: Stream,
) -> Code {
    let span = Span { data, bytes, codec, classes: 0 };
    // SAFETY: the caller's promises, and one span.
    unsafe { buddyHistograms(&raw const span, 1, sizes, stream) }
}

/// Computes the compressed sizes of several spans of plain device memory; waits for the stream
/// once.
///
/// # Safety
/// `spans` has `count` spans and `sizes` room for as many; each span's memory is readable, its
/// codec null or a string that ends in NUL, its classes 0 or writable, one byte for each entry;
/// `stream` is one of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyHistograms(
    spans: *const Span,
    count: usize,
    sizes: *mut Sizes,
    stream: Stream,
) -> Code {
    guard(|| {
        if count == 0 {
            return Ok(());
        }
        if spans.is_null() || sizes.is_null() {
            return Err(Failure::Value("spans and sizes must not be null".to_owned()));
        }
        // SAFETY: the caller's promise.
        let (spans, sizes) = unsafe {
            (std::slice::from_raw_parts(spans, count), std::slice::from_raw_parts_mut(sizes, count))
        };
        let gpu = state::gpu()?;
        // SAFETY: the caller's promises.
        let surveyed = spans.iter().map(|span| unsafe { surveyed(span) }).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: the caller's promise.
        let stream = unsafe { gpu.borrow_stream(stream)? };
        for (to, found) in sizes.iter_mut().zip(gpu.survey(&stream, &surveyed)?) {
            *to = found.into();
        }
        Ok(())
    })
}

/// Trains a codec on a sample of device memory and writes its name with parameters; waits for the
/// stream.
///
/// # Safety
/// `codec_name` is null or NUL-terminated; `data` has `bytes` readable bytes; `trained` is null or
/// has room for `room` bytes; `stream` is one of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyTrain(
    codec_name: *const c_char,
    data: DevicePointer,
    bytes: usize,
    trained: *mut c_char,
    room: usize,
    stream: Stream,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let kind = unsafe { codec(codec_name) }?.kind();
        let gpu = state::gpu()?;
        // SAFETY: the caller's promises.
        let (stream, span) = unsafe { borrow(&gpu, stream, (data, bytes as u64))? };
        let word = gpu.train(&stream, kind, span)?.word();
        let word = word.map_err(|error| Failure::Codec(error.to_string()))?;
        let text = CString::new(word).expect("names hold no NUL");
        let text = text.as_bytes_with_nul();
        if trained.is_null() || room < text.len() {
            return Err(Failure::Value(format!("the name needs {} bytes; {room} were given", text.len())));
        }
        // SAFETY: the size of the text was just checked.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), trained, text.len()) };
        Ok(())
    })
}

/// Returns the static description of an error code.
#[unsafe(no_mangle)]
pub extern "C" fn buddyGetErrorString(code: Code) -> *const c_char {
    meaning(code)
}

/// Returns the message of this thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn buddyGetLastErrorMessage() -> *const c_char {
    last_message()
}

/// Converts a span to the library's type.
///
/// # Safety
/// As for [`buddyHistograms`].
unsafe fn surveyed(span: &Span) -> Result<Surveyed<'static>, Failure> {
    // SAFETY: the caller's promises.
    unsafe {
        let entries = span.bytes.div_ceil(buddy_core::ENTRY_BYTES) as u64;
        Ok(Surveyed {
            span: DeviceSpan::from_raw(span.data, span.bytes as u64),
            codec: codec(span.codec)?,
            classes: (span.classes != 0).then(|| DeviceSpan::from_raw(span.classes, entries)),
        })
    }
}

/// Wraps the caller's stream and device memory.
///
/// # Safety
/// `stream` is null or belongs to the GPU's context; the memory has `bytes` bytes until the stream
/// has passed the call that uses it.
pub(crate) unsafe fn borrow(
    gpu: &Gpu,
    stream: Stream,
    (address, bytes): (DevicePointer, u64),
) -> Result<(Arc<CudaStream>, DeviceSpan<'static>), Failure> {
    // SAFETY: the caller's promises.
    unsafe { Ok((gpu.borrow_stream(stream)?, DeviceSpan::from_raw(address, bytes))) }
}

/// Checks an output pointer.
pub fn some<T>(pointer: *mut T, what: &str) -> Result<NonNull<T>, Failure> {
    NonNull::new(pointer).ok_or_else(|| Failure::Value(format!("{what} must not be null")))
}
