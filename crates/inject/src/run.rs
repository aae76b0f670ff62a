//! Runs a program with the injected library, and reads its logs.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use crate::{
    Error, INJECTED, Watched,
    child::run,
    parse,
    training::{Train, while_training},
};

/// File name of the library.
const LIBRARY: &str = "libbuddy_watch.so";

/// When snapshots are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Every `every` launches at first, of kernels whose name contains a text; thinned over the
    /// run.
    Launches {
        /// A part of the kernel's mangled name; empty for every kernel.
        kernel: String,
        /// Launches between the first snapshots.
        every: u64,
    },
    /// At a period in milliseconds at first, at the next launch; thinned over the run.
    Milliseconds(u64),
    /// On request of the program.
    OnRequest,
}

/// A program to watch, and the options.
#[derive(Debug, Clone)]
pub struct Request {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Groups of codecs whose sizes are counted in one pass. The first codec's pages are kept.
    pub groups: Vec<Vec<String>>,
    /// Machine code of the size kernels: architecture such as 90, index of the group, and code.
    pub kernels: Vec<(u32, usize, Vec<u8>)>,
    /// The trainable ones of these codecs.
    pub learning: Vec<String>,
    /// Trains one of them.
    pub train: Train,
    /// Warps per CTA of the kernels, and CTAs per SM.
    pub shape: (u32, u32),
    /// When snapshots are taken.
    pub when: When,
    /// A folder for full snapshots.
    pub dump: Option<PathBuf>,
    /// Counts the entries of pointer arguments of launches.
    pub accesses: bool,
    /// Logs the program's driver calls too.
    pub log: bool,
    /// An empty folder for logs and for the files that the program loads; no other user may write
    /// there.
    pub folder: PathBuf,
}

/// Writes the files that the program loads to the folder.
///
/// # Errors
/// [`Error::File`] if a file cannot be written.
pub fn prepare(request: &Request) -> Result<(), Error> {
    let write = |name: &str, bytes: &[u8]| {
        let file = request.folder.join(name);
        fs::write(&file, bytes).map_err(Error::file(&file))
    };
    write(LIBRARY, INJECTED)?;
    for (architecture, group, code) in &request.kernels {
        write(&format!("sm_{architecture}-{group}.cubin"), code)?;
    }
    write("settings", settings(request).as_bytes())
}

/// Runs the program after [`prepare`], and reads the logs of its processes, by rank and id.
///
/// # Errors
/// [`Error`] if the program cannot be started, or own files cannot be written or read.
pub fn watch(request: &Request) -> Result<(ExitStatus, Vec<Watched>), Error> {
    let folder = &request.folder.canonicalize().map_err(Error::file(&request.folder))?;
    let mut program = program(&request.command);
    program.env("CUDA_INJECTION64_PATH", folder.join(LIBRARY)).env("BUDDY_WATCH", folder);
    let (status, mut trained) =
        while_training(folder, &request.learning, request.train, || run(&mut program))?;
    let mut watched = logs(folder)?;
    for one in &mut watched {
        one.learned = trained.remove(&one.name).unwrap_or_default();
    }
    Ok((status?, watched))
}

/// Runs a program unwatched.
///
/// # Errors
/// [`Error::Start`] if it cannot be started.
pub fn run_unwatched(command: &[OsString]) -> Result<ExitStatus, Error> {
    run(&mut program(command))
}

/// Returns the library's settings: a key and a value per line.
fn settings(request: &Request) -> String {
    let mut lines = vec![format!("warps {}", request.shape.0), format!("blocks {}", request.shape.1)];
    lines.extend(cupti_files().iter().map(|file| format!("cupti {file}")));
    lines.extend(request.groups.iter().map(|codecs| format!("group {}", codecs.join(" "))));
    lines.extend(request.learning.iter().map(|codec| format!("learns {codec}")));
    match &request.when {
        When::Launches { kernel, every } => {
            lines.push(format!("kernel {kernel}\nevery {every}\nlimited yes"));
        }
        When::Milliseconds(every) => lines.push(format!("when time\nevery {every}\nlimited yes")),
        When::OnRequest => lines.push("when asked\nevery 1".to_owned()),
    }
    lines.extend(request.dump.iter().map(|folder| format!("dump {}", folder.display())));
    lines.extend(request.accesses.then(|| "accesses yes".to_owned()));
    lines.extend(request.log.then(|| "events yes".to_owned()));
    lines.join("\n") + "\n"
}

/// Lists possible files of CUPTI: that of `BUDDY_CUPTI`, or else those of toolkits in the
/// environment, usual folders, Python's packages, and the loader's paths.
pub fn cupti_files() -> Vec<String> {
    let named = |name: &str| env::var_os(name).map(PathBuf::from);
    if let Some(file) = named("BUDDY_CUPTI") {
        return vec![file.to_string_lossy().into_owned()];
    }
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(named);
    let toolkits = toolkits.chain([PathBuf::from("/usr/local/cuda"), PathBuf::from("/opt/cuda")]);
    let places = ["extras/CUPTI/lib64", "lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
    let in_toolkits = toolkits.flat_map(|toolkit| places.map(|place| toolkit.join(place)));
    let prefixes = named("VIRTUAL_ENV").into_iter().chain(named("CONDA_PREFIX"));
    let prefixes = prefixes.chain(["/usr", "/usr/local"].map(PathBuf::from));
    let wheels = prefixes.flat_map(|prefix| wheels(&prefix));
    let files = in_toolkits.chain(wheels).flat_map(|folder| libraries(&folder));
    let files = files.map(|file| file.to_string_lossy().into_owned());
    let loaders = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"].map(str::to_owned);
    // The loader's paths come first: users set LD_LIBRARY_PATH on purpose.
    loaders.into_iter().chain(files).collect()
}

/// Lists libraries named libcupti in a folder.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_cupti = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libcupti.so"))
    };
    let mut found: Vec<PathBuf> = all.filter(is_cupti).collect();
    found.sort();
    found
}

/// Lists the folders of NVIDIA's Python packages under a prefix.
fn wheels(prefix: &Path) -> Vec<PathBuf> {
    let children = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let python =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3"));
    let pythons = children(&prefix.join("lib")).into_iter().filter(python);
    let packages =
        pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    packages.flat_map(|folder| children(&folder.join("nvidia"))).map(|folder| folder.join("lib")).collect()
}

/// Returns the program and its arguments as a command.
fn program(command: &[OsString]) -> Command {
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    program
}

/// Reads the logs in a folder, by rank and process.
fn logs(folder: &Path) -> Result<Vec<Watched>, Error> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::file(folder))? {
        let path = entry.map_err(Error::file(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            all.push(read_log(folder, &path)?);
        }
    }
    all.sort_by_key(|one: &Watched| (one.rank, one.pid, one.name.clone()));
    Ok(all)
}

/// Reads one log. Its errors are kept with it, so that the program's exit code and other logs are
/// still reported.
fn read_log(folder: &Path, path: &Path) -> Result<Watched, Error> {
    let bytes = fs::read(path).map_err(Error::file(path))?;
    let wrong = |error: Error| Watched { stopped: Some(error.to_string()), ..Watched::default() };
    let mut watched = parse(&String::from_utf8_lossy(&bytes)).unwrap_or_else(wrong);
    watched.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    watched.looks.retain_mut(|look| look.is_whole_in(folder, &watched.name));
    Ok(watched)
}
