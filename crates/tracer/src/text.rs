//! Writes a launch as a trace in Accel-Sim's text format, tracer version 5.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use crate::{
    Error,
    counts::Counts,
    flow::Flow,
    raw::{Event, Kind, Lanes, Launch},
    sass::{INSTRUCTION_BYTES, Instruction},
    warp::{Executed, assemble},
};

/// Assumed base of all threads' local memory, where no allocation is.
const LOCAL_BASE: u64 = 0x7e00_0000_0000;

/// Totals of a written trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Warp instructions.
    pub instructions: u64,
    /// Warp instructions counted by the hardware, if known.
    pub counted: Option<u64>,
    /// Branches at which more than one way matched the events.
    pub choices: u64,
    /// Thread blocks.
    pub blocks: u64,
}

/// A kernel's resources on an SM, from its module and its launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Static and dynamic shared memory of a block.
    pub shared_bytes: u32,
}

/// Writes a launch; `architecture` is that of the machine code, such as 90.
///
/// # Errors
/// [`Error`] if the events do not fit the machine code, or if `out` fails.
pub fn write(
    out: &mut impl Write,
    launch: &Launch,
    code: &[Instruction],
    counts: Option<&Counts>,
    resources: Resources,
    architecture: u32,
) -> Result<Written, Error> {
    let mut events = vec![false; code.len()];
    let mut warps: BTreeMap<(u32, u16), Vec<Event>> = BTreeMap::new();
    for event in &launch.events {
        if let Some(seen) = events.get_mut((event.pc / INSTRUCTION_BYTES) as usize) {
            *seen |= event.kind != Kind::Enter;
        }
        warps.entry((event.block, event.warp)).or_default().push(event.clone());
    }
    let mut flow = Flow::new(code, events, counts);
    let recorded = launch.blocks.min(launch.grid.iter().product());
    let grid = if recorded < launch.grid.iter().product() { [recorded, 1, 1] } else { launch.grid };
    head(out, launch, grid, resources, architecture)?;
    let mut written =
        Written { blocks: recorded.into(), counted: counts.map(Counts::total), ..Written::default() };
    let local_words = local_words(&launch.events);
    let mut open = None;
    let warps_of_block = launch.block.iter().product::<u32>().div_ceil(32);
    for ((block, warp), events) in &warps {
        if open != Some(*block) {
            if open.is_some() {
                out.write_all(b"#END_TB\n\n")?;
            }
            let [x, y, _] = grid;
            writeln!(out, "#BEGIN_TB\n\nthread block = {},{},{}\n", block % x, block / x % y, block / x / y)?;
            open = Some(*block);
        }
        let done = assemble(code, &mut flow, events)?;
        written.instructions += done.len() as u64;
        writeln!(out, "warp = {warp}\ninsts = {}", done.len())?;
        let place = Local {
            warp: u64::from(*block) * u64::from(warps_of_block) + u64::from(*warp),
            words: local_words,
        };
        for executed in &done {
            line(out, code, executed, events, place)?;
        }
        out.write_all(b"\n")?;
    }
    if open.is_some() {
        out.write_all(b"#END_TB\n")?;
    }
    written.choices = flow.choices;
    Ok(written)
}

fn head(
    out: &mut impl Write,
    launch: &Launch,
    [gx, gy, gz]: [u32; 3],
    resources: Resources,
    architecture: u32,
) -> io::Result<()> {
    let [bx, by, bz] = launch.block;
    write!(
        out,
        "-kernel name = {}\n-kernel id = {}\n-grid dim = ({gx},{gy},{gz})\n-block dim = ({bx},{by},{bz})\n\
         -shmem = {}\n-nregs = {}\n-binary version = {architecture}\n-cuda stream id = 0\n\
         -shmem base_addr = 0x0000000000000000\n-local mem base_addr = {LOCAL_BASE:#018x}\n\
         -nvbit version = none\n-accelsim tracer version = 5\n-enable lineinfo = 0\n\n\
         #traces format = PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [adrrescompress?] \
         [mem_addresses] immediate\n\n",
        launch.kernel,
        launch.number + 1,
        resources.shared_bytes,
        resources.registers,
    )
}

/// Returns the four-byte words of local memory per thread.
fn local_words(events: &[Event]) -> u64 {
    let end = |event: &Event| {
        let last = match &event.lanes {
            Lanes::Strided(first, stride) => {
                let lanes = i64::from(event.mask.count_ones().saturating_sub(1));
                (*first).max(first.wrapping_add_signed(stride.wrapping_mul(lanes)))
            }
            Lanes::List(list) => list.iter().copied().max().unwrap_or(0),
        };
        last.saturating_add(event.bytes.into()).div_ceil(4)
    };
    let locals = events.iter().filter(|event| event.kind == Kind::Local);
    locals.map(end).max().unwrap_or(0).min(1 << 20)
}

/// A warp's local memory, in which a word of all lanes is contiguous.
#[derive(Clone, Copy)]
struct Local {
    warp: u64,
    words: u64,
}

impl Local {
    fn address(self, offset: u64, lane: u64) -> u64 {
        let word = (offset / 4).min(self.words.saturating_sub(1));
        LOCAL_BASE + ((self.warp * self.words + word) * 32 + lane) * 4 + offset % 4
    }
}

fn line(
    out: &mut impl Write,
    code: &[Instruction],
    executed: &Executed,
    events: &[Event],
    local: Local,
) -> io::Result<()> {
    let instruction = &code[executed.at];
    write!(out, "{:04x} {:08x} ", executed.at as u32 * INSTRUCTION_BYTES, executed.mask)?;
    match instruction.written {
        Some(register) => write!(out, "1 R{register} ")?,
        None => out.write_all(b"0 ")?,
    }
    write!(out, "{} {} ", instruction.opcode, instruction.read.len())?;
    for register in &instruction.read {
        write!(out, "R{register} ")?;
    }
    let event = executed.event.map(|number| &events[number]);
    let access = |event: &&Event| {
        matches!(event.kind, Kind::Global | Kind::Shared | Kind::Local | Kind::Copy) && event.bytes > 0
    };
    match event.filter(access) {
        Some(event) => addresses(out, event, local),
        None => out.write_all(b"0 0\n"),
    }
}

/// Writes bytes per lane, and the addresses: the first and a stride if lanes are evenly spaced,
/// else all.
fn addresses(out: &mut impl Write, event: &Event, local: Local) -> io::Result<()> {
    write!(out, "{} ", event.bytes)?;
    let lanes = event.mask.count_ones();
    let contiguous = (event.mask >> event.mask.trailing_zeros().min(31)).trailing_ones() == lanes;
    match (&event.lanes, event.kind) {
        (Lanes::Strided(first, stride), Kind::Global | Kind::Shared | Kind::Copy) if contiguous => {
            writeln!(out, "1 {first:#x} {stride} 0")
        }
        (list, kind) => {
            let mut of_lane = (0..32u64).filter(|lane| event.mask >> lane & 1 == 1);
            out.write_all(b"0 ")?;
            for index in 0..lanes as usize {
                let lane = of_lane.next().unwrap_or(0);
                let address = match list {
                    Lanes::Strided(first, stride) => {
                        first.wrapping_add_signed(stride.wrapping_mul(index as i64))
                    }
                    Lanes::List(list) => list[index],
                };
                let address = if kind == Kind::Local { local.address(address, lane) } else { address };
                write!(out, "{address:#x} ")?;
            }
            out.write_all(b"0\n")
        }
    }
}
