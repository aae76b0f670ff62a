//! The header of a kernel file: `-name = value` lines up to the first line that starts with `#`.

use super::{lines::Lines, words::unexpected};
use crate::{Error, Launch, Problem, check_launch};

/// Parsed header of a kernel file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) launch: Launch,
    /// Base of the shared-memory window for generic loads and stores; 0 if none.
    pub(super) shared_base: u64,
    /// Words before the PC: a source line, or in old versions block and warp.
    pub(super) leading_words: usize,
    /// True for version 6: registers of every kind, a flag behind the sources of warpgroup products,
    /// and bulk copies with fields of their own.
    pub(super) is_version_6: bool,
}

/// Reads the header and leaves `lines` after the first line that begins with `#`.
pub(super) fn read(lines: &mut Lines) -> Result<Header, Error> {
    let (mut grid, mut block) = (None, None);
    let mut header = Header {
        launch: Launch { registers: 0, ..Launch::linear("", 0, 0) },
        shared_base: 0,
        leading_words: 0,
        is_version_6: false,
    };
    let (mut version, mut lineinfo) = (5, 0);
    loop {
        let line = lines.expect("the header")?;
        if line.starts_with(b"#") {
            break;
        }
        let parsed = text(line).and_then(split).and_then(|(name, value)| {
            match name {
                "kernel name" => header.launch.name = value.to_owned(),
                "grid dim" => grid = Some(triple(value)?),
                "block dim" => block = Some(triple(value)?),
                "shmem" => header.launch.shared_bytes = number(value)?,
                "nregs" => header.launch.registers = number(value)?,
                "shmem base_addr" => header.shared_base = hex(value)?,
                "accelsim tracer version" => {
                    version = within("the tracer's version", value, 1..=6, "1 to 6")?
                }
                "enable lineinfo" => lineinfo = within("enable lineinfo", value, 0..=1, "0 or 1")?,
                _ => {}
            }
            Ok(())
        });
        parsed.map_err(|problem| lines.error(problem))?;
    }
    lines.unread();
    header.launch.grid = grid.ok_or_else(|| lines.error(Problem::Header("grid dim")))?;
    header.launch.block = block.ok_or_else(|| lines.error(Problem::Header("block dim")))?;
    header.leading_words = if version < 3 { 4 } else { usize::from(lineinfo != 0) };
    header.is_version_6 = version == 6;
    check_launch(&header.launch).map_err(|problem| lines.error(problem))?;
    Ok(header)
}

fn split(line: &str) -> Result<(&str, &str), Problem> {
    let pair = line.strip_prefix('-').and_then(|line| line.split_once('='));
    let (name, value) = pair.ok_or_else(|| Problem::expected("a header line '-name = value'", line))?;
    Ok((name.trim(), value.trim()))
}

/// Returns a header line as UTF-8 text.
fn text(line: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(line).map_err(|_| unexpected("text", line))
}

/// Parses a number within a range.
fn within(
    what: &'static str,
    text: &str,
    allowed: std::ops::RangeInclusive<u32>,
    range: &'static str,
) -> Result<u32, Problem> {
    let found = number(text)?;
    if allowed.contains(&found) {
        Ok(found)
    } else {
        Err(Problem::Range { what, found: found.into(), range })
    }
}

fn number(text: &str) -> Result<u32, Problem> {
    text.parse().map_err(|_| Problem::expected("a number", text))
}

fn hex(text: &str) -> Result<u64, Problem> {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_err(|_| Problem::expected("a hexadecimal address", text))
}

fn triple(text: &str) -> Result<[u32; 3], Problem> {
    let unexpected = || Problem::expected("a size '(x,y,z)'", text);
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or_else(unexpected)?;
    numbers(inner).ok_or_else(unexpected)
}

/// Parses three comma-separated numbers.
pub(super) fn numbers(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.split(',').map(|part| part.trim().parse().ok());
    let found = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(found)
}
