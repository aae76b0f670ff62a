//! A whole model: every shard of a folder, and the files beside them.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use buddy_snapshot::write_atomic;

use crate::{
    Error, Plan, Progress, Sizes,
    file::{pack_file, require_packed, unpack_file, verify_file},
    header::{Plain, not_packed},
    manifest::{CONFIG, Manifest, NAME, Origin, packed_config},
};

/// Paths and options: a file to a file, or a folder to a folder.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// A safetensors file, or a folder with shards.
    pub from: &'a Path,
    /// The result; a folder is created.
    pub to: &'a Path,
    /// True to unpack each packed file again and compare it with the original.
    pub verify: bool,
}

/// Result of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Bytes of all safetensors files.
    pub sizes: Sizes,
    /// Files that existed already.
    pub resumed: usize,
    /// Files processed.
    pub files: usize,
    /// Subfolders of the model, which are skipped.
    pub left_out: Vec<PathBuf>,
}

impl Report {
    fn add(&mut self, sizes: Sizes) {
        self.sizes.plain += sizes.plain;
        self.sizes.packed += sizes.packed;
    }
}

/// The files of a folder.
struct Content {
    shards: Vec<String>,
    others: Vec<String>,
    folders: Vec<PathBuf>,
}

impl Content {
    fn of(folder: &Path) -> Result<Self, Error> {
        let mut content = Self { shards: Vec::new(), others: Vec::new(), folders: Vec::new() };
        for entry in fs::read_dir(folder).map_err(|error| Error::Io(error).of(folder))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                content.folders.push(path);
            } else if is_safetensors(&path) {
                content.shards.push(name);
            } else if !name.ends_with(".part") && name != NAME {
                content.others.push(name);
            }
        }
        if content.shards.is_empty() {
            return Err(Error::NoModel.of(folder));
        }
        content.shards.sort();
        Ok(content)
    }
}

/// Packs a model.
///
/// # Errors
/// [`Error::NoMatrix`] if nothing in it is bf16, [`Error::Quantised`], [`Error::Packed`], or an
/// error of a file.
pub fn pack(job: &Job<'_>, progress: Progress<'_>) -> Result<Report, Error> {
    refuse_same(job)?;
    if !job.from.is_dir() {
        require_safetensors(job.from)?;
        require_matrix([job.from])?;
        let sizes = pack_file(job.from, job.to, progress)?;
        verify(job, job.from, job.to, progress)?;
        return Ok(Report { sizes, files: 1, ..Report::default() });
    }
    let content = Content::of(job.from)?;
    if Manifest::read(job.from)?.is_some() {
        return Err(Error::Packed.of(job.from));
    }
    require_matrix(content.shards.iter().map(|name| job.from.join(name)))?;
    let config = read_if_there(&job.from.join(CONFIG))?;
    let changed = config.as_deref().map(packed_config).transpose()?;
    fs::create_dir_all(job.to).map_err(|error| Error::Io(error).of(job.to))?;
    let mut manifest = Manifest::read(job.to)?.unwrap_or_default();
    manifest.config = config;
    let mut report = Report { left_out: content.folders, ..Report::default() };
    for name in &content.shards {
        pack_shard(job, name, &mut manifest, &mut report, progress)?;
    }
    for name in content.others.iter().filter(|name| *name != CONFIG) {
        copy(&job.from.join(name), &job.to.join(name))?;
    }
    if let Some(text) = changed {
        write_atomic(&job.to.join(CONFIG), |out| out.write_all(text.as_bytes()))?;
    }
    Ok(report)
}

/// Packs one file of a folder, unless it was packed before from a file of the same length and time.
fn pack_shard(
    job: &Job<'_>,
    name: &str,
    manifest: &mut Manifest,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let (from, to) = (job.from.join(name), job.to.join(name));
    let plain = from.metadata()?;
    let there = Origin::of(&plain, to.metadata().map_or(0, |packed| packed.len()));
    if manifest.files.get(name) == Some(&there) {
        report.resumed += 1;
        report.add(Sizes { plain: plain.len(), packed: there.packed_bytes });
        progress(plain.len());
    } else {
        let sizes = pack_file(&from, &to, progress)?;
        manifest.files.insert(name.to_owned(), Origin::of(&plain, sizes.packed));
        manifest.write(job.to)?;
        report.files += 1;
        report.add(sizes);
    }
    verify(job, &from, &to, progress)
}

fn verify(job: &Job<'_>, plain: &Path, packed: &Path, progress: Progress<'_>) -> Result<(), Error> {
    if job.verify { verify_file(plain, packed, progress) } else { Ok(()) }
}

/// Unpacks a model: restores every file.
///
/// # Errors
/// [`Error::NotPacked`], or an error of a file.
pub fn unpack(job: &Job<'_>, progress: Progress<'_>) -> Result<Report, Error> {
    refuse_same(job)?;
    if !job.from.is_dir() {
        require_safetensors(job.from)?;
        let sizes = unpack_file(job.from, job.to, progress)?;
        return Ok(Report { sizes, files: 1, ..Report::default() });
    }
    let content = Content::of(job.from)?;
    let manifest =
        Manifest::read(job.from)?.ok_or_else(|| not_packed(format!("there is no {NAME}")).of(job.from))?;
    // Checks all files before anything is written.
    content.shards.iter().try_for_each(|name| require_packed(&job.from.join(name)))?;
    fs::create_dir_all(job.to).map_err(|error| Error::Io(error).of(job.to))?;
    let mut report = Report { left_out: content.folders, ..Report::default() };
    for name in &content.shards {
        report.add(unpack_file(&job.from.join(name), &job.to.join(name), progress)?);
        report.files += 1;
    }
    for name in content.others.iter().filter(|name| *name != CONFIG) {
        copy(&job.from.join(name), &job.to.join(name))?;
    }
    if let Some(text) = manifest.config {
        write_atomic(&job.to.join(CONFIG), |out| out.write_all(text.as_bytes()))?;
    }
    Ok(report)
}

fn is_safetensors(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("safetensors"))
}

fn require_safetensors(path: &Path) -> Result<(), Error> {
    if !path.exists() {
        return Err(Error::Missing.of(path));
    }
    if is_safetensors(path) { Ok(()) } else { Err(Error::NoModel.of(path)) }
}

fn refuse_same(job: &Job<'_>) -> Result<(), Error> {
    let same = matches!((job.from.canonicalize(), job.to.canonicalize()), (Ok(from), Ok(to)) if from == to);
    if same { Err(Error::Same.of(job.to)) } else { Ok(()) }
}

/// Rejects a model without matrices to freeze; the error lists what it holds.
fn require_matrix(files: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), Error> {
    let mut found = BTreeMap::new();
    for file in files {
        let file = file.as_ref();
        let plain = Plain::open(file)?;
        if plain.original()?.is_some() {
            return Err(Error::Packed.of(file));
        }
        if plain.arrays.iter().any(|array| Plan::of(array) != Plan::Keep) {
            return Ok(());
        }
        for array in &plain.arrays {
            *found.entry(array.dtype.name()).or_insert(0u64) += 1;
        }
    }
    let words: Vec<String> = found.iter().map(|(name, count)| format!("{count} of {name}")).collect();
    Err(Error::NoMatrix { found: format!("tensors: {}", words.join(", ")) })
}

fn read_if_there(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::Io(error).of(path)),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let mut file = fs::File::open(from).map_err(|error| Error::Io(error).of(from))?;
    Ok(write_atomic(to, |out| std::io::copy(&mut file, out).map(|_| ()))?)
}
