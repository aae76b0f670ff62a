//! Range checks of GPU and link parameters.

use super::{
    Arithmetic, Buddy, Core, Dram, Gpu, Interconnect, L1, L2, Link, Shared, Tensor, Tlb, Training, Um,
};

type Checked = Result<(), String>;

impl Gpu {
    /// Checks every parameter, for a GPU modified after it was read.
    ///
    /// # Errors
    /// A message that names the field.
    pub fn check(&self) -> Checked {
        self.core.check()?;
        self.latency.check("latency")?;
        self.interval.check("interval")?;
        self.shared.check()?;
        self.l1.check()?;
        self.l2.check()?;
        self.interconnect.check()?;
        self.tlb.check()?;
        self.dram.check(self.l2.slices)?;
        self.buddy.check()?;
        self.um.check()?;
        self.training.as_ref().map_or(Ok(()), Training::check)?;
        self.tensor.as_ref().map_or(Ok(()), Tensor::check)?;
        self.check_sets()
    }

    /// Refuses caches that would be simulated smaller than they say.
    fn check_sets(&self) -> Checked {
        let (l1, l2, buddy) = (&self.l1, &self.l2, &self.buddy);
        let l2_set = 128 * u64::from(l2.ways) * u64::from(l2.slices);
        let metadata_set = u64::from(buddy.metadata_line_bytes * buddy.metadata_ways);
        let metadata_unit = "buddy.metadata_line_bytes x buddy.metadata_ways";
        whole_sets("l1.bytes", l1.bytes.into(), "128 bytes x l1.ways", u64::from(128 * l1.ways))?;
        whole_sets("l2.bytes", l2.bytes, "128 bytes x l2.ways x l2.slices", l2_set)?;
        whole_sets("buddy.metadata_bytes", buddy.metadata_bytes.into(), metadata_unit, metadata_set)
    }
}

impl Core {
    fn check(&self) -> Checked {
        within("core.sms", self.sms, 1, 1024)?;
        within("core.clock_mhz", self.clock_mhz, 100.0, 10_000.0)?;
        within("core.schedulers", self.schedulers, 1, 8)?;
        within("core.issue_width", self.issue_width, 1, 4)?;
        within("core.max_warps", self.max_warps, self.schedulers, 64 * self.schedulers)?;
        within("core.max_blocks", self.max_blocks, 1, 128)?;
        within("core.registers", self.registers, 1024, 1 << 20)?;
        within("core.launch_cycles", self.launch_cycles, 0, 1_000_000)?;
        within("core.block_interval", self.block_interval, 0.0, 1000.0)?;
        within("core.block_launch_cycles", self.block_launch_cycles, 0, 100_000)?;
        within("core.register_banks", self.register_banks, 0, 8)?;
        within("core.branch_cycles", self.branch_cycles, 1, 1000)?;
        within("core.predicate_cycles", self.predicate_cycles, 1, 1000)
    }
}

impl Arithmetic {
    fn check(&self, table: &str) -> Checked {
        for (name, value) in [
            ("int", self.int),
            ("imad", self.imad),
            ("fp32", self.fp32),
            ("fp64", self.fp64),
            ("fp16", self.fp16),
            ("sfu", self.sfu),
            ("tensor", self.tensor),
            ("control", self.control),
            ("constant", self.constant),
        ] {
            within(&format!("{table}.{name}"), value, 1, 1000)?;
        }
        Ok(())
    }
}

impl Shared {
    fn check(&self) -> Checked {
        within("shared.bytes", self.bytes, 0, 1 << 20)?;
        within("shared.latency_cycles", self.latency_cycles, 1, 1000)?;
        within("shared.atomic_cycles", self.atomic_cycles, 1, 1000)?;
        within("shared.shuffle_cycles", self.shuffle_cycles, 1, 1000)?;
        within("shared.barrier_cycles", self.barrier_cycles, 1, 1000)?;
        within("shared.arrival_cycles", self.arrival_cycles, 0, 1000)
    }
}

impl L1 {
    fn check(&self) -> Checked {
        within("l1.ways", self.ways, 1, 1024)?;
        within("l1.bytes", self.bytes, 128 * self.ways, 1 << 20)?;
        within("l1.latency_cycles", self.latency_cycles, 1, 1000)?;
        within("l1.misses", self.misses, 1, 4096)?;
        within("l1.stores", self.stores, 1, 4096)?;
        within("l1.queue_cycles", self.queue_cycles, 1, 1000)?;
        within("l1.issue_cycles", self.issue_cycles, 1, 1000)
    }
}

impl L2 {
    fn check(&self) -> Checked {
        within("l2.slices", self.slices, 1, 512)?;
        within("l2.ways", self.ways, 1, 64)?;
        let smallest = u64::from(self.slices) * u64::from(self.ways) * 128;
        within("l2.bytes", self.bytes, smallest, 1 << 32)?;
        within("l2.interleave_bytes", self.interleave_bytes, 128, 1 << 20)?;
        power_of_two("l2.interleave_bytes", self.interleave_bytes.into())?;
        within("l2.partitions", self.partitions, 1, 2)?;
        multiple("l2.slices", self.slices.into(), self.partitions.into())?;
        within("l2.far_cycles", self.far_cycles, 0, 10_000)?;
        within("l2.fetch_bytes", self.fetch_bytes, 32, 128)?;
        power_of_two("l2.fetch_bytes", self.fetch_bytes.into())?;
        within("l2.latency_cycles", self.latency_cycles, 1, 10_000)?;
        within("l2.sectors_per_cycle", self.sectors_per_cycle, 0.1, 16.0)?;
        within("l2.written_sectors_per_cycle", self.written_sectors_per_cycle, 0.1, 16.0)?;
        within("l2.partial_cycles", self.partial_cycles, 0.0, 1000.0)?;
        within("l2.misses", self.misses, 1, 65_536)?;
        within("l2.atomic_cycles", self.atomic_cycles, 0.1, 1000.0)
    }
}

impl Interconnect {
    fn check(&self) -> Checked {
        within("interconnect.latency_cycles", self.latency_cycles, 4, 1000)?;
        within("interconnect.request_bytes_per_cycle", self.request_bytes_per_cycle, 1, 1024)?;
        within("interconnect.reply_bytes_per_cycle", self.reply_bytes_per_cycle, 1, 1024)
    }
}

impl Tlb {
    fn check(&self) -> Checked {
        within("tlb.entries", self.entries, 1, 1 << 20)?;
        within("tlb.page_bytes", self.page_bytes, 4096, 1 << 30)?;
        power_of_two("tlb.page_bytes", self.page_bytes)?;
        within("tlb.walk_cycles", self.walk_cycles, 0, 100_000)
    }
}

impl Dram {
    fn check(&self, slices: u32) -> Checked {
        within("dram.capacity_bytes", self.capacity_bytes, 1 << 20, 1 << 44)?;
        within("dram.channels", self.channels, 1, slices)?;
        multiple("l2.slices", slices.into(), self.channels.into())?;
        within("dram.clock_mhz", self.clock_mhz, 100.0, 20_000.0)?;
        within("dram.bytes_per_clock", self.bytes_per_clock, 1.0, 1024.0)?;
        within("dram.banks", self.banks, 1, 256)?;
        within("dram.row_bytes", self.row_bytes, 128, 1 << 16)?;
        multiple("dram.row_bytes", self.row_bytes.into(), 128)?;
        for (name, clocks) in [
            ("dram.t_rcd", self.t_rcd),
            ("dram.t_cl", self.t_cl),
            ("dram.t_rp", self.t_rp),
            ("dram.t_rc", self.t_rc),
            ("dram.t_rrd", self.t_rrd),
            ("dram.t_turnaround", self.t_turnaround),
        ] {
            within(name, clocks, 0, 1000)?;
        }
        within("dram.write_batch", self.write_batch, 1, 4096)?;
        within("dram.refresh_share", self.refresh_share, 0.0, 0.5)?;
        within("dram.controller_cycles", self.controller_cycles, 0, 10_000)
    }
}

impl Buddy {
    fn check(&self) -> Checked {
        within("buddy.metadata_line_bytes", self.metadata_line_bytes, 32, 4096)?;
        multiple("buddy.metadata_line_bytes", self.metadata_line_bytes.into(), 32)?;
        within("buddy.metadata_ways", self.metadata_ways, 1, 64)?;
        let set = self.metadata_line_bytes * self.metadata_ways;
        within("buddy.metadata_bytes", self.metadata_bytes, set, 1 << 24)?;
        within("buddy.codec_clocks", self.codec_clocks, 0, 10_000)
    }
}

impl Um {
    fn check(&self) -> Checked {
        within("um.batch_us", self.batch_us, 0.0, 10_000.0)?;
        within("um.batch_faults", self.batch_faults, 1, 65_536)?;
        within("um.block_bytes", self.block_bytes, 4096, 1 << 30)?;
        within("um.region_bytes", self.region_bytes, self.block_bytes, 1 << 30)?;
        multiple("um.block_bytes", self.block_bytes, 128)?;
        multiple("um.region_bytes", self.region_bytes, self.block_bytes)
    }
}

impl Training {
    fn check(&self) -> Checked {
        within("training.clock_mhz", self.clock_mhz, 100.0, 10_000.0)?;
        within("training.usable_bytes", self.usable_bytes, 1 << 20, 1 << 44)
    }
}

impl Tensor {
    fn check(&self) -> Checked {
        within("tensor.bf16_flops_per_cycle", self.bf16_flops_per_cycle, 64, 1 << 20)
    }
}

impl Link {
    /// Checks every parameter, for a link that was not read from a file.
    ///
    /// # Errors
    /// A message that names the field.
    pub fn check(&self) -> Checked {
        within("gb_per_s", self.gb_per_s, 0.1, 100_000.0)?;
        within("latency_ns", self.latency_ns, 0.0, 1_000_000.0)
    }
}

fn within<T: PartialOrd + Copy + std::fmt::Display>(field: &str, value: T, least: T, most: T) -> Checked {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{field} is {value}; it must lie between {least} and {most}"))
    }
}

fn power_of_two(field: &str, value: u64) -> Checked {
    if value.is_power_of_two() {
        Ok(())
    } else {
        Err(format!("{field} is {value}; it must be a power of two"))
    }
}

/// Refuses a cache whose whole sets hold less than 95% of its size.
fn whole_sets(field: &str, bytes: u64, unit: &str, set_bytes: u64) -> Checked {
    let held = bytes / set_bytes * set_bytes;
    if held * 100 >= bytes * 95 {
        return Ok(());
    }
    let next = held + set_bytes;
    Err(format!("{field} is {bytes}, but whole sets of {set_bytes} bytes ({unit}) hold {held} or {next}"))
}

fn multiple(field: &str, value: u64, unit: u64) -> Checked {
    if value.is_multiple_of(unit) {
        Ok(())
    } else {
        Err(format!("{field} is {value}; it must be a multiple of {unit}"))
    }
}
