//! A kernel whose warps are executed on demand.

use super::{
    access::{access, address_of},
    decode::{Decoded, Kind},
    exec::{WarpContext, Work, lanes},
    memory::{Array, Memory, Shared},
    parse::{Instruction, Program},
    state::{EXITED, State, Value},
};
use crate::{
    At, Code, Error, Inst, Kernel, Launch, Problem, accel, block_queue::BlockQueue, opcodes::Opcodes,
};

/// Instruction limit per warp, against endless loops.
const MAX_INSTRUCTIONS: usize = 1 << 22;

/// Unsupported jumps.
const UNSUPPORTED_JUMPS: [&str; 5] = ["BRX", "BRXU", "JMP", "CALL", "RET"];

/// An argument of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// An address.
    Pointer(u64),
    /// An integer.
    Int(i32),
    /// Single-precision number.
    Float(f32),
    /// Double-precision number.
    Double(f64),
}

/// A kernel in machine code with its arguments and memory.
pub struct SassKernel {
    program: Program,
    launch: Launch,
    constants: Vec<Value>,
    memory: Memory,
    shared: Shared,
    pending: BlockQueue,
    opcodes: Opcodes,
    /// Trace form of each instruction: without mask and addresses, the opcode's number, and whether
    /// it accesses memory.
    traced: Vec<(Inst, u16, bool)>,
}

/// A warp in execution.
pub(super) struct Warp {
    pub(super) state: State,
    pub(super) code: Code,
    waits: bool,
}

impl SassKernel {
    /// Creates a kernel at its first block. Registers and shared memory are those that the compiler
    /// reports.
    ///
    /// # Errors
    /// [`Problem`] if the architecture's argument layout is unknown.
    pub fn new(
        program: Program,
        launch: Launch,
        arguments: &[Argument],
        arrays: Vec<Array>,
    ) -> Result<Self, Problem> {
        let constants = constants(program.architecture, &launch, arguments)?;
        let mut opcodes = Opcodes::default();
        let mut traced = Vec::new();
        for instruction in &program.instructions {
            let accesses = address_of(instruction).is_some();
            let dst = instruction.traced_destination();
            let op = accel::op_of(&instruction.opcode, dst, accesses);
            let inst = Inst::new(op, dst, &instruction.traced_sources());
            traced.push((inst, opcodes.intern(&instruction.opcode, accesses)?, accesses));
        }
        let (memory, shared) = (Memory::new(arrays), Shared::default());
        Ok(Self {
            program,
            launch,
            constants,
            memory,
            shared,
            pending: BlockQueue::default(),
            opcodes,
            traced,
        })
    }

    /// Returns the current word at an address of an array, if known.
    pub fn word(&mut self, address: u64) -> Option<u32> {
        self.memory.load(address)
    }

    /// Executes the next block: its warps in order, from barrier to barrier.
    fn run_block(&mut self) -> Result<(), Problem> {
        let number = self.pending.blocks_read();
        let [nx, ny, _] = self.launch.grid.map(u64::from);
        let block = [number % nx, number / nx % ny, number / nx / ny].map(|at| at as u32);
        let threads = self.launch.threads() as u32;
        let mut warps: Vec<Warp> = (0..self.launch.warps())
            .map(|warp| Warp {
                state: State::new((threads - 32 * warp).min(32)),
                code: self.pending.buffer(),
                waits: false,
            })
            .collect();
        self.shared.clear();
        loop {
            for (index, warp) in warps.iter_mut().enumerate() {
                if !warp.waits {
                    self.run_warp(block, 32 * index as u32, warp)?;
                }
            }
            let waiting = warps.iter().any(|warp| warp.waits);
            if !waiting {
                break;
            }
            warps.iter_mut().for_each(|warp| warp.waits = false);
        }
        self.pending.push(warps.into_iter().map(|warp| Some(warp.code)).collect());
        Ok(())
    }

    /// Runs a warp to its next barrier or its end.
    fn run_warp(&mut self, block: [u32; 3], first_thread: u32, warp: &mut Warp) -> Result<(), Problem> {
        let constants = std::mem::take(&mut self.constants);
        let context =
            WarpContext { constants: &constants, block, block_size: self.launch.block, first_thread };
        let mut done = Ok(());
        while !warp.waits && done.is_ok() {
            let Some(at) = self.next(&warp.state) else { break };
            done = self.step(at, &context, warp);
        }
        self.constants = constants;
        done
    }

    /// Returns the next instruction: the lowest PC of any lane. Diverged lanes issue the
    /// reconvergence instruction as they arrive, then wait after it.
    fn next(&self, state: &State) -> Option<usize> {
        let meets = |at: &usize| {
            self.program.instructions.get(*at).is_some_and(|one| one.decoded.kind == Kind::Bsync)
        };
        let live = || state.at.iter().copied().filter(|at| *at != EXITED);
        live().find(meets).or_else(|| live().min())
    }

    /// Executes the instruction at `at` for the lanes at that PC.
    fn step(&mut self, at: usize, context: &WarpContext<'_>, warp: &mut Warp) -> Result<(), Problem> {
        let Some(instruction) = self.program.instructions.get(at) else {
            return Err(Problem::Unknowable { pc: at as u64 * 16, opcode: String::new(), what: "an end" });
        };
        let unknowable =
            |what| Problem::Unknowable { pc: instruction.pc, opcode: instruction.opcode.clone(), what };
        let group: u32 =
            (0..32).filter(|&lane| warp.state.at[lane] == at).fold(0, |sum, lane| sum | 1 << lane);
        let mut mask = 0;
        for lane in lanes(group) {
            let holds = warp
                .state
                .predicate(instruction.guard, lane)
                .ok_or_else(|| unknowable("a known predicate"))?;
            mask |= u32::from(holds) << lane;
        }
        let (inst, opcode, accesses) = self.traced[at];
        if warp.code.insts().len() == MAX_INSTRUCTIONS {
            return Err(unknowable("an end to its loop"));
        }
        for lane in lanes(group) {
            warp.state.at[lane] = at + 1;
        }
        let inst = inst.masked(mask);
        if accesses {
            access(instruction, inst, context, warp, &mut self.memory, &mut self.shared)?;
        } else {
            warp.code.push(inst);
            match instruction.decoded.kind {
                Kind::Bra => branch(instruction, mask, &mut warp.state)?,
                Kind::Exit => lanes(mask).for_each(|lane| warp.state.at[lane] = EXITED),
                Kind::Bar => warp.waits = mask != 0,
                Kind::Other if UNSUPPORTED_JUMPS.contains(&instruction.base()) => {
                    return Err(unknowable("a known target"));
                }
                _ => Work { instruction: &instruction.decoded, state: &mut warp.state, context, mask }.run(),
            }
        }
        self.opcodes.count(opcode, mask);
        warp.code.name_last(opcode);
        Ok(())
    }
}

/// Updates the PCs of the lanes that take a branch.
fn branch(instruction: &Instruction, mask: u32, state: &mut State) -> Result<(), Problem> {
    let unknowable =
        |what| Problem::Unknowable { pc: instruction.pc, opcode: instruction.opcode.clone(), what };
    let target = instruction.target.ok_or_else(|| unknowable("a known target"))?;
    let Decoded { outputs, inputs, .. } = &instruction.decoded;
    for lane in lanes(mask) {
        let mut taken = true;
        for condition in outputs.iter().chain(inputs) {
            taken &= state.predicate(*condition, lane).ok_or_else(|| unknowable("a known predicate"))?;
        }
        if taken {
            state.at[lane] = target;
        }
    }
    Ok(())
}

/// Returns constant bank 0; the layout of sizes and arguments depends on the architecture.
fn constants(architecture: u32, launch: &Launch, arguments: &[Argument]) -> Result<Vec<Value>, Problem> {
    let (sizes, grid, first) = match architecture {
        70..=89 => (0x0, 0xc, 0x160),
        90..=99 => (0x0, 0xc, 0x210),
        100..=129 => (0x360, 0x370, 0x380),
        other => {
            let what = "the architecture";
            return Err(Problem::Range { what, found: other.into(), range: "from sm_70 to sm_129" });
        }
    };
    let mut words = vec![Some(0); first / 4];
    for axis in 0..3 {
        words[sizes / 4 + axis] = Some(launch.block[axis]);
        words[grid / 4 + axis] = Some(launch.grid[axis]);
    }
    for argument in arguments {
        let both = match *argument {
            Argument::Int(value) => {
                words.push(Some(value as u32));
                continue;
            }
            Argument::Float(value) => {
                words.push(Some(value.to_bits()));
                continue;
            }
            Argument::Pointer(value) => value,
            Argument::Double(value) => value.to_bits(),
        };
        if words.len() % 2 == 1 {
            words.push(Some(0));
        }
        words.extend([Some(both as u32), Some((both >> 32) as u32)]);
    }
    Ok(words)
}

impl Kernel for SassKernel {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        if at.step > 0 {
            return Ok(());
        }
        while at.block >= self.pending.blocks_read() && self.pending.blocks_read() < self.launch.blocks() {
            let done = self.run_block();
            done.map_err(|problem| Error {
                file: format!("kernel {}", self.program.name),
                line: 0,
                problem,
            })?;
        }
        self.pending.take(at, code);
        Ok(())
    }

    fn opcodes(&self) -> &[String] {
        self.opcodes.names()
    }

    fn unknown(&self) -> std::collections::BTreeMap<String, u64> {
        self.opcodes.unknown()
    }
}
