//! Tensor maps of bf16 matrices, for TMA.

use std::ptr::from_ref;

use cudarc::driver::{DeviceRepr, DriverError, sys};

use crate::bytes::DeviceSpan;

/// A tensor map of a bf16 matrix, in boxes with the 128-byte swizzle of wgmma: `TensorMap` of
/// `bulk.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TensorMap(sys::CUtensorMap);

// SAFETY: the driver's own struct, which a kernel takes by value.
unsafe impl DeviceRepr for TensorMap {}

impl TensorMap {
    /// Encodes `rows` contiguous rows of `values` values, in boxes of 64 values by `box_rows` rows.
    ///
    /// # Errors
    /// A driver error: memory must be aligned to 16 bytes.
    pub(crate) fn rows(
        span: DeviceSpan<'_>,
        values: u32,
        rows: u32,
        box_rows: u32,
    ) -> Result<Self, DriverError> {
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        let (sizes, pitch) = ([u64::from(values), u64::from(rows)], u64::from(values) * 2);
        let (boxes, steps) = ([64, box_rows], [1, 1]);
        // SAFETY: all arrays have two elements, and the pitches one; the driver keeps none of their
        // addresses.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map,
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                2,
                span.address() as *mut _,
                sizes.as_ptr(),
                from_ref(&pitch),
                boxes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }
        .result()?;
        Ok(Self(map))
    }
}
