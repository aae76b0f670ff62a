//! One time step: stresses from velocities, then velocities from stresses.
//!
//! The grid is staggered (Madariaga and Virieux): a derivative is the difference of two neighbours,
//! located halfway between them. In the absorbing layers a memory variable per derivative damps it.

use rayon::prelude::*;

use super::{
    Seismic,
    medium::{DENSITY, DT, LAMBDA, MU, Profile, SPACING},
};
use crate::lockstep::lockstep;

/// Numbers smaller than this are stored as zero, like flushed denormals on a GPU.
const SMALLEST: f32 = 1e-30;

/// Fields, in the order of [`Seismic::fields`].
pub(super) const VX: usize = 0;
pub(super) const VY: usize = 1;
const VZ: usize = 2;
const XX: usize = 3;
const YY: usize = 4;
const ZZ: usize = 5;
const XY: usize = 6;
const XZ: usize = 7;
const YZ: usize = 8;

/// A derivative: the difference of a field and its neighbour along an axis.
#[derive(Clone, Copy)]
pub(super) struct Slope {
    pub(super) field: usize,
    pub(super) axis: usize,
    /// True if the neighbour is ahead.
    pub(super) ahead: bool,
}

const fn ahead(field: usize, axis: usize) -> Slope {
    Slope { field, axis, ahead: true }
}

const fn behind(field: usize, axis: usize) -> Slope {
    Slope { field, axis, ahead: false }
}

/// Derivatives of the velocities, and of the stresses; memory variables have the same order.
pub(super) const SLOPES: [[Slope; 9]; 2] = [
    [
        ahead(VX, 0),
        behind(VY, 1),
        behind(VZ, 2),
        ahead(VX, 1),
        behind(VY, 0),
        ahead(VX, 2),
        behind(VZ, 0),
        ahead(VY, 2),
        ahead(VZ, 1),
    ],
    [
        behind(XX, 0),
        behind(XY, 1),
        behind(XZ, 2),
        ahead(XY, 0),
        ahead(YY, 1),
        behind(YZ, 2),
        ahead(XZ, 0),
        behind(YZ, 1),
        ahead(ZZ, 2),
    ],
];

impl Seismic {
    pub(super) fn update_stresses(&mut self) {
        let (side, profile) = (self.side, &self.profile);
        let (velocities, stresses) = self.fields.split_at_mut(3);
        let slicer = Slicer { fields: velocities, first: 0, side, profile };
        let planes = lockstep(slices::<6>(stresses), side * side);
        let memory = lockstep(slices::<9>(&mut self.memory[..9]), side * side);
        let (direct, sideways, shear) =
            ((DT * (LAMBDA + 2.0 * MU)) as f32, (DT * LAMBDA) as f32, (DT * MU) as f32);
        inner(planes, memory).for_each(|(k, (mut planes, memory))| {
            slicer.sweep(k, &SLOPES[0], memory, |row, d| {
                let [xx, yy, zz, xy, xz, yz] = planes.each_mut().map(|plane| &mut plane[row..row + side]);
                for i in 1..side - 1 {
                    let (x, y, z) = (d[0][i], d[1][i], d[2][i]);
                    xx[i] = flush(xx[i] + direct * x + sideways * (y + z));
                    yy[i] = flush(yy[i] + direct * y + sideways * (x + z));
                    zz[i] = flush(zz[i] + direct * z + sideways * (x + y));
                    xy[i] = flush(xy[i] + shear * (d[3][i] + d[4][i]));
                    xz[i] = flush(xz[i] + shear * (d[5][i] + d[6][i]));
                    yz[i] = flush(yz[i] + shear * (d[7][i] + d[8][i]));
                }
            });
        });
    }

    pub(super) fn update_velocities(&mut self) {
        let (side, profile) = (self.side, &self.profile);
        let (velocities, stresses) = self.fields.split_at_mut(3);
        let slicer = Slicer { fields: stresses, first: 3, side, profile };
        let planes = lockstep(slices::<3>(velocities), side * side);
        let memory = lockstep(slices::<9>(&mut self.memory[9..]), side * side);
        let push = (DT / DENSITY) as f32;
        inner(planes, memory).for_each(|(k, (mut planes, memory))| {
            slicer.sweep(k, &SLOPES[1], memory, |row, d| {
                for (axis, plane) in planes.iter_mut().enumerate() {
                    let v = &mut plane[row..row + side];
                    for i in 1..side - 1 {
                        v[i] =
                            flush(v[i] + push * (d[3 * axis][i] + d[3 * axis + 1][i] + d[3 * axis + 2][i]));
                    }
                }
            });
        });
    }
}

/// One plane of several arrays.
type Pieces<'a, const N: usize> = [&'a mut [f32]; N];

/// Returns the planes of fields and their memory variables, without the outermost, rigid planes.
fn inner<'a, const N: usize>(
    planes: Vec<Pieces<'a, N>>,
    memory: Vec<Pieces<'a, 9>>,
) -> impl ParallelIterator<Item = (usize, (Pieces<'a, N>, Pieces<'a, 9>))> {
    let last = planes.len() - 1;
    planes.into_par_iter().zip(memory).enumerate().filter(move |(k, _)| (1..last).contains(k))
}

fn slices<const N: usize>(arrays: &mut [Vec<f32>]) -> [&mut [f32]; N] {
    let mut arrays = arrays.iter_mut();
    std::array::from_fn(|_| arrays.next().map(Vec::as_mut_slice).unwrap_or_default())
}

fn flush(value: f32) -> f32 {
    if value.abs() < SMALLEST { 0.0 } else { value }
}

/// Computes derivatives of some fields, row by row.
struct Slicer<'a> {
    fields: &'a [Vec<f32>],
    /// Index of the first of `fields`.
    first: usize,
    side: usize,
    profile: &'a Profile,
}

impl Slicer<'_> {
    /// Calls `update` for every row of plane `k` with the row's start and its nine derivatives.
    fn sweep(
        &self,
        k: usize,
        slopes: &[Slope; 9],
        mut memory: [&mut [f32]; 9],
        mut update: impl FnMut(usize, &[Vec<f32>; 9]),
    ) {
        let side = self.side;
        let mut d: [Vec<f32>; 9] = std::array::from_fn(|_| vec![0.0; side]);
        for j in 1..side - 1 {
            let row = j * side;
            for (slope, (d, memory)) in slopes.iter().zip(d.iter_mut().zip(&mut memory)) {
                self.take(slope, [j, k], d, &mut memory[row..row + side]);
            }
            update(row, &d);
        }
    }

    /// Computes the derivative along one row, damped inside a layer.
    fn take(&self, slope: &Slope, [j, k]: [usize; 2], d: &mut [f32], memory: &mut [f32]) {
        let (side, field) = (self.side, &self.fields[slope.field - self.first]);
        let (here, stride) = (side * (j + side * k) + 1, [1, side, side * side][slope.axis]);
        let low = if slope.ahead { here } else { here - stride };
        let (low, high) = (&field[low..low + side - 2], &field[low + stride..low + stride + side - 2]);
        for (d, (low, high)) in d[1..].iter_mut().zip(low.iter().zip(high)) {
            *d = (high - low) * (1.0 / SPACING as f32);
        }
        let p = self.profile;
        let (a, b) = if slope.ahead { (&p.a_half, &p.b_half) } else { (&p.a, &p.b) };
        match slope.axis {
            0 => {
                for i in (1..=p.layer).chain(side - 1 - p.layer..side - 1) {
                    absorb(&mut d[i..=i], &mut memory[i..=i], a[i], b[i]);
                }
            }
            axis => {
                let place = [j, k][axis - 1];
                if a[place] != 0.0 {
                    absorb(&mut d[1..side - 1], &mut memory[1..side - 1], a[place], b[place]);
                }
            }
        }
    }
}

fn absorb(d: &mut [f32], memory: &mut [f32], a: f32, b: f32) {
    for (d, memory) in d.iter_mut().zip(memory) {
        *memory = flush(b * *memory + a * *d);
        *d += *memory;
    }
}
