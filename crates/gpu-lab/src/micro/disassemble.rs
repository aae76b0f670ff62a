//! Machine code as text, by NVIDIA's nvdisasm.

use std::{fs, path::PathBuf, process::Command};

use crate::Error;

/// Disassembles a compiled program.
///
/// # Errors
/// [`Error::Disassembler`] if there is none or it fails.
pub(super) fn disassemble(image: &[u8], name: &str) -> Result<String, Error> {
    let failed = |why: String| Error::Disassembler { why };
    let file = std::env::temp_dir().join(format!("buddy-{}-{name}.cubin", std::process::id()));
    fs::write(&file, image).map_err(|error| failed(format!("cannot write {}: {error}", file.display())))?;
    let run = Command::new(find()).arg("-c").arg(&file).output();
    let _ = fs::remove_file(&file);
    let output = run.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    String::from_utf8(output.stdout).map_err(|_| failed("its output is no text".to_owned()))
}

/// Finds nvdisasm in toolkits, if it is not on the path.
fn find() -> PathBuf {
    let home = std::env::var_os("CUDA_HOME").map(PathBuf::from);
    let places = home.into_iter().chain([PathBuf::from("/usr/local/cuda")]);
    let found = places.map(|place| place.join("bin/nvdisasm")).find(|tool| tool.exists());
    found.unwrap_or_else(|| PathBuf::from("nvdisasm"))
}
