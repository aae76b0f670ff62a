//! The functions on a real GPU, in a program's own contexts. Without a GPU this test reports that
//! it was skipped; with `BUDDY_REQUIRE_GPU=1` it fails instead.

use std::{ffi::CStr, io::Write, ptr::null_mut};

use buddy::*;
use cudarc::driver::{result, sys};

const BYTES: usize = (64 << 20) + 24;

fn message() -> String {
    // SAFETY: the library's strings end in NUL.
    unsafe { CStr::from_ptr(buddyGetLastErrorMessage()) }.to_str().unwrap().to_owned()
}

/// Returns true if a GPU is available.
fn gpu() -> bool {
    // SAFETY: loading and initialising libcuda has no conditions.
    let found = unsafe { sys::is_culib_present() } && result::init().is_ok();
    let required = std::env::var_os("BUDDY_REQUIRE_GPU").is_some_and(|value| value == "1");
    assert!(found || !required, "BUDDY_REQUIRE_GPU is set, and there is no driver");
    if !found {
        let _ = writeln!(std::io::stderr(), "SKIPPED, on a GPU: no driver");
    }
    found
}

/// A context of GPU 0 that is not the primary one; it becomes current.
unsafe fn context() -> sys::CUcontext {
    let mut context = null_mut();
    // SAFETY: the driver writes one address; no parameters are given.
    unsafe { sys::cuCtxCreate_v4(&mut context, null_mut(), 0, 0) }.result().unwrap();
    context
}

unsafe fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the driver writes two numbers.
    unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }.result().unwrap();
    free
}

/// Ranges, alignment, host memory, and more than there is.
///
/// # Safety
/// `memory` and `plain` have `BYTES` bytes, in the current context, whose stream it is.
unsafe fn refusals(memory: Handle, plain: u64, stream: Stream) {
    let here = [0u128; 8];
    // SAFETY: the caller's promise.
    unsafe {
        assert_eq!(buddyRead(memory, 64, plain, 128, stream), 1);
        assert_eq!(buddyRead(memory, 0, plain, BYTES + 1, stream), 1);
        assert_eq!(buddyWrite(memory, 0, plain + 8, 128, stream), 1);
        assert_eq!(buddyWrite(memory, 0, here.as_ptr() as u64, 128, stream), 1);
        assert!(message().contains("memory of the GPU"), "{}", message());
        assert_eq!(buddyMalloc(&mut 0, 1 << 50, 2, c"bpc".as_ptr()), 1);
        assert_eq!(buddyMalloc(&mut 0, 400 << 30, 0, c"bpc".as_ptr()), 6, "{}", message());
        assert_eq!(buddyMalloc(&mut 0, 128, 0, c"fpc".as_ptr()), 8);
    }
}

/// A codec learns from plain memory, and every entry of it has a class.
///
/// # Safety
/// As for [`refusals`].
unsafe fn histogram(plain: u64, entries: u64, stream: Stream) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut name = [0; 16];
        assert_eq!(buddyTrain(c"bf16".as_ptr(), plain, BYTES, name.as_mut_ptr(), 3, stream), 1);
        assert_eq!(buddyTrain(c"bf16".as_ptr(), plain, BYTES, name.as_mut_ptr(), 16, stream), 0);
        let mut sizes = Sizes::default();
        assert_eq!(buddyHistogram(plain, BYTES, name.as_ptr(), &mut sizes, stream), 0, "{}", message());
        assert_eq!(sizes.classes.iter().sum::<u64>(), entries);
    }
}

#[test]
fn contexts_streams_and_handles() {
    if !gpu() {
        return;
    }
    // SAFETY: contexts, streams and memory are made here, used while they live, and ended here.
    unsafe {
        let mut memory = 0;
        assert_eq!(buddyMalloc(&mut memory, BYTES, 2, c"bpc".as_ptr()), 4, "{}", message());
        assert!(message().starts_with("no CUDA context is current on this thread"));

        let first = context();
        let mut stream = null_mut();
        sys::cuStreamCreate(&mut stream, 1).result().unwrap();
        let data: Vec<u8> =
            (0..BYTES / 4 + 1).flat_map(|i| (7 * i as u32).to_le_bytes()).take(BYTES).collect();
        let plain = result::malloc_sync(BYTES).unwrap();
        result::memcpy_htod_sync(plain, &data).unwrap();

        // The kernels are loaded now, so that memory can be compared.
        assert_eq!(buddyMalloc(&mut memory, 128, 2, c"bpc".as_ptr()), 0, "{}", message());
        assert_eq!(buddyFree(memory), 0);
        let before = free_bytes();
        assert_eq!(buddyMalloc(&mut memory, BYTES, 2, c"bpc".as_ptr()), 0, "{}", message());
        assert!(before - free_bytes() >= BYTES / 2, "device memory was taken");
        assert_eq!(buddyWrite(memory, 0, plain, BYTES, stream.cast()), 0, "{}", message());
        result::memset_d8_async(plain, 0xee, BYTES, stream).unwrap();
        assert_eq!(buddyRead(memory, 128, plain, BYTES - 128, stream.cast()), 0, "{}", message());
        sys::cuStreamSynchronize(stream).result().unwrap();
        let mut back = vec![0u8; BYTES];
        result::memcpy_dtoh_sync(&mut back, plain).unwrap();
        assert!(back[..BYTES - 128] == data[128..], "what was written is read");
        assert!(back[BYTES - 128..].iter().all(|&byte| byte == 0xee), "and nothing after it");
        let mut stats = Stats::default();
        assert_eq!(buddyStats(memory, &mut stats, stream.cast()), 0);
        assert_eq!((stats.bytes, stats.entries), (BYTES as u64, BYTES.div_ceil(128) as u64));
        assert_eq!((stats.classes.iter().sum::<u64>(), stats.faulty_entry), (stats.entries, u64::MAX));

        refusals(memory, plain, stream.cast());
        histogram(plain, stats.entries, stream.cast());

        // Another context does not know the allocation; the first one still does, and gets its
        // memory back.
        let second = context();
        assert_eq!(buddyFree(memory), 5);
        let mut other = 0;
        assert_eq!(buddyMalloc(&mut other, 4096, 3, c"zeros32".as_ptr()), 0, "{}", message());
        assert_eq!(buddyFree(other), 0);
        sys::cuCtxSetCurrent(first).result().unwrap();
        let held = free_bytes();
        assert_eq!(buddyFree(memory), 0);
        assert!(free_bytes() - held >= BYTES / 2, "device memory came back");
        assert_eq!(buddyFree(memory), 2);
        assert_eq!(buddyStats(memory, &mut stats, stream.cast()), 2);
        let mut current = null_mut();
        sys::cuCtxGetCurrent(&mut current).result().unwrap();
        assert_eq!(current, first, "the context stays current");
        sys::cuCtxDestroy_v2(second).result().unwrap();
        sys::cuCtxDestroy_v2(first).result().unwrap();
    }
}

/// Memory that ends before a call says is refused, whole or in pieces; nothing is written past it.
#[test]
fn a_short_destination_is_refused() {
    if !gpu() {
        return;
    }
    // SAFETY: the context and the memory are made here, used while they live, and ended here.
    unsafe {
        let context = context();
        let (mut memory, plain) = (0, result::malloc_sync(1 << 20).unwrap());
        assert_eq!(buddyMalloc(&mut memory, 2 << 20, 2, c"bpc".as_ptr()), 0, "{}", message());
        assert_eq!(buddyRead(memory, 0, plain, 1 << 20, null_mut()), 0, "{}", message());
        assert_eq!(buddyRead(memory, 0, plain, (1 << 20) + 128, null_mut()), 1);
        assert!(message().contains("ends before"), "{}", message());
        assert_eq!(buddyWrite(memory, 0, plain + 128, 1 << 20, null_mut()), 1);
        let mut sizes = Sizes::default();
        assert_eq!(buddyHistogram(plain, 2 << 20, c"bpc".as_ptr(), &mut sizes, null_mut()), 1);
        assert_eq!(buddyReadChecked(memory, 0, plain, 1 << 20, null_mut()), 0, "{}", message());
        assert_eq!(buddyFreeScrubbed(memory), 0, "{}", message());
        assert_eq!(buddyFreeScrubbed(memory), 2);
        result::free_sync(plain).unwrap();
        sys::cuCtxDestroy_v2(context).result().unwrap();
    }
}

/// Damaged metadata gives zeros and a code, of a checked read alone.
#[test]
fn damage_is_an_error_of_a_checked_read() {
    if !gpu() {
        return;
    }
    const LENGTH: usize = 1 << 20;
    // SAFETY: the context and the memory are made here, used while they live, and ended here.
    unsafe {
        let context = context();
        let mut room = Parts { device: 0, metadata: 0, overflow: 0 };
        assert_eq!(buddyBufferRoom(LENGTH, 2, &mut room), 0);
        let [device, metadata, overflow, plain] = [room.device, room.metadata, room.overflow, LENGTH]
            .map(|bytes| result::malloc_sync(bytes).unwrap());
        let buffer = Buffer {
            device,
            metadata,
            overflow,
            bytes: LENGTH,
            codec: c"bpc".as_ptr(),
            target: 2,
            window: 0,
        };
        assert_eq!(buddyBufferClear(&buffer, null_mut()), 0, "{}", message());
        assert_eq!(buddyBufferReadChecked(&buffer, 0, plain, LENGTH, null_mut()), 0, "{}", message());
        // The nibbles of entries 200 and 201 name no class.
        result::memset_d8_sync(metadata + 100, 0xff, 1).unwrap();
        assert_eq!(buddyBufferRead(&buffer, 0, plain, LENGTH, null_mut()), 0);
        assert_eq!(buddyBufferReadChecked(&buffer, 0, plain, LENGTH, null_mut()), 13);
        assert!(message().starts_with("entry 200 did not decode: its nibble"), "{}", message());
        assert_eq!(buddyBufferReadChecked(&buffer, 0, plain, 128 * 200, null_mut()), 0, "{}", message());
        [device, metadata, overflow, plain].iter().for_each(|&address| result::free_sync(address).unwrap());
        sys::cuCtxDestroy_v2(context).result().unwrap();
    }
}

/// Threads that ask one allocation at once get its numbers, each for itself.
#[test]
fn statistics_of_many_threads_do_not_mix() {
    if !gpu() {
        return;
    }
    // SAFETY: the context is made here, lives until the threads have ended, and ends here.
    unsafe {
        let context = context();
        let mut memory = 0;
        assert_eq!(buddyMalloc(&mut memory, 128 * 100_000, 3, c"bpc".as_ptr()), 0, "{}", message());
        let whole = context as usize;
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(move || {
                    let mut stream = null_mut();
                    sys::cuCtxSetCurrent(whole as sys::CUcontext).result().unwrap();
                    sys::cuStreamCreate(&mut stream, 1).result().unwrap();
                    for _ in 0..200 {
                        let mut stats = Stats::default();
                        assert_eq!(buddyStats(memory, &mut stats, stream.cast()), 0, "{}", message());
                        assert_eq!(stats.classes, [100_000, 0, 0, 0, 0, 0]);
                    }
                    sys::cuStreamDestroy_v2(stream).result().unwrap();
                });
            }
        });
        assert_eq!(buddyFree(memory), 0);
        sys::cuCtxDestroy_v2(context).result().unwrap();
    }
}

/// The handles of a context that is gone say so, and can be freed.
#[test]
fn a_destroyed_context_leaves_no_handle() {
    if !gpu() {
        return;
    }
    // SAFETY: the contexts are made here; the first is not used by us after its end.
    unsafe {
        let first = context();
        let mut memory = 0;
        assert_eq!(buddyMalloc(&mut memory, 1 << 20, 2, c"bpc".as_ptr()), 0, "{}", message());
        sys::cuCtxDestroy_v2(first).result().unwrap();
        let second = context();
        let mut stats = Stats::default();
        assert_eq!(buddyStats(memory, &mut stats, null_mut()), 11, "{}", message());
        assert_eq!(buddyFree(memory), 0, "{}", message());
        assert_eq!(buddyFree(memory), 2);
        let mut other = 0;
        assert_eq!(buddyMalloc(&mut other, 1 << 20, 2, c"bpc".as_ptr()), 0, "{}", message());
        assert_eq!(buddyFree(other), 0);
        sys::cuCtxDestroy_v2(second).result().unwrap();
    }
}
