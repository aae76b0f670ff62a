//! GPU parameters in the form that the inner loops use.

use buddy_trace::{Launch, Op};

use crate::{Error, bandwidth::TICKS, spec::Gpu};

/// Execution units of a scheduler, padded to a power of two. The memory unit belongs to the SM; a
/// warp's exit needs no unit.
pub(crate) const UNITS: usize = 16;
pub(crate) const UNIT_MEMORY: usize = 9;
pub(crate) const UNIT_EXIT: usize = 10;

/// Largest number of register banks per scheduler.
pub(crate) const MAX_BANKS: usize = 8;

/// Memory instructions that a scheduler may issue ahead of the load-store unit.
const ISSUE_AHEAD: u64 = 8;

/// Returns the execution unit of an instruction class.
#[inline]
pub(crate) fn unit(op: Op) -> usize {
    const TABLE: [usize; Op::ALL.len()] = [0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 7, 0];
    TABLE[op as usize]
}

/// GPU parameters of the SMs; times are in core cycles.
#[derive(Debug)]
pub(crate) struct Params {
    pub(crate) schedulers: u32,
    pub(crate) issue_width: u32,
    pub(crate) warps: u32,
    /// Latency and issue interval per instruction class.
    pub(crate) latency: [u64; Op::ALL.len()],
    pub(crate) interval: [u64; Op::ALL.len()],
    pub(crate) shared: u64,
    pub(crate) shared_atomic: u64,
    pub(crate) shuffle: u64,
    pub(crate) barrier: u64,
    pub(crate) arrival: u64,
    pub(crate) launch: u64,
    /// Ticks between two block launches on the GPU.
    pub(crate) block_interval: u64,
    pub(crate) register_banks: u32,
    /// Upper bound on the cycles to read an instruction's registers.
    pub(crate) read_cycles: u64,
    pub(crate) branch: u64,
    pub(crate) predicate: u64,
    pub(crate) block_launch: u64,
    pub(crate) l1: u64,
    pub(crate) l1_sets: u32,
    pub(crate) l1_ways: u32,
    pub(crate) mshrs: u32,
    pub(crate) store_limit: u32,
    pub(crate) lsu_queue: u64,
    pub(crate) lsu_issue: u64,
    /// Cycles that a scheduler's memory instructions may wait for the load-store unit.
    pub(crate) lsu_ahead: u64,
    pub(crate) interconnect: u64,
    pub(crate) request_bytes: u64,
}

impl Params {
    pub(crate) fn new(gpu: &Gpu) -> Self {
        let table = |from: &crate::spec::Arithmetic| {
            Op::ALL.map(|op| {
                u64::from(match op {
                    Op::Int | Op::Unknown => from.int,
                    Op::Imad => from.imad,
                    Op::Fp32 => from.fp32,
                    Op::Fp64 => from.fp64,
                    Op::Fp16 => from.fp16,
                    Op::Sfu => from.sfu,
                    Op::Tensor => from.tensor,
                    Op::LoadConstant => from.constant,
                    // Memory instructions get here only with all lanes predicated off.
                    _ => from.control,
                })
            })
        };
        Self {
            schedulers: gpu.core.schedulers,
            issue_width: gpu.core.issue_width,
            // Round down to the same number of warps per scheduler.
            warps: gpu.core.max_warps / gpu.core.schedulers * gpu.core.schedulers,
            latency: table(&gpu.latency),
            interval: table(&gpu.interval),
            shared: gpu.shared.latency_cycles.into(),
            shared_atomic: gpu.shared.atomic_cycles.into(),
            shuffle: gpu.shared.shuffle_cycles.into(),
            barrier: gpu.shared.barrier_cycles.into(),
            arrival: gpu.shared.arrival_cycles.into(),
            launch: gpu.core.launch_cycles.into(),
            block_interval: (gpu.core.block_interval * TICKS as f64).round() as u64,
            register_banks: gpu.core.register_banks,
            read_cycles: if gpu.core.register_banks == 0 { 0 } else { 4 },
            branch: gpu.core.branch_cycles.into(),
            predicate: gpu.core.predicate_cycles.into(),
            block_launch: gpu.core.block_launch_cycles.into(),
            l1: gpu.l1.latency_cycles.into(),
            l1_sets: gpu.l1.bytes / 128 / gpu.l1.ways,
            l1_ways: gpu.l1.ways,
            mshrs: gpu.l1.misses,
            store_limit: gpu.l1.stores,
            lsu_queue: gpu.l1.queue_cycles.into(),
            lsu_issue: gpu.l1.issue_cycles.into(),
            lsu_ahead: ISSUE_AHEAD * u64::from(gpu.l1.issue_cycles),
            interconnect: gpu.interconnect.latency_cycles.into(),
            request_bytes: gpu.interconnect.request_bytes_per_cycle.into(),
        }
    }

    /// Returns the occupancy: blocks of a kernel that an SM holds at once.
    pub(crate) fn blocks_per_sm(&self, gpu: &Gpu, launch: &Launch) -> Result<u32, Error> {
        let too_big = |what: &'static str, needs: u64, has: u64| Error::BlockTooBig {
            kernel: launch.name.clone(),
            what,
            needs,
            has,
        };
        let limit = |what, needs: u64, has: u64| match needs {
            0 => Ok(u32::MAX),
            needs if needs > has => Err(too_big(what, needs, has)),
            needs => Ok((has / needs).min(u64::from(u32::MAX)) as u32),
        };
        let warps = u64::from(launch.warps());
        // Registers are allocated to whole warps, in units of 8 per thread.
        let registers = warps * 32 * u64::from(launch.registers.next_multiple_of(8));
        let limits = [
            limit("warps", warps, self.warps.into())?,
            limit("bytes of shared memory", launch.shared_bytes.into(), gpu.shared.bytes.into())?,
            limit("registers", registers, gpu.core.registers.into())?,
            gpu.core.max_blocks,
        ];
        Ok(limits.into_iter().min().unwrap_or(1))
    }
}
