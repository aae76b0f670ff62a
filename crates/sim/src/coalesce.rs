//! The coalescer: turns the lane addresses of a warp into sectors of 128-byte lines, and counts
//! shared-memory bank conflicts.

use buddy_core::{ENTRY_BYTES, SECTOR_BYTES};
use buddy_trace::{Addresses, Inst, Op};

/// Accesses of one instruction to one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// Line number: the address divided by 128.
    pub(crate) line: u64,
    /// Byte mask of the line, one bit per byte.
    bytes: u128,
    /// Passes that an L2 slice makes over the line for an atomic; 0 for other accesses.
    passes: u8,
}

impl Transaction {
    /// Returns the mask of sectors that any lane accesses.
    #[inline]
    pub(crate) fn sectors(&self) -> u8 {
        self.sector_mask(|bytes| bytes != 0)
    }

    /// Returns the atomic's passes, or the mask of fully covered sectors for other accesses.
    #[inline]
    pub(crate) fn full_sectors_or_passes(&self) -> u8 {
        if self.passes > 0 { self.passes } else { self.full_sectors() }
    }

    /// Returns the mask of sectors whose every byte is accessed.
    #[inline]
    fn full_sectors(&self) -> u8 {
        self.sector_mask(|bytes| bytes == u32::MAX)
    }

    #[inline]
    fn sector_mask(&self, is: impl Fn(u32) -> bool) -> u8 {
        (0..4).fold(0, |all, i| all | u8::from(is((self.bytes >> (SECTOR_BYTES * i)) as u32)) << i)
    }
}

/// Coalesces the accesses of a warp into one transaction per line, in lane order.
pub(crate) fn coalesce(inst: &Inst, addresses: Addresses<'_>, out: &mut Vec<Transaction>) {
    out.clear();
    if inst.mask == 0 {
        return;
    }
    let width = u64::from(inst.width);
    match addresses {
        Addresses::Strided { base, stride }
            if stride == i32::from(inst.width) && is_contiguous(inst.mask) =>
        {
            add_range(base, u64::from(inst.lanes()) * width, out);
        }
        Addresses::Strided { base, stride } => {
            let mut mask = inst.mask;
            let first = mask.trailing_zeros();
            while mask != 0 {
                let lane = mask.trailing_zeros() - first;
                add_lane(base.wrapping_add_signed(i64::from(stride) * i64::from(lane)), width, out);
                mask &= mask - 1;
            }
        }
        Addresses::List(list) => gather(list, width, out),
    }
}

/// Counts the passes of an L2 slice over each line of an atomic: per sector, the largest number of
/// lanes on one word.
pub(crate) fn count_passes(inst: &Inst, addresses: Addresses<'_>, transactions: &mut [Transaction]) {
    let mut lanes = [[0u8; 32]; 32];
    for lane in 0..inst.lanes() as usize {
        let address = match addresses {
            Addresses::Strided { base, stride } => base.wrapping_add_signed(i64::from(stride) * lane as i64),
            Addresses::List(list) => list[lane],
        };
        let line = address / ENTRY_BYTES as u64;
        if let Some(index) = transactions.iter().take(32).position(|transaction| transaction.line == line) {
            lanes[index][(address % ENTRY_BYTES as u64 / 4) as usize] += 1;
        }
    }
    for (transaction, words) in transactions.iter_mut().zip(lanes) {
        transaction.passes = words.chunks(8).map(|sector| sector.iter().max().copied().unwrap_or(0)).sum();
    }
}

/// Returns whether the active lanes are consecutive.
#[inline]
fn is_contiguous(mask: u32) -> bool {
    let run = mask >> mask.trailing_zeros().min(31);
    run & run.wrapping_add(1) == 0
}

/// Coalesces arbitrary lane addresses. A small hash table of lines replaces the linear search,
/// which took a quarter of the simulation time of random loads.
fn gather(list: &[u64], width: u64, out: &mut Vec<Transaction>) {
    if list.iter().any(|address| address % ENTRY_BYTES as u64 + width > ENTRY_BYTES as u64) {
        return list.iter().for_each(|&address| add_lane(address, width, out));
    }
    let mut slots = [u8::MAX; 128];
    for &address in list {
        let (line, offset) = (address / ENTRY_BYTES as u64, address % ENTRY_BYTES as u64);
        let bytes = bits(offset, width);
        let slot = &mut slots[(line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as usize];
        match out.get_mut(usize::from(*slot)) {
            Some(transaction) if transaction.line == line => transaction.bytes |= bytes,
            // Hash collision: search.
            Some(_) => merge(line, bytes, out),
            None => {
                *slot = out.len() as u8;
                out.push(Transaction { line, bytes, passes: 0 });
            }
        }
    }
}

/// Adds a contiguous byte range, split at line boundaries.
fn add_range(base: u64, bytes: u64, out: &mut Vec<Transaction>) {
    let (mut at, end) = (base, base.saturating_add(bytes));
    while at < end {
        let line = at / ENTRY_BYTES as u64;
        let stop = end.min((line + 1) * ENTRY_BYTES as u64);
        out.push(Transaction { line, bytes: bits(at % ENTRY_BYTES as u64, stop - at), passes: 0 });
        at = stop;
    }
}

/// Adds the bytes of one lane, which may cross a line boundary.
#[inline]
fn add_lane(address: u64, width: u64, out: &mut Vec<Transaction>) {
    let (line, offset) = (address / ENTRY_BYTES as u64, address % ENTRY_BYTES as u64);
    merge(line, bits(offset, width.min(ENTRY_BYTES as u64 - offset)), out);
    if offset + width > ENTRY_BYTES as u64 {
        merge(line.wrapping_add(1), bits(0, offset + width - ENTRY_BYTES as u64), out);
    }
}

#[inline]
fn merge(line: u64, bytes: u128, out: &mut Vec<Transaction>) {
    // Backwards: adjacent lanes most often access adjacent lines.
    match out.iter_mut().rev().find(|transaction| transaction.line == line) {
        Some(transaction) => transaction.bytes |= bytes,
        None => out.push(Transaction { line, bytes, passes: 0 }),
    }
}

/// Returns a mask of `count` ones starting at bit `from`; `count` is at least 1.
#[inline]
fn bits(from: u64, count: u64) -> u128 {
    (u128::MAX >> (ENTRY_BYTES as u64 - count)) << from
}

/// Returns the cycles of a shared-memory access: for each group of lanes that moves 128 bytes, the
/// most distinct words in one of the 32 four-byte banks.
pub(crate) fn bank_conflict_cycles(inst: &Inst, addresses: Addresses<'_>) -> u32 {
    let group = (32 * 4 / u32::from(inst.width.max(4))).max(1) as usize;
    // Lanes broadcast or merge accesses to one word; atomics serialize.
    let share = inst.op != Op::AtomicShared;
    match addresses {
        Addresses::Strided { stride: 0, .. } => {
            if share {
                1
            } else {
                inst.lanes().max(1)
            }
        }
        Addresses::Strided { stride, .. } if stride == i32::from(inst.width) => {
            inst.lanes().div_ceil(group as u32).max(1)
        }
        Addresses::Strided { base, stride } => {
            let lane = |lane: u32| base.wrapping_add_signed(i64::from(stride) * i64::from(lane));
            let list: [u64; 32] = std::array::from_fn(|index| lane(index as u32));
            conflict_cycles(&list[..inst.lanes() as usize], group, share)
        }
        Addresses::List(list) => conflict_cycles(list, group, share),
    }
}

/// Returns the number of distinct words that the lanes read. Untraced addresses count as one word,
/// the common case for constant tables.
pub(crate) fn count_words(inst: &Inst, addresses: Addresses<'_>) -> u64 {
    let mut words: Vec<u64> = match addresses {
        _ if inst.width == 0 => return 1,
        Addresses::Strided { stride: 0, .. } => return 1,
        Addresses::Strided { base, stride } => (0..inst.lanes())
            .map(|lane| base.wrapping_add_signed(i64::from(stride) * i64::from(lane)) / 4)
            .collect(),
        Addresses::List(list) => list.iter().map(|address| address / 4).collect(),
    };
    words.sort_unstable();
    words.dedup();
    words.len().max(1) as u64
}

fn conflict_cycles(list: &[u64], group: usize, share: bool) -> u32 {
    list.chunks(group).map(|lanes| group_cycles(lanes, share)).sum::<u32>().max(1)
}

/// Returns the most words in one bank, counting a word once if lanes `share` it.
fn group_cycles(list: &[u64], share: bool) -> u32 {
    let mut counts = [0u32; 32];
    for (index, address) in list.iter().enumerate() {
        let word = address / 4;
        if !share || !list[..index].iter().any(|other| other / 4 == word) {
            counts[(word % 32) as usize] += 1;
        }
    }
    counts.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use buddy_trace::Code;

    use super::*;

    fn strided(base: u64, stride: i32, width: u8, mask: u32) -> Vec<(u64, u8, u8)> {
        let inst = Inst::new(Op::StoreGlobal, 255, &[]).at(base, stride, width).masked(mask);
        let mut out = Vec::new();
        coalesce(&inst, Addresses::Strided { base, stride }, &mut out);
        out.iter()
            .map(|transaction| (transaction.line, transaction.sectors(), transaction.full_sectors()))
            .collect()
    }

    #[test]
    fn consecutive_lanes_fill_lines() {
        assert_eq!(strided(256, 4, 4, u32::MAX), [(2, 0xf, 0xf)]);
        assert_eq!(strided(256, 8, 8, u32::MAX), [(2, 0xf, 0xf), (3, 0xf, 0xf)]);
        assert_eq!(strided(256 + 16, 4, 4, u32::MAX), [(2, 0xf, 0xe), (3, 0x1, 0)]);
        assert_eq!(strided(256, 4, 4, 0xff00), [(2, 0x1, 0x1)]);
        assert_eq!(strided(256, 4, 4, 0), []);
    }

    #[test]
    fn strided_accesses_touch_only_their_sectors() {
        assert_eq!(strided(0, 32, 4, 0b1111), [(0, 0xf, 0)]);
        assert_eq!(strided(0, 0, 4, u32::MAX), [(0, 0x1, 0)]);
        assert_eq!(strided(384, -128, 8, 0b1011), [(3, 1, 0), (2, 1, 0), (0, 1, 0)]);
        // One lane crosses a line boundary.
        assert_eq!(strided(124, 64, 8, 1), [(0, 0x8, 0), (1, 0x1, 0)]);
    }

    #[test]
    fn bank_conflicts_count_distinct_words() {
        let cycles = |base, stride, width| {
            let inst = Inst::new(Op::LoadShared, 4, &[]).at(base, stride, width);
            bank_conflict_cycles(&inst, Addresses::Strided { base, stride })
        };
        assert_eq!([cycles(0, 4, 4), cycles(0, 0, 4), cycles(0, 8, 4), cycles(0, 128, 4)], [1, 1, 2, 32]);
        assert_eq!([cycles(0, 8, 8), cycles(0, 16, 16), cycles(0, 132, 4)], [2, 4, 1]);
        let mut code = Code::default();
        code.push_list(Inst::new(Op::LoadShared, 4, &[]).masked(0b111), 4, &[0, 128, 0]);
        assert_eq!(bank_conflict_cycles(&code.insts()[0], code.addresses(&code.insts()[0])), 2);
    }
}
