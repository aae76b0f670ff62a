//! Paths: the orders in which warps execute steps. Each is kept once; a new one is written as pieces of those before
//! it, itself included, which is how a loop becomes one copy.

use std::collections::HashMap;

use super::{
    MAX_BLOCK,
    varint::{Place, damaged, put},
};
use crate::Problem;

/// Once this many steps are kept, the next frame forgets them.
pub(super) const FULL: usize = 1 << 22;
/// The shortest piece that is copied.
const LEAST: usize = 4;

/// All paths, one after the other.
#[derive(Debug, Default)]
pub(super) struct Paths {
    steps: Vec<u32>,
    /// Where each path ends.
    ends: Vec<usize>,
}

/// Finds paths and pieces that are there already.
#[derive(Debug, Default)]
pub(super) struct Finder {
    paths: Paths,
    /// Paths by their steps' hash.
    known: HashMap<u64, Vec<u32>>,
    /// Where four steps in a row stand last.
    pieces: HashMap<[u32; LEAST], usize>,
}

impl Paths {
    pub(super) fn forget(&mut self) {
        self.steps.clear();
        self.ends.clear();
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The steps of a path.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<&[u32]> {
        let start = if number == 0 { 0 } else { *self.ends.get(number - 1)? };
        self.steps.get(start..*self.ends.get(number)?)
    }

    /// Reads a new path.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        place: &mut Place,
        known_steps: usize,
    ) -> Result<(), Problem> {
        let length = place.under(bytes, MAX_BLOCK + 1, "a path is too long")? as usize;
        let end = self.steps.len() + length;
        if end > FULL + 2 * MAX_BLOCK as usize {
            return Err(damaged("a frame has more paths than fit"));
        }
        while self.steps.len() < end {
            let left = (end - self.steps.len()) as u64;
            let literals = place.under(bytes, left + 1, "a path has more steps than it says")?;
            for _ in 0..literals {
                let step = place.under(bytes, known_steps as u64, "a path has a step that is not defined")?;
                self.steps.push(step as u32);
            }
            let left = (end - self.steps.len()) as u64;
            if left > 0 {
                let count = place.under(bytes, left + 1, "a path has more steps than it says")? as usize;
                let back =
                    place.under(bytes, self.steps.len() as u64 + 1, "a copy begins before all paths")?;
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

impl Finder {
    /// Whether it is time to forget.
    pub(super) fn is_full(&self) -> bool {
        self.paths.steps.len() >= FULL
    }

    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The number of a path; a new one is appended to `out` first, and `true` given beside its number.
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

    /// Writes a path as new steps and copies, and keeps it.
    fn write(&mut self, path: &[u32], out: &mut Vec<u8>) {
        let base = self.paths.steps.len();
        self.paths.steps.extend_from_slice(path);
        let end = self.paths.steps.len();
        self.paths.ends.push(end);
        put(out, path.len() as u64);
        let (mut from, mut at) = (base, base);
        while at < end {
            let piece = self.piece(at);
            let found = piece.and_then(|piece| self.pieces.get(&piece).copied());
            let length = found.map_or(0, |start| self.same(start, at));
            if let (Some(start), LEAST..) = (found, length) {
                self.literals(from, at, out);
                put(out, length as u64);
                put(out, (at - start) as u64);
                (at..at + length).for_each(|at| self.note(at));
                at += length;
                from = at;
            } else {
                self.note(at);
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

    fn piece(&self, at: usize) -> Option<[u32; LEAST]> {
        self.paths.steps.get(at..at + LEAST)?.try_into().ok()
    }

    fn note(&mut self, at: usize) {
        if let Some(piece) = self.piece(at) {
            self.pieces.insert(piece, at);
        }
    }

    /// How many steps from `start` on are those from `at` on.
    fn same(&self, start: usize, at: usize) -> usize {
        let steps = &self.paths.steps;
        steps[start..].iter().zip(&steps[at..]).take_while(|(a, b)| a == b).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_and_likenesses_are_copies() {
        let (mut finder, mut out) = (Finder::default(), Vec::new());
        let turn: Vec<u32> = [vec![0, 1], [2, 3, 4, 5].repeat(100), vec![6]].concat();
        let longer: Vec<u32> = [vec![0, 1], [2, 3, 4, 5].repeat(150), vec![6]].concat();
        let numbers = [&turn, &longer, &turn].map(|path| finder.find(path, &mut out).0);
        assert_eq!(numbers, [0, 1, 0]);
        assert!(out.len() < 40, "{} bytes", out.len());
        let (mut paths, mut place) = (Paths::default(), Place::all(&out));
        paths.read(&out, &mut place, 7).unwrap();
        paths.read(&out, &mut place, 7).unwrap();
        assert!(place.is_done());
        assert_eq!((paths.get(0), paths.get(1)), (Some(turn.as_slice()), Some(longer.as_slice())));
        assert!(Paths::default().read(&out, &mut Place::all(&out), 6).is_err(), "step 6 is not defined");
    }
}
