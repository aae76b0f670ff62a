//! A program whose input, output, signals and exit are its own.

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

/// Runs a program to its end, and hands it the signals that come meanwhile.
pub(crate) fn run(program: &mut Command) -> Result<ExitStatus, Error> {
    let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
    // Before the program starts, so that none is missed.
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

/// Hands a signal on. One that the terminal sent has reached the program already.
fn forward(pid: Pid, origin: &Origin) {
    if matches!(origin.cause, Cause::Sent(_))
        && let Some(signal) = Signal::from_named_raw(origin.signal)
    {
        let _ = kill_process(pid, signal);
    }
}
