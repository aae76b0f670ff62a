//! The files of a model's folder, and of the folder that a result goes to.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use buddy_snapshot::{Claim, discard_abandoned, is_partial, write_atomic};

use crate::{Error, manifest::NAME};

/// Lies in a folder that is being unpacked. Without it, some of a model's files could pass for all.
const UNFINISHED: &str = "buddy.unfinished";

/// The files of a folder.
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) shards: Vec<String>,
    /// All other files but [`NAME`], [`UNFINISHED`] and temporary ones.
    pub(crate) others: Vec<String>,
    pub(crate) folders: Vec<PathBuf>,
    /// True if it has a [`NAME`].
    pub(crate) listed: bool,
    /// True if it has an [`UNFINISHED`].
    unfinished: bool,
}

impl Content {
    /// Lists the folder of a model.
    ///
    /// # Errors
    /// [`Error::Special`] for a file that cannot be copied, [`Error::NoModel`] without shards,
    /// [`Error::HalfUnpacked`].
    pub(crate) fn of(folder: &Path) -> Result<Self, Error> {
        let content = Self::list(folder)?;
        if content.unfinished {
            return Err(Error::HalfUnpacked.of(folder));
        }
        for name in content.shards.iter().chain(&content.others) {
            let path = folder.join(name);
            File::open(&path).map_err(|error| Error::Io(error).of(&path))?;
        }
        if content.shards.is_empty() { Err(Error::NoModel.of(folder)) } else { Ok(content) }
    }

    fn list(folder: &Path) -> Result<Self, Error> {
        let mut content = Self::default();
        for entry in fs::read_dir(folder).map_err(|error| Error::Io(error).of(folder))? {
            let path = entry?.path();
            content.add(path.clone()).map_err(|error| error.of(&path))?;
        }
        content.shards.sort();
        content.others.sort();
        Ok(content)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), Error> {
        let special = |what| Err(Error::Special { what });
        let found = match path.metadata() {
            Err(error) if path.is_symlink() && error.kind() == std::io::ErrorKind::NotFound => {
                return special("a link to a file that does not exist");
            }
            found => found?,
        };
        if found.is_dir() {
            self.folders.push(path);
            return Ok(());
        }
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return special("a file whose name is not UTF-8");
        };
        match name {
            NAME => self.listed = true,
            UNFINISHED => self.unfinished = true,
            _ if is_partial(name) => {}
            _ if !found.is_file() => return special("no regular file"),
            _ if is_safetensors(&path) => self.shards.push(name.to_owned()),
            _ => self.others.push(name.to_owned()),
        }
        Ok(())
    }

    fn contains(&self, name: &String) -> bool {
        self.shards.binary_search(name).is_ok() || self.others.binary_search(name).is_ok()
    }
}

/// Creates and claims the folder that a model is packed into, and removes what killed runs left.
///
/// # Errors
/// [`Error::Occupied`] if it holds a file that is no part of the model, or files but no manifest;
/// [`Error::HalfUnpacked`].
pub(crate) fn claim_packed(folder: &Path, model: &Content) -> Result<Claim, Error> {
    let (claim, there) = claim(folder)?;
    if there.unfinished {
        return Err(Error::HalfUnpacked.of(folder));
    }
    let mut files = there.shards.iter().chain(&there.others);
    match files.find(|name| !there.listed || !model.contains(name)) {
        Some(name) => Err(Error::Occupied { name: name.clone() }.of(folder)),
        None => Ok(claim),
    }
}

/// Creates and claims the folder that a model is unpacked into, and removes what killed runs left.
///
/// # Errors
/// [`Error::Occupied`] if it holds a packed model, or shards of another.
pub(crate) fn claim_plain(folder: &Path, model: &Content) -> Result<Claim, Error> {
    let (claim, there) = claim(folder)?;
    let listed = there.listed.then(|| NAME.to_owned());
    match listed.or_else(|| there.shards.into_iter().find(|name| !model.contains(name))) {
        Some(name) => Err(Error::Occupied { name }.of(folder)),
        None => Ok(claim),
    }
}

fn claim(folder: &Path) -> Result<(Claim, Content), Error> {
    fs::create_dir_all(folder).map_err(|error| Error::Io(error).of(folder))?;
    let claim = Claim::new(folder)?;
    discard_abandoned(folder);
    Ok((claim, Content::list(folder)?))
}

/// Marks a folder as unfinished until [`end`](Self::end). A process that fails or dies leaves the
/// mark.
pub(crate) struct Unfinished(PathBuf);

impl Unfinished {
    pub(crate) fn begin(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(UNFINISHED);
        let text = b"Files are missing here: `buddy unpack` did not finish. Run it again, which removes this file.\n";
        write_atomic(&path, |out| out.write_all(text))?;
        Ok(Self(path))
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        fs::remove_file(&self.0).map_err(|error| Error::Io(error).of(&self.0))
    }
}

pub(crate) fn is_safetensors(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "safetensors")
}
