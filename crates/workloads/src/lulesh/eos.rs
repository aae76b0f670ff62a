//! The equation of state: energy, pressure and viscosity after a volume change, and the speed of
//! sound.

use rayon::prelude::*;

use super::Lulesh;

/// Energies, pressures and viscosities below this count as zero.
const CUT: f64 = 1e-7;
/// Relative volumes closer to one than this count as one.
const VOLUME_CUT: f64 = 1e-10;
/// Range of relative volumes that the equation of state accepts.
const VOLUMES: [f64; 2] = [1e-9, 1e9];
const LOWEST_ENERGY: f64 = -1e15;
/// Ideal gas: pressure over energy density.
const GAMMA_MINUS_ONE: f64 = 2.0 / 3.0;

/// Element state before the volume change.
#[derive(Debug, Clone, Copy)]
struct Before {
    e: f64,
    p: f64,
    q: f64,
    ql: f64,
    qq: f64,
    delv: f64,
}

/// Element state after the volume change.
#[derive(Debug, Clone, Copy)]
struct After {
    e: f64,
    p: f64,
    q: f64,
    ss: f64,
}

impl Lulesh {
    /// Applies the equation of state to every element and makes the new volumes current.
    pub(super) fn apply_material(&mut self) {
        let elems = &mut self.elems;
        let (ql, qq) = (&elems.ql, &elems.qq);
        let (vnew, delv) = (&elems.vnew, &elems.delv);
        let out = (&mut elems.e, &mut elems.p, &mut elems.q, &mut elems.ss, &mut elems.v);
        out.into_par_iter().enumerate().with_min_len(256).for_each(|(i, (e, p, q, ss, v))| {
            let before = Before { e: *e, p: *p, q: *q, ql: ql[i], qq: qq[i], delv: delv[i] };
            let after = evaluate(before, vnew[i].clamp(VOLUMES[0], VOLUMES[1]));
            (*e, *p, *q, *ss) = (after.e, after.p, after.q, after.ss);
            *v = if (vnew[i] - 1.0).abs() < VOLUME_CUT { 1.0 } else { vnew[i] };
        });
    }
}

/// Returns pressure and speed of sound of a gas at rest with this energy and relative volume.
pub(super) fn at_rest(e: f64, v: f64) -> (f64, f64) {
    let compression = 1.0 / v - 1.0;
    let p = pressure(e, compression);
    (p, sound(e, v, p, compression))
}

/// Integrates the energy over the volume change: a half step, a full step, and a correction from
/// both.
fn evaluate(before: Before, v: f64) -> After {
    let Before { p, q, delv, .. } = before;
    let (compression, half_compression) = (1.0 / v - 1.0, 1.0 / (v - 0.5 * delv) - 1.0);
    let viscosity = |e: f64, volume: f64, p: f64, compression: f64| {
        if delv > 0.0 { 0.0 } else { sound(e, volume, p, compression) * before.ql + before.qq }
    };

    let e_half = (before.e - 0.5 * delv * (p + q)).max(LOWEST_ENERGY);
    let p_half = pressure(e_half, half_compression);
    let q_half = viscosity(e_half, 1.0 / (1.0 + half_compression), p_half, half_compression);

    let e_full = settle(e_half + 0.5 * delv * (3.0 * (p + q) - 4.0 * (p_half + q_half)));
    let p_full = pressure(e_full, compression);
    let q_full = viscosity(e_full, v, p_full, compression);

    let work = 7.0 * (p + q) - 8.0 * (p_half + q_half) + (p_full + q_full);
    let e = settle(e_full - work * delv / 6.0);
    let p = pressure(e, compression);
    let q = if delv > 0.0 { q_half } else { zero_below_cut(viscosity(e, v, p, compression)) };
    After { e, p, q, ss: sound(e, v, p, compression) }
}

fn pressure(e: f64, compression: f64) -> f64 {
    zero_below_cut(GAMMA_MINUS_ONE * (compression + 1.0) * e).max(0.0)
}

/// Returns the speed of sound, bounded away from zero.
fn sound(e: f64, volume: f64, p: f64, compression: f64) -> f64 {
    let squared = GAMMA_MINUS_ONE * e + volume * volume * GAMMA_MINUS_ONE * (compression + 1.0) * p;
    if squared <= 0.111_111_1e-36 { 0.333_333_3e-18 } else { squared.sqrt() }
}

fn settle(e: f64) -> f64 {
    zero_below_cut(e).max(LOWEST_ENERGY)
}

fn zero_below_cut(value: f64) -> f64 {
    if value.abs() < CUT { 0.0 } else { value }
}
