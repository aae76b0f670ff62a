//! Kernels and configurations for the model's tests.
#![allow(dead_code, reason = "each test binary uses some of it")]

use buddy_core::{SizeClass, Target};
use buddy_sim::{
    Allocation, ClassMap, Classes, Config, Home, Mode, Report, Simulator,
    spec::{Gpu, Link},
};
use buddy_trace::{At, Code, Error, Inst, Kernel, Launch};

/// A kernel whose warps all run the same instructions once.
pub(crate) struct Script {
    launch: Launch,
    insts: Vec<Inst>,
}

impl Script {
    pub(crate) fn new(warps: u32, insts: Vec<Inst>) -> Self {
        Self { launch: Launch::linear("script", 1, warps * 32), insts }
    }

    pub(crate) fn blocks(mut self, blocks: u32) -> Self {
        self.launch.grid[0] = blocks;
        self
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

/// Returns a GPU in ideal mode with a 150 GB/s link, without launch, block-dispatch and TLB-miss
/// costs. Those have tests of their own and would dominate short runs.
pub(crate) fn steady(name: &str) -> Config {
    let mut config = Config::new(Gpu::named(name).unwrap(), Link::named("150").unwrap());
    (config.gpu.core.launch_cycles, config.gpu.core.block_interval) = (0, 0.0);
    config.gpu.tlb.walk_cycles = 0;
    config
}

/// Returns the V100 in ideal mode.
pub(crate) fn v100() -> Config {
    steady("v100")
}

/// Returns the paper's GPU with a 64 MiB allocation at address 0.
pub(crate) fn paper(mode: Mode, target: Target, classes: Classes) -> Config {
    let mut config = steady("paper");
    config.mode = mode;
    let home = Home::Compressed(target);
    config.map = ClassMap::new(vec![Allocation { base: 0, bytes: 64 << 20, home, classes }]).unwrap();
    config
}

/// Returns shares of one-, two-, three-sector and raw entries.
pub(crate) fn shares(s1: f64, s2: f64, s3: f64, raw: f64) -> Classes {
    Classes::Shares { shares: [0.0, 0.0, s1, s2, s3, raw], seed: 1 }
}

pub(crate) fn uniform(class: SizeClass) -> Classes {
    Classes::Uniform(class)
}

/// Runs one kernel and returns the report.
pub(crate) fn run(config: &Config, mut kernel: impl Kernel) -> Report {
    let mut simulator = Simulator::new(config.clone());
    simulator.run(&mut kernel, &mut |_| true).unwrap();
    simulator.report()
}
