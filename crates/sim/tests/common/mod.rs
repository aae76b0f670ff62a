//! Small kernels and runs for the tests of the model.
#![allow(dead_code, reason = "each test binary uses some of it")]

use buddy_core::{SizeClass, Target};
use buddy_sim::{
    Allocation, ClassMap, Classes, Config, Home, Mode, Report, Simulator,
    spec::{Gpu, Link},
};
use buddy_trace::{At, Code, Error, Inst, Kernel, Launch};

/// One block whose warps all run the same instructions once.
pub(crate) struct Script {
    launch: Launch,
    insts: Vec<Inst>,
}

impl Script {
    pub(crate) fn new(warps: u32, insts: Vec<Inst>) -> Self {
        Self { launch: Launch::linear("script", 1, warps * 32), insts }
    }
}

impl Kernel for Script {
    fn launch(&self) -> &Launch {
        &self.launch
    }
    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        if at.step == 0 {
            self.insts.iter().for_each(|inst| code.push(*inst));
        }
        Ok(())
    }
}

/// The V100 in ideal mode with a link of 150 GB/s.
pub(crate) fn v100() -> Config {
    Config::new(Gpu::named("v100").unwrap(), Link::named("150").unwrap())
}

/// The paper's GPU in a mode with 64 MiB at 0 that compress to `classes`.
pub(crate) fn paper(mode: Mode, target: Target, classes: Classes) -> Config {
    let mut config = Config::new(Gpu::named("paper").unwrap(), Link::named("150").unwrap());
    config.mode = mode;
    let home = Home::Compressed(target);
    config.map = ClassMap::new(vec![Allocation { base: 0, bytes: 64 << 20, home, classes }]).unwrap();
    config
}

/// Shares of one-sector, two-sector, three-sector and raw entries.
pub(crate) fn shares(s1: f64, s2: f64, s3: f64, raw: f64) -> Classes {
    Classes::Shares { shares: [0.0, 0.0, s1, s2, s3, raw], seed: 1 }
}

pub(crate) fn uniform(class: SizeClass) -> Classes {
    Classes::Uniform(class)
}

/// Runs one kernel.
pub(crate) fn run(config: &Config, mut kernel: impl Kernel) -> Report {
    let mut simulator = Simulator::new(config.clone());
    simulator.run(&mut kernel, &mut |_| true).unwrap();
    simulator.report()
}
