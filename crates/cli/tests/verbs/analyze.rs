//! `buddy analyze` end to end: its output, its files, and that bad input leaves nothing behind.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_buddy"));
    command.current_dir(dir).arg("analyze").args(args).env_remove("COLUMNS");
    command
}

fn buddy(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().unwrap()
}

fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Writes a model of 32 layers: two matrices and a norm each, and an embedding.
fn layers(dir: &Path) {
    let (mut header, mut bytes) = (String::new(), Vec::<u8>::new());
    let mut tensor = |name: &str, data: &[u8]| {
        let (start, end) = (bytes.len(), bytes.len() + data.len());
        let comma = if header.is_empty() { "" } else { "," };
        let elements = data.len() / 2;
        header.push_str(&format!(
            r#"{comma}"{name}":{{"dtype":"BF16","shape":[{elements}],"data_offsets":[{start},{end}]}}"#
        ));
        bytes.extend(data);
    };
    tensor("model.embed_tokens.weight", &[0; 2048]);
    for layer in 0..32 {
        let noise: Vec<u8> =
            (0..1024u32).map(|i| (i.wrapping_mul(2_654_435_761 + layer) >> 13) as u8).collect();
        tensor(&format!("model.layers.{layer}.self_attn.q_proj.weight"), &noise);
        tensor(&format!("model.layers.{layer}.self_attn.k_proj.weight"), &[0; 1024]);
        tensor(&format!("model.layers.{layer}.post_attention_layernorm.weight"), &[1; 256]);
    }
    let header = format!("{{{header}}}");
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(bytes);
    fs::write(dir.join("layers.safetensors"), file).unwrap();
}

#[test]
fn layers_are_grouped_sorted_and_filtered_within_eighty_columns() {
    let dir = TempDir::new().unwrap();
    layers(dir.path());
    let text = |args: &[&str]| {
        stdout(
            command(dir.path(), &[&["layers.safetensors"], args].concat())
                .env("COLUMNS", "80")
                .output()
                .unwrap(),
        )
    };
    let rows = |text: &str| text.lines().filter(|line| line.contains(".weight")).count();
    let all = text(&[]);
    assert!(all.lines().all(|line| line.chars().count() <= 80), "{all}");
    assert_eq!(rows(&all), 4, "{all}");
    assert!(all.contains("[0-31]") && all.contains("all 97"), "{all}");
    let top = text(&["--sort", "saved", "--top", "2"]);
    assert!(top.lines().nth(2).unwrap().contains("k_proj") && top.contains("and 33 more arrays"), "{top}");
    let each = text(&["--each", "--filter", "*.1?.self_attn.?_proj*"]);
    assert_eq!(rows(&each), 20, "{each}");
    assert!(each.contains("all 20"), "only matching arrays are measured: {each}");
    let none = buddy(dir.path(), &["layers.safetensors", "--filter", "nowhere"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8(none.stderr).unwrap().contains("matches none of 97 names"));
}

#[test]
fn dash_writes_records_and_csv_to_stdout_and_reads_stdin() {
    let dir = TempDir::new().unwrap();
    layers(dir.path());
    let json = stdout(buddy(dir.path(), &["layers.safetensors", "--json", "-"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["data"]["arrays"].as_array().unwrap().len(), 97);
    let csv = stdout(buddy(dir.path(), &["layers.safetensors", "--csv", "-", "--filter", "q_proj"]));
    assert!(
        csv.starts_with("file,name,dtype,shape,bytes,codec,target,ratio,overflow,device_bytes,"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 33);
    let piped = |file: &str, args: &[&str]| {
        let input = fs::File::open(dir.path().join(file)).unwrap();
        stdout(command(dir.path(), &[&["-"], args].concat()).stdin(input).output().unwrap())
    };
    assert!(
        piped("layers.safetensors", &[]).contains("all 97"),
        "the format is detected from the first bytes"
    );
    let raw = piped("layers.safetensors", &["--raw", "--csv", "-"]);
    assert!(raw.lines().nth(1).unwrap().starts_with("stdin,stdin,u8,"), "{raw}");
    let both = buddy(dir.path(), &["layers.safetensors", "--json", "-", "--csv", "-"]);
    assert!(String::from_utf8(both.stderr).unwrap().contains("--json and --csv both write to stdout"));
}

/// Writes a safetensors file with a ramp and zeros.
fn model(dir: &Path) {
    let header = r#"{"ramp":{"dtype":"I32","shape":[3200],"data_offsets":[0,12800]},"zeros":{"dtype":"F32","shape":[1600],"data_offsets":[12800,19200]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend((0..3200i32).flat_map(i32::to_le_bytes));
    file.extend([0; 6400]);
    fs::write(dir.join("model.safetensors"), file).unwrap();
}

/// Returns the message of a run that must fail with one line, exit code 1, empty stdout and no new
/// file.
fn refused(dir: &Path, args: &[&str]) -> String {
    let before = fs::read_dir(dir).unwrap().count();
    let output = buddy(dir, args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty());
    assert_eq!(fs::read_dir(dir).unwrap().count(), before, "something was written");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn writes_a_table_a_record_and_a_page() {
    let dir = TempDir::new().unwrap();
    model(dir.path());
    let output = buddy(dir.path(), &["model.safetensors", "--json", "a.json", "--html", "a.html"]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty());
    let table = String::from_utf8(output.stdout).unwrap();
    let ramp = table.lines().find(|line| line.starts_with("ramp")).unwrap();
    // 8 bytes per entry, but 16x is reserved for mostly-zero arrays.
    assert!(ramp.contains(" 4x ") && ramp.contains(" 4.00x") && ramp.contains("16.00x"), "{table}");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("a.json")).unwrap()).unwrap();
    assert_eq!((json["kind"].as_str(), json["data"]["threshold"].as_f64()), (Some("analysis"), Some(0.3)));
    assert_eq!(json["data"]["arrays"][0]["bpc"]["fit"]["histogram"]["classes"][1], 100);
    assert_eq!(json["data"]["arrays"][1]["bpc"]["fit"]["histogram"]["classes"][0], 50);
    assert!(fs::read_to_string(dir.path().join("a.html")).unwrap().contains("<canvas"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no temporary file is left");
}

#[test]
fn raw_files_take_a_type_and_a_threshold() {
    let dir = TempDir::new().unwrap();
    let mut bytes = vec![0; 128 * 10];
    bytes[..128].copy_from_slice(&std::array::from_fn::<u8, 128, _>(|i| (i * i * 31 % 251) as u8));
    fs::write(dir.path().join("x.bin"), bytes).unwrap();
    let row = |args: &[&str]| {
        let output = buddy(dir.path(), &[&["x.bin"], args].concat());
        String::from_utf8(output.stdout).unwrap().lines().nth(2).unwrap().to_owned()
    };
    let all = row(&["--dtype", "f64"]);
    assert!(all.contains("f64") && all.contains("16x") && all.contains("10.0%"), "{all}");
    assert_eq!(row(&["--threshold", "5%"]), row(&["--threshold", "0.05"]), "a share may be a percentage");
    assert_ne!(row(&["--threshold", "5%"]), row(&[]));
    let none = row(&["--threshold", "0"]);
    assert!(none.contains("u8") && none.contains("1.00x"), "{none}");
}

#[test]
fn bad_files_are_rejected_in_one_line() {
    let dir = TempDir::new().unwrap();
    model(dir.path());
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    write("empty.bin", b"");
    write("odd.bin", b"12345");
    write("no.npz", b"this is no zip");
    write("no.npy", b"\x93NUMPY\x01\0\xff\xff");
    write("cut.safetensors", &fs::read(dir.path().join("model.safetensors")).unwrap()[..9000]);
    let refused =
        |args: &[&str]| refused(dir.path(), &[args, &["--json", "out.json", "--html", "out.html"]].concat());
    assert!(refused(&["missing.npy"]).starts_with("buddy: missing.npy: No such file"));
    fs::create_dir(dir.path().join("folder")).unwrap();
    assert!(refused(&["folder"]).contains("folder: this folder holds no file of arrays"));
    assert!(refused(&["empty.bin"]).contains("empty.bin: the file is empty"));
    assert!(refused(&["odd.bin", "--dtype", "f32"]).contains("5 bytes are not a whole number of f32"));
    assert!(refused(&["no.npz"]).contains("no.npz: not a valid .npz file"));
    assert!(refused(&["no.npy"]).contains("no.npy: not a valid .npy file"));
    assert!(refused(&["cut.safetensors"]).contains("go past the"));
    assert!(refused(&["model.safetensors", "missing"]).contains("missing: No such file"));
}

#[test]
fn outputs_that_cannot_be_written_are_found_before_reading() {
    let dir = TempDir::new().unwrap();
    model(dir.path());
    let refused = |args: &[&str]| refused(dir.path(), &[&["model.safetensors"], args].concat());
    assert!(refused(&["--json", "none/a.json"]).contains("no such directory: none"));
    assert!(refused(&["--html", "."]).contains("is a directory"));
    assert!(refused(&["--html", "./model.safetensors"]).contains("is an input"));
    assert!(refused(&["--html", "a", "--json", "a"]).contains("the same file"));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let dir = TempDir::new().unwrap();
    for args in
        [&[][..], &["x", "--dtype", "f33"], &["x", "--threshold", "1.1"], &["x", "--threshold", "NaN"]]
    {
        let output = buddy(dir.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn skipped_datasets_and_files_are_listed_in_table_page_and_json() {
    let dir = TempDir::new().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../snapshot/tests/data");
    fs::copy(data.join("peers/types.h5"), dir.path().join("types.h5")).unwrap();
    fs::write(dir.path().join("field.f32"), [0; 256]).unwrap();
    fs::write(dir.path().join("readme.txt"), "text").unwrap();
    let table = stdout(buddy(dir.path(), &[".", "--html", "page.html"]));
    assert!(
        table.contains("Skipped 8:") && table.contains("virtual in ./types.h5: it is virtual"),
        "{table}"
    );
    assert!(table.contains("./field.f32: the .h5 files of the folder are read"), "{table}");
    assert!(fs::read_to_string(dir.path().join("page.html")).unwrap().contains("<h2>Skipped</h2>"));
    let json: serde_json::Value =
        serde_json::from_str(&stdout(buddy(dir.path(), &[".", "--json", "-"]))).unwrap();
    let skipped = json["data"]["skipped"].as_array().unwrap();
    let names: Vec<&str> = skipped.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"lzf") && names.contains(&"records.name") && !names.contains(&"readme.txt"),
        "{names:?}"
    );
}

/// As `buddy profile` does, with the types that the names state.
#[test]
fn a_folder_of_dumps_is_read() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("rho.f64"), [0; 256]).unwrap();
    fs::write(dir.path().join("mask.dat"), [0; 256]).unwrap();
    let csv = stdout(buddy(dir.path(), &[".", "--csv", "-"]));
    assert!(csv.contains("mask.dat,u8,256,") && csv.contains("rho.f64,f64,32,"), "{csv}");
}

#[test]
fn names_in_csv_are_no_formulas_and_no_escape_sequences() {
    let dir = TempDir::new().unwrap();
    let header = r#"{"=1+1":{"dtype":"U8","shape":[128],"data_offsets":[0,128]},"a\u001b[31m":{"dtype":"U8","shape":[0],"data_offsets":[128,128]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 128]].concat();
    fs::write(dir.path().join("x.safetensors"), file).unwrap();
    let csv = stdout(buddy(dir.path(), &["x.safetensors", "--csv", "-"]));
    assert!(csv.contains(",'=1+1,") && csv.contains("\\u{1b}[31m") && !csv.contains('\u{1b}'), "{csv}");
}

#[test]
fn other_compressors_stand_beside_ours() {
    let dir = TempDir::new().unwrap();
    layers(dir.path());
    let model = "layers.safetensors";
    let plain = stdout(buddy(dir.path(), &[model]));
    assert!(!plain.contains("zstd"), "{plain}");
    let text = stdout(buddy(dir.path(), &[model, "--compare", "--json", "a.json"]));
    assert!(text.lines().next().unwrap().contains("lz4") && text.contains("blocks of 64 KiB"), "{text}");
    let record: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("a.json")).unwrap()).unwrap();
    let arrays = record["data"]["arrays"].as_array().unwrap();
    let zeros = arrays.iter().find(|array| array["name"] == "model.embed_tokens.weight").unwrap();
    assert!(zeros["peers"]["zstd"].as_u64().unwrap() < 100, "{zeros}");
}
