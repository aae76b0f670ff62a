//! Single-precision arithmetic, as needed for loop trip counts: compilers divide integers with it.

use super::{
    decode::{Flag, Kind},
    exec::Work,
    operand::Source,
    state::Value,
};

/// Returns a source as a float.
pub(super) fn source(work: &Work<'_>, source: Source, lane: usize) -> Option<f32> {
    let value = f32::from_bits(work.raw(source, lane)?);
    let value = if source.absolute { value.abs() } else { value };
    Some(if source.negated { -value } else { value })
}

/// Computes a float result of a lane.
pub(super) fn value(work: &Work<'_>, lane: usize, sources: &[Source]) -> Value {
    let i = work.instruction;
    let float = |index: usize| source(work, *sources.get(index)?, lane);
    let value = match i.kind {
        Kind::Fadd => float(0)? + float(1)?,
        Kind::Fmul => float(0)? * float(1)?,
        Kind::Ffma => float(0)?.mul_add(float(1)?, float(2)?),
        Kind::Mufu if i.has(Flag::Rcp) => 1.0 / float(0)?,
        Kind::Mufu if i.has(Flag::Ex2) => float(0)?.exp2(),
        Kind::I2f | Kind::I2fp if i.has(Flag::F64) || i.has(Flag::U16) || i.has(Flag::U8) => return None,
        Kind::I2f | Kind::I2fp => {
            let value = work.int(*sources.first()?, lane)?;
            let exact = if i.has(Flag::U32) { f64::from(value) } else { f64::from(value as i32) };
            if i.has(Flag::Rp) { up(exact) } else { exact as f32 }
        }
        Kind::F2i if !i.has(Flag::F64) => {
            let value = float(0)?;
            return Some(if i.has(Flag::U32) { value as u32 } else { (value as i32) as u32 });
        }
        _ => return None,
    };
    Some(value.to_bits())
}

/// Rounds a non-negative number up to single precision.
fn up(exact: f64) -> f32 {
    let near = exact as f32;
    if f64::from(near) < exact { f32::from_bits(near.to_bits() + 1) } else { near }
}

#[cfg(test)]
mod tests {
    #[test]
    fn rounding_up_gives_the_next_float() {
        assert_eq!((super::up(16_777_217.0), super::up(3.0)), (16_777_218.0, 3.0));
    }
}
