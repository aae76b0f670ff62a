//! Candidate kernel shapes of linear layers, timed in turn with cuBLASLt's fastest algorithm; the
//! library's choices were made this way.

use buddy_cuda::{DeviceBytes, Linear, Output, Trial};
use cudarc::driver::CudaGraph;

use super::{
    linear::{COMPARED, IN_TURN, Layer},
    times::chain,
};
use crate::{Error, Lab, vendor::Vendor};

/// Outputs and inputs of the layers of an 8B and of a 70B Llama.
pub const LLAMA: [(u32, u32); 10] = [
    (6144, 4096),
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (128_256, 4096),
    (10240, 8192),
    (8192, 8192),
    (57344, 8192),
    (8192, 28672),
    (128_256, 8192),
];
/// Approximate read bandwidth in bytes per microsecond; sets the chain length.
const BYTES_PER_US: f64 = 4.3e6;

/// Candidate ways to compute one matrix's layers.
pub struct LinearTrials<'a>(Layer<'a>);

/// Time of a kernel variant in a chain of launches.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialTime {
    /// The way as text.
    pub way: String,
    /// Microseconds, or the error.
    pub us: Result<f64, String>,
}

impl<'a> LinearTrials<'a> {
    /// Allocates a matrix and buffers for `most_tokens` tokens.
    ///
    /// # Errors
    /// Driver errors.
    pub fn new(lab: &'a Lab, size: (u32, u32), most_tokens: u32) -> Result<Self, Error> {
        let bytes = u64::from(size.0) * u64::from(size.1) * 2;
        let copies = IN_TURN.div_ceil(bytes).max(3) as usize;
        Ok(Self(Layer::new(lab, size, most_tokens, copies, 0.0)?))
    }

    /// Verifies ways and times them in turn with the library's own choice, which comes first, and
    /// cuBLASLt's fastest algorithm, whose time is the second result if the library is available.
    ///
    /// # Errors
    /// Driver errors.
    pub fn time(
        &mut self,
        tokens: u32,
        ways: &[(String, Trial)],
    ) -> Result<(Vec<TrialTime>, Option<f64>), Error> {
        self.make_room(tokens, ways)?;
        let layer = &self.0;
        let (copies, (rows, columns)) = (layer.plain.len(), layer.size);
        let us = f64::from(rows) * f64::from(columns) * 1.5 / BYTES_PER_US;
        let launches = chain(copies, us, tokens);
        let bf16 = (&layer.y, Output::Bf16);
        let mut graphs = vec![layer.graph(launches, |i| layer.start(i % copies, tokens, bf16, true))?];
        let mut times = vec![TrialTime { way: "chosen".to_owned(), us: Ok(0.0) }];
        for (way, trial) in ways {
            let us = match self.verified(tokens, *trial) {
                Ok(()) => {
                    graphs.push(layer.graph(launches, |i| self.start(i % copies, tokens, bf16, *trial))?);
                    Ok(0.0)
                }
                Err(error) => Err(error.to_string()),
            };
            times.push(TrialTime { way: way.clone(), us });
        }
        let mine = graphs.len();
        let vendor = Vendor::new(layer.lab, layer.size, tokens)?;
        if let Some(vendor) = &vendor {
            graphs.extend(layer.finalists(vendor, launches)?);
        }
        let all: Vec<&CudaGraph> = graphs.iter().collect();
        let found = layer.lab.time_in_turn(launches, &all)?;
        let timed = times.iter_mut().filter_map(|time| time.us.as_mut().ok());
        timed.zip(&found).for_each(|(us, found)| *us = *found);
        Ok((times, found[mine..].iter().copied().min_by(f64::total_cmp)))
    }

    /// Allocates scratch memory for all of them.
    fn make_room(&mut self, tokens: u32, ways: &[(String, Trial)]) -> Result<(), Error> {
        let (lab, header) = (self.0.lab, &self.0.headers[0]);
        let rooms = ways.iter().map(|(_, trial)| trial.room(&lab.gpu, header, tokens));
        let most = rooms.collect::<Result<Vec<u64>, _>>()?.into_iter().max().unwrap_or(0);
        if most > self.0.scratch.len() {
            self.0.scratch = lab.bytes(most)?;
            Linear::prepare(&lab.gpu, &lab.stream, self.0.scratch.all())?;
        }
        Ok(())
    }

    fn start(&self, copy: usize, tokens: u32, to: (&DeviceBytes, Output), trial: Trial) -> Result<(), Error> {
        let stream = &self.0.lab.stream;
        self.0.with(copy, tokens, to, true, |linear| Ok(linear.start_as(stream, trial)?))
    }

    fn verified(&self, tokens: u32, trial: Trial) -> Result<(), Error> {
        let (outputs, inputs) = self.0.size;
        if !trial.takes([outputs, inputs, tokens]) {
            return Err(Error::Cut { of: "linear layer", why: "it has no room or no whole steps" });
        }
        self.0.verify_by(tokens.min(COMPARED), |to| self.start(0, tokens, (to, Output::Fp32), trial))
    }
}
