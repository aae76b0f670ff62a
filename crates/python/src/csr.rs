//! Packed sparse matrices: products on the CPU and on a GPU.

use buddy_codec::{Csr, Real};
use buddy_cuda::CsrMatrix;
use pyo3::prelude::*;

use crate::{
    device::{Device, Number, Range, gpu, numbers, numbers_mut, on_gpu},
    error,
    threads::detach,
};

/// Where a matrix lies.
enum Place {
    Host(Csr),
    Gpu(CsrMatrix),
}

/// A packed sparse matrix in host memory or on one GPU.
#[pyclass(frozen, module = "buddy._native")]
pub(crate) struct CsrPacked {
    #[pyo3(get)]
    rows: u32,
    #[pyo3(get)]
    columns: u32,
    #[pyo3(get)]
    elements: u64,
    #[pyo3(get)]
    value_bytes: u32,
    /// Bytes of the packed matrix.
    #[pyo3(get)]
    nbytes: u64,
    /// Bytes of the plain matrix with 32-bit columns.
    #[pyo3(get)]
    plain_nbytes: u64,
    place: Place,
}

#[pymethods]
impl CsrPacked {
    /// Packs a matrix of fp32 or fp64 values: 64-bit starts of rows, 32-bit columns, values.
    #[new]
    fn new(
        py: Python<'_>,
        columns: u32,
        starts: Range,
        indices: Range,
        values: Range,
        value_bytes: u32,
    ) -> PyResult<Self> {
        let (starts, indices) = (numbers::<u64>(starts)?, numbers::<u32>(indices)?);
        let packed = match value_bytes {
            4 => {
                let values = numbers::<f32>(values)?;
                detach(py, || Csr::pack(columns, starts, indices, values))
            }
            _ => {
                let values = numbers::<f64>(values)?;
                detach(py, || Csr::pack(columns, starts, indices, values))
            }
        };
        Ok(Self::of(packed.map_err(error::value)?))
    }

    /// Copies the matrix to a GPU, and waits.
    fn to(&self, py: Python<'_>, device: Device) -> PyResult<Self> {
        let (gpu, _) = gpu(device)?.ok_or_else(|| error::value("a matrix is copied to a GPU only"))?;
        let host = self.host()?;
        let on_gpu = py.detach(|| CsrMatrix::new(&gpu, host)).map_err(error::gpu)?;
        Ok(Self { nbytes: on_gpu.device_bytes(), place: Place::Gpu(on_gpu), ..*self })
    }

    /// Computes y = A x for up to eight columns; on a GPU in stream order.
    fn multiply(&self, py: Python<'_>, device: Device, x: Range, y: Range, columns: u32) -> PyResult<()> {
        if let Place::Gpu(matrix) = &self.place {
            let (_, stream) = gpu(device)?.ok_or_else(|| error::value("the matrix is on a GPU"))?;
            return matrix.multiply(&stream, on_gpu(x), on_gpu(y), columns).map_err(error::gpu);
        }
        let matrix = self.host()?;
        match self.value_bytes {
            4 => multiply::<f32>(py, matrix, x, y, columns),
            _ => multiply::<f64>(py, matrix, x, y, columns),
        }
    }

    /// Computes y = Aᵀ x for a vector, on the CPU.
    fn multiply_transposed(&self, py: Python<'_>, x: Range, y: Range) -> PyResult<()> {
        let matrix = self.host()?;
        match self.value_bytes {
            4 => multiply_transposed::<f32>(py, matrix, x, y),
            _ => multiply_transposed::<f64>(py, matrix, x, y),
        }
    }

    /// Unpacks the three arrays of the plain matrix.
    fn unpack(&self, py: Python<'_>, starts: Range, indices: Range, values: Range) -> PyResult<()> {
        let matrix = self.host()?;
        match self.value_bytes {
            4 => unpack::<f32>(py, matrix, starts, indices, values),
            _ => unpack::<f64>(py, matrix, starts, indices, values),
        }
    }
}

impl CsrPacked {
    fn of(matrix: Csr) -> Self {
        Self {
            rows: matrix.rows(),
            columns: matrix.columns(),
            elements: matrix.elements(),
            value_bytes: matrix.value_bytes(),
            nbytes: matrix.bytes(),
            plain_nbytes: matrix.plain_bytes(),
            place: Place::Host(matrix),
        }
    }

    fn host(&self) -> PyResult<&Csr> {
        match &self.place {
            Place::Host(matrix) => Ok(matrix),
            Place::Gpu(_) => Err(error::value("the matrix is on a GPU; use the one that it was copied from")),
        }
    }
}

fn multiply<V: Real + Number>(
    py: Python<'_>,
    matrix: &Csr,
    x: Range,
    y: Range,
    columns: u32,
) -> PyResult<()> {
    let (x, y) = (numbers::<V>(x)?, numbers_mut::<V>(y)?);
    detach(py, || matrix.multiply(x, y, columns as usize)).map_err(error::value)
}

fn multiply_transposed<V: Real + Number>(py: Python<'_>, matrix: &Csr, x: Range, y: Range) -> PyResult<()> {
    let (x, y) = (numbers::<V>(x)?, numbers_mut::<V>(y)?);
    detach(py, || matrix.multiply_transposed(x, y)).map_err(error::value)
}

fn unpack<V: Real + Number>(
    py: Python<'_>,
    matrix: &Csr,
    starts: Range,
    indices: Range,
    values: Range,
) -> PyResult<()> {
    let to = (numbers_mut::<u64>(starts)?, numbers_mut::<u32>(indices)?, numbers_mut::<V>(values)?);
    let from = detach(py, || matrix.unpack::<V>()).map_err(error::value)?;
    if (to.0.len(), to.1.len(), to.2.len()) != (from.0.len(), from.1.len(), from.2.len()) {
        return Err(error::value("arrays of the matrix's size are needed"));
    }
    to.0.copy_from_slice(&from.0);
    to.1.copy_from_slice(&from.1);
    to.2.copy_from_slice(&from.2);
    Ok(())
}
