//! `kernelslist.g`: the copies and kernels of a traced program, in order.

use std::path::{Component, Path};

use super::{lines::Lines, words::digits};
use crate::{Error, Item, Problem};

/// Limit on the bytes of all copies, 1 TiB: more than a GPU's memory.
const MAX_COPY_BYTES: u64 = 1 << 40;

/// Reads a kernel list, given its path or its folder. Lines that start with `#` are comments.
///
/// # Errors
/// [`Error`] if the list cannot be read, a copy is malformed or over 1 TiB in total, a kernel is
/// outside the list's folder, or no kernel is listed.
pub fn read_list(path: &Path) -> Result<Vec<Item>, Error> {
    let list = if path.is_dir() { path.join("kernelslist.g") } else { path.to_owned() };
    let folder = list.parent().unwrap_or(Path::new("")).to_owned();
    if path.is_dir() && !list.exists() {
        let (file, line) = (path.display().to_string(), 0);
        return Err(Error { file, line, problem: Problem::NoList });
    }
    let mut lines = Lines::open(&list)?;
    let (mut items, mut copied) = (Vec::new(), 0);
    while lines.advance()? {
        let line = String::from_utf8_lossy(lines.line());
        if !line.starts_with('#') {
            items.push(item(&line, &folder, &mut copied).map_err(|problem| lines.error(problem))?);
        }
    }
    if !items.iter().any(|item| matches!(item, Item::Kernel(_))) {
        return Err(lines.error(Problem::Count { what: "kernels", found: 0, expected: 1 }));
    }
    Ok(items)
}

fn item(line: &str, folder: &Path, copied: &mut u64) -> Result<Item, Problem> {
    if let Some(rest) = line.strip_prefix("MemcpyHtoD,") {
        return copy(line, rest, copied);
    }
    if !crate::is_kernel(line) {
        return Ok(Item::Other(line.to_owned()));
    }
    let name = Path::new(line);
    if !name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(Problem::Outside(line.to_owned()));
    }
    Ok(Item::Kernel(folder.join(name)))
}

fn copy(line: &str, rest: &str, copied: &mut u64) -> Result<Item, Problem> {
    let unexpected = || Problem::expected("'MemcpyHtoD,0x<address>,<bytes>'", line);
    let (address, bytes) = rest.split_once(',').ok_or_else(unexpected)?;
    let address = address.trim().strip_prefix("0x").ok_or_else(unexpected)?;
    let address = u64::from_str_radix(address, 16).map_err(|_| unexpected())?;
    let bytes = digits(bytes.trim().as_bytes()).ok_or_else(unexpected)?;
    *copied = copied.saturating_add(bytes);
    if *copied > MAX_COPY_BYTES {
        let (what, range) = ("the number of bytes that are copied so far", "at most 2^40");
        return Err(Problem::Range { what, found: *copied, range });
    }
    address.checked_add(bytes).map(|_| Item::Copy { address, bytes }).ok_or(Problem::Range {
        what: "the address that is copied to",
        found: address,
        range: "so low that the copy ends under 2^64",
    })
}
