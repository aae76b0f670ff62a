//! What a kernel reads and writes: the arrays that it is given, and a block's shared memory.

use std::collections::HashSet;

use super::state::Value;

/// What an array holds.
#[derive(Debug, Clone)]
pub enum Content {
    /// Nobody knows, and nothing may depend on it.
    Unknown,
    /// These words of 32 bits.
    Words(Vec<u32>),
}

/// An array in global memory.
#[derive(Debug, Clone)]
pub struct Array {
    /// Its first address.
    pub base: u64,
    /// How long it is.
    pub bytes: u64,
    /// What it holds at first.
    pub content: Content,
}

/// All arrays, as a kernel changes them.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    arrays: Vec<Array>,
    /// Addresses of words that were overwritten with what is not known.
    lost: HashSet<u64>,
}

impl Memory {
    pub(super) fn new(arrays: Vec<Array>) -> Self {
        Self { arrays, lost: HashSet::new() }
    }

    fn word(&mut self, address: u64) -> Option<&mut u32> {
        let array = self.arrays.iter_mut().find(|array| address.wrapping_sub(array.base) < array.bytes)?;
        let Content::Words(words) = &mut array.content else { return None };
        words.get_mut(((address - array.base) / 4) as usize)
    }

    /// Whether an access lies in one of the arrays.
    pub(super) fn holds(&self, address: u64, bytes: u64) -> bool {
        let inside = |array: &Array| {
            address.checked_sub(array.base).is_some_and(|offset| offset.saturating_add(bytes) <= array.bytes)
        };
        self.arrays.iter().any(inside)
    }

    /// The word at an address; single bytes are not known.
    pub(super) fn load(&mut self, address: u64) -> Value {
        if !self.lost.is_empty() && self.lost.contains(&(address & !3)) {
            return None;
        }
        self.word(address).copied()
    }

    pub(super) fn store(&mut self, address: u64, value: Value) {
        if let Some(word) = self.word(address) {
            match value {
                Some(value) => {
                    *word = value;
                    self.lost.remove(&(address & !3));
                }
                None => {
                    self.lost.insert(address & !3);
                }
            }
        }
    }
}

/// The shared memory of a block: 256 KiB of words that may be known.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    words: Vec<Value>,
}

/// Bytes of shared memory that an address may reach; the block's number in its cluster lies above.
const SHARED_BYTES: usize = 1 << 18;

impl Default for Shared {
    fn default() -> Self {
        Self { words: vec![None; SHARED_BYTES / 4] }
    }
}

impl Shared {
    pub(super) fn load(&self, address: u64) -> Value {
        self.words[address as usize % SHARED_BYTES / 4]
    }

    pub(super) fn store(&mut self, address: u64, value: Value) {
        self.words[address as usize % SHARED_BYTES / 4] = value;
    }

    /// Forgets everything, for the next block.
    pub(super) fn clear(&mut self) {
        self.words.fill(None);
    }
}
