//! cuBLASLt's matrix product, for comparison.

use std::mem::MaybeUninit;

use buddy_cuda::{DeviceBytes, DeviceSpan};
use cudarc::{
    cublaslt::{result, sys},
    driver::CudaStream,
};

use crate::{Error, Lab};

/// Number of requested algorithms.
const ALGORITHMS: usize = 64;
/// Workspace of an algorithm.
const WORKSPACE: u64 = 64 << 20;

/// cuBLASLt's value for a transposed operand.
static TRANSPOSED: i32 = 1;

/// A cuBLASLt object and its destructor.
struct Owned<T: Copy>(T, unsafe fn(T) -> Result<(), result::CublasError>);

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: created once and destroyed once; an error here cannot be handled.
        let _ = unsafe { (self.1)(self.0) };
    }
}

/// A product of a row-major bf16 matrix with vectors.
pub(crate) struct Vendor {
    product: Owned<sys::cublasLtMatmulDesc_t>,
    /// Layouts of the matrix, the vectors and the results.
    layouts: [Owned<sys::cublasLtMatrixLayout_t>; 3],
    preference: Owned<sys::cublasLtMatmulPreference_t>,
    algorithms: Vec<sys::cublasLtMatmulAlgo_t>,
    workspace: DeviceBytes,
    /// Dropped last.
    handle: Owned<sys::cublasLtHandle_t>,
}

impl Vendor {
    /// Requests the heuristics' algorithms for bf16 results; `None` if cuBLASLt is not installed.
    ///
    /// # Errors
    /// [`Error::Vendor`] with the library's status.
    pub(crate) fn new(lab: &Lab, (rows, columns): (u32, u32), sides: u32) -> Result<Option<Self>, Error> {
        // SAFETY: loading libcublasLt runs only its own initialisers.
        if !unsafe { sys::is_culib_present() } {
            return Ok(None);
        }
        lab.gpu.check("bind the context", lab.stream.context().bind_to_thread())?;
        let (rows, columns, sides) = (u64::from(rows), u64::from(columns), u64::from(sides));
        let (narrow, single) = (sys::cudaDataType_t::CUDA_R_16BF, sys::cudaDataType_t::CUDA_R_32F);
        let workspace = lab.bytes(WORKSPACE)?;
        let made = || -> Result<Self, result::CublasError> {
            let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
            // cuBLASLt is column-major: our row-major matrix is transposed.
            let layout = |of, rows, columns| {
                let made = result::create_matrix_layout(of, rows, columns, rows as i64)?;
                Ok(Owned(made, result::destroy_matrix_layout))
            };
            let vendor = Self {
                handle: Owned(result::create_handle()?, result::destroy_handle),
                product: Owned(result::create_matmul_desc(compute, single)?, result::destroy_matmul_desc),
                layouts: [
                    layout(narrow, columns, rows)?,
                    layout(narrow, columns, sides)?,
                    layout(narrow, rows, sides)?,
                ],
                preference: Owned(result::create_matmul_pref()?, result::destroy_matmul_pref),
                algorithms: Vec::new(),
                workspace,
            };
            vendor.ask()
        };
        made().map(Some).map_err(said)
    }

    fn ask(mut self) -> Result<Self, result::CublasError> {
        let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
        let limit = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let mut found = [const { MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit() }; ALGORITHMS];
        let mut count = 0;
        let workspace = WORKSPACE;
        let [a, b, c] = self.layouts.each_ref().map(|layout| layout.0);
        // SAFETY: all descriptors are alive; the attributes have the given sizes; there is room for
        // all results.
        unsafe {
            result::set_matmul_desc_attribute(self.product.0, attribute, (&raw const TRANSPOSED).cast(), 4)?;
            result::set_matmul_pref_attribute(self.preference.0, limit, (&raw const workspace).cast(), 8)?;
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle.0,
                self.product.0,
                a,
                b,
                c,
                c,
                self.preference.0,
                ALGORITHMS as i32,
                found.as_mut_ptr().cast(),
                &mut count,
            )
            .result()?;
        }
        // SAFETY: the library wrote this many.
        let found = found[..count as usize].iter().map(|found| unsafe { found.assume_init_ref() });
        self.algorithms =
            found.filter(|found| found.state.result().is_ok()).map(|found| found.algo).collect();
        Ok(self)
    }

    /// Returns the number of algorithms.
    pub(crate) fn algorithms(&self) -> usize {
        self.algorithms.len()
    }

    /// Multiplies with one of them.
    ///
    /// # Errors
    /// [`Error::Vendor`] with the library's status.
    pub(crate) fn multiply(
        &self,
        on: &CudaStream,
        algorithm: usize,
        matrix: DeviceSpan<'_>,
        vectors: DeviceSpan<'_>,
        results: DeviceSpan<'_>,
    ) -> Result<(), Error> {
        let (one, zero) = (1.0f32, 0.0f32);
        let [a, b, c] = self.layouts.each_ref().map(|layout| layout.0);
        let out = results.address() as *mut _;
        // SAFETY: descriptors are alive; the caller's spans hold what they describe; scalars are
        // read before the call returns.
        let done = unsafe {
            result::matmul(
                self.handle.0,
                self.product.0,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                matrix.address() as *const _,
                a,
                vectors.address() as *const _,
                b,
                out as *const _,
                c,
                out,
                c,
                &raw const self.algorithms[algorithm],
                self.workspace.all().address() as *mut _,
                WORKSPACE as usize,
                on.cu_stream().cast(),
            )
        };
        done.map_err(said)
    }
}

fn said(error: result::CublasError) -> Error {
    Error::Vendor(format!("{:?}", error.0))
}
