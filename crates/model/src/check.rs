//! Checks packed files and folders: complete, and as they were written.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    Error, Progress,
    checksum::Summing,
    content::Content,
    file::Opened,
    header::not_packed,
    manifest::{CONFIG, Manifest, NAME},
};

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checked {
    /// Files that match their checksums.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Packed files of version 1, which hold no checksums.
    pub unchecked: usize,
}

impl Checked {
    fn add(&mut self, path: &Path, opened: &Opened, progress: Progress<'_>) -> Result<(), Error> {
        if !opened.check(progress).map_err(|error| error.of(path))? {
            self.unchecked += 1;
            return Ok(());
        }
        self.files += 1;
        self.bytes += path.metadata()?.len();
        Ok(())
    }
}

/// A packed folder that is complete.
pub(crate) struct PackedFolder {
    pub(crate) content: Content,
    pub(crate) manifest: Manifest,
}

impl PackedFolder {
    /// Opens a folder and compares it with its manifest; of packed files, their headers.
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        let manifest = Manifest::read(folder)?;
        if let Some(manifest) = &manifest {
            require_complete(folder, manifest)?;
        }
        let content = Content::of(folder)?;
        let manifest = manifest.ok_or_else(|| not_packed(format!("there is no {NAME}")).of(folder))?;
        if let Some(name) = content.shards.iter().find(|name| !manifest.files.contains_key(*name)) {
            return Err(Error::Unlisted.of(&folder.join(name)));
        }
        for name in &content.shards {
            open_shard(&folder.join(name), Some(&manifest))?;
        }
        Ok(Self { content, manifest })
    }
}

/// Fails if a folder lacks a file that its manifest, or the index of version 1, lists.
fn require_complete(folder: &Path, manifest: &Manifest) -> Result<(), Error> {
    let late = !manifest.has_checksums() && manifest.config.is_some() && !folder.join(CONFIG).exists();
    if !manifest.complete || late {
        return Err(Error::Unfinished.of(folder));
    }
    let indexed = if manifest.has_checksums() { Vec::new() } else { indexed(folder) };
    match manifest.files.keys().chain(&indexed).find(|name| !folder.join(name).exists()) {
        Some(name) => Err(Error::Lost.of(&folder.join(name))),
        None => Ok(()),
    }
}

/// Returns the shards that Transformers' index lists, if there is one.
fn indexed(folder: &Path) -> Vec<String> {
    let text = std::fs::read(folder.join("model.safetensors.index.json")).unwrap_or_default();
    let index: Value = serde_json::from_slice(&text).unwrap_or_default();
    let shards = index.get("weight_map").and_then(Value::as_object).into_iter().flat_map(|map| map.values());
    shards.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Opens a packed file; its header must be the one that the manifest lists.
fn open_shard(path: &Path, manifest: Option<&Manifest>) -> Result<Opened, Error> {
    let opened = Opened::open(path)?;
    let Some(manifest) = manifest else { return Ok(opened) };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match manifest.files.get(&*name) {
        None => Err(Error::Unlisted.of(path)),
        Some(shard) if shard.checksum == opened.checksum() => Ok(opened),
        Some(_) => Err(Error::Damaged.of(path)),
    }
}

/// Compares a copied file with its checksum.
pub(crate) fn check_copied(path: &Path, expected: &str) -> Result<u64, Error> {
    let check = || {
        let (mut file, mut sum) = (File::open(path)?, Summing::new(io::sink()));
        let bytes = io::copy(&mut file, &mut sum)?;
        if sum.finish() == expected { Ok(bytes) } else { Err(Error::Damaged) }
    };
    check().map_err(|error| match error {
        Error::Io(error) if error.kind() == io::ErrorKind::NotFound => Error::Lost.of(path),
        other => other.of(path),
    })
}

/// Checks a packed file, or a packed folder with all its files, against its checksums.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Lost`], [`Error::Unfinished`], or as for [`unpack`](crate::unpack).
pub fn verify(path: &Path, progress: Progress<'_>) -> Result<Checked, Error> {
    let mut checked = Checked::default();
    if !path.is_dir() {
        crate::folder::require_safetensors(path)?;
        checked.add(path, &Opened::open(path)?, progress)?;
        return Ok(checked);
    }
    let PackedFolder { content, manifest } = PackedFolder::open(path)?;
    for name in &content.shards {
        let shard = path.join(name);
        checked.add(&shard, &Opened::open(&shard)?, progress)?;
    }
    for (name, checksum) in &manifest.copied {
        checked.bytes += check_copied(&path.join(name), checksum)?;
        checked.files += 1;
    }
    Ok(checked)
}

/// Checks the packed files that a loader reads. If `buddy.json` lies beside them, their folder must
/// be complete, and configuration and index as they were written.
///
/// # Errors
/// As for [`verify`].
pub fn verify_shards(files: &[PathBuf], progress: Progress<'_>) -> Result<Checked, Error> {
    let (mut checked, mut folders) = (Checked::default(), BTreeMap::new());
    for file in files {
        let folder = file.parent().unwrap_or(Path::new(""));
        if !folders.contains_key(folder) {
            let manifest = Manifest::read(folder)?;
            if let Some(manifest) = &manifest {
                check_loaded(folder, manifest)?;
            }
            folders.insert(folder, manifest);
        }
        checked.add(file, &open_shard(file, folders[folder].as_ref())?, progress)?;
    }
    Ok(checked)
}

fn check_loaded(folder: &Path, manifest: &Manifest) -> Result<(), Error> {
    require_complete(folder, manifest)?;
    let loaded = |name: &str| name == CONFIG || name.ends_with(".index.json");
    manifest
        .copied
        .iter()
        .filter(|(name, _)| loaded(name))
        .try_for_each(|(name, checksum)| check_copied(&folder.join(name), checksum).map(drop))
}
