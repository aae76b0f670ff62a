//! The injected library's file of a launch: a text header, then its events (`inject/launch.rs`).

use crate::Error;

/// Kind of a warp's event, numbered like Sanitizer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The warp starts.
    Enter,
    /// An access to global memory.
    Global,
    /// An access to shared memory.
    Shared,
    /// An access to local memory, at an offset within each thread's own.
    Local,
    /// A call, to the address in `first`.
    Call,
    /// The return of a call.
    Return,
    /// A copy from global to shared memory.
    Copy,
    /// Any other event, which only marks the path: barriers, shuffles, matrix accesses.
    Mark,
}

/// Addresses of the active lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lanes {
    /// The first lane's address, and the stride between lanes.
    Strided(u64, i64),
    /// Each lane's address.
    List(Vec<u64>),
}

/// An event: lanes of a warp at one instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Offset of the instruction in its function, in bytes.
    pub pc: u32,
    /// Active lanes, whose predicate holds.
    pub mask: u32,
    /// Linear index of the thread block, x first.
    pub block: u32,
    /// Index of the warp in its block.
    pub warp: u16,
    /// Bytes that each lane accesses.
    pub bytes: u16,
    /// Event kind.
    pub kind: Kind,
    /// Addresses of the active lanes.
    pub lanes: Lanes,
}

/// A launch with its events, those of each warp in program order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The kernel's mangled name.
    pub kernel: String,
    /// Index among the matching launches of the run.
    pub number: u64,
    /// Index of its module.
    pub module: usize,
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads in each direction.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// Recorded blocks, from the first on.
    pub blocks: u32,
    /// Lost events.
    pub lost: u64,
    /// All events.
    pub events: Vec<Event>,
}

impl Launch {
    /// Parses a file of the injected library.
    ///
    /// # Errors
    /// [`Error::Raw`] for an invalid file.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let end = bytes.windows(2).position(|pair| pair == b"\n\n").ok_or(Error::Raw("no head"))?;
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| Error::Raw("a head that is no text"))?;
        let mut lines = head.lines();
        if lines.next() != Some("buddy-raw 1") {
            return Err(Error::Raw("another version"));
        }
        let mut field = |name: &'static str| -> Result<&str, Error> {
            let line =
                lines.next().and_then(|line| line.strip_prefix(name)).and_then(|rest| rest.strip_prefix(' '));
            line.ok_or(Error::Raw("a head without one of its lines"))
        };
        let kernel = field("kernel")?.to_owned();
        let number = whole(field("number")?)?;
        let module = whole(field("module")?)?;
        field("bytes")?;
        let (grid, block) = (triple(field("grid")?)?, triple(field("block")?)?);
        let shared_bytes = whole(field("shared")?)?;
        let blocks = whole(field("blocks")?)?;
        let count: u64 = whole(field("events")?)?;
        let lost = whole(field("lost")?)?;
        let mut rest = Rest(&bytes[end + 2..]);
        let mut events = Vec::with_capacity(rest.0.len() / 38);
        for _ in 0..count {
            events.push(rest.event()?);
        }
        Ok(Self { kernel, number, module, grid, block, shared_bytes, blocks, lost, events })
    }
}

fn whole<T: std::str::FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| Error::Raw("a head with a number that is none"))
}

fn triple(text: &str) -> Result<[u32; 3], Error> {
    let numbers: Result<Vec<u32>, _> = text.split(' ').map(whole).collect();
    numbers?.try_into().map_err(|_| Error::Raw("a size without three directions"))
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Error::Raw("fewer events than it says"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn event(&mut self) -> Result<Event, Error> {
        let pc = u32::from_le_bytes(self.take()?);
        let mask = u32::from_le_bytes(self.take()?);
        let block = u32::from_le_bytes(self.take()?);
        self.take::<4>()?;
        let warp = u16::from_le_bytes(self.take()?);
        let bytes = u16::from_le_bytes(self.take()?);
        let [kind, form] = self.take()?;
        let kind = match kind {
            1 => Kind::Enter,
            3 => Kind::Global,
            4 => Kind::Shared,
            5 => Kind::Local,
            9 => Kind::Call,
            10 => Kind::Return,
            14 => Kind::Copy,
            _ => Kind::Mark,
        };
        let lanes = match form {
            1 => Lanes::Strided(u64::from_le_bytes(self.take()?), i64::from_le_bytes(self.take()?)),
            2 => {
                let list: Result<_, Error> =
                    (0..mask.count_ones()).map(|_| Ok(u64::from_le_bytes(self.take()?))).collect();
                Lanes::List(list?)
            }
            _ => return Err(Error::Raw("addresses of a form that is not known")),
        };
        Ok(Event { pc, mask, block, warp, bytes, kind, lanes })
    }
}
