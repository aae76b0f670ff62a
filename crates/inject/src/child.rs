//! Runs a program with its own input, output, signals and exit code.

use std::{
    process::{Command, ExitStatus},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{
        SignalsInfo,
        exfiltrator::{WithOrigin, origin::Origin},
    },
    low_level::siginfo::Cause,
};

use crate::Error;

/// Runs a program to its end, and forwards signals to it.
pub(crate) fn run(program: &mut Command) -> Result<ExitStatus, Error> {
    let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
    // Registered before the program starts, so that no signal is missed.
    let mut signals = SignalsInfo::<WithOrigin>::new(signals).map_err(Error::file("signals"))?;
    let name = program.get_program().to_string_lossy().into_owned();
    let mut child = program.spawn().map_err(|cause| Error::Start { program: name, cause })?;
    let (handle, pid) = (signals.handle(), Pid::from_child(&child));
    let forwarder = thread::spawn(move || signals.forever().for_each(|signal| forward(pid, &signal)));
    let status = child.wait().map_err(Error::file("the program"));
    handle.close();
    let _ = forwarder.join();
    status
}

/// Forwards a signal. A signal from the terminal has already reached the program.
fn forward(pid: Pid, origin: &Origin) {
    if matches!(origin.cause, Cause::Sent(_))
        && let Some(signal) = Signal::from_named_raw(origin.signal)
    {
        let _ = kill_process(pid, signal);
    }
}
