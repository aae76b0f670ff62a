//! Unpacks any bytes as a packed model: the original file, or an error.

use std::{fs, path::PathBuf, sync::LazyLock};

use buddy_model::{unpack_file, verify_file};

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("buddy-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
});

pub(crate) fn unpack(bytes: &[u8]) {
    let (from, to) = (FOLDER.join("packed.safetensors"), FOLDER.join("plain.safetensors"));
    fs::write(&from, bytes).expect("a temporary file");
    if unpack_file(&from, &to, &|_| ()).is_ok() {
        verify_file(&to, &from, &|_| ()).expect("an unpacked file matches its packed form");
    }
}
