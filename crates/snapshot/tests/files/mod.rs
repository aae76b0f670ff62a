//! Makes the files that the tests read and spoil.
#![allow(dead_code)] // each test uses some of them

use std::io::{Cursor, Write};

use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// A `.npy` of the given version around a header literal.
pub(crate) fn npy(version: u8, literal: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY".to_vec();
    file.extend([version, 0]);
    match version {
        1 => file.extend((literal.len() as u16).to_le_bytes()),
        _ => file.extend((literal.len() as u32).to_le_bytes()),
    }
    file.extend(literal.as_bytes());
    file.extend(data);
    file
}

/// A little-endian f32 `.npy` as NumPy writes it.
pub(crate) fn floats(count: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
    npy(1, &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}    \n"), &data)
}

/// A zip of the given members.
pub(crate) fn npz(members: &[(&str, Vec<u8>)], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        zip.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A safetensors file around a header text.
pub(crate) fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

/// Two tensors of 8 and 12 bytes.
pub(crate) fn two_tensors() -> Vec<u8> {
    let header = r#"{"__metadata__":{"made":"by hand"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    safetensors(header, &(0..20).collect::<Vec<u8>>())
}
