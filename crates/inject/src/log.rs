//! The log of a watched process, as the injected library writes it: one line per event, in order of
//! time.
//!
//! The log of a crashed program ends anywhere; a snapshot counts if its last line, `done`, is
//! present.

use std::{collections::BTreeMap, str::SplitWhitespace};

use crate::{Error, Learned, Look};

/// The log of one process, parsed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Watched {
    /// Base name of its files: the process id, and a count after an exec.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// Rank, if a launcher set one.
    pub rank: Option<u32>,
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// The vendor's name of the GPU.
    pub card: String,
    /// The driver's version, such as 13000.
    pub driver: u32,
    /// Names of the codecs.
    pub codecs: Vec<String>,
    /// Call sites.
    pub sites: Vec<String>,
    /// Allocations by slot.
    pub slots: Vec<Slot>,
    /// Trained codec parameters.
    pub learned: Learned,
    /// The snapshots that were kept.
    pub looks: Vec<Look>,
    /// Number of snapshots taken, dropped ones included.
    pub taken: u64,
    /// Their total time in nanoseconds.
    pub cost_nanoseconds: u64,
    /// Entries that launches accessed, by slot; empty if not counted.
    pub accesses: BTreeMap<usize, u64>,
    /// Launches of graphs, and those whose arguments the driver could not describe.
    pub unknown: u64,
    /// Allocations of kinds that are not followed.
    pub unfollowed: u64,
    /// Counts as of the last look, or the end.
    pub totals: Totals,
    /// Time of the normal exit, from the start of CUDA.
    pub ended: Option<u64>,
    /// The reason why watching stopped early.
    pub stopped: Option<String>,
}

/// Memory of one length from one call site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Index of the call site.
    pub site: usize,
    /// 1 for the first of its site.
    pub number: u32,
    /// Its length.
    pub bytes: u64,
    /// Allocation kind: plain, async, managed, pitched or mapped; or a piece that the program
    /// reported.
    pub how: String,
}

/// Totals of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Launches of kernels and graphs.
    pub launches: u64,
    /// Allocations.
    pub allocations: u64,
    /// Allocations freed before a snapshot covered them.
    pub short: u64,
    /// Bytes of these.
    pub short_bytes: u64,
    /// The most live bytes at a time.
    pub peak_bytes: u64,
}

/// The words of a line after the first.
pub(crate) struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a str) -> Self {
        Self(line)
    }

    pub(crate) fn rest(&self) -> &'a str {
        self.0
    }

    fn word(&mut self) -> Option<&'a str> {
        let mut words: SplitWhitespace<'a> = self.0.split_whitespace();
        let word = words.next()?;
        self.0 = self.0.trim_start().strip_prefix(word)?.trim_start();
        Some(word)
    }

    /// Parses a number, hexadecimal after `0x`.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let word = self.word()?;
        word.strip_prefix("0x").map_or_else(|| word.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
    }

    pub(crate) fn six(&mut self) -> Option<[u64; 6]> {
        let mut six = [0; 6];
        for count in &mut six {
            *count = self.number()?;
        }
        Some(six)
    }

    /// Parses blocks up to the end of the line: six counts in hexadecimal digits of equal width,
    /// `TIMES*` before equal ones. Version 1 had six decimal words after every `TIMES*`.
    pub(crate) fn blocks(&mut self) -> Option<Vec<[u64; 6]>> {
        let mut counts = Vec::new();
        while let Some(word) = self.word() {
            let (times, digits) = word.split_once('*').unwrap_or(("1", word));
            let times: usize = times.parse().ok().filter(|times| *times <= 256)?;
            let six = if digits.is_empty() { self.six()? } else { hexadecimal(digits)? };
            counts.extend((0..times).map(|_| six));
        }
        Some(counts)
    }
}

/// Parses a log, which may be truncated.
///
/// # Errors
/// [`Error::Log`] for an invalid line, except the last one.
pub fn parse(text: &str) -> Result<Watched, Error> {
    let mut reader = Reader::default();
    let mut lines = text.split_inclusive('\n').enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let cut_off = lines.peek().is_none() && !line.ends_with('\n');
        let line = line.trim_end();
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        if reader.line(kind, Words(rest)).is_none() && !cut_off {
            return Err(Error::Log { line: index + 1, text: line.to_owned() });
        }
    }
    Ok(reader.watched)
}

#[derive(Default)]
struct Reader {
    watched: Watched,
    /// The snapshot whose lines are being read.
    open: Option<Look>,
}

/// Parses six counts of equal width.
fn hexadecimal(digits: &str) -> Option<[u64; 6]> {
    let width = digits.len().is_multiple_of(6).then_some(digits.len() / 6)?;
    let mut six = [0; 6];
    for (at, count) in six.iter_mut().enumerate() {
        *count = u64::from_str_radix(digits.get(at * width..(at + 1) * width)?, 16).ok()?;
    }
    Some(six)
}

impl Reader {
    /// Parses one line; returns `None` if it is invalid.
    fn line(&mut self, kind: &str, mut words: Words<'_>) -> Option<()> {
        let watched = &mut self.watched;
        match kind {
            "buddy-watch" => return (1..=2).contains(&words.number()?).then_some(()),
            "pid" => watched.pid = words.number()?.try_into().ok()?,
            "rank" => watched.rank = Some(words.number()?.try_into().ok()?),
            "argument" => watched.arguments.push(words.rest().to_owned()),
            "codec" => watched.codecs.push(words.rest().to_owned()),
            "card" => watched.card = words.rest().to_owned(),
            "driver" => watched.driver = words.number()?.try_into().ok()?,
            "site" => {
                let site = words.number()?;
                watched.sites.push(words.rest().to_owned());
                return (site == watched.sites.len() as u64 - 1).then_some(());
            }
            "slot" => return self.slot(&mut words),
            "halve" => self.halve(),
            "accesses" => {
                watched.accesses.insert(words.number()? as usize, words.number()?);
            }
            "unknown" => watched.unknown = words.number()?,
            "unfollowed" => watched.unfollowed = words.number()?,
            "totals" => watched.totals = totals(&mut words)?,
            "end" => watched.ended = Some(words.number()?),
            "stopped" => watched.stopped = Some(words.rest().to_owned()),
            "event" => {}
            "look" => {
                let (launches, nanoseconds) = (words.number()?, words.number()?);
                let label = words.rest().to_owned();
                self.open =
                    Some(Look { index: watched.taken, launches, nanoseconds, label, ..Look::default() });
            }
            "done" => {
                let cost_nanoseconds = words.number()?;
                watched.taken += 1;
                watched.cost_nanoseconds = watched.cost_nanoseconds.checked_add(cost_nanoseconds)?;
                watched.looks.push(Look { cost_nanoseconds, ..self.open.take()? });
            }
            _ => return self.open.as_mut()?.add(kind, &mut words),
        }
        Some(())
    }

    fn slot(&mut self, words: &mut Words<'_>) -> Option<()> {
        let (index, site, number) =
            (words.number()?, words.number()? as usize, words.number()?.try_into().ok()?);
        let slot = Slot { site, number, bytes: words.number()?, how: words.rest().to_owned() };
        let slots = &mut self.watched.slots;
        slots.push(slot);
        (index == slots.len() as u64 - 1).then_some(())
    }

    /// Drops every second snapshot so far, beginning with the first.
    fn halve(&mut self) {
        let mut index = 0;
        self.watched.looks.retain(|_| {
            index += 1;
            index % 2 == 0
        });
    }
}

fn totals(words: &mut Words<'_>) -> Option<Totals> {
    Some(Totals {
        launches: words.number()?,
        allocations: words.number()?,
        short: words.number()?,
        short_bytes: words.number()?,
        peak_bytes: words.number()?,
    })
}
