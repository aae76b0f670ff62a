//! A whole model: every shard of a folder, and the files beside them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
};

use buddy_snapshot::discard_abandoned;

use crate::{
    Error, Plan, Progress, Sizes,
    check::{PackedFolder, check_copied},
    checksum::{self, Summing},
    content::{Content, Unfinished, claim_packed, claim_plain, is_safetensors},
    file::{Opened, pack_one, unpack_one, verify_file, whole},
    header::{Plain, signature},
    manifest::{CONFIG, Manifest, Origin, Shard, packed_config},
    matrix::Layout,
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
    /// Packed files of version 1, which hold no checksums.
    pub unchecked: usize,
    /// Copied files that `buddy.json` does not list.
    pub unlisted: Vec<String>,
    /// Subfolders of the model, which are skipped.
    pub left_out: Vec<PathBuf>,
}

impl Report {
    fn add(&mut self, sizes: Sizes) {
        self.sizes.plain += sizes.plain;
        self.sizes.packed += sizes.packed;
    }
}

/// Packs a model. A folder is complete when `buddy.json` says so, which is written last.
///
/// # Errors
/// [`Error::NoMatrix`] if nothing in it is bf16, [`Error::Quantised`], [`Error::Packed`],
/// [`Error::Special`] for files that cannot be copied, [`Error::Occupied`] and [`Error::Another`]
/// for a folder of something else, or an error of a file.
pub fn pack(job: &Job<'_>, progress: Progress<'_>) -> Result<Report, Error> {
    pack_as(job, Layout::Frozen, progress)
}

/// Packs a model with [tight](buddy_codec::tighten) matrices: smaller, for storage and transport.
/// Loaders for GPUs do not read them yet; [`unpack`] and [`verify`](crate::verify) do.
///
/// # Errors
/// As for [`pack`].
pub fn pack_tight(job: &Job<'_>, progress: Progress<'_>) -> Result<Report, Error> {
    pack_as(job, Layout::Tight, progress)
}

fn pack_as(job: &Job<'_>, layout: Layout, progress: Progress<'_>) -> Result<Report, Error> {
    refuse_same(job)?;
    if !job.from.is_dir() {
        require_safetensors(job.from)?;
        require_matrix([job.from])?;
        discard_beside(job.to);
        let (sizes, _) = pack_one(job.from, job.to, layout, progress)?;
        verify(job, job.from, job.to, progress)?;
        return Ok(Report { sizes, files: 1, ..Report::default() });
    }
    let content = Content::of(job.from)?;
    if content.listed {
        return Err(Error::Packed.of(job.from));
    }
    require_matrix(content.shards.iter().map(|name| job.from.join(name)))?;
    let config = read_if_there(&job.from.join(CONFIG))?;
    let changed = config.as_deref().map(packed_config).transpose()?;
    let _claim = claim_packed(job.to, &content)?;
    content.shards.iter().try_for_each(|name| refuse_another(&job.from.join(name), &job.to.join(name)))?;
    // A damaged manifest is worth nothing: everything is packed again.
    let known = Manifest::read(job.to).ok().flatten().filter(Manifest::has_checksums);
    let mut manifest = known.unwrap_or_default().begin(config);
    manifest.write(job.to)?;
    let mut report = Report::default();
    for name in &content.shards {
        pack_shard((job, layout), name, &mut manifest, &mut report, progress)?;
    }
    for name in content.others.iter().filter(|name| *name != CONFIG) {
        let sum = copy(&job.from.join(name), &job.to.join(name), None)?;
        manifest.copied.insert(name.clone(), sum);
    }
    if let Some(text) = changed {
        write_text(&job.from.join(CONFIG), &job.to.join(CONFIG), &text)?;
        manifest.copied.insert(CONFIG.to_owned(), checksum::of(text.as_bytes()));
    }
    manifest.files.retain(|name, _| content.shards.contains(name));
    manifest.complete = true;
    manifest.write(job.to)?;
    Ok(Report { left_out: content.folders, ..report })
}

/// Packs one file of a folder, unless it was packed before from a file of the same length and time.
/// An earlier result is kept only if it has the layout and restores every byte: equal times say
/// nothing where a package manager or an archive sets them.
fn pack_shard(
    (job, layout): (&Job<'_>, Layout),
    name: &str,
    manifest: &mut Manifest,
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let (from, to) = (job.from.join(name), job.to.join(name));
    let plain = from.metadata()?;
    let packed = to.metadata().map_or(0, |packed| packed.len());
    let known = manifest.files.get(name).filter(|known| known.origin == Origin::of(&plain, packed));
    let intact = |known: &Shard| {
        let found = Opened::open(&to);
        found.is_ok_and(|found| found.checksum() == known.checksum && found.has_layout(layout))
            && verify_file(&from, &to, &|_| ()).is_ok()
    };
    if known.is_some_and(intact) {
        report.resumed += 1;
        report.add(Sizes { plain: plain.len(), packed });
        // Both passes of `verify` are done.
        progress(plain.len() * if job.verify { 2 } else { 1 });
        return Ok(());
    }
    let (sizes, checksum) = pack_one(&from, &to, layout, progress)?;
    let origin = Origin::of(&plain, sizes.packed);
    manifest.files.insert(name.to_owned(), Shard { origin, checksum });
    manifest.write(job.to)?;
    report.files += 1;
    report.add(sizes);
    verify(job, &from, &to, progress)
}

fn verify(job: &Job<'_>, plain: &Path, packed: &Path, progress: Progress<'_>) -> Result<(), Error> {
    if job.verify { verify_file(plain, packed, progress) } else { Ok(()) }
}

/// Unpacks a model: restores every file. A folder holds `buddy.unfinished` until all are there.
///
/// # Errors
/// [`Error::NotPacked`], [`Error::Unfinished`], [`Error::Lost`] or [`Error::Damaged`] for a folder
/// that is not as it was packed, [`Error::Occupied`], or an error of a file.
pub fn unpack(job: &Job<'_>, progress: Progress<'_>) -> Result<Report, Error> {
    refuse_same(job)?;
    if !job.from.is_dir() {
        require_safetensors(job.from)?;
        discard_beside(job.to);
        let (sizes, checked) = unpack_one(job.from, job.to, progress)?;
        return Ok(Report { sizes, files: 1, unchecked: usize::from(!checked), ..Report::default() });
    }
    // Checks all files before anything is written.
    let PackedFolder { content, manifest } = PackedFolder::open(job.from)?;
    if let Some(name) = manifest.copied.keys().find(|name| !content.others.contains(name)) {
        return Err(Error::Lost.of(&job.from.join(name)));
    }
    // The original comes from the manifest, so copying does not check the packed one.
    if let Some(checksum) = manifest.copied.get(CONFIG) {
        check_copied(&job.from.join(CONFIG), checksum)?;
    }
    let _claim = claim_plain(job.to, &content)?;
    let unfinished = Unfinished::begin(job.to)?;
    let mut report = Report::default();
    for name in &content.shards {
        let (sizes, checked) = unpack_one(&job.from.join(name), &job.to.join(name), progress)?;
        report.add(sizes);
        report.files += 1;
        report.unchecked += usize::from(!checked);
    }
    for name in content.others.iter().filter(|name| *name != CONFIG || manifest.config.is_none()) {
        let listed = manifest.copied.get(name);
        copy(&job.from.join(name), &job.to.join(name), listed.map(String::as_str))?;
        if listed.is_none() && manifest.has_checksums() {
            report.unlisted.push(name.clone());
        }
    }
    if let Some(text) = manifest.config {
        write_text(&job.from.join(CONFIG), &job.to.join(CONFIG), &text)?;
    }
    unfinished.end()?;
    Ok(Report { left_out: content.folders, ..report })
}

pub(crate) fn require_safetensors(path: &Path) -> Result<(), Error> {
    if !path.exists() {
        return Err(Error::Missing.of(path));
    }
    if is_safetensors(path) { Ok(()) } else { Err(Error::NoModel.of(path)) }
}

fn refuse_same(job: &Job<'_>) -> Result<(), Error> {
    let same = matches!((job.from.canonicalize(), job.to.canonicalize()), (Ok(from), Ok(to)) if from == to);
    if same { Err(Error::Same.of(job.to)) } else { Ok(()) }
}

/// Fails if a packed file in place of the result has other tensors than the original.
fn refuse_another(from: &Path, to: &Path) -> Result<(), Error> {
    let Ok(there) = Opened::open(to) else { return Ok(()) };
    let same = signature(&there.text).is_ok_and(|there| {
        Plain::open(from).and_then(|plain| signature(&plain.text)).is_ok_and(|plain| plain == there)
    });
    if same { Ok(()) } else { Err(Error::Another.of(to)) }
}

/// Removes what killed runs left beside a file.
fn discard_beside(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    discard_abandoned(folder.unwrap_or(Path::new(".")));
}

/// Rejects a model without matrices to freeze; the error lists what it holds.
fn require_matrix(files: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), Error> {
    let mut found = BTreeMap::new();
    for file in files {
        let file = file.as_ref();
        let plain = Plain::open(file)?;
        if plain.is_packed()? {
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

/// Copies a file with its permissions, and returns its checksum, which must be the expected one.
fn copy(from: &Path, to: &Path, expected: Option<&str>) -> Result<String, Error> {
    let mut found = String::new();
    let done = whole(from, to, |out| {
        let (mut file, mut sum, mut buffer) = (File::open(from)?, Summing::new(out), vec![0; 1 << 16]);
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            sum.write_all(&buffer[..read]).map_err(Error::Write)?;
        }
        found = sum.finish();
        if expected.is_some_and(|expected| expected != found) { Err(Error::Damaged) } else { Ok(()) }
    });
    done.map_err(|error| error.of_either(from, to)).map(|()| found)
}

/// Writes a text with the permissions of another file.
fn write_text(like: &Path, to: &Path, text: &str) -> Result<(), Error> {
    let done = whole(like, to, |out| out.write_all(text.as_bytes()).map_err(Error::Write));
    done.map_err(|error| error.of_either(like, to))
}
