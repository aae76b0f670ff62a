//! Files that several tests make.
#![allow(dead_code)] // no test uses all

use std::{collections::BTreeMap, fs, path::Path};

use buddy_codec::samples::Noise;
use safetensors::{Dtype, tensor::TensorView};

/// Returns bf16 values of a normal distribution.
pub(crate) fn normal(values: usize, scale: f64, seed: u64) -> Vec<u8> {
    let mut noise = Noise(seed | 1);
    let value = |noise: &mut Noise| (((scale * noise.normal()) as f32).to_bits() >> 16) as u16;
    (0..values).flat_map(|_| value(&mut noise).to_le_bytes()).collect()
}

/// Writes a file of tensors: name, type, shape and bytes.
pub(crate) fn write(path: &Path, tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) {
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
    let metadata = Some([("format".to_owned(), "pt".to_owned())].into());
    safetensors::serialize_to_file(views, metadata, path).unwrap();
}

/// Returns the files of a folder.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect()
}
