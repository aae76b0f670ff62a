//! Tight weights and the portable kernel, measured beside frozen weights with the usual kernels.

use buddy_codec::{TightHeader, tighten};
use buddy_cuda::{DeviceBytes, Linear, Output, TightMatrix, Trial};

use super::linear::Layer;
use crate::{Error, Lab};

/// A tight matrix in as many copies as the frozen one, all of the first plain matrix.
pub(super) struct TightCopies {
    pub(super) header: TightHeader,
    memory: Vec<DeviceBytes>,
}

impl TightCopies {
    /// Packs a plain matrix on the CPU. Fails unless the GPU reads the same values from it.
    pub(super) fn new(lab: &Lab, row: u32, plain: &DeviceBytes, copies: usize) -> Result<Self, Error> {
        let mut bytes = vec![0; plain.len() as usize];
        lab.wait()?;
        plain.download(&mut bytes)?;
        let packed = tighten(row, &bytes).map_err(|error| Error::Differs(error.to_string()))?;
        let header = TightHeader::parse(&packed).map_err(|error| Error::Differs(error.to_string()))?;
        let upload = |_| {
            let memory = lab.bytes(packed.len() as u64)?;
            memory.upload(&packed)?;
            Ok(memory)
        };
        let memory = (0..copies).map(upload).collect::<Result<Vec<_>, Error>>()?;
        let back = lab.bytes(plain.len())?;
        back.fill(0xee)?;
        let tight = Self { header, memory };
        tight.matrix(lab, 0)?.read(&lab.stream, 0, back.all())?;
        lab.same("tight weights", plain.all(), back.all())?;
        Ok(tight)
    }

    pub(super) fn matrix(&self, lab: &Lab, copy: usize) -> Result<TightMatrix<'_>, Error> {
        Ok(TightMatrix::new(&lab.gpu, self.header, self.memory[copy].all())?)
    }

    /// Returns the packed bytes of a copy.
    pub(super) fn bytes(&self) -> u64 {
        self.memory[0].len()
    }
}

/// A way to multiply beside the usual one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// Tight weights.
    Tight,
    /// Frozen weights, the kernel for GPUs without Hopper's instructions.
    Portable(Trial),
}

impl Way {
    /// Returns the memory as a report names it.
    pub(super) fn memory(self) -> &'static str {
        match self {
            Self::Tight => "bf16 tight",
            Self::Portable(_) => "bf16 frozen at 4/3x, portable kernel",
        }
    }
}

impl Layer<'_> {
    /// Packs the tight copies.
    pub(super) fn make_tight(&mut self) -> Result<(), Error> {
        let copies = self.plain.len();
        self.tight = Some(TightCopies::new(self.lab, self.size.1 / 64, &self.plain[0], copies)?);
        Ok(())
    }

    /// Lists the ways for a number of tokens.
    pub(super) fn ways(&self, tokens: u32) -> Vec<Way> {
        let portable = Trial::portable(tokens).map(Way::Portable);
        self.tight.iter().map(|_| Way::Tight).chain(portable).collect()
    }

    /// Enqueues the layer by a way.
    pub(super) fn start_way(
        &self,
        way: Way,
        copy: usize,
        tokens: u32,
        to: (&DeviceBytes, Output),
        overlaps: bool,
    ) -> Result<(), Error> {
        let stream = &self.lab.stream;
        match (way, &self.tight) {
            (Way::Portable(trial), _) => {
                self.with(copy, tokens, to, overlaps, |linear| Ok(linear.start_as(stream, trial)?))
            }
            (Way::Tight, Some(tight)) => {
                let matrix = tight.matrix(self.lab, copy)?;
                self.with(copy, tokens, to, overlaps, |linear| {
                    Ok(Linear { weights: (&matrix).into(), ..*linear }.start(stream)?)
                })
            }
            (Way::Tight, None) => Err(Error::Cut { of: "layer", why: "its weights were not packed tight" }),
        }
    }

    /// Returns the bytes of the weights that a way reads.
    pub(super) fn weight_bytes(&self, way: Way) -> u64 {
        match (way, &self.tight) {
            (Way::Tight, Some(tight)) => tight.bytes(),
            _ => self.plain[0].len() / 128 * 96 + self.plain[0].len() / 256,
        }
    }
}
