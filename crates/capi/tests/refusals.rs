//! A driver that refuses each of its calls in turn: a code, no leak, and the state as before. And a
//! libcuda that is none.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn run(command: &mut Command) -> Output {
    command.output().expect("the program starts")
}

fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

fn library_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let found = test.ancestors().skip(1).find(|folder| folder.join("libbuddy.so").exists());
    found.expect("libbuddy.so beside the tests").to_owned()
}

fn here() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stub"))
}

fn cc() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
}

/// A folder with `libcuda.so` of this source, also under the compiler's name.
fn driver(name: &str, source: &Path) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    succeed(
        cc().args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(folder.join("libcuda.so"))
            .arg(source),
    );
    std::os::unix::fs::symlink("libcuda.so", folder.join("libnvrtc.so")).unwrap();
    folder
}

/// Where a program finds the libraries, and an empty cache of kernels.
fn with_libraries(command: &mut Command, driver: &Path) {
    let path = format!("{}:{}", driver.display(), library_folder().display());
    command.env("LD_LIBRARY_PATH", path).env("BUDDY_CACHE_DIR", "/dev/null/none");
}

#[test]
fn every_call_refused_in_turn_leaves_the_state_as_before() {
    let folder = driver("refusals", &here().join("driver.c"));
    let program = folder.join("refusals");
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../include");
    let mut build = cc();
    build
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", include, "-o"])
        .arg(&program)
        .arg(here().join("refusals.c"));
    build.arg("-L").arg(library_folder()).arg("-L").arg(&folder).args(["-lbuddy", "-lcuda", "-lpthread"]);
    succeed(&mut build);
    let mut command = Command::new(&program);
    with_libraries(&mut command, &folder);
    let text = succeed(&mut command);
    assert!(text.contains("calls refused one by one, 0 failures"), "{text}");
    for more in ["threads", "destroyed"] {
        let mut command = Command::new(&program);
        with_libraries(&mut command, &folder);
        succeed(command.arg(more));
    }
}

#[test]
fn a_libcuda_without_its_functions_is_an_error_and_no_panic() {
    let source = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("empty.c");
    for (text, expected) in [
        ("int nothing;\n", "is no CUDA driver"),
        (
            "int cuInit(unsigned f) { (void)f; return 0; }\nint cuDriverGetVersion(int *v) { *v = 12040; return 0; }\n",
            "CUDA 12.4",
        ),
    ] {
        fs::write(&source, text).unwrap();
        let folder = driver("empty", &source);
        let program = folder.join("try");
        let c = folder.join("try.c");
        fs::write(
            &c,
            "#include <stdio.h>\n#include \"buddy.h\"\nint main(void) { buddyHandle h; int code = buddyMalloc(&h, 128, 0, \"bpc\"); \
             printf(\"%d %s\", code, buddyGetLastErrorMessage()); return 0; }\n",
        )
        .unwrap();
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../include");
        succeed(
            cc().args([include, "-o"]).arg(&program).arg(&c).arg("-L").arg(library_folder()).arg("-lbuddy"),
        );
        let mut command = Command::new(&program);
        with_libraries(&mut command, &folder);
        let said = succeed(&mut command);
        assert!(said.starts_with("3 ") && said.contains(expected), "{said}");
    }
}

#[test]
fn the_library_has_a_name_of_its_own() {
    let library = library_folder().join("libbuddy.so");
    let Ok(output) = Command::new("readelf").arg("-d").arg(&library).output() else {
        eprintln!("SKIPPED: there is no readelf");
        return;
    };
    assert!(String::from_utf8_lossy(&output.stdout).contains("[libbuddy.so]"), "{output:?}");
}
