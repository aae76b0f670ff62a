//! Any bytes as a packed model: the original file, or an error.
#![no_main]

use buddy_model::unpack_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = std::env::temp_dir().join(format!("buddy-fuzz-{}", std::process::id()));
    let (from, to) = (folder.join("packed.safetensors"), folder.join("plain.safetensors"));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    std::fs::write(&from, bytes).expect("a temporary file");
    let _ = unpack_file(&from, &to, &|_| ());
});
