//! Tools of NVIDIA's toolkit: the Sanitizer library, the disassembler and the profiler.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{Error, Resources};

/// Lists the folders of toolkits, those of environment variables first.
fn toolkits() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| env::var_os(name).map(PathBuf::from));
    named.chain([PathBuf::from("/usr/local/cuda"), PathBuf::from("/opt/cuda")]).collect()
}

/// Finds a program on PATH or in a toolkit.
fn program(name: &'static str) -> Result<PathBuf, Error> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(toolkits().into_iter().map(|toolkit| toolkit.join("bin")));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file()).ok_or(Error::Missing(name))
}

/// Finds the library of the Sanitizer API.
///
/// # Errors
/// [`Error::Missing`] if no toolkit has it.
pub fn sanitizer() -> Result<PathBuf, Error> {
    const NAME: &str = "libsanitizer-public.so";
    let folders =
        toolkits().into_iter().flat_map(|toolkit| [toolkit.join("compute-sanitizer"), toolkit.join("lib")]);
    let beside = program("compute-sanitizer").ok().and_then(|file| file.canonicalize().ok());
    let beside = beside.and_then(|file| file.parent().map(Path::to_path_buf));
    folders
        .chain(beside)
        .map(|folder| folder.join(NAME))
        .find(|file| file.is_file())
        .ok_or(Error::Missing(NAME))
}

/// Finds the profiler.
pub fn profiler() -> Option<PathBuf> {
    program("ncu").ok()
}

fn output(tool: &'static str, output: std::io::Result<Output>) -> Result<String, Error> {
    let failed = |why: String| Error::Tool { tool, why };
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(said.lines().last().unwrap_or("it said nothing").to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Disassembles a module.
///
/// # Errors
/// [`Error`] if there is no disassembler, or it rejects the module.
pub fn disassemble(module: &Path) -> Result<String, Error> {
    output("nvdisasm", Command::new(program("nvdisasm")?).arg("-c").arg(module).output())
}

/// Returns registers per thread and static shared memory of a kernel.
///
/// # Errors
/// [`Error`] if `cuobjdump` is missing, or does not list the kernel.
pub fn resources(module: &Path, kernel: &str) -> Result<Resources, Error> {
    let text =
        output("cuobjdump", Command::new(program("cuobjdump")?).arg("-res-usage").arg(module).output())?;
    parse_resources(&text, kernel).ok_or_else(|| Error::NoCode(kernel.to_owned()))
}

fn parse_resources(text: &str, kernel: &str) -> Option<Resources> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| {
        line.strip_prefix("Function ").and_then(|rest| rest.strip_suffix(':')) == Some(kernel)
    })?;
    let usage = lines.next()?;
    let field = |name: &str| usage.split(' ').find_map(|part| part.strip_prefix(name)?.parse().ok());
    Some(Resources { registers: field("REG:")?, shared_bytes: field("SHARED:")? })
}

/// Returns the instruction counts of each launch in a profiler report, as CSV.
///
/// # Errors
/// [`Error::Tool`] if the profiler rejects the report.
pub fn source_page(ncu: &Path, report: &Path) -> Result<String, Error> {
    let arguments = ["--page", "source", "--csv", "--print-source", "sass"];
    output("ncu", Command::new(ncu).arg("--import").arg(report).args(arguments).output())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_stand_after_their_function() {
        let text = "\nResource usage:\n Common:\n  GLOBAL:0\n Function _Z1f:\n  REG:28 STACK:40 SHARED:16 LOCAL:0\n \
                    Function _Z1g:\n  REG:8 STACK:0 SHARED:0\n";
        assert_eq!(parse_resources(text, "_Z1f"), Some(Resources { registers: 28, shared_bytes: 16 }));
        assert_eq!(parse_resources(text, "_Z1"), None);
    }
}
