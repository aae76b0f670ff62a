//! cuBLASLt, for as many tokens that unpacking the weights first is faster.

use std::{collections::HashMap, ffi::c_void, ops::Range};

use cudarc::{
    cublaslt::{result, sys},
    driver::CudaStream,
};

use super::{Linear, Output, Sizes};
use crate::{DeviceSpan, Error, Gpu};

/// cuBLASLt's values: a transposed operand, and a bias added to every column.
static TRANSPOSED: i32 = 1;
static WITH_BIAS: i32 = 4;

/// The key of a chosen algorithm: rows, sizes, type of the result, and whether there is a bias.
type Case = (u32, Sizes, bool, bool);

/// A handle of cuBLASLt, and the first algorithm of its heuristics for each case.
#[derive(Debug)]
pub(crate) struct Vendor {
    handle: sys::cublasLtHandle_t,
    algorithms: HashMap<Case, sys::cublasLtMatmulAlgo_t>,
}

// SAFETY: any thread may use the handle, one at a time; it is behind a lock.
unsafe impl Send for Vendor {}

impl Drop for Vendor {
    fn drop(&mut self) {
        // SAFETY: created once and destroyed once; an error here cannot be handled.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// A cuBLASLt object and its destructor.
struct Owned<T: Copy>(T, unsafe fn(T) -> Result<(), result::CublasError>);

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: as for the handle.
        let _ = unsafe { (self.1)(self.0) };
    }
}

/// A product's description: the operation, and the layouts of weights, x and y.
struct Product {
    what: Owned<sys::cublasLtMatmulDesc_t>,
    layouts: [Owned<sys::cublasLtMatrixLayout_t>; 3],
}

impl Product {
    fn new(rows: u32, of: &Linear<'_>, sizes: Sizes, bias: u64) -> Result<Self, result::CublasError> {
        let (narrow, single) = (sys::cudaDataType_t::CUDA_R_16BF, sys::cudaDataType_t::CUDA_R_32F);
        let (inputs, tokens) = (u64::from(sizes.inputs), u64::from(sizes.tokens));
        // cuBLASLt is column-major: our row-major matrices are transposed.
        let layout = |of, rows, columns, pitch: u64| {
            Ok(Owned(
                result::create_matrix_layout(of, rows, columns, pitch as i64)?,
                result::destroy_matrix_layout,
            ))
        };
        let what = result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, single)?;
        let what = Owned(what, result::destroy_matmul_desc);
        let out = if of.output == Output::Fp32 { single } else { narrow };
        let set = |attribute, value: *const c_void, bytes| {
            // SAFETY: the description is alive, and the attribute has this size.
            unsafe { result::set_matmul_desc_attribute(what.0, attribute, value, bytes) }
        };
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, (&raw const TRANSPOSED).cast(), 4)?;
        if bias != 0 {
            set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const WITH_BIAS).cast(), 4)?;
            set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const bias).cast(), 8)?;
            set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (&raw const narrow).cast(), 4)?;
        }
        let layouts = [
            layout(narrow, inputs, u64::from(rows), inputs)?,
            layout(narrow, inputs, tokens, inputs)?,
            layout(out, u64::from(rows), tokens, u64::from(sizes.outputs))?,
        ];
        Ok(Self { what, layouts })
    }

    /// Returns the first algorithm of the heuristics.
    fn algorithm(
        &self,
        handle: sys::cublasLtHandle_t,
        workspace: u64,
    ) -> Result<sys::cublasLtMatmulAlgo_t, result::CublasError> {
        let limit = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let preference = Owned(result::create_matmul_pref()?, result::destroy_matmul_pref);
        let [a, b, c] = self.layouts.each_ref().map(|layout| layout.0);
        // SAFETY: all descriptions are alive, and the attribute has the given size.
        unsafe {
            result::set_matmul_pref_attribute(preference.0, limit, (&raw const workspace).cast(), 8)?;
            Ok(result::get_matmul_algo_heuristic(handle, self.what.0, a, b, c, c, preference.0)?.algo)
        }
    }
}

impl Vendor {
    /// Loads the library.
    ///
    /// # Errors
    /// [`Error::Vendor`] if it is missing, or with its error.
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, Error> {
        // SAFETY: loading libcublasLt runs only its own initialisers.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::Vendor(
                "libcublasLt is not on this machine; it comes with the CUDA toolkit".to_owned(),
            ));
        }
        gpu.check("bind the context", gpu.context()?.bind_to_thread())?;
        Ok(Self { handle: result::create_handle().map_err(said)?, algorithms: HashMap::new() })
    }

    /// Multiplies plain rows of the weights by x.
    ///
    /// # Errors
    /// [`Error::Vendor`] with the library's error.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn multiply(
        &mut self,
        gpu: &Gpu,
        on: &CudaStream,
        of: &Linear<'_>,
        sizes: Sizes,
        rows: Range<u32>,
        plain: DeviceSpan<'_>,
        workspace: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        gpu.check("bind the context", gpu.context()?.bind_to_thread())?;
        let (count, first) = (rows.end - rows.start, u64::from(rows.start));
        let bias = of.bias.map_or(0, |bias| bias.address() + 2 * first);
        let product = Product::new(count, of, sizes, bias).map_err(said)?;
        let case = (count, sizes, of.output == Output::Fp32, bias != 0);
        let algorithm = match self.algorithms.get(&case) {
            Some(algorithm) => *algorithm,
            None => {
                let found = product.algorithm(self.handle, workspace.bytes()).map_err(said)?;
                *self.algorithms.entry(case).or_insert(found)
            }
        };
        let value = if of.output == Output::Fp32 { 4 } else { 2 };
        let (one, zero, out) = (1.0f32, 0.0f32, (of.y.address() + value * first) as *mut c_void);
        let [a, b, c] = product.layouts.each_ref().map(|layout| layout.0);
        // SAFETY: descriptions are alive; the layer's spans hold what they describe; scalars are
        // read before the call returns.
        let done = unsafe {
            result::matmul(
                self.handle,
                product.what.0,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                plain.address() as *const _,
                a,
                of.x.address() as *const _,
                b,
                out.cast_const(),
                c,
                out,
                c,
                &raw const algorithm,
                workspace.address() as *mut _,
                workspace.bytes() as usize,
                on.cu_stream().cast(),
            )
        };
        done.map_err(said)
    }
}

fn said(error: result::CublasError) -> Error {
    Error::Vendor(format!("{:?}", error.0))
}
