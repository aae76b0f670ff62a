//! A C++ program allocates by a targets file, on the stand-in driver of `crates/capi/tests/stub`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const TARGETS: &str = "version = 1
program = \"heat\"

[[allocation]]
name = \"heat\"
bytes = 18432
codec = \"bpc\"
ranges = [{ pages = 1, target = \"4x\" }, { pages = 2, target = \"4/3x\" }]

[[allocation]]
name = \"material\"
bytes = 2304
codec = \"zeros32\"
target = \"16x\"

[[change]]
snapshot = 2
name = \"material\"
bytes_moved = 100
ranges = [{ pages = 1, target = \"4x\" }]
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Returns the folder of `libbuddy_targets.so`: cargo builds it with the tests.
fn library_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let found = test.ancestors().skip(1).find(|folder| folder.join("libbuddy_targets.so").exists());
    found.expect("libbuddy_targets.so beside the tests").to_owned()
}

fn compiler(variable: &str, usual: &str) -> Command {
    let mut command = Command::new(std::env::var_os(variable).unwrap_or(usual.into()));
    command.current_dir(root()).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Iinclude"]);
    command
}

#[test]
fn the_headers_are_c11_and_cpp17() {
    for header in ["include/buddy_targets.h", "include/buddy.h"] {
        succeed(compiler("CC", "cc").args(["-std=c11", "-fsyntax-only", "-x", "c", header]));
    }
    for header in ["include/buddy_targets.h", "include/buddy.hpp"] {
        for standard in ["-std=c++17", "-std=c++20"] {
            succeed(compiler("CXX", "g++").args([standard, "-fsyntax-only", "-x", "c++", header]));
        }
    }
}

/// Returns the lines of an example behind its comment.
fn lines_of(example: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("examples/cpp").join(example)).unwrap();
    text.lines().skip_while(|line| line.starts_with("//")).map(str::to_owned).collect()
}

#[test]
fn jacobi_differs_from_the_plain_program_in_ten_lines() {
    let (plain, compressed) = (lines_of("jacobi_plain.cpp"), lines_of("jacobi.cpp"));
    let other = compressed.iter().filter(|line| !plain.contains(line) || line.trim() == "}").count();
    // Two of the braces are the plain program's.
    assert_eq!(other - plain.iter().filter(|line| line.trim() == "}").count(), 10);
    for example in ["examples/cpp/jacobi.cpp", "examples/cpp/jacobi_plain.cpp"] {
        succeed(compiler("CXX", "g++").args(["-std=c++17", "-fsyntax-only", example]));
    }
}

/// The kernel of the solvers, on the CPU; `tools/nvrtc_check.py` compiles it for GPUs.
#[test]
fn the_kernel_of_the_example_sweeps_a_plate() {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plate");
    let mut build = compiler("CXX", "g++");
    build.args(["-std=c++17", "-UNDEBUG", "crates/capi-targets/tests/stub/plate.cpp", "-o"]);
    succeed(build.arg(&program));
    assert_eq!(succeed(&mut Command::new(&program)), "every value is right\n");
}

/// Makes a folder with the stand-in driver and a targets file, sound and damaged.
fn prepare(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let stub = root().join("crates/capi/tests/stub/driver.c");
    let flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"];
    let mut driver = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    succeed(driver.args(flags).arg(folder.join("libcuda.so")).arg(stub));
    std::os::unix::fs::symlink("libcuda.so", folder.join("libnvrtc.so")).unwrap();
    fs::write(folder.join("targets.toml"), TARGETS).unwrap();
    fs::write(folder.join("damaged.toml"), TARGETS.replace("\"4/3x\"", "\"5x\"")).unwrap();
    folder
}

/// Links a program in this folder and returns what it prints.
fn build_and_run(mut build: Command, folder: &Path) -> String {
    let program = folder.join("program");
    build.arg("-o").arg(&program).arg("-L").arg(library_folder()).arg("-L").arg(folder);
    succeed(build.args(["-lbuddy_targets", "-lcuda"]));
    let mut command = Command::new(&program);
    command.args([folder.join("targets.toml"), folder.join("damaged.toml")]);
    command.env("LD_LIBRARY_PATH", format!("{}:{}", folder.display(), library_folder().display()));
    succeed(command.env("BUDDY_CACHE_DIR", "/dev/null/none"))
}

#[test]
fn the_library_has_a_name_of_its_own() {
    let library = library_folder().join("libbuddy_targets.so");
    let Ok(output) = Command::new("readelf").arg("-d").arg(&library).output() else {
        eprintln!("SKIPPED: there is no readelf");
        return;
    };
    assert!(String::from_utf8_lossy(&output.stdout).contains("[libbuddy_targets.so]"), "{output:?}");
}

#[test]
fn a_cpp_program_allocates_by_a_targets_file() {
    let folder = prepare("cpp");
    // The iterators of tiles are C++20's forward iterators.
    let program = "crates/capi-targets/tests/stub/program.cpp";
    succeed(compiler("CXX", "g++").args(["-std=c++20", "-fsyntax-only", program]));
    let mut build = compiler("CXX", "g++");
    build.args(["-std=c++17", "-UNDEBUG", program]);
    let text = build_and_run(build, &folder);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("damaged.toml: invalid targets file: line 8"), "{text}");
    for (line, start) in [(lines[1], "heat bpc 2 "), (lines[2], "material zeros32 1 ")] {
        assert!(line.starts_with(start), "{text}");
        let numbers: Vec<u64> = line.split(' ').skip(3).map(|number| number.parse().unwrap()).collect();
        assert!(numbers[0] == numbers[1] && numbers[2] == numbers[3], "file and memory differ: {line}");
    }
    assert!(lines[3].starts_with("a BuddyView has "), "{text}");
}

#[test]
fn a_fortran_program_allocates_by_a_targets_file() {
    let found = Command::new(std::env::var_os("FC").unwrap_or("gfortran".into())).arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: there is no gfortran on this machine");
        return;
    }
    let folder = prepare("fortran");
    let mut build = compiler("FC", "gfortran");
    build.args(["-std=f2008", "-J"]).arg(&folder);
    build.args(["include/buddy.f90", "crates/capi-targets/tests/stub/program.f90"]);
    let text = build_and_run(build, &folder);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["none.toml: No such file or directory (os error 2)", "2 18432 144"]);
    assert_eq!(lines[2], "material zeros32 2304 1");
    assert!(lines[3].starts_with("a BuddyView has "), "{text}");
    assert_eq!(lines[4..], ["48 7.5 75.0 -8.0 -80.0"]);
}
