//! The channel: a box with walls below and above, periodic in the other directions, filled with
//! beads.

use super::lattice::{DIRECTIONS, opposite};
use crate::random::Random;

/// Marks a solid cell in [`Channel::cells`].
const SOLID: i32 = -1;
/// Radii of the beads, in cells.
const RADII: [usize; 2] = [3, 6];

/// The box and the numbering of its fluid cells.
pub(super) struct Channel {
    pub(super) size: [usize; 3],
    /// Index of each cell in the list of fluid cells, or -1.
    pub(super) cells: Vec<i32>,
    pub(super) fluid: usize,
}

impl Channel {
    /// Creates a channel in which beads fill the share `solid` of the space between the walls.
    pub(super) fn new(size: [usize; 3], solid: f64, seed: u64) -> Self {
        let mut channel = Self { size, cells: vec![0; size.iter().product()], fluid: 0 };
        channel.build_walls();
        let mut left = (solid * ((size[1] - 2) * size[0] * size[2]) as f64) as usize;
        let mut random = Random::new(seed);
        while left > 0 {
            left = left.saturating_sub(channel.add_bead(&mut random));
        }
        for cell in channel.cells.iter_mut().filter(|cell| **cell != SOLID) {
            *cell = channel.fluid as i32;
            channel.fluid += 1;
        }
        channel
    }

    fn build_walls(&mut self) {
        let [nx, ny, _] = self.size;
        for (row, cells) in self.cells.chunks_exact_mut(nx).enumerate() {
            if row % ny == 0 || row % ny == ny - 1 {
                cells.fill(SOLID);
            }
        }
    }

    /// Adds a bead at a random position; returns the number of cells that became solid.
    fn add_bead(&mut self, random: &mut Random) -> usize {
        let largest = RADII[1].min(self.size.into_iter().min().unwrap_or(4) / 4).max(2);
        let smallest = RADII[0].min(largest);
        let radius = (smallest as u64 + random.below((largest - smallest + 1) as u64)) as i32;
        let middle = self.size.map(|side| random.below(side as u64) as i32);
        let mut filled = 0;
        let reach = -radius..=radius;
        for z in reach.clone() {
            for y in reach.clone() {
                for x in reach.clone().filter(|x| x * x + y * y + z * z <= radius * radius) {
                    if let Some(cell) = self.index([middle[0] + x, middle[1] + y, middle[2] + z]) {
                        filled += usize::from(self.cells[cell] != SOLID);
                        self.cells[cell] = SOLID;
                    }
                }
            }
        }
        filled
    }

    /// Returns the cell at a position, periodic in x and z; `None` beyond the walls.
    fn index(&self, at: [i32; 3]) -> Option<usize> {
        let [nx, ny, nz] = self.size.map(|side| side as i32);
        let [x, y, z] = [at[0].rem_euclid(nx), at[1], at[2].rem_euclid(nz)];
        (0..ny).contains(&y).then_some((x + nx * (y + ny * z)) as usize)
    }

    /// Returns the streaming sources of each fluid cell, by direction: the upstream cell's
    /// population, or its own bounced back from a solid. Indices refer to 19 arrays of fluid cells.
    pub(super) fn streaming_list(&self) -> Vec<i32> {
        let (fluid, [nx, ny, _]) = (self.fluid, self.size);
        let mut list = Vec::with_capacity(18 * fluid);
        for (i, c) in DIRECTIONS.into_iter().enumerate().skip(1) {
            for (place, &cell) in self.cells.iter().enumerate().filter(|(_, cell)| **cell != SOLID) {
                let at = [place % nx, place / nx % ny, place / nx / ny].map(|part| part as i32);
                let upstream = self.index([at[0] - c[0], at[1] - c[1], at[2] - c[2]]);
                let source = match upstream.map(|place| self.cells[place]) {
                    None | Some(SOLID) => opposite(i) as i32 * fluid as i32 + cell,
                    Some(neighbour) => i as i32 * fluid as i32 + neighbour,
                };
                list.push(source);
            }
        }
        list
    }
}
