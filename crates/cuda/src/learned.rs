//! What a codec learned of its allocation, where kernels find it.

use std::sync::Arc;

use buddy_codec::Codec;

use crate::{DeviceBytes, Error, Gpu, Params};

/// The parameters of a codec, and the block of them that lies in device memory if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Learned {
    params: Params,
    block: Option<Arc<DeviceBytes>>,
}

impl Learned {
    /// Takes device memory for the codec's block, if it has one, and puts it there.
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

    /// bf16's window, which lies in memory of someone else's.
    pub(crate) fn window_at(address: u64) -> Self {
        Self { params: Params::with_window(address), block: None }
    }

    /// What kernels take, for as long as this lives.
    pub(crate) fn params(&self) -> Params {
        self.params
    }

    /// Device memory of the block.
    pub(crate) fn bytes(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.len())
    }
}
