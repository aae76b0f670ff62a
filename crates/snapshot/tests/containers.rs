//! Files as other programs write them: HDF5, PyTorch, GGUF, big-endian NumPy, folders of a model.
#![allow(missing_docs)]

mod files;

use std::{fs, path::Path};

use buddy_core::Dtype;
use buddy_snapshot::{Array, Format, array_files, array_files_and_left, open, open_raw, read_memory};

/// The files that `tests/data/make.py` made.
fn data(name: &str) -> Vec<Array> {
    open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name), None).unwrap()
}

fn described(arrays: &[Array]) -> Vec<(&str, Dtype, &[u64])> {
    arrays.iter().map(|array| (array.name.as_str(), array.dtype, &array.shape[..])).collect()
}

fn numbers<T, const N: usize>(array: &Array, parse: fn([u8; N]) -> T) -> Vec<T> {
    array.bytes().as_chunks().0.iter().copied().map(parse).collect()
}

#[test]
fn hdf5_gives_every_dataset_of_numbers_in_rows() {
    let arrays = data("fields.h5");
    let expected: [(&str, Dtype, &[u64]); 5] = [
        ("chunked", Dtype::F32, &[20, 30]),
        ("contiguous", Dtype::F64, &[20, 30]),
        ("flow/big_endian", Dtype::I16, &[5]),
        ("flow/deflated", Dtype::I32, &[20, 30]),
        ("flow/deep/half", Dtype::F16, &[4]),
    ];
    assert_eq!(described(&arrays), expected);
    let steps: Vec<f64> = (0..600).map(f64::from).collect();
    assert_eq!(numbers(&arrays[0], f32::from_le_bytes), steps.iter().map(|&x| x as f32).collect::<Vec<_>>());
    assert_eq!(numbers(&arrays[1], f64::from_le_bytes), steps);
    assert_eq!(numbers(&arrays[2], i16::from_le_bytes), [0, 1, 2, 3, 4]);
    assert_eq!(numbers(&arrays[3], i32::from_le_bytes), (0..600).collect::<Vec<_>>());
}

#[test]
fn a_storage_of_pytorch_counts_once_by_its_first_tensor() {
    let arrays = data("state.pt");
    let expected: [(&str, Dtype, &[u64]); 4] = [
        ("model.embed.weight", Dtype::Bf16, &[3, 4]),
        ("model.head.bias", Dtype::F32, &[3]),
        ("optimizer.state.0.exp_avg", Dtype::F32, &[24]),
        ("optimizer.state.0.step", Dtype::I64, &[]),
    ];
    assert_eq!(described(&arrays), expected);
    assert_eq!(numbers(&arrays[1], f32::from_le_bytes), [0.0, 1.0, 2.0]);
    assert_eq!(numbers(&arrays[3], i64::from_le_bytes), [7]);
    assert_eq!(numbers(&data("parameter.pt")[0], f32::from_le_bytes), [1.0; 4]);
}

/// A GGUF file with a pair of each relevant kind, a plain tensor and a quantised one.
fn gguf() -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    let text = |file: &mut Vec<u8>, text: &str| {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text.as_bytes());
    };
    file.extend(3u32.to_le_bytes());
    file.extend([2u64, 2].map(u64::to_le_bytes).concat());
    text(&mut file, "general.alignment");
    file.extend([4u32, 64].map(u32::to_le_bytes).concat());
    text(&mut file, "tokens");
    file.extend([9u32, 8].map(u32::to_le_bytes).concat());
    file.extend(1u64.to_le_bytes());
    text(&mut file, "hello");
    for (name, dims, kind, offset) in [("norm", vec![4u64], 0u32, 0u64), ("w", vec![32, 2], 8, 64)] {
        text(&mut file, name);
        file.extend((dims.len() as u32).to_le_bytes());
        file.extend(dims.iter().flat_map(|n| n.to_le_bytes()));
        file.extend(kind.to_le_bytes());
        file.extend(offset.to_le_bytes());
    }
    file.resize(file.len().next_multiple_of(64), 0);
    file.extend([1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat());
    file.resize(file.len() + 48, 0);
    file.extend([7; 68]);
    file
}

#[test]
fn gguf_gives_plain_tensors_by_type_and_quantised_ones_as_bytes() {
    let arrays = read_memory(Format::Gguf, "x", gguf(), None).unwrap();
    let expected: [(&str, Dtype, &[u64]); 2] = [("norm", Dtype::F32, &[4]), ("w", Dtype::U8, &[68])];
    assert_eq!(described(&arrays), expected);
    assert_eq!(numbers(&arrays[0], f32::from_le_bytes), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(arrays[1].bytes(), [7; 68]);
}

#[test]
fn damaged_containers_are_errors() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let file = |name: &str| fs::read(here.join(name)).unwrap();
    let cases =
        [(Format::Gguf, gguf()), (Format::Torch, file("state.pt")), (Format::Hdf5, file("fields.h5"))];
    for (format, whole) in cases {
        for length in (0..whole.len()).step_by(whole.len() / 61) {
            let cut = read_memory(format, "x", whole[..length].to_vec(), None);
            assert!(cut.is_err() || format == Format::Hdf5, "{format:?} cut at {length}");
        }
        for at in (0..whole.len()).step_by(whole.len() / 997 + 1) {
            for flip in [0x01, 0x80, 0xff] {
                let mut bad = whole.clone();
                bad[at] ^= flip;
                // Any answer but a panic; returned arrays have bytes.
                for array in read_memory(format, "x", bad, None).into_iter().flatten() {
                    let _ = array.bytes().len();
                }
            }
        }
    }
}

#[test]
fn big_endian_numbers_are_turned() {
    let literal = "{'descr': '>f8', 'fortran_order': False, 'shape': (2,)}";
    let file = files::npy(1, literal, &[1.5f64, -2.0].map(f64::to_be_bytes).concat());
    let arrays = read_memory(Format::Npy, "x", file, None).unwrap();
    assert_eq!(numbers(&arrays[0], f64::from_le_bytes), [1.5, -2.0]);
    let literal = "{'descr': '>c8', 'fortran_order': False, 'shape': (1,)}";
    let file = files::npy(1, literal, &[1.5f32, -2.0].map(f32::to_be_bytes).concat());
    assert_eq!(
        numbers(&read_memory(Format::Npy, "x", file, None).unwrap()[0], f32::from_le_bytes),
        [1.5, -2.0]
    );
}

#[test]
fn a_model_is_its_folder_or_its_index() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["model-1.safetensors", "model-2.safetensors"] {
        fs::write(at(name), files::two_tensors()).unwrap();
    }
    fs::write(at("config.json"), "{}").unwrap();
    fs::write(at("pytorch_model.bin"), b"PK\x03\x04").unwrap();
    assert_eq!(array_files(dir.path()).unwrap(), [at("model-1.safetensors"), at("model-2.safetensors")]);

    let index = at("model.safetensors.index.json");
    fs::write(&index, r#"{"weight_map": {"a": "model-2.safetensors"}}"#).unwrap();
    assert_eq!(array_files(dir.path()).unwrap(), [at("model-2.safetensors")]);
    fs::write(&index, r#"{"weight_map": {"a": "model-3.safetensors"}}"#).unwrap();
    assert!(array_files(&index).unwrap_err().to_string().contains("\"model-3.safetensors\" is missing"));
    fs::write(&index, r#"{"weight_map": {"a": "../model-1.safetensors"}}"#).unwrap();
    assert!(array_files(&index).is_err());
    let empty = tempfile::tempdir().unwrap();
    assert!(array_files(empty.path()).unwrap_err().to_string().contains("no file of arrays"));
}

/// A folder without other files of arrays stands for its dumps, whose extensions name their types.
#[test]
fn dumps_of_a_folder_are_read_and_typed_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["p.f64", "rho.dat", "u.F32"] {
        fs::write(at(name), [0; 64]).unwrap();
    }
    fs::write(at("notes.tex"), "x").unwrap();
    let (files, left) = array_files_and_left(dir.path()).unwrap();
    assert_eq!(files, [at("p.f64"), at("rho.dat"), at("u.F32")]);
    let [left] = &left[..] else { panic!("{left:?}") };
    assert!(left.name.ends_with("notes.tex"), "{left:?}");
    assert_eq!(left.why, "the .dat and .f32 and .f64 files of the folder are read; give this one by name");
    let dtype = |name: &str, given| open(&at(name), given).unwrap()[0].dtype;
    assert_eq!((dtype("p.f64", None), dtype("rho.dat", None)), (Dtype::F64, Dtype::U8));
    assert_eq!(dtype("p.f64", Some(Dtype::I32)), Dtype::I32, "what is asked for comes first");
    fs::write(at("a.npy"), files::floats(4)).unwrap();
    let (files, left) = array_files_and_left(dir.path()).unwrap();
    assert_eq!((files, left.len()), (vec![at("a.npy")], 4));
    assert!(left[0].why.contains("the .npy files"), "{left:?}");
}

#[test]
fn a_container_is_no_dump_unless_somebody_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("field.dat");
    fs::write(&path, b"PAR1 and more").unwrap();
    let error = open(&path, None).unwrap_err().to_string();
    assert!(
        error.contains("Parquet") && error.contains("save its columns") && error.contains("--raw"),
        "{error}"
    );
    assert_eq!(open_raw(&path, None).unwrap()[0].bytes(), b"PAR1 and more");
}
