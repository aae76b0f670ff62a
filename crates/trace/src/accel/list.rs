//! `kernelslist.g`: the copies and kernels of a traced program, in order.

use std::path::Path;

use super::lines::Lines;
use crate::{Error, Item, Problem};

/// Reads the list of a folder, or the list itself. Lines that are neither a copy nor a kernel are left out.
///
/// # Errors
/// [`Error`] if the list cannot be read, a copy is malformed, or no kernel is listed.
pub fn read_list(path: &Path) -> Result<Vec<Item>, Error> {
    let list = if path.is_dir() { path.join("kernelslist.g") } else { path.to_owned() };
    let folder = list.parent().unwrap_or(Path::new("")).to_owned();
    let mut lines = Lines::open(&list)?;
    let mut items = Vec::new();
    while let Some(line) = lines.next()? {
        let item = match line {
            line if line.starts_with("MemcpyHtoD,") => {
                copy(line).ok_or_else(|| Problem::expected("'MemcpyHtoD,0x<address>,<bytes>'", line))
            }
            line if line.ends_with(".traceg") || line.ends_with(".traceg.xz") => {
                Ok(Item::Kernel(folder.join(line)))
            }
            _ => continue,
        };
        items.push(item.map_err(|problem| lines.error(problem))?);
    }
    if !items.iter().any(|item| matches!(item, Item::Kernel(_))) {
        return Err(lines.error(Problem::Count { what: "kernels", found: 0, expected: 1 }));
    }
    Ok(items)
}

fn copy(line: &str) -> Option<Item> {
    let mut parts = line.split(',').skip(1);
    let address = u64::from_str_radix(parts.next()?.trim().strip_prefix("0x")?, 16).ok()?;
    let bytes = parts.next()?.trim().parse().ok()?;
    address.checked_add(bytes)?;
    Some(Item::Copy { address, bytes })
}
