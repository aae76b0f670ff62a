//! A trained codec's parameters in device memory.

use std::sync::Arc;

use buddy_codec::Codec;

use crate::{DeviceBytes, Error, Gpu, Params};

/// A codec's parameters, with their block in device memory if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Learned {
    params: Params,
    block: Option<Arc<DeviceBytes>>,
}

/// Returns the device bytes of a codec's parameters.
#[cfg(feature = "tables")]
pub(crate) fn bytes_of(codec: &Codec) -> u64 {
    size_of_val(&codec.block()[..]) as u64
}

impl Learned {
    /// Allocates and fills the block, if the codec has one.
    pub(crate) fn of(gpu: &Gpu, codec: &Codec) -> Result<Self, Error> {
        let words = codec.block();
        if words.is_empty() {
            return Ok(Self { params: Params::of(codec), block: None });
        }
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let block = DeviceBytes::new(gpu, bytes.len() as u64)?;
        block.upload(bytes)?;
        Ok(Self { params: Params::with_block(block.all().address()), block: Some(Arc::new(block)) })
    }

    /// Refers to a bf16 window in memory that something else owns.
    pub(crate) fn window_at(address: u64) -> Self {
        Self { params: Params::with_window(address), block: None }
    }

    /// Returns the kernels' parameters, valid as long as this lives.
    pub(crate) fn params(&self) -> Params {
        self.params
    }

    /// Returns the device memory of the block.
    pub(crate) fn bytes(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.len())
    }
}
