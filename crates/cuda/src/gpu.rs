//! A GPU: its context, its kernels, and whether it still works.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use buddy_codec::CodecKind;
use cudarc::{
    driver::{
        CudaContext, CudaFunction, CudaModule, CudaStream, DriverError, sys::CUdevice_attribute as Attribute,
        sys::CUresult,
    },
    nvrtc::Ptx,
};

use crate::{
    Activation, Error, cache,
    csr::CsrKernels,
    driver::{self, Region},
    error::{is_sticky, reason},
    frozen::{FrozenKernels, FrozenPrograms},
    host,
    kernels::CodecKernels,
    kv::KvKernels,
    linear::LinearKernels,
    matrix::ExternalKernels,
    source::{AttentionBlock, Source},
    survey::Scratch,
    tight::TightKernels,
};

/// A GPU. Clones share it.
#[derive(Clone)]
pub struct Gpu(Arc<Inner>);

struct Inner {
    context: Arc<CudaContext>,
    /// The architecture as a number: 90 for `sm_90`.
    capability: u32,
    multiprocessors: u32,
    shared: SharedMemory,
    driver: i32,
    /// The reason why the context was lost, if it was.
    lost: OnceLock<String>,
    codecs: Mutex<HashMap<CodecKind, Arc<CodecKernels>>>,
    surveys: Mutex<HashMap<Vec<CodecKind>, CudaFunction>>,
    frozen: Mutex<FrozenPrograms>,
    linear: Mutex<LinearKernels>,
    scratch: Mutex<Option<Scratch>>,
    kv: Mutex<Option<Arc<KvKernels>>>,
    external: Mutex<Option<Arc<ExternalKernels>>>,
    tight: Mutex<Option<Arc<TightKernels>>>,
    csr: Mutex<Option<Arc<CsrKernels>>>,
}

/// Bytes of shared memory, as the driver reports them.
#[derive(Debug, Clone, Copy)]
struct SharedMemory {
    /// The most of a CTA.
    block: u32,
    /// All of an SM.
    multiprocessor: u32,
    /// Taken by the driver for each CTA besides.
    reserved: u32,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu {} (sm_{})", self.0.context.ordinal(), self.0.capability)
    }
}

impl Gpu {
    /// Opens a GPU by its number.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::NoGpu`], or a driver error.
    pub fn open(ordinal: usize) -> Result<Self, Error> {
        driver::usable()?;
        let driver_error = |what| move |error: DriverError| Error::Driver { what, reason: reason(error) };
        let count = match CudaContext::device_count() {
            Ok(count) => count as usize,
            Err(error) if error.0 == CUresult::CUDA_ERROR_NO_DEVICE => 0,
            Err(error) => return Err(driver_error("start")(error)),
        };
        if ordinal >= count {
            return Err(Error::NoGpu { ordinal, count });
        }
        Self::of(CudaContext::new(ordinal).map_err(driver_error("open the GPU"))?)
    }

    /// Opens the GPU of the calling thread's current context. The caller keeps the context, and
    /// must not destroy it while anything made here lives.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::NoContext`], or a driver error.
    pub fn current() -> Result<Self, Error> {
        let found = Self::current_context()?;
        let context = driver::borrow_context(found.context);
        Self::of(
            context
                .map_err(|error| Error::Driver { what: "use the current context", reason: reason(error) })?,
        )
    }

    /// Returns the id of the calling thread's current context; ids are never reused in a process.
    ///
    /// # Errors
    /// As for [`current`](Self::current).
    pub fn current_id() -> Result<u64, Error> {
        Ok(Self::current_context()?.id)
    }

    fn current_context() -> Result<driver::Current, Error> {
        driver::usable()?;
        driver::current().ok_or(Error::NoContext)
    }

    /// Returns true if the context with this id, current when this was made, still exists.
    pub fn has_context(&self, id: u64) -> bool {
        driver::lives(self.0.context.cu_ctx(), id)
    }

    fn of(context: Arc<CudaContext>) -> Result<Self, Error> {
        let driver_error = |what| move |error: DriverError| Error::Driver { what, reason: reason(error) };
        let (major, minor) = context.compute_capability().map_err(driver_error("describe the GPU"))?;
        let attribute = |which| {
            context.attribute(which).map(|value| value as u32).map_err(driver_error("describe the GPU"))
        };
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared = SharedMemory {
            block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            multiprocessor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            reserved: attribute(Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)?,
        };
        Ok(Self(Arc::new(Inner {
            capability: (10 * major + minor) as u32,
            multiprocessors,
            shared,
            driver: driver::version().map_err(driver_error("tell its version"))?,
            context,
            lost: OnceLock::new(),
            codecs: Mutex::default(),
            surveys: Mutex::default(),
            frozen: Mutex::default(),
            linear: Mutex::default(),
            scratch: Mutex::default(),
            kv: Mutex::default(),
            external: Mutex::default(),
            tight: Mutex::default(),
            csr: Mutex::default(),
        })))
    }

    /// Creates a stream.
    ///
    /// # Errors
    /// A driver error.
    pub fn stream(&self) -> Result<Arc<CudaStream>, Error> {
        self.check("make a stream", self.context()?.new_stream())
    }

    /// Wraps a stream that something else made.
    ///
    /// # Safety
    /// `stream` is null or a stream of this GPU's context, and outlives the returned value.
    pub unsafe fn borrow_stream(&self, stream: *mut std::ffi::c_void) -> Result<Arc<CudaStream>, Error> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.context()?.wrap_borrowed_stream(stream.cast()) })
    }

    /// Waits for a stream.
    ///
    /// # Errors
    /// [`Error::Lost`] if the work on it failed.
    pub fn wait(&self, stream: &CudaStream) -> Result<(), Error> {
        self.alive()?;
        self.check("wait for the stream", stream.synchronize())
    }

    /// Returns a codec's kernels, compiled or cached.
    ///
    /// # Errors
    /// [`Error::NoKernels`], [`Error::NoCompiler`], or an error of the compiler or the driver.
    pub(crate) fn codec(&self, kind: CodecKind) -> Result<Arc<CodecKernels>, Error> {
        let mut codecs = self.0.codecs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = codecs.get(&kind) {
            return Ok(kernels.clone());
        }
        let module = self.module(&Source::codec(kind)?)?;
        let kernels = Arc::new(self.check("find the kernels", CodecKernels::new(&module))?);
        codecs.insert(kind, kernels.clone());
        Ok(kernels)
    }

    /// Returns the kernels of a codec's or an activation's frozen buffers, compiled or cached.
    ///
    /// # Errors
    /// As for [`codec`](Self::codec).
    pub(crate) fn frozen(
        &self,
        kind: CodecKind,
        activation: Option<Activation>,
    ) -> Result<Arc<FrozenKernels>, Error> {
        let mut frozen = self.0.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = frozen.get(&(kind, activation)) {
            return Ok(kernels.clone());
        }
        let source = match activation {
            None => Source::frozen(kind)?,
            Some(activation) => Source::activation(activation),
        };
        let module = self.module(&source)?;
        let kernels = Arc::new(self.check("find the kernels", FrozenKernels::new(&module))?);
        frozen.insert((kind, activation), kernels.clone());
        Ok(kernels)
    }

    /// Locks the loaded kernels of linear layers.
    pub(crate) fn linear_kernels(&self) -> MutexGuard<'_, LinearKernels> {
        self.0.linear.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the kernel that counts sizes with these codecs.
    ///
    /// # Errors
    /// As for [`codec`](Self::codec).
    pub(crate) fn survey_kernel(&self, kinds: &[CodecKind]) -> Result<CudaFunction, Error> {
        let mut surveys = self.0.surveys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = surveys.get(kinds) {
            return Ok(kernel.clone());
        }
        let module = self.module(&Source::survey(kinds)?)?;
        let kernel = self.check("find the kernels", module.load_function("buddy_survey"))?;
        surveys.insert(kinds.to_vec(), kernel.clone());
        Ok(kernel)
    }

    /// Locks the memory that surveys share.
    pub(crate) fn scratch(&self) -> MutexGuard<'_, Option<Scratch>> {
        self.0.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the kernels of given memory, if loaded.
    pub(crate) fn external(&self) -> &Mutex<Option<Arc<ExternalKernels>>> {
        &self.0.external
    }

    pub(crate) fn tight(&self) -> &Mutex<Option<Arc<TightKernels>>> {
        &self.0.tight
    }

    pub(crate) fn csr(&self) -> &Mutex<Option<Arc<CsrKernels>>> {
        &self.0.csr
    }

    /// Returns the kernels of KV caches, if loaded.
    pub(crate) fn kv(&self) -> &Mutex<Option<Arc<KvKernels>>> {
        &self.0.kv
    }

    /// Compiles a program, or takes it from the cache, and loads it.
    ///
    /// # Errors
    /// [`Error::TooOld`], [`Error::NoCompiler`], [`Error::Compile`] with the compiler's log, or a
    /// driver error.
    pub fn module(&self, source: &Source) -> Result<Arc<CudaModule>, Error> {
        self.fits(source, 0)?;
        let options = source.options(&format!("sm_{}", self.0.capability));
        let key = source.key(&options, self.0.driver);
        let dir = cache::cache_dir();
        if let Some(image) = dir.as_deref().and_then(|dir| cache::load(dir, &key)) {
            // A cached image that the driver rejects is compiled again.
            if let Ok(module) = self.context()?.load_module(Ptx::from_binary(image)) {
                return Ok(module);
            }
        }
        let image = self.image(source)?;
        if let Some(dir) = dir {
            cache::store(&dir, &key, &image);
        }
        self.check("load the kernels", self.context()?.load_module(Ptx::from_binary(image)))
    }

    /// Compiles a program to the machine code of this GPU.
    ///
    /// # Errors
    /// [`Error::NoCompiler`], or [`Error::Compile`] with the compiler's log.
    pub fn image(&self, source: &Source) -> Result<Vec<u8>, Error> {
        source.compile(&format!("sm_{}", self.0.capability))
    }

    /// Allocates device memory; the error has the free bytes.
    pub(crate) fn device_region(&self, bytes: u64) -> Result<Region, Error> {
        let context = self.context()?;
        Region::device(context, bytes).map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = context.mem_get_info().map_or(0, |(free, _)| free as u64);
                Error::DeviceMemory { asked: bytes, free }
            }
            _ => self.failure("take device memory", error),
        })
    }

    /// Allocates pinned host memory. Refuses more than the host has without trying, since the
    /// attempt would push other programs out of memory.
    pub(crate) fn pinned_region(&self, bytes: u64) -> Result<Region, Error> {
        let context = self.context()?;
        let (available, limit) = host::memory();
        let refused = Error::Pinned { asked: bytes, available, limit };
        if bytes > available {
            return Err(refused);
        }
        Region::pinned(context, bytes).map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => refused,
            _ => self.failure("pin host memory", error),
        })
    }

    /// Returns the number of SMs, the CTAs of a persistent kernel.
    pub fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors
    }

    /// Returns the CTAs with `shared` bytes of shared memory each that an SM can hold.
    pub(crate) fn resident(&self, shared: u32) -> u32 {
        self.0.shared.multiprocessor / (shared + self.0.shared.reserved).max(1)
    }

    /// Fails unless attention in place runs here: it needs compute capability 9.0 or later, and all
    /// the shared memory that an SM of such a datacentre GPU has.
    ///
    /// # Errors
    /// [`Error::TooOld`] or [`Error::SharedMemory`].
    pub fn attends(&self) -> Result<(), Error> {
        self.fits(&Source::kv(), AttentionBlock::MOST_SHARED)
    }

    /// Fails if a program is not for this GPU, or needs more shared memory for a CTA.
    fn fits(&self, source: &Source, shared: u32) -> Result<(), Error> {
        let (program, gpu, has) = (source.name.clone(), self.0.capability, self.0.shared.block);
        if !source.is_for(gpu) {
            return Err(Error::TooOld { program, needs: source.least, has: gpu });
        }
        if shared > has {
            return Err(Error::SharedMemory { program, needs: shared, has, gpu });
        }
        Ok(())
    }

    /// Returns the driver's CUDA version, such as 13000.
    pub(crate) fn driver(&self) -> u32 {
        self.0.driver as u32
    }

    /// Returns true if the GPU has Hopper's own instructions.
    pub(crate) fn is_hopper(&self) -> bool {
        self.0.capability == 90
    }

    /// Returns true if programmatic dependent launch is available.
    pub(crate) fn overlaps(&self) -> bool {
        self.0.capability >= 90
    }

    /// Returns the context, if it still works.
    pub(crate) fn context(&self) -> Result<&Arc<CudaContext>, Error> {
        self.alive()?;
        Ok(&self.0.context)
    }

    /// Fails if the context was lost.
    pub(crate) fn alive(&self) -> Result<(), Error> {
        match self.0.lost.get() {
            Some(reason) => Err(Error::Refused { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Converts a driver error, and records the loss of the context. `what` completes "the driver
    /// could not ...".
    ///
    /// # Errors
    /// [`Error::Driver`]; [`Error::Lost`] for the first error that ends the context, then
    /// [`Error::Refused`].
    pub fn check<T>(&self, what: &'static str, result: Result<T, DriverError>) -> Result<T, Error> {
        result.map_err(|error| self.failure(what, error))
    }

    fn failure(&self, what: &'static str, error: DriverError) -> Error {
        let reason = reason(error);
        if !is_sticky(error.0) {
            return Error::Driver { what, reason };
        }
        match self.0.lost.set(reason.clone()) {
            Ok(()) => Error::Lost { what, reason },
            Err(_) => Error::Refused { reason: self.0.lost.get().cloned().unwrap_or(reason) },
        }
    }
}
