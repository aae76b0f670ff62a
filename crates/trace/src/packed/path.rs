//! Paths: the orders in which warps execute steps. Each is stored once, coded as literals and
//! copies from earlier steps. A loop becomes one copy that overlaps itself.

use std::collections::HashMap;

use super::{
    MAX_BLOCK,
    varint::{Cursor, damaged, put},
};
use crate::Problem;

/// Steps after which the next frame resets the dictionary.
pub(super) const MAX_STEPS: usize = 1 << 22;
/// Shortest copy, in steps.
const MIN_COPY: usize = 4;

/// All paths, concatenated.
#[derive(Debug, Default)]
pub(super) struct Paths {
    steps: Vec<u32>,
    /// End of each path in `steps`.
    ends: Vec<usize>,
}

/// Dictionary of known paths and step sequences, for encoding.
#[derive(Debug, Default)]
pub(super) struct PathEncoder {
    paths: Paths,
    /// Paths by the hash of their steps.
    known: HashMap<u64, Vec<u32>>,
    /// Last position of each sequence of four steps.
    sequences: HashMap<[u32; MIN_COPY], usize>,
}

impl Paths {
    pub(super) fn reset(&mut self) {
        self.steps.clear();
        self.ends.clear();
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the steps of a path.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<&[u32]> {
        let start = if number == 0 { 0 } else { *self.ends.get(number - 1)? };
        self.steps.get(start..*self.ends.get(number)?)
    }

    /// Decodes a new path.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        cursor: &mut Cursor,
        known_steps: usize,
    ) -> Result<(), Problem> {
        let length = cursor.below(bytes, MAX_BLOCK + 1, "a path is too long")? as usize;
        let end = self.steps.len() + length;
        if end > MAX_STEPS + 2 * MAX_BLOCK as usize {
            return Err(damaged("a frame has more paths than fit"));
        }
        while self.steps.len() < end {
            let remaining = (end - self.steps.len()) as u64;
            let literals = cursor.below(bytes, remaining + 1, "a path has more steps than it says")?;
            for _ in 0..literals {
                let step =
                    cursor.below(bytes, known_steps as u64, "a path has a step that is not defined")?;
                self.steps.push(step as u32);
            }
            let remaining = (end - self.steps.len()) as u64;
            if remaining > 0 {
                let count =
                    cursor.below(bytes, remaining + 1, "a path has more steps than it says")? as usize;
                let back =
                    cursor.below(bytes, self.steps.len() as u64 + 1, "a copy begins before all paths")?;
                self.copy(count, back as usize)?;
            }
        }
        self.ends.push(end);
        Ok(())
    }

    fn copy(&mut self, count: usize, back: usize) -> Result<(), Problem> {
        if count == 0 || back == 0 {
            return Err(damaged("a copy of nothing, or of itself"));
        }
        let start = self.steps.len() - back;
        if count <= back {
            self.steps.extend_from_within(start..start + count);
        } else {
            (start..start + count).for_each(|at| self.steps.push(self.steps[at]));
        }
        Ok(())
    }
}

impl PathEncoder {
    /// Returns whether the dictionary must be reset.
    pub(super) fn is_full(&self) -> bool {
        self.paths.steps.len() >= MAX_STEPS
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns the number of a path and whether it is new; a new one is encoded to `out`.
    pub(super) fn find(&mut self, path: &[u32], out: &mut Vec<u8>) -> (usize, bool) {
        let hash = path.iter().fold(path.len() as u64, |hash, &step| {
            (hash ^ u64::from(step)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
        });
        let same = |&&number: &&u32| self.paths.get(number as usize) == Some(path);
        if let Some(&number) = self.known.get(&hash).and_then(|all| all.iter().find(same)) {
            return (number as usize, false);
        }
        let number = self.paths.count();
        self.known.entry(hash).or_default().push(number as u32);
        self.write(path, out);
        (number, true)
    }

    /// Encodes a path as literals and copies and adds it to the dictionary.
    fn write(&mut self, path: &[u32], out: &mut Vec<u8>) {
        let base = self.paths.steps.len();
        self.paths.steps.extend_from_slice(path);
        let end = self.paths.steps.len();
        self.paths.ends.push(end);
        put(out, path.len() as u64);
        let (mut from, mut at) = (base, base);
        while at < end {
            let sequence = self.sequence(at);
            let found = sequence.and_then(|sequence| self.sequences.get(&sequence).copied());
            let length = found.map_or(0, |start| self.match_length(start, at));
            if let (Some(start), MIN_COPY..) = (found, length) {
                self.literals(from, at, out);
                put(out, length as u64);
                put(out, (at - start) as u64);
                (at..at + length).for_each(|at| self.index_sequence(at));
                at += length;
                from = at;
            } else {
                self.index_sequence(at);
                at += 1;
            }
        }
        if from < end {
            self.literals(from, end, out);
        }
    }

    fn literals(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        put(out, (to - from) as u64);
        self.paths.steps[from..to].iter().for_each(|&step| put(out, step.into()));
    }

    fn sequence(&self, at: usize) -> Option<[u32; MIN_COPY]> {
        self.paths.steps.get(at..at + MIN_COPY)?.try_into().ok()
    }

    fn index_sequence(&mut self, at: usize) {
        if let Some(sequence) = self.sequence(at) {
            self.sequences.insert(sequence, at);
        }
    }

    /// Returns the length of the match between the steps at `start` and `at`.
    fn match_length(&self, start: usize, at: usize) -> usize {
        let steps = &self.paths.steps;
        steps[start..].iter().zip(&steps[at..]).take_while(|(a, b)| a == b).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_and_repeated_sequences_become_copies() {
        let (mut finder, mut out) = (PathEncoder::default(), Vec::new());
        let turn: Vec<u32> = [vec![0, 1], [2, 3, 4, 5].repeat(100), vec![6]].concat();
        let longer: Vec<u32> = [vec![0, 1], [2, 3, 4, 5].repeat(150), vec![6]].concat();
        let numbers = [&turn, &longer, &turn].map(|path| finder.find(path, &mut out).0);
        assert_eq!(numbers, [0, 1, 0]);
        assert!(out.len() < 40, "{} bytes", out.len());
        let (mut paths, mut cursor) = (Paths::default(), Cursor::all(&out));
        paths.read(&out, &mut cursor, 7).unwrap();
        paths.read(&out, &mut cursor, 7).unwrap();
        assert!(cursor.is_done());
        assert_eq!((paths.get(0), paths.get(1)), (Some(turn.as_slice()), Some(longer.as_slice())));
        assert!(Paths::default().read(&out, &mut Cursor::all(&out), 6).is_err(), "step 6 is not defined");
    }
}
