//! Each format is read, and each defect has its message.

use std::path::Path;

use buddy_core::Dtype;
use buddy_snapshot::{Array, Format, open, read_memory};
use zip::CompressionMethod::{Deflated, Stored};

mod files;

fn read(format: Format, bytes: &[u8]) -> Result<Vec<Array>, String> {
    read_memory(format, "x", bytes.to_vec(), None).map_err(|error| error.to_string())
}

fn refuse(format: Format, bytes: &[u8]) -> String {
    let message = read(format, bytes).expect_err("this must be refused");
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn raw_bytes_are_one_array() {
    let arrays = read(Format::Raw, &[1, 2, 3]).unwrap();
    assert_eq!(
        (arrays[0].dtype, arrays[0].shape.as_slice(), arrays[0].bytes()),
        (Dtype::U8, &[3][..], &[1, 2, 3][..])
    );
    let doubles = read_memory(Format::Raw, "x", vec![0; 24], Some(Dtype::F64)).unwrap();
    assert_eq!(doubles[0].shape, [3]);
    let error = read_memory(Format::Raw, "x", vec![0; 23], Some(Dtype::F64)).unwrap_err();
    assert_eq!(error.to_string(), "23 bytes are not a whole number of f64 elements of 8 bytes");
}

#[test]
fn npy_of_every_version_and_order() {
    let data: Vec<u8> = (0..48).collect();
    for version in 1..=3 {
        for order in ["True", "False"] {
            let literal = format!("{{'descr': '<f8', 'fortran_order': {order}, 'shape': (2, 3), }}\n");
            let arrays = read(Format::Npy, &files::npy(version, &literal, &data)).unwrap();
            assert_eq!((arrays[0].dtype, arrays[0].shape.as_slice()), (Dtype::F64, &[2, 3][..]));
            assert_eq!(arrays[0].bytes(), data);
        }
    }
}

#[test]
fn npy_scalars_and_bf16() {
    let scalar = files::npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': ()}", &[7]);
    assert_eq!(read(Format::Npy, &scalar).unwrap()[0].bytes(), [7]);
    let void = files::npy(1, "{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", &[7, 8]);
    assert_eq!(read_memory(Format::Npy, "x", void.clone(), Some(Dtype::Bf16)).unwrap()[0].dtype, Dtype::Bf16);
    assert!(read_memory(Format::Npy, "x", void.clone(), Some(Dtype::F32)).is_err());
    assert!(refuse(Format::Npy, &void).starts_with("NumPy stored the elements as plain bytes (\"<V2\")"));
}

#[test]
fn npy_with_a_false_header_is_refused() {
    let literal = |text: &str| refuse(Format::Npy, &files::npy(1, text, &[0; 8]));
    let shape = |shape: &str| literal(&format!("{{'descr':'<f4','fortran_order':False,'shape':{shape}}}"));
    assert_eq!(shape("(3,)"), "shape [3] of f32 needs 12 bytes, but the file has 8 for it");
    assert_eq!(shape("(1,)"), "shape [1] of f32 needs 4 bytes, but the file has 8 for it");
    assert!(shape("(9223372036854775807,)").ends_with("is larger than any file can be"));
    assert!(shape("(4294967296, 4294967296, 4294967296)").ends_with("is larger than any file can be"));
    assert!(shape("(99999999999999999999,)").contains("where a dimension below 2^64 should be"));
    assert!(shape("(-1,)").contains("where a dimension below 2^64 should be"));
    assert!(shape(&format!("({})", "1,".repeat(65))).ends_with("more than 64 dimensions"));
    assert!(literal("{'descr':'|O','fortran_order':False,'shape':(2,)}").starts_with("unknown dtype"));
    assert!(
        literal("{'descr':[('a','<f4')],'fortran_order':False,'shape':(3,)}").contains("records of 4 bytes")
    );
    assert!(literal("{'descr':[('a',)],'fortran_order':False,'shape':(2,)}").contains("a string should be"));
    assert!(literal(&format!("{{'descr':{}", "[('a',".repeat(99))).contains("records within records"));
    assert!(literal("{'descr':'<f4','shape':(2,)}").contains("lacks one of"));
    assert!(literal("{'descr':'<f4','descr':'<f8'}").contains("\"descr\" twice"));
    assert!(literal("{'descr':'<f4").contains("has no end"));
    assert!(literal("{'descr':'<f4','fortran_order':False,'shape':(2,)} x").contains("more text"));
    assert!(refuse(Format::Npy, b"PK\x03\x04").contains("does not begin with"));
    assert!(refuse(Format::Npy, b"\x93NUMPY\x04\0\0\0").contains("version 4"));
    assert!(refuse(Format::Npy, b"\x93NUMPY\x02\0\0\0").contains("ends within"));
    assert!(
        refuse(Format::Npy, b"\x93NUMPY\x03\0\xff\xff\xff\xffab").contains("header is 4294967295 bytes long")
    );
}

#[test]
fn structured_npy_gives_one_array_for_each_field() {
    // numpy.dtype([('x', '>u2'), ('n', [('b', '|u1')]), ('', '|V1'), ('s', '|S2'), ('v', '<i2',
    // (2,))])
    let descr = "[('x', '>u2'), ('n', [('b', '|u1')]), ('', '|V1'), ('s', '|S2'), ('v', '<i2', (2,))]";
    let literal = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (2,), }}");
    let arrays = read(Format::Npy, &files::npy(1, &literal, &(0..20).collect::<Vec<u8>>())).unwrap();
    let found: Vec<_> = arrays.iter().map(|a| (a.name.as_str(), a.dtype, &a.shape[..], a.bytes())).collect();
    assert_eq!(
        found,
        [
            ("x.x", Dtype::U16, &[2][..], &[1, 0, 11, 10][..]),
            ("x.n.b", Dtype::U8, &[2][..], &[2, 12][..]),
            ("x.s", Dtype::U8, &[2, 2][..], &[4, 5, 14, 15][..]),
            ("x.v", Dtype::I16, &[2, 2][..], &[6, 7, 8, 9, 16, 17, 18, 19][..]),
        ]
    );
}

#[test]
fn classic_netcdf_of_every_version() {
    for version in [1, 2, 5] {
        let file = files::netcdf(version, 2);
        let arrays = read(Format::NetCdf, &file).unwrap();
        let found: Vec<_> = arrays.iter().map(|a| (a.name.as_str(), a.dtype, &a.shape[..])).collect();
        assert_eq!(
            found,
            [("grid", Dtype::F64, &[3][..]), ("t", Dtype::I16, &[2, 3][..]), ("flag", Dtype::I8, &[2][..])]
        );
        let grid: Vec<u8> = [0.5f64, 1.5, 2.5].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(arrays[0].bytes(), grid);
        let t: Vec<u8> = [0i16, 1, 2, 100, 101, 102].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(arrays[1].bytes(), t);
        assert_eq!(arrays[2].bytes(), [7, 8]);
        // A streaming writer states no number of records.
        let streamed = read(Format::NetCdf, &files::netcdf(version, u64::MAX)).unwrap();
        assert_eq!(streamed[1].bytes(), t);
        for length in 0..file.len() {
            let refused = read(Format::NetCdf, &file[..length]);
            assert!(refused.is_err() || length > file.len() - 4, "cut to {length} bytes");
        }
    }
    let lies = refuse(Format::NetCdf, &files::netcdf(1, 1 << 30));
    assert!(lies.contains("past the end"), "{lies}");
    assert!(refuse(Format::NetCdf, b"CDF\x03").contains("version 1, 2 or 5"));
}

#[test]
fn npz_stored_and_deflated_give_the_same() {
    let members = [("w.npy", files::floats(1000)), ("deep/b.npy", files::floats(1))];
    for method in [Stored, Deflated] {
        let arrays = read(Format::Npz, &files::npz(&members, method)).unwrap();
        let names: Vec<&str> = arrays.iter().map(|array| array.name.as_str()).collect();
        assert_eq!(names, ["w", "deep/b"]);
        for (array, (_, file)) in arrays.iter().zip(&members) {
            assert!(file.ends_with(array.bytes()) && array.dtype == Dtype::F32);
        }
    }
}

/// A stored member's bytes are those of the file, not a copy.
#[test]
fn npz_stored_is_not_copied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npz");
    std::fs::write(&path, files::npz(&[("a.npy", files::floats(64)), ("b.npy", files::floats(64))], Stored))
        .unwrap();
    let arrays = open(&path, None).unwrap();
    let (a, b) = (arrays[0].bytes().as_ptr() as usize, arrays[1].bytes().as_ptr() as usize);
    assert!(b > a && b - a < 1024, "both lie in one mapping of the file");
}

#[test]
fn npz_with_invalid_members_is_refused() {
    assert!(refuse(Format::Npz, b"this is no zip at all").starts_with("not a valid .npz file: "));
    assert!(refuse(Format::Npz, &files::npz(&[], Stored)).contains("no arrays"));
    let text = files::npz(&[("readme.txt", b"hello".to_vec())], Stored);
    assert!(refuse(Format::Npz, &text).starts_with("readme.txt: not a valid .npy file"));
}

/// 2 GiB of zeros deflate to 2 MB. A directory entry that understates them is detected during
/// inflation.
#[test]
fn npz_stored_members_are_compared_with_their_checksum() {
    let mut file = files::npz(&[("a.npy", files::floats(64))], Stored);
    let (last, _) = 63f32.to_le_bytes().into_iter().enumerate().next_back().unwrap();
    let at = file.windows(4).position(|bytes| bytes == 63f32.to_le_bytes()).unwrap() + last;
    file[at] ^= 1;
    let message = refuse(Format::Npz, &file);
    assert!(message.starts_with("a.npy: its bytes have the checksum"), "{message}");
}

#[test]
fn npz_stored_members_that_share_bytes_are_refused() {
    let mut file = files::npz(&[("a.npy", files::floats(64)), ("b.npy", files::floats(64))], Stored);
    // Points the second member of the central directory at the first: 42 bytes into its header.
    let header = |file: &[u8], from| from + file[from..].windows(4).position(|b| b == b"PK\x01\x02").unwrap();
    let second = header(&file, header(&file, 0) + 4);
    file[second + 42..second + 46].fill(0);
    let message = refuse(Format::Npz, &file);
    assert!(message.contains("\"a.npy\" and \"b.npy\" lie over one another"), "{message}");
}

#[test]
fn npz_bombs_are_refused() {
    let mut bomb = files::npz(&[("a.npy", vec![0; 1 << 20])], Deflated);
    let directory = bomb.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    let claim = |file: &mut Vec<u8>, bytes: u32| {
        file[directory + 24..directory + 28].copy_from_slice(&bytes.to_le_bytes())
    };
    claim(&mut bomb, 0x7fff_ffff);
    assert!(refuse(Format::Npz, &bomb).contains("inflate to 2147483647 bytes, over the limit of 1073741824"));
    claim(&mut bomb, 10);
    assert!(refuse(Format::Npz, &bomb).starts_with("a.npy: not a valid .npz file"));
    claim(&mut bomb, 1 << 21);
    assert!(refuse(Format::Npz, &bomb).starts_with("a.npy: not a valid .npz file"));
}

#[test]
fn safetensors_are_read_in_the_order_of_their_bytes() {
    let arrays = read(Format::Safetensors, &files::two_tensors()).unwrap();
    assert_eq!(
        (arrays[0].name.as_str(), arrays[0].dtype, arrays[0].bytes()),
        ("a", Dtype::F32, &[0, 1, 2, 3, 4, 5, 6, 7][..])
    );
    assert_eq!(
        (arrays[1].dtype, arrays[1].shape.as_slice(), arrays[1].bytes()[0]),
        (Dtype::Bf16, &[2, 3][..], 8)
    );
}

#[test]
fn safetensors_with_a_false_header_are_refused() {
    let one = |shape: &str, offsets: &str| {
        let header = format!(r#"{{"t":{{"dtype":"U8","shape":{shape},"data_offsets":{offsets}}}}}"#);
        refuse(Format::Safetensors, &files::safetensors(&header, &[0; 8]))
    };
    assert!(one("[9]", "[0,9]").contains("go past the 8 bytes of data"));
    assert!(one("[9]", "[0,8]").contains("needs 9 bytes, but the file has 8"));
    assert!(one("[4]", "[4,8]").contains("leave a hole after 0"));
    assert!(one("[4]", "[0,4]").contains("end at 4, but it has 8 bytes"));
    assert!(one("[4]", "[8,4]").contains("run backwards"));
    assert!(one("[9223372036854775808]", "[0,9223372036854775808]").contains("go past"));
    assert!(one("[9223372036854775807, 3]", "[0,8]").contains("larger than any file"));
    assert!(one("[-1]", "[0,8]").contains("header is wrong"));
    assert!(one("[1e3]", "[0,8]").contains("header is wrong"));
}

/// Eight tensors of 2^61 bytes wrap around 2^64; the format's own crate adds them up unchecked.
#[test]
fn safetensors_whose_sizes_wrap_around() {
    let tensor = |i: u64| {
        let (start, end) = (i << 61, if i == 7 { u64::MAX } else { (i + 1) << 61 });
        format!(r#""{i}":{{"dtype":"U8","shape":[{}],"data_offsets":[{start},{end}]}}"#, end - start)
    };
    let header = format!("{{{}}}", (0..8).map(tensor).collect::<Vec<_>>().join(","));
    assert!(
        refuse(Format::Safetensors, &files::safetensors(&header, &[0; 7])).contains("go past the 7 bytes")
    );
}

#[test]
fn safetensors_with_overlaps_duplicates_and_strange_types() {
    let two = |a: &str, b: &str| {
        let header = format!("{{{a},{b}}}");
        refuse(Format::Safetensors, &files::safetensors(&header, &[0; 8]))
    };
    let tensor = |name: &str, dtype: &str, n: u64, start: u64| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":[{n}],"data_offsets":[{start},{}]}}"#, start + n)
    };
    assert!(
        two(&tensor("a", "U8", 6, 0), &tensor("b", "U8", 4, 4)).contains("overlap the tensor that ends at 6")
    );
    assert_eq!(two(&tensor("a", "U8", 4, 0), &tensor("a", "U8", 4, 4)), "the name \"a\" appears twice");
    assert!(
        two(&tensor("a", "F3", 4, 0), &tensor("b", "U8", 4, 4))
            .starts_with("a: unknown dtype \"F3\"; known are")
    );
    let half = two(&tensor("a", "F4", 4, 0), &tensor("b", "U8", 4, 4));
    assert!(half.ends_with("F4 elements of shape [4] do not fill its 4 bytes"), "{half}");
    assert!(two(&tensor("a\\nb", "F3", 4, 0), &tensor("b", "U8", 4, 4)).starts_with("\"a\\nb\": unknown"));
}

#[test]
fn safetensors_with_a_bad_header() {
    let refuse = |bytes: &[u8]| refuse(Format::Safetensors, bytes);
    assert!(refuse(b"1234567").contains("shorter than 8 bytes"));
    assert!(refuse(&u64::MAX.to_le_bytes()).contains("claims 18446744073709551615 bytes"));
    assert!(refuse(&files::two_tensors()[..100]).contains("but only 92 follow"));
    assert!(refuse(&files::safetensors("[1]", &[])).contains("an object of tensors"));
    assert!(refuse(&files::safetensors("{\"a\":1}", &[])).contains("header is wrong"));
    assert!(refuse(&files::safetensors("{\"a\":\"\u{fffd}", &[])).contains("header is wrong"));
    assert!(refuse(&files::safetensors("{}", &[])).contains("no arrays"));
}

#[test]
fn files_that_cannot_be_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let refuse = |path: &Path| open(path, None).unwrap_err().to_string();
    let missing = dir.path().join("missing.npy");
    assert_eq!(refuse(&missing), format!("{}: No such file or directory (os error 2)", missing.display()));
    assert!(refuse(dir.path()).ends_with("this is a directory; give the files in it"));
    assert!(refuse(Path::new("/dev/zero")).contains("not a regular file"));
    for name in ["empty.bin", "empty.npy", "empty.npz", "empty.safetensors"] {
        let path = dir.path().join(name);
        std::fs::write(&path, []).unwrap();
        assert!(refuse(&path).ends_with("the file is empty"));
    }
}

#[test]
fn a_released_range_still_reads_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.bin");
    let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let array = open(&path, None).unwrap().remove(0);
    for range in [0..100_000, 5000..5000, 4097..70_001] {
        array.release(range);
        assert_eq!(array.bytes(), bytes);
    }
}
