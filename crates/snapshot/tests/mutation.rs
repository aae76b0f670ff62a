//! Mutated files of every format give an error of one line or arrays within the file, never a
//! panic; files accepted here are accepted by the formats' own readers.

use buddy_core::Dtype;
use buddy_snapshot::{Format, read_memory};
use proptest::prelude::*;
use zip::CompressionMethod::{Deflated, Stored};

mod files;

/// A valid file of some format.
fn valid() -> impl Strategy<Value = (Format, Vec<u8>)> {
    let members = || [("w.npy", files::floats(100)), ("b.npy", files::floats(3))];
    prop::sample::select(vec![
        (Format::Npy, files::floats(20)),
        (Format::Npy, files::npy(3, "{'descr': '|V2', 'fortran_order': True, 'shape': (2, 2)}", &[1; 8])),
        (Format::Npz, files::npz(&members(), Stored)),
        (Format::Npz, files::npz(&members(), Deflated)),
        (
            Format::Npy,
            files::npy(
                1,
                "{'descr': [('a', '<f4'), ('b', '>i2', (2,))], 'fortran_order': False, 'shape': (2,)}",
                &[1; 16],
            ),
        ),
        (Format::NetCdf, files::netcdf(1, 2)),
        (Format::NetCdf, files::netcdf(5, 2)),
        (Format::Safetensors, files::two_tensors()),
    ])
}

/// A mutation; positions are fractions of the file's length.
#[derive(Debug, Clone)]
enum Spoil {
    Set(f64, u8),
    Number(f64, u64, usize),
    Digit(f64, u8),
    Cut(f64),
    Grow(Vec<u8>),
    Repeat(f64, f64),
}

fn spoil() -> impl Strategy<Value = Spoil> {
    let number =
        prop_oneof![Just(u64::MAX), Just(1 << 63), Just(i64::MAX as u64), Just(0), any::<u64>(), 0u64..1000];
    prop_oneof![
        (0.0..1.0, any::<u8>()).prop_map(|(at, byte)| Spoil::Set(at, byte)),
        (0.0..1.0, number, 1usize..=8).prop_map(|(at, value, width)| Spoil::Number(at, value, width)),
        (0.0..1.0, prop::sample::select(b"0123456789,:'\"[](){}<>|-ebfuiV".to_vec()))
            .prop_map(|(at, byte)| Spoil::Digit(at, byte)),
        (0.0..1.0).prop_map(Spoil::Cut),
        prop::collection::vec(any::<u8>(), 1..40).prop_map(Spoil::Grow),
        (0.0..1.0, 0.0..1.0).prop_map(|(from, to)| Spoil::Repeat(from, to)),
    ]
}

fn apply(file: &mut Vec<u8>, spoil: Spoil) {
    if file.is_empty() {
        return;
    }
    let place = |at: f64| (at * file.len() as f64) as usize;
    match spoil {
        Spoil::Set(at, byte) => {
            let at = place(at);
            file[at] = byte;
        }
        Spoil::Number(at, value, width) => {
            let at = place(at);
            let end = (at + width).min(file.len());
            file[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        // Changes the next character of a header's text, so that the text stays nearly valid.
        Spoil::Digit(at, byte) => {
            let at = place(at);
            if let Some(next) = file[at..].iter().position(u8::is_ascii_graphic) {
                file[at + next] = byte;
            }
        }
        Spoil::Cut(at) => file.truncate(place(at)),
        Spoil::Grow(bytes) => file.extend(bytes),
        Spoil::Repeat(from, to) => {
            let (from, to) = (place(from.min(to)), place(from.max(to)));
            file.extend_from_within(from..to);
        }
    }
}

fn check(format: Format, file: &[u8]) -> Result<(), TestCaseError> {
    match read_memory(format, "x", file.to_vec(), Some(Dtype::Bf16)) {
        Err(error) => prop_assert!(!error.to_string().contains('\n'), "{error}"),
        Ok(arrays) => {
            for array in &arrays {
                let elements: u64 = array.shape.iter().product();
                prop_assert_eq!(array.bytes().len() as u64, elements * array.dtype.bytes() as u64);
            }
        }
    }
    if format == Format::Safetensors && read_memory(format, "x", file.to_vec(), None).is_ok() {
        prop_assert!(safetensors::SafeTensors::deserialize(file).is_ok());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn mutated_files_never_panic((format, mut file) in valid(), spoils in prop::collection::vec(spoil(), 1..5)) {
        for spoil in spoils {
            apply(&mut file, spoil);
        }
        check(format, &file)?;
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        for format in [Format::Raw, Format::Npy, Format::Npz, Format::NetCdf, Format::Safetensors] {
            check(format, &noise)?;
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let npz = |method| files::npz(&[("w.npy", files::floats(100))], method);
    let all = [
        (Format::Npy, files::floats(20)),
        (Format::Npz, npz(Stored)),
        (Format::Npz, npz(Deflated)),
        (Format::Safetensors, files::two_tensors()),
    ];
    for (format, file) in all {
        assert!(read_memory(format, "x", file.clone(), None).is_ok());
        for length in 0..file.len() {
            assert!(
                read_memory(format, "x", file[..length].to_vec(), None).is_err(),
                "{format:?} cut at {length}"
            );
        }
    }
}
