//! Matrices as the copy engine of Hopper's multiprocessors sees them.

use std::ptr::from_ref;

use cudarc::driver::{DeviceRepr, DriverError, sys};

use crate::bytes::DeviceSpan;

/// A matrix of bf16, cut into boxes that lie in shared memory as products of warpgroups want them:
/// `TensorMap` of `bulk.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TensorMap(sys::CUtensorMap);

// SAFETY: the driver's own struct, which a kernel takes by value.
unsafe impl DeviceRepr for TensorMap {}

impl TensorMap {
    /// Rows of so many values, one after the other, in boxes of 64 values of so many rows.
    ///
    /// # Errors
    /// What the driver says: memory must be aligned to 16 bytes.
    pub(crate) fn rows(
        span: DeviceSpan<'_>,
        values: u32,
        rows: u32,
        box_rows: u32,
    ) -> Result<Self, DriverError> {
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        let (sizes, pitch) = ([u64::from(values), u64::from(rows)], u64::from(values) * 2);
        let (boxes, steps) = ([64, box_rows], [1, 1]);
        // SAFETY: all arrays have two numbers, and the pitches one less; the driver keeps none of
        // their addresses.
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
