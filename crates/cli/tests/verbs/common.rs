//! Runs the command as a user does, for the tests of every verb.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
};

/// The sample file that the README shows.
pub(crate) const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sample.bin");

/// Output and exit code of a run.
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i32,
}

/// Returns the command with these arguments, without a terminal.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_buddy"));
    command.args(args).env_remove("COLUMNS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command without input.
pub(crate) fn buddy(args: &[&str]) -> Run {
    buddy_with(args, &[], None)
}

/// Runs `buddy inspect -` on some bytes.
pub(crate) fn inspect(data: &[u8], args: &[&str]) -> Run {
    buddy_with(&[&["inspect", "-"], args].concat(), data, None)
}

/// Runs the command with `data` on stdin; with `lines`, closes its stdout after that many lines.
pub(crate) fn buddy_with(args: &[&str], data: &[u8], lines: Option<usize>) -> Run {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let (mut stdin, data) = (child.stdin.take().unwrap(), data.to_vec());
    // A command that stops early closes the pipe; that is not a test failure.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&data)));
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut stdout = String::new();
    match lines {
        Some(lines) => {
            for _ in 0..lines {
                out.read_line(&mut stdout).unwrap();
            }
        }
        None => drop(out.read_to_string(&mut stdout).unwrap()),
    }
    drop(out);
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    Run {
        stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().expect("not ended by a signal"),
    }
}
