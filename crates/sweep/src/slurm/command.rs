//! Slurm commands with a timeout.

use std::{
    io::Read,
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::Error;

/// Timeout of a command; longer than `sbatch` itself retries an unreachable controller.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs a command and returns its output.
pub(super) fn run(name: &'static str, arguments: &[&str]) -> Result<String, Error> {
    run_within(LIMIT, name, arguments)
}

fn run_within(limit: Duration, name: &'static str, arguments: &[&str]) -> Result<String, Error> {
    let failed = |why: String| Error::Slurm { command: name, why };
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(format!("{error}; is Slurm installed here?")))?;
    let (printed, said) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let ended = wait(&mut child, limit).map_err(|error| failed(error.to_string()))?;
    let Some(status) = ended else {
        return Err(failed(format!("timed out: no answer within {} s", limit.as_secs())));
    };
    let (printed, said) = (printed.join().unwrap_or_default(), said.join().unwrap_or_default());
    if status.success() {
        return Ok(printed);
    }
    Err(failed(said.lines().map(str::trim).collect::<Vec<_>>().join(" ")))
}

/// Reads a pipe in its own thread, so that a long answer does not block the writer.
fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output before a read error is still useful.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a process; `None` if it was killed after the limit.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::cluster::Refused;

    #[test]
    fn output_of_any_length_is_returned() {
        let many = run("seq", &["100000"]).unwrap();
        assert_eq!(many.lines().count(), 100_000);
        let error = run("ls", &["/there/is/no/such/file"]).unwrap_err().to_string();
        assert!(error.starts_with("ls: ") && error.contains("No such file"), "{error}");
        let error = run("no-such-command", &[]).unwrap_err().to_string();
        assert!(error.contains("is Slurm installed here?"), "{error}");
    }

    #[test]
    fn a_hanging_command_is_killed_and_is_a_temporary_failure() {
        let error = run_within(Duration::from_millis(200), "sleep", &["600"]).unwrap_err();
        assert!(error.to_string().contains("no answer within"), "{error}");
        assert!(matches!(Refused::of(error), Refused::Now(_)));
    }
}
