//! Linear layers compared with exact sums: random shapes, and every kernel on small problems.

use buddy_codec::{Bf16, Codec};
use buddy_cuda::{BufferMemory, DeviceBytes, Linear, Output, Trial, Weights, WritableMatrix};

use super::{linear::Layer, tight::TightCopies};
use crate::{Error, Lab};

/// Compares layers of random shapes with exact sums: rows, columns, tokens and weights, some of
/// them in rare layouts.
///
/// # Errors
/// [`Error::Differs`] with the first wrong layer.
pub fn check_linear(lab: &Lab, shapes: u64, most: u32) -> Result<(), Error> {
    let mut random = 1u64;
    let mut next = |below: u32| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as u32 % below
    };
    for i in 0..shapes {
        let (rows, columns, tokens) = (1 + next(1000), 64 * (1 + next(40)), 1 + next(most));
        let layer = Layer::new(lab, (rows, columns), tokens, 1, [0.0, 0.02, 0.5][i as usize % 3])?;
        layer
            .verify_weights()
            .and_then(|()| layer.verify(tokens, tokens))
            .map_err(|error| Error::Differs(format!("{rows} x {columns}, {tokens} tokens: {error}")))?;
    }
    Ok(())
}

/// Rows and columns of a small matrix: whole k-blocks of every kernel, and a partial tile of rows.
const SMALL: (u32, u32) = (208, 512);

/// Compares every linear kernel of this GPU on a small matrix, half of whose entries are in rare
/// layouts, with exact sums; then writable weights, bf16 results and gated ones with those. Small
/// enough for a memory checker.
///
/// # Errors
/// [`Error::Differs`] with the first wrong one.
pub fn check_linear_shapes(lab: &Lab) -> Result<(), Error> {
    let (major, minor) = lab.gpu.info()?.capability;
    let runs = |trial: &Trial| trial.source().is_none_or(|source| source.is_for(10 * major + minor));
    let all = Trial::all()
        .into_iter()
        .filter(runs)
        .flat_map(|trial| [(trial, trial.tokens()), (trial, trial.tokens() + 3)]);
    for (trial, tokens) in all.filter(|(trial, tokens)| trial.takes([SMALL.0, SMALL.1, *tokens])) {
        Small::new(lab, trial, tokens)?
            .check()
            .map_err(|error| Error::Differs(format!("{trial:?}: {error}")))?;
    }
    Ok(())
}

/// A layer of a small matrix by one kernel.
struct Small<'a> {
    layer: Layer<'a>,
    trial: Trial,
    tokens: u32,
    scratch: DeviceBytes,
}

impl<'a> Small<'a> {
    fn new(lab: &'a Lab, trial: Trial, tokens: u32) -> Result<Self, Error> {
        let layer = Layer::new(lab, SMALL, tokens, 1, 0.5)?;
        let scratch = lab.bytes(trial.room(&lab.gpu, &layer.headers[0], tokens)?)?;
        Linear::prepare(&lab.gpu, &lab.stream, scratch.all())?;
        Ok(Self { layer, trial, tokens, scratch })
    }

    fn check(&self) -> Result<(), Error> {
        let Layer { lab, plain, y, other, .. } = &self.layer;
        self.layer.with(0, self.tokens, (y, Output::Fp32), true, |linear| {
            let frozen = linear.weights;
            self.layer.verify_by(self.tokens, |to| self.start(frozen, to, Output::Fp32))?;
            let matrix = Written::new(lab)?;
            let matrix = matrix.matrix(lab, &self.layer.headers[0].codec, plain[0].all())?;
            other.fill(0xee)?;
            self.start((&matrix).into(), other, Output::Fp32)?;
            lab.same("weights that may be written", y.all(), other.all())?;
            let sums = self.download(y)?;
            if self.trial.reads_tight() {
                let tight = TightCopies::new(lab, SMALL.1 / 64, &plain[0], 1)?;
                let matrix = tight.matrix(lab, 0)?;
                other.fill(0xee)?;
                self.start((&matrix).into(), other, Output::Fp32)?;
                lab.same("tight weights", y.all(), other.all())?;
            }
            self.start(frozen, other, Output::Bf16)?;
            self.compare("bf16", &sums, other, 1.0 / 200.0)?;
            if self.trial.gates() {
                self.start(frozen, other, Output::Gated)?;
                // Values near the middle may round up or down.
                self.compare("gated", &gated(&sums), other, 1.0 / 80.0)?;
            }
            Ok(())
        })
    }

    fn start(&self, weights: Weights<'_>, to: &DeviceBytes, output: Output) -> Result<(), Error> {
        let (x, y, scratch) = (self.layer.x.all(), to.all(), self.scratch.all());
        let linear = Linear { weights, x, bias: None, y, output, scratch, overlaps: true };
        Ok(linear.start_as(&self.layer.lab.stream, self.trial)?)
    }

    fn download(&self, from: &DeviceBytes) -> Result<Vec<f32>, Error> {
        self.layer.lab.wait()?;
        let mut bytes = vec![0u8; from.len() as usize];
        from.download(&mut bytes)?;
        let numbers = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        Ok(numbers.take((self.tokens * SMALL.0) as usize).collect())
    }

    /// Fails unless bf16 numbers match up to rounding.
    fn compare(&self, what: &str, wanted: &[f32], found: &DeviceBytes, rounding: f32) -> Result<(), Error> {
        self.layer.lab.wait()?;
        let mut bytes = vec![0u8; found.len() as usize];
        found.download(&mut bytes)?;
        let numbers = bytes
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16));
        let is_right = |wanted: f32, found: f32| (wanted - found).abs() <= wanted.abs() * rounding + 1e-30;
        match wanted.iter().zip(numbers).find(|&(&wanted, found)| !is_right(wanted, found)) {
            None => Ok(()),
            Some((wanted, found)) => Err(Error::Differs(format!("{what}: {found} instead of {wanted}"))),
        }
    }
}

/// Rounds to bf16, to nearest.
fn rounded(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// Computes silu(gate) * value, where eight gates alternate with eight values, rounded at each step
/// like the kernels.
fn gated(sums: &[f32]) -> Vec<f32> {
    let one = |(&gate, &value): (&f32, &f32)| {
        let gate = rounded(gate);
        rounded(gate / (1.0 + (-gate).exp())) * rounded(value)
    };
    let of = |sixteen: &[f32]| sixteen[..8].iter().zip(&sixteen[8..]).map(one).collect::<Vec<f32>>();
    sums.chunks_exact(16).flat_map(of).collect()
}

/// Memory of writable weights.
struct Written([DeviceBytes; 3]);

impl Written {
    fn new(lab: &Lab) -> Result<Self, Error> {
        let room = WritableMatrix::room(SMALL.0, SMALL.1)?;
        let parts = [lab.bytes(room.device)?, lab.bytes(room.metadata)?, lab.bytes(room.overflow)?];
        // Kernels load whole slots, of which an entry may need less.
        parts.iter().try_for_each(|part| part.fill(0xee))?;
        Ok(Self(parts))
    }

    fn matrix(
        &self,
        lab: &Lab,
        codec: &Codec,
        from: buddy_cuda::DeviceSpan<'_>,
    ) -> Result<WritableMatrix<'_>, Error> {
        let [device, metadata, overflow] = self.0.each_ref().map(DeviceBytes::all);
        let bf16 = if let Codec::Bf16(bf16) = codec { *bf16 } else { Bf16::default() };
        let matrix = WritableMatrix::new(&lab.gpu, bf16, SMALL, BufferMemory { device, metadata, overflow })?;
        matrix.clear(&lab.stream)?;
        matrix.write(&lab.stream, 0, from)?;
        Ok(matrix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_and_values_take_turns_in_eights() {
        let sums: Vec<f32> = (0..32).map(|i| if i % 16 < 8 { 0.0 } else { i as f32 }).collect();
        assert_eq!(gated(&sums), [0.0; 16]);
        let large: Vec<f32> = (0..16).map(|i| if i < 8 { 100.0 } else { i as f32 }).collect();
        assert_eq!(gated(&large), [800.0, 900.0, 1000.0, 1100.0, 1200.0, 1300.0, 1400.0, 1500.0]);
    }
}
