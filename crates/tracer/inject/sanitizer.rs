//! The functions of NVIDIA's Sanitizer API in use, and the data of its callbacks. Layouts and
//! numbers are those of its public headers (CUDA 12.0 to 13.0).

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute_copy,
    ptr::null_mut,
};

/// An opaque handle of Sanitizer or the driver.
pub(crate) type Handle = *mut c_void;

/// Callback data of a context event.
#[repr(C)]
pub(crate) struct ContextData {
    pub(crate) context: Handle,
}

/// Callback data of a module event.
#[repr(C)]
pub(crate) struct ModuleData {
    pub(crate) context: Handle,
    pub(crate) module: Handle,
    pub(crate) code_bytes: usize,
    pub(crate) code: *const u8,
}

/// Callback data of a kernel's launch, at its begin and after it.
#[repr(C)]
pub(crate) struct LaunchData {
    pub(crate) context: Handle,
    pub(crate) stream: Handle,
    pub(crate) stream_handle: Handle,
    pub(crate) module: Handle,
    pub(crate) function: Handle,
    pub(crate) name: *const c_char,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) grid_id: u64,
    pub(crate) launch: Handle,
}

/// Callback data of a driver call.
#[repr(C)]
pub(crate) struct DriverCall {
    /// 0 at its entry, 1 at its exit.
    pub(crate) site: u32,
    pub(crate) name: *const c_char,
    pub(crate) parameters: *const c_void,
}

/// The events that are followed.
pub(crate) enum Id {
    ContextCreated,
    ModuleLoaded,
    DriverCall,
    LaunchBegins,
    LaunchEnded,
    Other,
}

const DOMAIN_DRIVER: u32 = 1;
const DOMAIN_RESOURCE: u32 = 3;
const DOMAIN_LAUNCH: u32 = 5;

impl Id {
    pub(crate) fn of(domain: u32, id: u32) -> Self {
        match (domain, id) {
            (DOMAIN_DRIVER, _) => Self::DriverCall,
            (DOMAIN_RESOURCE, 3) => Self::ContextCreated,
            (DOMAIN_RESOURCE, 9) => Self::ModuleLoaded,
            (DOMAIN_LAUNCH, 1) => Self::LaunchBegins,
            (DOMAIN_LAUNCH, 3) => Self::LaunchEnded,
            _ => Self::Other,
        }
    }
}

/// Patches by kind of instruction. The first ones are required; the others are skipped if an older
/// Sanitizer does not know them.
const PATCHES: [(c_int, &CStr); 10] = [
    (1, c"buddy_enter"),
    (3, c"buddy_global"),
    (4, c"buddy_shared"),
    (5, c"buddy_local"),
    (6, c"buddy_barrier"),
    (8, c"buddy_shuffle"),
    (9, c"buddy_call"),
    (10, c"buddy_return"),
    (14, c"buddy_copy"),
    (19, c"buddy_matrix"),
];
const NEEDED: usize = 5;

type Callback = extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// The functions, loaded at run time.
pub(crate) struct Sanitizer {
    subscribe: unsafe extern "C" fn(*mut Handle, Callback, Handle) -> c_int,
    enable: unsafe extern "C" fn(u32, Handle, u32) -> c_int,
    add_patches: unsafe extern "C" fn(*const c_char, Handle) -> c_int,
    patch_instructions: unsafe extern "C" fn(c_int, Handle, *const c_char) -> c_int,
    patch_module: unsafe extern "C" fn(Handle) -> c_int,
    set_data: unsafe extern "C" fn(Handle, Handle, Handle, Handle) -> c_int,
    function_pc: unsafe extern "C" fn(Handle, *const c_char, *mut u64, *mut u64) -> c_int,
    alloc: unsafe extern "C" fn(Handle, *mut Handle, usize) -> c_int,
    to_device: unsafe extern "C" fn(Handle, *const c_void, usize, Handle) -> c_int,
    to_host: unsafe extern "C" fn(*mut c_void, Handle, usize, Handle) -> c_int,
    synchronize: unsafe extern "C" fn(Handle) -> c_int,
}

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> Handle;
    fn dlsym(library: Handle, name: *const c_char) -> Handle;
}

/// Converts a result code to an error with the function's name.
fn check(result: c_int, call: &str) -> Result<(), String> {
    if result == 0 { Ok(()) } else { Err(format!("{call} of the Sanitizer API failed with {result}")) }
}

impl Sanitizer {
    /// Opens the library and finds every function.
    pub(crate) fn load(file: &CStr) -> Result<Self, String> {
        const NOW_AND_GLOBAL: c_int = 0x102;
        // SAFETY: a path that ends in zero; loading NVIDIA's library runs its constructors.
        let library = unsafe { dlopen(file.as_ptr(), NOW_AND_GLOBAL) };
        if library.is_null() {
            return Err(format!("{} cannot be loaded", file.to_string_lossy()));
        }
        // SAFETY: each type below is that of the public header.
        unsafe {
            Ok(Self {
                subscribe: find(library, c"sanitizerSubscribe")?,
                enable: find(library, c"sanitizerEnableDomain")?,
                add_patches: find(library, c"sanitizerAddPatchesFromFile")?,
                patch_instructions: find(library, c"sanitizerPatchInstructions")?,
                patch_module: find(library, c"sanitizerPatchModule")?,
                set_data: find(library, c"sanitizerSetLaunchCallbackData")?,
                function_pc: find(library, c"sanitizerGetFunctionPcAndSize")?,
                alloc: find(library, c"sanitizerAlloc")?,
                to_device: find(library, c"sanitizerMemcpyHostToDeviceAsync")?,
                to_host: find(library, c"sanitizerMemcpyDeviceToHost")?,
                synchronize: find(library, c"sanitizerStreamSynchronize")?,
            })
        }
    }

    /// Subscribes `callback` to the events of [`Id`].
    pub(crate) fn subscribe(&self, callback: Callback) -> Result<(), String> {
        let mut subscriber = null_mut();
        // SAFETY: the callback lives as long as the process.
        check(unsafe { (self.subscribe)(&mut subscriber, callback, null_mut()) }, "sanitizerSubscribe")?;
        for domain in [DOMAIN_RESOURCE, DOMAIN_LAUNCH, DOMAIN_DRIVER] {
            // SAFETY: the subscriber was just made.
            check(unsafe { (self.enable)(1, subscriber, domain) }, "sanitizerEnableDomain")?;
        }
        Ok(())
    }

    /// Loads the patches into a context.
    pub(crate) fn add_patches(&self, file: &CStr, context: Handle) -> Result<(), String> {
        // SAFETY: called in the callback that gave the context.
        check(unsafe { (self.add_patches)(file.as_ptr(), context) }, "sanitizerAddPatchesFromFile")
    }

    /// Patches all traced instructions of a module.
    pub(crate) fn patch(&self, module: Handle) -> Result<(), String> {
        for (index, (kind, name)) in PATCHES.iter().enumerate() {
            // SAFETY: called in the callback that gave the module.
            let result = unsafe { (self.patch_instructions)(*kind, module, name.as_ptr()) };
            if index < NEEDED {
                check(result, "sanitizerPatchInstructions")?;
            }
        }
        // SAFETY: as above.
        check(unsafe { (self.patch_module)(module) }, "sanitizerPatchModule")
    }

    /// Allocates device memory that is invisible to the traced program.
    pub(crate) fn alloc(&self, context: Handle, bytes: usize) -> Result<Handle, String> {
        let mut memory = null_mut();
        // SAFETY: `memory` is written on success only.
        check(unsafe { (self.alloc)(context, &mut memory, bytes) }, "sanitizerAlloc")?;
        Ok(memory)
    }

    /// Sets the pointer that a launch passes to its patches.
    pub(crate) fn set_data(&self, launch: &LaunchData, data: Handle) -> Result<(), String> {
        // SAFETY: called in the callback of that launch.
        let result = unsafe { (self.set_data)(launch.launch, launch.function, launch.stream_handle, data) };
        check(result, "sanitizerSetLaunchCallbackData")
    }

    /// Returns the address and size of a function's machine code.
    pub(crate) fn function_pc(&self, launch: &LaunchData) -> Result<(u64, u64), String> {
        let (mut pc, mut bytes) = (0, 0);
        // SAFETY: the name is the one of the callback.
        let result = unsafe { (self.function_pc)(launch.module, launch.name, &mut pc, &mut bytes) };
        check(result, "sanitizerGetFunctionPcAndSize")?;
        Ok((pc, bytes))
    }

    /// Copies to the device, in the launch's stream.
    pub(crate) fn to_device<T>(&self, to: Handle, from: &T, launch: &LaunchData) -> Result<(), String> {
        let from = std::ptr::from_ref(from).cast();
        // SAFETY: `to` has room for a `T`.
        let result = unsafe { (self.to_device)(to, from, size_of::<T>(), launch.stream_handle) };
        check(result, "sanitizerMemcpyHostToDeviceAsync")
    }

    /// Copies plain data from the device, after the launch's stream.
    pub(crate) fn to_host<T: Copy>(&self, to: &mut [T], from: Handle, launch: &LaunchData) -> Result<(), String> {
        // SAFETY: the stream is the callback's.
        check(unsafe { (self.synchronize)(launch.stream_handle) }, "sanitizerStreamSynchronize")?;
        let bytes = size_of_val(to);
        // SAFETY: `from` holds as many bytes, and `T` is plain data.
        let result = unsafe { (self.to_host)(to.as_mut_ptr().cast(), from, bytes, launch.stream_handle) };
        check(result, "sanitizerMemcpyDeviceToHost")
    }
}

/// Finds a function of the library.
///
/// # Safety
/// `F` must be the function's type.
unsafe fn find<F>(library: Handle, name: &CStr) -> Result<F, String> {
    // SAFETY: an open library and a name that ends in zero.
    let found = unsafe { dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return Err(format!("this Sanitizer library has no {}; CUDA 12.0 or later has", name.to_string_lossy()));
    }
    // SAFETY: a function pointer of the caller's type.
    Ok(unsafe { transmute_copy(&found) })
}
