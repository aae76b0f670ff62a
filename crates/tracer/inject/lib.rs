//! The library that a traced process loads when CUDA starts (`CUDA_INJECTION64_PATH`).
//!
//! It patches every module that the process loads with the callbacks of `kernels/patches.cu`, and
//! writes the records of each requested launch to a folder. It uses the standard library alone, so
//! that the build script compiles it with one compiler call. Errors are reported once, and the
//! program continues.

#![warn(missing_docs)]

mod launch;
mod sanitizer;
mod settings;

use std::{
    ffi::c_void,
    sync::{Mutex, OnceLock, atomic::AtomicU64},
};

use launch::Launches;
use sanitizer::{ContextData, DriverCall, Id, LaunchData, ModuleData, Sanitizer};
use settings::Settings;

/// State shared by the callbacks.
struct Tracer {
    sanitizer: Sanitizer,
    settings: Settings,
    /// Number of modules so far, and the handles of the loaded ones.
    modules: Mutex<Vec<usize>>,
    launches: Mutex<Launches>,
    failures: AtomicU64,
}

static TRACER: OnceLock<Tracer> = OnceLock::new();

/// CUDA calls this when a process starts to use it.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> i32 {
    if TRACER.get().is_none()
        && let Err(why) = start()
    {
        eprintln!("buddy trace: {why}; the program runs on untraced");
    }
    1
}

fn start() -> Result<(), String> {
    let settings = Settings::from_environment()?;
    let sanitizer = Sanitizer::load(&settings.sanitizer)?;
    let tracer = Tracer {
        sanitizer,
        settings,
        modules: Mutex::default(),
        launches: Mutex::default(),
        failures: AtomicU64::new(0),
    };
    let tracer = TRACER.get_or_init(|| tracer);
    tracer.sanitizer.subscribe(on_event)
}

/// The Sanitizer callback.
extern "C" fn on_event(_: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    let Some(tracer) = TRACER.get() else { return };
    // SAFETY: Sanitizer passes data of the type of domain and id, valid during the callback.
    let result = unsafe {
        match Id::of(domain, id) {
            Id::ContextCreated => tracer.add_patches(&*data.cast::<ContextData>()),
            Id::ModuleLoaded => tracer.patch(&*data.cast::<ModuleData>()),
            Id::DriverCall => {
                launch::note_shared_bytes(&*data.cast::<DriverCall>());
                Ok(())
            }
            Id::LaunchBegins => tracer.begin(&*data.cast::<LaunchData>()),
            Id::LaunchEnded => tracer.end(&*data.cast::<LaunchData>()),
            Id::Other => Ok(()),
        }
    };
    if let Err(why) = result
        && tracer.failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0
    {
        eprintln!("buddy trace: {why}");
    }
}

impl Tracer {
    fn add_patches(&self, context: &ContextData) -> Result<(), String> {
        self.sanitizer.add_patches(&self.settings.patches, context.context)
    }

    /// Saves a module's machine code and patches it.
    fn patch(&self, module: &ModuleData) -> Result<(), String> {
        let mut modules = self.modules.lock().map_err(|_| "a thread failed")?;
        let file = self.settings.out.join(format!("module-{}.cubin", modules.len()));
        modules.push(module.module as usize);
        // SAFETY: the module's code is valid during the callback.
        let code = unsafe { std::slice::from_raw_parts(module.code, module.code_bytes) };
        std::fs::write(&file, code).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        self.sanitizer.patch(module.module)
    }

    fn begin(&self, launch: &LaunchData) -> Result<(), String> {
        self.launches.lock().map_err(|_| "a thread failed")?.begin(&self.sanitizer, &self.settings, launch)
    }

    fn end(&self, launch: &LaunchData) -> Result<(), String> {
        let module = {
            let modules = self.modules.lock().map_err(|_| "a thread failed")?;
            modules.iter().rposition(|&module| module == launch.module as usize)
        };
        let module = module.ok_or("a launch from a module that was not seen")?;
        self.launches.lock().map_err(|_| "a thread failed")?.end(&self.sanitizer, &self.settings, launch, module)
    }
}
