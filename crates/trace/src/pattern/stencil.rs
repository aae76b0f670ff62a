//! A stencil over a three-dimensional grid, as in wave propagation, weather codes and multigrid
//! smoothers.

use super::{Array, lanes_for};
use crate::{At, Code, Error, Inst, Kernel, Launch, NO_REGISTER, Op, WARP_LANES};

/// Each thread computes one point of a plane and advances along z, one plane per step.
#[derive(Debug, Clone)]
pub struct Stencil {
    launch: Launch,
    input: Array,
    output: Array,
    size: [u64; 3],
    points: Vec<[i64; 3]>,
}

impl Stencil {
    /// Creates a sweep over a grid of `size` points. `points` are the offsets in x, y and z that
    /// each output reads.
    pub fn new(input: Array, output: Array, size: [u32; 3], points: &[[i64; 3]]) -> Self {
        const WARPS: u32 = 8;
        let blocks = (size[0].div_ceil(WARP_LANES) * size[1]).div_ceil(WARPS);
        let launch = Launch::linear("stencil", blocks, WARPS * WARP_LANES);
        Self { launch, input, output, size: size.map(u64::from), points: points.to_vec() }
    }

    /// Returns a star stencil: `radius` points in each of six directions, and the centre.
    pub fn star(radius: i64) -> Vec<[i64; 3]> {
        let mut points = vec![[0, 0, 0]];
        for distance in 1..=radius {
            for axis in 0..3 {
                for step in [-distance, distance] {
                    let mut point = [0; 3];
                    point[axis] = step;
                    points.push(point);
                }
            }
        }
        points
    }

    /// Returns the index of a point, clamped to the grid.
    fn index(&self, x: u64, y: u64, z: u64, point: [i64; 3]) -> u64 {
        let [nx, ny, nz] = self.size;
        let clamp = |at: u64, by: i64, n: u64| at.saturating_add_signed(by).min(n - 1);
        clamp(x, point[0], nx) + nx * (clamp(y, point[1], ny) + ny * clamp(z, point[2], nz))
    }
}

impl Kernel for Stencil {
    fn launch(&self) -> &Launch {
        &self.launch
    }

    fn fill(&mut self, at: At, code: &mut Code) -> Result<(), Error> {
        let [nx, ny, nz] = self.size;
        let row_warps = nx.div_ceil(u64::from(WARP_LANES));
        let warp = at.block * u64::from(self.launch.warps()) + u64::from(at.warp);
        let (x, y, z) = (warp % row_warps * u64::from(WARP_LANES), warp / row_warps, u64::from(at.step));
        if y >= ny || z >= nz {
            return Ok(());
        }
        let mask = lanes_for(nx - x);
        let bytes = self.input.element_bytes;
        let op = if bytes == 8 { Op::Fp64 } else { Op::Fp32 };
        code.push(Inst::new(Op::Int, 2, &[2]));
        for (number, &point) in self.points.iter().enumerate() {
            let (dst, place) = (16 + 2 * (number % 32) as u8, self.input.address(self.index(x, y, z, point)));
            code.push(Inst::new(Op::LoadGlobal, dst, &[2]).at(place, i32::from(bytes), bytes).masked(mask));
        }
        for number in 0..self.points.len() {
            code.push(Inst::new(op, 8, &[8, 16 + 2 * (number % 32) as u8]).masked(mask));
        }
        let place = self.output.address(self.index(x, y, z, [0; 3]));
        code.push(
            Inst::new(Op::StoreGlobal, NO_REGISTER, &[2, 8]).at(place, i32::from(bytes), bytes).masked(mask),
        );
        code.push(Inst::new(Op::Control, NO_REGISTER, &[2]));
        Ok(())
    }
}
