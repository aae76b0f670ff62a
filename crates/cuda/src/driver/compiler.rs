//! NVRTC: compiles CUDA C++ to machine code.

use std::{
    ffi::{CString, c_char},
    ptr,
};

use cudarc::nvrtc::{result as nvrtc, sys as nvrtc_sys};

/// Returns true if the compiler's library can be loaded.
pub(crate) fn has_compiler() -> bool {
    // SAFETY: loading libnvrtc runs only its own initialisers.
    unsafe { nvrtc_sys::is_culib_present() }
}

/// Compiles a program to machine code; returns the compiler's log on failure.
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
    // SAFETY: as above, and the image has the requested size.
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
