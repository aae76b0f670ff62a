//! The CUDA driver functions that the library calls.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr::null_mut,
};

use crate::library::{Handle, Library};

const MULTIPROCESSORS: c_int = 16;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
/// A stream without implicit synchronisation with the default stream.
const NON_BLOCKING: c_uint = 1;

type Parameter = unsafe extern "C" fn(Handle, usize, *mut usize, *mut usize) -> c_int;

/// The functions, from the driver that the program has loaded.
pub(crate) struct Driver {
    synchronize: unsafe extern "C" fn() -> c_int,
    push: unsafe extern "C" fn(Handle) -> c_int,
    pop: unsafe extern "C" fn(*mut Handle) -> c_int,
    device: unsafe extern "C" fn(*mut c_int) -> c_int,
    attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int,
    name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    load: unsafe extern "C" fn(*mut Handle, *const c_void) -> c_int,
    function: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_int,
    #[allow(clippy::type_complexity)]
    launch: unsafe extern "C" fn(
        Handle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Handle,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> c_int,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64) -> c_int,
    allocate_host: unsafe extern "C" fn(*mut Handle, usize) -> c_int,
    free_host: unsafe extern "C" fn(Handle) -> c_int,
    to_device: unsafe extern "C" fn(u64, *const c_void, usize, Handle) -> c_int,
    to_host: unsafe extern "C" fn(*mut c_void, u64, usize, Handle) -> c_int,
    fill: unsafe extern "C" fn(u64, u8, usize, Handle) -> c_int,
    stream: unsafe extern "C" fn(*mut Handle, c_uint) -> c_int,
    wait: unsafe extern "C" fn(Handle) -> c_int,
    capturing: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    /// Functions that return offset and size of a kernel's argument, for a `CUfunction` and a
    /// `CUkernel`; drivers since CUDA 12.4 have both.
    parameters: [Option<Parameter>; 2],
}

fn check(result: c_int, what: &str) -> Result<(), String> {
    if result == 0 { Ok(()) } else { Err(format!("{what}: error {result} of the driver")) }
}

impl Driver {
    pub(crate) fn open() -> Result<Self, String> {
        let library = Library::open(["libcuda.so.1", "libcuda.so"]).ok_or("there is no driver")?;
        // SAFETY: the types are those of the driver's headers.
        unsafe {
            Ok(Self {
                synchronize: library.find(c"cuCtxSynchronize")?,
                push: library.find(c"cuCtxPushCurrent_v2")?,
                pop: library.find(c"cuCtxPopCurrent_v2")?,
                device: library.find(c"cuCtxGetDevice")?,
                attribute: library.find(c"cuDeviceGetAttribute")?,
                name: library.find(c"cuDeviceGetName")?,
                version: library.find(c"cuDriverGetVersion")?,
                load: library.find(c"cuModuleLoadData")?,
                function: library.find(c"cuModuleGetFunction")?,
                launch: library.find(c"cuLaunchKernel")?,
                allocate: library.find(c"cuMemAlloc_v2")?,
                free: library.find(c"cuMemFree_v2")?,
                allocate_host: library.find(c"cuMemAllocHost_v2")?,
                free_host: library.find(c"cuMemFreeHost")?,
                to_device: library.find(c"cuMemcpyHtoDAsync_v2")?,
                to_host: library.find(c"cuMemcpyDtoHAsync_v2")?,
                fill: library.find(c"cuMemsetD8Async")?,
                stream: library.find(c"cuStreamCreate")?,
                wait: library.find(c"cuStreamSynchronize")?,
                capturing: library.find(c"cuStreamIsCapturing")?,
                parameters: [
                    library.find(c"cuFuncGetParamInfo").ok(),
                    library.find(c"cuKernelGetParamInfo").ok(),
                ],
            })
        }
    }

    /// Calls `act` with a context current on this thread.
    pub(crate) fn within<T>(
        &self,
        context: u64,
        act: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        // SAFETY: a live context of the program.
        check(unsafe { (self.push)(context as Handle) }, "cannot use the context")?;
        let done = act();
        let mut popped = null_mut();
        // SAFETY: pops the context pushed above.
        check(unsafe { (self.pop)(&mut popped) }, "cannot leave the context")?;
        done
    }

    /// Waits for all work of the current context.
    pub(crate) fn synchronize(&self) -> Result<(), String> {
        // SAFETY: takes no arguments.
        check(unsafe { (self.synchronize)() }, "the program's work failed")
    }

    fn number(&self, attribute: c_int) -> Result<u32, String> {
        let (mut device, mut value) = (0, 0);
        // SAFETY: the driver writes one number each.
        check(unsafe { (self.device)(&mut device) }, "no device")?;
        // SAFETY: likewise.
        check(unsafe { (self.attribute)(&mut value, attribute, device) }, "no attribute")?;
        Ok(value as u32)
    }

    /// Returns the current device's architecture, such as 90, and its SMs.
    pub(crate) fn describe(&self) -> Result<(u32, u32), String> {
        Ok((10 * self.number(MAJOR)? + self.number(MINOR)?, self.number(MULTIPROCESSORS)?))
    }

    /// Returns the current device's name, and the driver's version.
    pub(crate) fn card(&self) -> Result<(String, i32), String> {
        let (mut device, mut version, mut name) = (0, 0, [0 as c_char; 128]);
        // SAFETY: the driver writes one number each, and a zero-terminated text of at most this
        // length.
        unsafe {
            check((self.device)(&mut device), "no device")?;
            check((self.version)(&mut version), "no version")?;
            check((self.name)(name.as_mut_ptr(), name.len() as c_int, device), "no name")?;
            Ok((CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned(), version))
        }
    }

    /// Loads a kernel from machine code.
    pub(crate) fn kernel(&self, code: &[u8], name: &CStr) -> Result<u64, String> {
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the code is a whole cubin, which says its own length.
        check(unsafe { (self.load)(&mut module, code.as_ptr().cast()) }, "cannot load the size kernels")?;
        // SAFETY: the module was just loaded.
        check(unsafe { (self.function)(&mut function, module, name.as_ptr()) }, "no size kernel")?;
        Ok(function as u64)
    }

    /// Launches a kernel on a one-dimensional grid.
    ///
    /// # Safety
    /// The arguments are the kernel's.
    pub(crate) unsafe fn launch(
        &self,
        kernel: u64,
        (blocks, threads): (u32, u32),
        stream: u64,
        arguments: &mut [*mut c_void],
    ) -> Result<(), String> {
        let (kernel, stream, arguments) = (kernel as Handle, stream as Handle, arguments.as_mut_ptr());
        // SAFETY: the caller's promise.
        let result =
            unsafe { (self.launch)(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, null_mut()) };
        check(result, "cannot start a size kernel")
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, String> {
        let mut address = 0;
        // SAFETY: the driver writes one address.
        check(unsafe { (self.allocate)(&mut address, bytes) }, "no room for the counters")?;
        Ok(address)
    }

    pub(crate) fn free(&self, address: u64) {
        // SAFETY: allocated by `allocate`, and freed once.
        unsafe { (self.free)(address) };
    }

    /// Allocates host memory that the GPU can access.
    pub(crate) fn allocate_host(&self, bytes: usize) -> Result<usize, String> {
        let mut address = null_mut();
        // SAFETY: the driver writes one address.
        check(unsafe { (self.allocate_host)(&mut address, bytes) }, "no host memory for the counters")?;
        Ok(address as usize)
    }

    pub(crate) fn free_host(&self, address: usize) {
        // SAFETY: allocated by `allocate_host`, and freed once.
        unsafe { (self.free_host)(address as Handle) };
    }

    pub(crate) fn new_stream(&self) -> Result<u64, String> {
        let mut stream = null_mut();
        // SAFETY: the driver writes one handle.
        check(unsafe { (self.stream)(&mut stream, NON_BLOCKING) }, "no stream")?;
        Ok(stream as u64)
    }

    pub(crate) fn wait(&self, stream: u64) -> Result<(), String> {
        // SAFETY: a stream of `new_stream`.
        check(unsafe { (self.wait)(stream as Handle) }, "looking failed")
    }

    /// Copies numbers to the device in stream order.
    ///
    /// # Safety
    /// The device memory has room for them.
    pub(crate) unsafe fn send(&self, to: u64, from: &[u64], stream: u64) -> Result<(), String> {
        let bytes = size_of_val(from);
        // SAFETY: the caller's promise; memory of a Vec is staged before the call returns.
        check(unsafe { (self.to_device)(to, from.as_ptr().cast(), bytes, stream as Handle) }, "cannot copy")
    }

    /// Copies bytes from the device in stream order.
    ///
    /// # Safety
    /// Both addresses have `bytes` bytes, unchanged until the stream is synchronised.
    pub(crate) unsafe fn copy_out(
        &self,
        to: usize,
        from: u64,
        bytes: usize,
        stream: u64,
    ) -> Result<(), String> {
        // SAFETY: the caller's promise.
        check(unsafe { (self.to_host)(to as *mut c_void, from, bytes, stream as Handle) }, "cannot copy")
    }

    /// Zeroes memory in stream order.
    ///
    /// # Safety
    /// The device memory has `bytes` bytes.
    pub(crate) unsafe fn clear(&self, at: u64, bytes: usize, stream: u64) -> Result<(), String> {
        // SAFETY: the caller's promise.
        check(unsafe { (self.fill)(at, 0, bytes, stream as Handle) }, "cannot clear the counters")
    }

    /// Returns true if a stream of the program is being captured into a graph.
    pub(crate) fn is_capturing(&self, stream: Handle) -> bool {
        let mut status = 0;
        // SAFETY: a stream that the program has just used.
        unsafe { (self.capturing)(stream, &mut status) == 0 && status != 0 }
    }

    /// Returns the bytes of each argument of a kernel, given as `CUfunction` or `CUkernel`; `None`
    /// if the driver cannot tell.
    pub(crate) fn argument_bytes(&self, kernel: Handle) -> Option<Vec<usize>> {
        self.parameters.iter().flatten().find_map(|parameter| {
            let bytes = |at: usize| {
                let (mut offset, mut bytes) = (0, 0);
                // SAFETY: the driver rejects handles that are no kernel, and writes two numbers.
                (unsafe { parameter(kernel, at, &mut offset, &mut bytes) } == 0).then_some(bytes)
            };
            let all: Vec<usize> = (0..).map_while(bytes).collect();
            (!all.is_empty()).then_some(all)
        })
    }
}
