//! Everything unsafe: calls of the driver and of the compiler, each behind a function that keeps its conditions.

use std::{
    ffi::{CString, c_char},
    ptr,
    sync::Arc,
};

use cudarc::{
    driver::{
        CudaContext, CudaFunction, CudaStream, DeviceRepr, DriverError, LaunchConfig, PushKernelArg, result,
        sys,
    },
    nvrtc::{result as nvrtc, sys as nvrtc_sys},
};

use crate::{bytes::DeviceSpan, layout::Memory, source::Params};

// SAFETY: plain numbers in C layout, the same struct as in `map.cuh`; a test compares the sizes.
unsafe impl DeviceRepr for Memory {}
// SAFETY: likewise, the struct of `bits.cuh`.
unsafe impl DeviceRepr for Params {}

/// Whether the driver's library can be loaded.
pub(crate) fn has_driver() -> bool {
    // SAFETY: loading libcuda runs only its own initialisers.
    unsafe { sys::is_culib_present() }
}

/// Whether the compiler's library can be loaded.
pub(crate) fn has_compiler() -> bool {
    // SAFETY: loading libnvrtc runs only its own initialisers.
    unsafe { nvrtc_sys::is_culib_present() }
}

/// The driver's version, such as 13000.
pub(crate) fn version() -> Result<i32, DriverError> {
    let mut version = 0;
    // SAFETY: the driver writes one number to where it is told.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    Ok(version)
}

/// Compiles a program to machine code, or says what the compiler said.
pub(crate) fn compile(
    name: &str,
    text: &str,
    headers: &[(&str, &str)],
    options: &[String],
) -> Result<Vec<u8>, String> {
    let c = |text: &str| CString::new(text).expect("sources hold no NUL");
    let (text, name) = (c(text), c(name));
    let names: Vec<CString> = headers.iter().map(|(name, _)| c(name)).collect();
    let texts: Vec<CString> = headers.iter().map(|(_, text)| c(text)).collect();
    let pointers = |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).collect::<Vec<*const c_char>>();
    let (names, texts) = (pointers(&names), pointers(&texts));
    let mut program = ptr::null_mut();
    // SAFETY: all strings end in NUL and outlive the program, which is destroyed below.
    let created = unsafe {
        nvrtc_sys::nvrtcCreateProgram(
            &mut program,
            text.as_ptr(),
            name.as_ptr(),
            headers.len() as i32,
            texts.as_ptr(),
            names.as_ptr(),
        )
    };
    created.result().map_err(|error| error.to_string())?;
    // SAFETY: the program was just created and is alive.
    let compiled = unsafe { nvrtc::compile_program(program, options) };
    let image = match compiled {
        Ok(()) => cubin(program),
        Err(error) => Err(format!("{error}\n{}", log(program))),
    };
    // SAFETY: the program is alive, and no one uses it after this.
    let _ = unsafe { nvrtc::destroy_program(program) };
    image
}

fn cubin(program: nvrtc_sys::nvrtcProgram) -> Result<Vec<u8>, String> {
    let mut size = 0;
    // SAFETY: the caller's program is alive and compiled.
    unsafe { nvrtc_sys::nvrtcGetCUBINSize(program, &mut size) }
        .result()
        .map_err(|error| error.to_string())?;
    let mut image = vec![0; size];
    // SAFETY: as above, and the image has the bytes that were asked for.
    unsafe { nvrtc_sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()) }
        .result()
        .map_err(|error| error.to_string())?;
    Ok(image)
}

fn log(program: nvrtc_sys::nvrtcProgram) -> String {
    // SAFETY: the caller's program is alive.
    let log = unsafe { nvrtc::get_program_log(program) }.unwrap_or_default();
    log.iter().map(|&byte| char::from(byte as u8)).take_while(|&c| c != '\0').collect()
}

/// A run of memory that the GPU reaches, freed with it.
#[derive(Debug)]
pub(crate) struct Region {
    context: Arc<CudaContext>,
    address: u64,
    bytes: u64,
    /// Where the host sees it, if it is pinned host memory.
    host: Option<*mut u8>,
}

// SAFETY: the region is plain memory that no thread owns; the driver's calls take any thread that has bound the
// context, which every function here does.
unsafe impl Send for Region {}
// SAFETY: likewise; the host's view is touched only when the context is idle, or by single volatile reads.
unsafe impl Sync for Region {}

impl Region {
    /// Device memory.
    pub(crate) fn device(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        // SAFETY: the memory is only ever given to kernels and copies, never read as a type.
        let address = unsafe { result::malloc_sync(bytes.max(1) as usize) }?;
        Ok(Self { context: context.clone(), address, bytes, host: None })
    }

    /// Pinned host memory that the GPU reaches at an address of its own.
    pub(crate) fn pinned(context: &Arc<CudaContext>, bytes: u64) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: as for device memory; the bytes are initialised below.
        let host = unsafe { result::malloc_host(bytes.max(1) as usize, flags) }?;
        let mut address = 0;
        // SAFETY: `host` is mapped, as asked; the driver writes one address.
        let mapped = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, host, 0) }.result();
        let region = Self { context: context.clone(), address, bytes, host: Some(host.cast()) };
        mapped?;
        // SAFETY: the allocation has these bytes, and no one else knows of it yet.
        unsafe { ptr::write_bytes(host.cast::<u8>(), 0, bytes as usize) };
        Ok(region)
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies bytes in, and waits: the driver's call alone returns while the last of them are still on their way,
    /// and streams would not wait for them.
    pub(crate) fn upload(&self, offset: u64, bytes: &[u8]) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes.len() as u64);
        self.context.synchronize()?;
        match self.host {
            Some(host) => {
                // SAFETY: the range lies in the region, and the GPU is done with it.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), host.add(offset as usize), bytes.len()) };
                Ok(())
            }
            None => {
                // SAFETY: the range lies in the region.
                unsafe { result::memcpy_htod_sync(self.address + offset, bytes) }?;
                self.context.synchronize()
            }
        }
    }

    /// Copies bytes out, and waits.
    pub(crate) fn download(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes.len() as u64);
        self.context.synchronize()?;
        match self.host {
            Some(host) => {
                // SAFETY: the range lies in the region, and the GPU is done with it.
                unsafe {
                    ptr::copy_nonoverlapping(host.add(offset as usize), bytes.as_mut_ptr(), bytes.len())
                };
                Ok(())
            }
            // SAFETY: the range lies in the region.
            None => unsafe { result::memcpy_dtoh_sync(bytes, self.address + offset) },
        }
    }

    /// Sets bytes, and waits, which the driver's call alone does not.
    pub(crate) fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes);
        self.context.synchronize()?;
        match self.host {
            Some(host) => {
                // SAFETY: the range lies in the region, and the GPU is done with it.
                unsafe { ptr::write_bytes(host.add(offset as usize), value, bytes as usize) };
                Ok(())
            }
            None => {
                // SAFETY: the range lies in the region.
                unsafe { result::memset_d8_sync(self.address + offset, value, bytes as usize) }?;
                self.context.synchronize()
            }
        }
    }

    /// Sets bytes when the stream gets there.
    pub(crate) fn fill_on(
        &self,
        stream: &CudaStream,
        offset: u64,
        bytes: u64,
        value: u8,
    ) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes);
        self.context.bind_to_thread()?;
        // SAFETY: the range lies in the region, which frees itself only after all work on it.
        unsafe { result::memset_d8_async(self.address + offset, value, bytes as usize, stream.cu_stream()) }
    }

    /// Copies to pinned memory when the stream gets there.
    pub(crate) fn copy_on(
        &self,
        stream: &CudaStream,
        offset: u64,
        to: &Self,
        bytes: u64,
    ) -> Result<(), DriverError> {
        self.assert_holds(offset, bytes);
        to.assert_holds(0, bytes);
        let host = to.host.expect("the copy goes to pinned memory");
        self.context.bind_to_thread()?;
        // SAFETY: both ranges lie in their regions, which free themselves only after all work on them.
        unsafe {
            sys::cuMemcpyDtoHAsync_v2(host.cast(), self.address + offset, bytes as usize, stream.cu_stream())
        }
        .result()
    }

    /// A number that the GPU may be writing: it is the one before or the one after.
    pub(crate) fn peek(&self, index: usize) -> u64 {
        self.assert_holds(8 * index as u64, 8);
        let host = self.host.expect("only pinned memory has a host's view").cast::<u64>();
        // SAFETY: the number lies in the region; aligned 8-byte accesses are whole on every host that CUDA has.
        unsafe { ptr::read_volatile(host.add(index)) }
    }

    fn assert_holds(&self, offset: u64, bytes: u64) {
        assert!(
            offset <= self.bytes && bytes <= self.bytes - offset,
            "{bytes} bytes at {offset} of {}",
            self.bytes
        );
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        let freed = match self.host {
            // SAFETY: allocated by `pinned`, freed once; the call waits for the GPU's work on it.
            Some(host) => unsafe { result::free_host(host.cast()) },
            // SAFETY: allocated by `device`, freed once; the call waits likewise.
            None => unsafe { result::free_sync(self.address) },
        };
        self.context.record_err(freed);
    }
}

/// Copies from one span to another when the stream gets there, as far as the shorter one reaches.
pub(crate) fn copy(stream: &CudaStream, from: DeviceSpan<'_>, to: DeviceSpan<'_>) -> Result<(), DriverError> {
    stream.context().bind_to_thread()?;
    let bytes = from.bytes().min(to.bytes()) as usize;
    // SAFETY: both spans are memory of this GPU for as long as the work on them lasts.
    unsafe { result::memcpy_dtod_async(to.address(), from.address(), bytes, stream.cu_stream()) }
}

/// Arguments of a launch, in order.
pub(crate) trait Arguments {
    /// Shows each argument's address to `push`.
    fn push<'a>(&'a self, launch: &mut cudarc::driver::LaunchArgs<'a>);
}

macro_rules! arguments {
    ($($name:ident),+) => {
        impl<$($name: DeviceRepr),+> Arguments for ($($name,)+) {
            #[allow(non_snake_case)]
            fn push<'a>(&'a self, launch: &mut cudarc::driver::LaunchArgs<'a>) {
                let ($($name,)+) = self;
                $(launch.arg($name);)+
            }
        }
    };
}

impl Arguments for () {
    fn push<'a>(&'a self, _: &mut cudarc::driver::LaunchArgs<'a>) {}
}
arguments!(A);
arguments!(A, B);
arguments!(A, B, C);
arguments!(A, B, C, D);
arguments!(A, B, C, D, E);

/// Starts a kernel when the stream gets there.
///
/// # Safety
/// The arguments are the kernel's, in number, order and type. Every address among them is valid for what the
/// kernel does there until the stream has passed it.
pub(crate) unsafe fn launch(
    stream: &CudaStream,
    kernel: &CudaFunction,
    blocks: u64,
    threads: u32,
    arguments: &impl Arguments,
) -> Result<(), DriverError> {
    let blocks = u32::try_from(blocks).expect("fewer than 2^32 blocks");
    let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
    let mut launch = stream.launch_builder(kernel);
    arguments.push(&mut launch);
    // SAFETY: the caller's promise.
    unsafe { launch.launch(config) }.map(|_| ())
}
