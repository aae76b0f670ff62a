//! The accesses of a warp's lanes as sectors of 128-byte lines, and the conflicts of shared memory.

use buddy_core::{ENTRY_BYTES, SECTOR_BYTES};
use buddy_trace::{Addresses, Inst, Op};

/// What one instruction does to one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// The line's number: its address over 128.
    pub(crate) line: u64,
    /// The bytes touched, one bit each.
    bytes: u128,
    /// For an atomic, how often its slice has to go over the line; 0 for other accesses.
    passes: u8,
}

impl Transaction {
    /// The sectors of the line that any lane touches, one bit each.
    #[inline]
    pub(crate) fn sectors(&self) -> u8 {
        self.quarters(|quarter| quarter != 0)
    }

    /// What a request to L2 says beside its sectors.
    #[inline]
    pub(crate) fn full_or_passes(&self) -> u8 {
        if self.passes > 0 { self.passes } else { self.full() }
    }

    /// The sectors of which every byte is touched.
    #[inline]
    fn full(&self) -> u8 {
        self.quarters(|quarter| quarter == u32::MAX)
    }

    #[inline]
    fn quarters(&self, is: impl Fn(u32) -> bool) -> u8 {
        (0..4).fold(0, |all, i| all | u8::from(is((self.bytes >> (SECTOR_BYTES * i)) as u32)) << i)
    }
}

/// Coalesces the accesses of a warp: the lines that an instruction touches, in the order of its lanes.
pub(crate) fn coalesce(inst: &Inst, addresses: Addresses<'_>, out: &mut Vec<Transaction>) {
    out.clear();
    if inst.mask == 0 {
        return;
    }
    let width = u64::from(inst.width);
    match addresses {
        Addresses::Strided { base, stride } if stride == i32::from(inst.width) && is_run(inst.mask) => {
            touch_stretch(base, u64::from(inst.lanes()) * width, out);
        }
        Addresses::Strided { base, stride } => {
            let mut mask = inst.mask;
            let first = mask.trailing_zeros();
            while mask != 0 {
                let lane = mask.trailing_zeros() - first;
                touch(base.wrapping_add_signed(i64::from(stride) * i64::from(lane)), width, out);
                mask &= mask - 1;
            }
        }
        Addresses::List(list) => gather(list, width, out),
    }
}

/// Counts how often a slice goes over each line of an atomic: once for each sector, and once more for each further lane
/// on the word of it that most lanes want.
pub(crate) fn count_passes(inst: &Inst, addresses: Addresses<'_>, touched: &mut [Transaction]) {
    let mut lanes = [[0u8; 32]; 32];
    for lane in 0..inst.lanes() as usize {
        let address = match addresses {
            Addresses::Strided { base, stride } => base.wrapping_add_signed(i64::from(stride) * lane as i64),
            Addresses::List(list) => list[lane],
        };
        let line = address / ENTRY_BYTES as u64;
        if let Some(index) = touched.iter().take(32).position(|touch| touch.line == line) {
            lanes[index][(address % ENTRY_BYTES as u64 / 4) as usize] += 1;
        }
    }
    for (touch, words) in touched.iter_mut().zip(lanes) {
        touch.passes = words.chunks(8).map(|sector| sector.iter().max().copied().unwrap_or(0)).sum();
    }
}

/// Whether the lanes of a mask are neighbours.
#[inline]
fn is_run(mask: u32) -> bool {
    let run = mask >> mask.trailing_zeros().min(31);
    run & run.wrapping_add(1) == 0
}

/// The lanes of a gather. A table of where each line was met saves the search, which for 32 different lines
/// took a quarter of the time of a random load.
fn gather(list: &[u64], width: u64, out: &mut Vec<Transaction>) {
    if list.iter().any(|address| address % ENTRY_BYTES as u64 + width > ENTRY_BYTES as u64) {
        return list.iter().for_each(|&address| touch(address, width, out));
    }
    let mut met = [u8::MAX; 128];
    for &address in list {
        let (line, offset) = (address / ENTRY_BYTES as u64, address % ENTRY_BYTES as u64);
        let bytes = bits(offset, width);
        let slot = &mut met[(line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as usize];
        match out.get_mut(usize::from(*slot)) {
            Some(touch) if touch.line == line => touch.bytes |= bytes,
            // Two lines with the same slot: search.
            Some(_) => merge(line, bytes, out),
            None => {
                *slot = out.len() as u8;
                out.push(Transaction { line, bytes, passes: 0 });
            }
        }
    }
}

/// Bytes one after the other, over as many lines as they need.
fn touch_stretch(base: u64, bytes: u64, out: &mut Vec<Transaction>) {
    let (mut at, end) = (base, base.saturating_add(bytes));
    while at < end {
        let line = at / ENTRY_BYTES as u64;
        let stop = end.min((line + 1) * ENTRY_BYTES as u64);
        out.push(Transaction { line, bytes: bits(at % ENTRY_BYTES as u64, stop - at), passes: 0 });
        at = stop;
    }
}

/// The bytes of one lane, merged with what lanes before it touched.
#[inline]
fn touch(address: u64, width: u64, out: &mut Vec<Transaction>) {
    let (line, offset) = (address / ENTRY_BYTES as u64, address % ENTRY_BYTES as u64);
    merge(line, bits(offset, width.min(ENTRY_BYTES as u64 - offset)), out);
    if offset + width > ENTRY_BYTES as u64 {
        merge(line.wrapping_add(1), bits(0, offset + width - ENTRY_BYTES as u64), out);
    }
}

#[inline]
fn merge(line: u64, bytes: u128, out: &mut Vec<Transaction>) {
    // Backwards: neighbours in a warp are most often neighbours in memory.
    match out.iter_mut().rev().find(|touch| touch.line == line) {
        Some(touch) => touch.bytes |= bytes,
        None => out.push(Transaction { line, bytes, passes: 0 }),
    }
}

/// `count` ones from bit `from` on; `count` at least 1.
#[inline]
fn bits(from: u64, count: u64) -> u128 {
    (u128::MAX >> (ENTRY_BYTES as u64 - count)) << from
}

/// Cycles that a warp's access to shared memory takes: the most different words that fall into one of the 32
/// banks of 4 bytes, for each group of lanes that moves 128 bytes at once.
pub(crate) fn bank_conflict_cycles(inst: &Inst, addresses: Addresses<'_>) -> u32 {
    let group = (32 * 4 / u32::from(inst.width.max(4))).max(1) as usize;
    // Lanes that read or write the same word share it; atomics take turns.
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
            conflicts(&list[..inst.lanes() as usize], group, share)
        }
        Addresses::List(list) => conflicts(list, group, share),
    }
}

/// How many different words lanes read; one where their addresses were not traced, as tables are mostly read.
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

fn conflicts(list: &[u64], group: usize, share: bool) -> u32 {
    list.chunks(group).map(|lanes| group_conflicts(lanes, share)).sum::<u32>().max(1)
}

/// The most words in one bank, different ones if lanes share.
fn group_conflicts(list: &[u64], share: bool) -> u32 {
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
        out.iter().map(|touch| (touch.line, touch.sectors(), touch.full())).collect()
    }

    #[test]
    fn neighbours_fill_lines() {
        assert_eq!(strided(256, 4, 4, u32::MAX), [(2, 0xf, 0xf)]);
        assert_eq!(strided(256, 8, 8, u32::MAX), [(2, 0xf, 0xf), (3, 0xf, 0xf)]);
        assert_eq!(strided(256 + 16, 4, 4, u32::MAX), [(2, 0xf, 0xe), (3, 0x1, 0)]);
        assert_eq!(strided(256, 4, 4, 0xff00), [(2, 0x1, 0x1)]);
        assert_eq!(strided(256, 4, 4, 0), []);
    }

    #[test]
    fn strides_touch_what_they_meet() {
        assert_eq!(strided(0, 32, 4, 0b1111), [(0, 0xf, 0)]);
        assert_eq!(strided(0, 0, 4, u32::MAX), [(0, 0x1, 0)]);
        assert_eq!(strided(384, -128, 8, 0b1011), [(3, 1, 0), (2, 1, 0), (0, 1, 0)]);
        // One lane across a border.
        assert_eq!(strided(124, 64, 8, 1), [(0, 0x8, 0), (1, 0x1, 0)]);
    }

    #[test]
    fn banks_conflict_on_different_words_only() {
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
