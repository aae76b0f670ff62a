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

/// A classic NetCDF file: `grid` of three doubles, and two variables of two records, `t[3]` and
/// `flag`.
pub(crate) fn netcdf(version: u8, records: u64) -> Vec<u8> {
    let count = |file: &mut Vec<u8>, n: u64| match version {
        5 => file.extend(n.to_be_bytes()),
        _ => file.extend((n as u32).to_be_bytes()),
    };
    let name = |file: &mut Vec<u8>, name: &str| {
        count(file, name.len() as u64);
        file.extend(name.as_bytes());
        file.resize(file.len().next_multiple_of(4), 0);
    };
    let build = |begins: [u64; 3]| {
        let mut file = b"CDF".to_vec();
        file.push(version);
        count(&mut file, records);
        file.extend([0, 0, 0, 10]);
        count(&mut file, 2);
        name(&mut file, "time");
        count(&mut file, 0);
        name(&mut file, "x");
        count(&mut file, 3);
        file.extend([0, 0, 0, 12]);
        count(&mut file, 1);
        name(&mut file, "title");
        file.extend([0, 0, 0, 2]);
        count(&mut file, 5);
        file.extend(b"waves\0\0\0");
        file.extend([0, 0, 0, 11]);
        count(&mut file, 3);
        let variables: [(&str, &[u64], u8); 3] = [("grid", &[1], 6), ("t", &[0, 1], 3), ("flag", &[0], 1)];
        for ((text, dimensions, kind), begin) in variables.into_iter().zip(begins) {
            name(&mut file, text);
            count(&mut file, dimensions.len() as u64);
            dimensions.iter().for_each(|&id| count(&mut file, id));
            file.extend([0; 4]);
            count(&mut file, 0);
            file.extend([0, 0, 0, kind]);
            count(&mut file, 8);
            match version {
                1 => file.extend((begin as u32).to_be_bytes()),
                _ => file.extend(begin.to_be_bytes()),
            }
        }
        file
    };
    let start = build([0; 3]).len() as u64;
    let mut file = build([start, start + 24, start + 32]);
    [0.5f64, 1.5, 2.5].iter().for_each(|value| file.extend(value.to_be_bytes()));
    for record in 0..2 {
        (0..3i16).for_each(|i| file.extend((100 * record + i).to_be_bytes()));
        file.extend([0, 0, 7 + record as u8, 0, 0, 0]);
    }
    file
}
