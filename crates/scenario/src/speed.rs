//! Speed of the simulator on its fixed traces.

use buddy_sim::{Mode, Simulator, bench};

use crate::{Error, Point};

/// Result on one fixed trace, on the paper's GPU in ideal mode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Warp instructions of the trace.
    pub instructions: u64,
    /// Cycles on the modelled GPU.
    pub cycles: u64,
    /// Core seconds of the fastest run.
    pub seconds: f64,
}

impl Speed {
    /// Returns million warp instructions per second.
    pub fn million_per_s(&self) -> f64 {
        self.instructions as f64 / self.seconds / 1e6
    }
}

/// Times a trace of [`bench::TRACES`], `length` times its default length; the fastest of `tries`
/// runs.
///
/// # Errors
/// If the simulator rejects it.
///
/// # Panics
/// For a name not in [`bench::TRACES`].
pub fn time(trace: &str, length: u32, tries: u32) -> Result<Speed, Error> {
    let config = Point::new(trace, Mode::Ideal).config()?;
    let mut speed = Speed { instructions: 0, cycles: 0, seconds: f64::INFINITY };
    for _ in 0..tries {
        let mut simulator = Simulator::new(config.clone());
        let clock = bench::Clock::start();
        for mut kernel in bench::trace(trace, length) {
            simulator.run(kernel.as_mut(), &mut |_| true)?;
        }
        let seconds = speed.seconds.min(clock.seconds());
        let report = simulator.report();
        speed = Speed { instructions: report.instructions, cycles: report.cycles, seconds };
    }
    Ok(speed)
}
