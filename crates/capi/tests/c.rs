//! C and C++ programs with the header, the library, and the example. Without a GPU the example must
//! end with a clear error; with one, it must read back its data.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the compiler of an environment variable, or the usual one.
fn compiler(variable: &str, usual: &str) -> Command {
    let mut command = Command::new(std::env::var_os(variable).unwrap_or(usual.into()));
    command.current_dir(root()).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Iinclude"]);
    command
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns the folder of libbuddy.so: cargo builds it with the tests.
fn library_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let found = test.ancestors().skip(1).find(|folder| folder.join("libbuddy.so").exists());
    found.expect("libbuddy.so beside the tests").to_owned()
}

#[test]
fn the_header_is_c11_and_cpp17() {
    succeed(compiler("CC", "cc").args(["-std=c11", "-fsyntax-only", "-x", "c", "include/buddy.h"]));
    succeed(compiler("CXX", "g++").args(["-std=c++17", "-fsyntax-only", "-x", "c++", "include/buddy.h"]));
}

/// The header's structs have the sizes of the library's.
#[test]
fn structs_agree_with_the_header() {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sizes");
    let source = program.with_extension("c");
    let text = "#include <stdio.h>\n#include \"buddy.h\"\nint main(void) { printf(\"%zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu\", \
                sizeof(buddySizes), sizeof(buddySpan), sizeof(buddyStatistics), sizeof(buddyBuffer), \
                sizeof(buddyRoom), sizeof(buddyFrozen), sizeof(buddyLayer), sizeof(buddyError), \
                sizeof(buddyKv), sizeof(buddyKvSizes), sizeof(buddyKvRows), sizeof(buddyKvAttention), sizeof(buddyMatrix), sizeof(buddyCsrArrays)); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    succeed(compiler("CC", "cc").arg("-std=c11").arg(&source).arg("-o").arg(&program));
    let seen = String::from_utf8(succeed(&mut Command::new(program)).stdout).unwrap();
    let sizes = [
        size_of::<buddy::Sizes>(),
        size_of::<buddy::Span>(),
        size_of::<buddy::Stats>(),
        size_of::<buddy::Buffer>(),
        size_of::<buddy::Parts>(),
        size_of::<buddy::FrozenMemory>(),
        size_of::<buddy::Layer>(),
        4,
        size_of::<buddy::Kv>(),
        size_of::<buddy::KvSizes>(),
        size_of::<buddy::Rows>(),
        size_of::<buddy::KvAttention>(),
        size_of::<buddy::Matrix>(),
        size_of::<buddy::CsrArrays>(),
    ];
    assert_eq!(seen, sizes.map(|size| size.to_string()).join(" "));
}

#[test]
fn the_example_links_and_says_what_is_missing_or_runs() {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("round_trip");
    let library = library_folder();
    let mut build = compiler("CC", "cc");
    build.args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "examples/c/round_trip.c"]).arg("-L").arg(&library);
    succeed(build.args(["-lbuddy", "-ldl", "-o"]).arg(&program));
    let ran = Command::new(&program).env("LD_LIBRARY_PATH", &library).output().unwrap();
    let error = String::from_utf8_lossy(&ran.stderr).into_owned();
    let required = std::env::var_os("BUDDY_REQUIRE_GPU").is_some_and(|value| value == "1");
    assert!(!required || ran.status.success(), "BUDDY_REQUIRE_GPU is set: {error}");
    match ran.status.code() {
        Some(0) => assert!(String::from_utf8_lossy(&ran.stdout).contains("every byte came back")),
        // No driver, or a driver without a GPU.
        Some(2) => {
            let expected = "buddyMalloc: no CUDA driver on this machine (no CUDA driver: libcuda is not on this \
                            machine; install NVIDIA's driver, or use a machine that has one)\n";
            assert_eq!(error, expected);
        }
        Some(3) => assert!(error.starts_with("cuInit: CUDA error"), "{error}"),
        other => panic!("{other:?}: {error}"),
    }
}

/// The packed product has the plain product's bits, and the solver converges; no GPU takes part.
#[test]
fn a_sparse_solver_runs_on_the_host() {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sparse");
    let library = library_folder();
    let mut build = compiler("CC", "cc");
    build.args(["-std=c11", "-O1", "examples/c/sparse.c"]).arg("-L").arg(&library);
    succeed(build.args(["-lbuddy", "-lm", "-o"]).arg(&program));
    let ran = succeed(Command::new(&program).env("LD_LIBRARY_PATH", &library));
    let text = String::from_utf8(ran.stdout).unwrap();
    let numbers: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [packed, steps] = numbers[..] else { panic!("{text}") };
    assert!(packed * 12 < 1_175_044 && text.contains("instead of 1175044;"), "{text}");
    assert!((10..200).contains(&steps) && text.ends_with("steps: yes\n"), "{text}");
}

/// Invalid arguments give codes with messages, also without a GPU.
#[test]
fn mistakes_are_codes() {
    let message = || {
        // SAFETY: the library's strings end in NUL.
        unsafe { std::ffi::CStr::from_ptr(buddy::buddyGetLastErrorMessage()) }.to_str().unwrap().to_owned()
    };
    // SAFETY: null pointers are the test; the others are valid.
    unsafe {
        assert_eq!(buddy::buddyMalloc(std::ptr::null_mut(), 128, 0, c"bpc".as_ptr()), 1);
        assert_eq!(message(), "handle must not be null");
        let mut handle = 7;
        assert_eq!(buddy::buddyMalloc(&mut handle, 0, 0, c"bpc".as_ptr()), 1);
        assert_eq!(buddy::buddyMalloc(&mut handle, 128, 5, c"bpc".as_ptr()), 1);
        assert_eq!(message(), "5 is no target; 0 to 4 are");
        assert_eq!(buddy::buddyMalloc(&mut handle, 128, 0, c"zip".as_ptr()), 8);
        assert_eq!(buddy::buddyMalloc(&mut handle, 128, 0, std::ptr::null()), 1);
        assert_eq!(handle, 7, "nothing was written");
        assert_eq!(
            buddy::buddyHistograms(std::ptr::null(), 3, std::ptr::null_mut(), std::ptr::null_mut()),
            1
        );
        assert_eq!(
            buddy::buddyHistograms(std::ptr::null(), 0, std::ptr::null_mut(), std::ptr::null_mut()),
            0
        );
        assert_eq!(buddy::buddyRead(99, 0, 0, 128, std::ptr::null_mut()), 2);
    }
    assert_eq!(buddy::buddyFree(0), 2);
    assert_eq!(message(), "0 is no allocation, or it was freed");
}

/// A sparse matrix is packed and multiplied without a GPU.
#[test]
fn sparse_matrices_multiply_on_the_host() {
    let (starts, indices, values) = ([0u64, 2, 3], [0u32, 2, 1], [1.5f64, 2.0, -4.0]);
    let arrays = |starts: &[u64], columns, value_bytes| buddy::CsrArrays {
        rows: 2,
        columns,
        starts: starts.as_ptr(),
        indices: indices.as_ptr(),
        values: values.as_ptr().cast(),
        value_bytes,
        reserved: 0,
    };
    let (mut matrix, mut packed, mut plain) = (0, 0, 0);
    let (x, mut y) = ([1.0, 10.0, 2.0, 20.0, 3.0, 30.0f64], [0.0f64; 4]);
    // SAFETY: the arrays have the lengths that the calls state; null pointers are refused.
    unsafe {
        assert_eq!(buddy::buddyCsrCreate(&mut matrix, &arrays(&starts, 3, 2)), 1);
        assert_eq!(buddy::buddyCsrCreate(&mut matrix, &arrays(&starts, 2, 8)), 1);
        assert_eq!(buddy::buddyCsrCreate(&mut matrix, &arrays(&[1, 2, 3], 3, 8)), 1);
        assert_eq!(buddy::buddyCsrCreate(std::ptr::null_mut(), &arrays(&starts, 3, 8)), 1);
        assert_eq!(matrix, 0, "nothing was written");
        assert_eq!(buddy::buddyCsrCreate(&mut matrix, &arrays(&starts, 3, 8)), 0);
        assert_eq!(buddy::buddyCsrBytes(matrix, &mut packed, &mut plain), 0);
        assert!(packed > 0 && plain == 3 * 12 + 3 * 4);
        let (from, to) = (x.as_ptr().cast(), y.as_mut_ptr());
        assert_eq!(buddy::buddyCsrMultiplyHost(matrix, from, to.cast(), 2), 0);
        assert_eq!(buddy::buddyCsrMultiplyHost(matrix, from, to.cast(), 9), 1);
        assert_eq!(buddy::buddyCsrMultiplyHost(matrix, std::ptr::null(), to.cast(), 2), 1);
        assert_eq!(buddy::buddyCsrMultiplyHost(matrix, from, to.wrapping_byte_add(4).cast(), 1), 1);
        assert_eq!(buddy::buddyCsrMultiplyHost(matrix + 1, from, to.cast(), 2), 2);
    }
    assert_eq!(y, [7.5, 75.0, -8.0, -80.0]);
    assert_eq!((buddy::buddyCsrDestroy(matrix), buddy::buddyCsrDestroy(matrix)), (0, 2));
}
