//! Global arrays of a kernel and shared memory of a block.

use std::collections::HashSet;

use super::state::Value;

/// Initial content of an array.
#[derive(Debug, Clone)]
pub enum Content {
    /// Unknown; no path or address may depend on it.
    Unknown,
    /// 32-bit words.
    Words(Vec<u32>),
}

/// An array in global memory.
#[derive(Debug, Clone)]
pub struct Array {
    /// Base address.
    pub base: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Initial content.
    pub content: Content,
}

/// All arrays, with the kernel's stores applied.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    arrays: Vec<Array>,
    /// Addresses of words overwritten with unknown values.
    unknown_words: HashSet<u64>,
}

impl Memory {
    pub(super) fn new(arrays: Vec<Array>) -> Self {
        Self { arrays, unknown_words: HashSet::new() }
    }

    fn word(&mut self, address: u64) -> Option<&mut u32> {
        let array = self.arrays.iter_mut().find(|array| address.wrapping_sub(array.base) < array.bytes)?;
        let Content::Words(words) = &mut array.content else { return None };
        words.get_mut(((address - array.base) / 4) as usize)
    }

    /// Returns whether an access is inside one of the arrays.
    pub(super) fn holds(&self, address: u64, bytes: u64) -> bool {
        let inside = |array: &Array| {
            address.checked_sub(array.base).is_some_and(|offset| offset.saturating_add(bytes) <= array.bytes)
        };
        self.arrays.iter().any(inside)
    }

    /// Returns the word at an address; single bytes are unknown.
    pub(super) fn load(&mut self, address: u64) -> Value {
        if !self.unknown_words.is_empty() && self.unknown_words.contains(&(address & !3)) {
            return None;
        }
        self.word(address).copied()
    }

    pub(super) fn store(&mut self, address: u64, value: Value) {
        if let Some(word) = self.word(address) {
            match value {
                Some(value) => {
                    *word = value;
                    self.unknown_words.remove(&(address & !3));
                }
                None => {
                    self.unknown_words.insert(address & !3);
                }
            }
        }
    }
}

/// Shared memory of a block: 256 KiB of possibly unknown words.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    words: Vec<Value>,
}

/// Addressable bytes of shared memory; the bits above hold the block's rank in its cluster.
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

    /// Clears the memory for the next block.
    pub(super) fn clear(&mut self) {
        self.words.fill(None);
    }
}
