//! The linear kernels on plain weights: the cost of the same kernel without compression.

use cudarc::driver::CudaStream;

use super::{ALIGN, Linear, Plan, check_room};
use crate::{DeviceSpan, Error};

impl Linear<'_> {
    /// Runs the same kernel on plain weights, for comparison: entries in the order of a frozen
    /// matrix, with words as `linear_fragment.cuh` reads them. Returns false and enqueues nothing
    /// for as many tokens as cuBLASLt multiplies.
    ///
    /// # Errors
    /// As for [`start`](Linear::start).
    #[doc(hidden)]
    pub fn start_plain_form(&self, on: &CudaStream, plain: DeviceSpan<'_>) -> Result<bool, Error> {
        let gpu = self.weights.gpu();
        let sizes = self.check()?;
        let Some(plan) = Plan::of(gpu, sizes).for_plain() else { return Ok(false) };
        let need = u64::from(sizes.outputs.next_multiple_of(16)) * u64::from(sizes.inputs) * 2;
        if plain.bytes() < need || !plain.address().is_multiple_of(ALIGN) {
            let need = "plain weights in whole tiles, aligned to 128 bytes";
            return Err(Error::Shape { bytes: plain.bytes(), address: plain.address(), need });
        }
        let (room, rest) = plan.room(gpu, sizes);
        check_room(self.scratch, room + rest)?;
        let mut view = self.view(sizes, self.scratch, self.scratch.part(room..room + rest));
        view.weights.device = plain.address();
        match plan {
            Plan::Narrow(narrow) => self.narrow(on, narrow, view)?,
            Plan::Wide(wide) => self.wide(on, wide, view)?,
            Plan::Portable(_) | Plan::Plain(_) => return Ok(false),
        }
        Ok(true)
    }
}
