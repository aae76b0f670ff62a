//! Packed sparse matrices on the GPU: products of [`buddy_codec::Csr`] with vectors (`csr.cu`).

use std::sync::{Arc, PoisonError};

use buddy_codec::{CSR_COLUMNS, Csr, CsrJoin, CsrTile, TILE_SEGMENTS};
use cudarc::driver::{CudaFunction, CudaStream};

use crate::{DeviceBytes, DeviceSpan, Error, Gpu, driver::Launch, source::Source};

/// Threads of a CTA, one for each segment of a tile.
const THREADS: u32 = TILE_SEGMENTS as u32;
/// Columns of the kernels of a type.
const WIDTHS: [u32; 4] = [1, 2, 4, 8];

/// The kernels of `csr.cu`.
#[derive(Debug)]
pub(crate) struct CsrKernels {
    /// Products of fp32, then of fp64, by [`WIDTHS`].
    multiply: [[CudaFunction; 4]; 2],
    join: [CudaFunction; 2],
}

/// The struct of `csr.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CsrProduct {
    tiles: u64,
    payload: u64,
    joins: u64,
    x: u64,
    y: u64,
    parts: u64,
    columns: u32,
    joined: u32,
}

/// A packed sparse matrix in device memory of its own.
///
/// Products of a matrix that has a row of more than 8192 elements use scratch memory of the matrix:
/// order them, by one stream or by events. Products of other matrices may overlap.
#[derive(Debug)]
pub struct CsrMatrix {
    gpu: Gpu,
    kernels: Arc<CsrKernels>,
    rows: u64,
    columns: u64,
    value_bytes: u64,
    counts: (u64, u32),
    tiles: DeviceBytes,
    joins: DeviceBytes,
    payload: DeviceBytes,
    parts: DeviceBytes,
}

impl CsrMatrix {
    /// Copies a packed matrix to the GPU, and waits.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`], or an error of the compiler or the driver.
    pub fn new(gpu: &Gpu, matrix: &Csr) -> Result<Self, Error> {
        let value_bytes = u64::from(matrix.value_bytes());
        let tiles: Vec<u8> = matrix.tiles().iter().flat_map(CsrTile::to_bytes).collect();
        let joins: Vec<u8> = matrix.joins().iter().flat_map(CsrJoin::to_bytes).collect();
        // A driver allocates one byte at least.
        let room = |bytes: u64| DeviceBytes::new(gpu, bytes.max(1));
        let put = |bytes: &[u8]| {
            let memory = room(bytes.len() as u64)?;
            memory.upload(bytes).map(|()| memory)
        };
        Ok(Self {
            gpu: gpu.clone(),
            kernels: gpu.csr_kernels()?,
            rows: matrix.rows().into(),
            columns: matrix.columns().into(),
            value_bytes,
            counts: (matrix.tiles().len() as u64, matrix.joins().len() as u32),
            tiles: put(&tiles)?,
            joins: put(&joins)?,
            payload: put(matrix.payload())?,
            parts: room(u64::from(matrix.parts()) * value_bytes * CSR_COLUMNS as u64)?,
        })
    }

    /// Returns the device memory of the matrix.
    pub fn device_bytes(&self) -> u64 {
        [&self.tiles, &self.joins, &self.payload, &self.parts].iter().map(|memory| memory.len()).sum()
    }

    /// Enqueues y = A x for up to eight columns, as [`Csr::multiply`] computes it, with the same
    /// bits.
    ///
    /// # Errors
    /// [`Error::Shape`] for memory of another length, or a driver error.
    pub fn multiply(
        &self,
        on: &CudaStream,
        x: DeviceSpan<'_>,
        y: DeviceSpan<'_>,
        columns: u32,
    ) -> Result<(), Error> {
        self.gpu.alive()?;
        self.check(x, self.columns * u64::from(columns), "a value for each column of the matrix and of x")?;
        self.check(y, self.rows * u64::from(columns), "a value for each row of the matrix and column of x")?;
        let need = "1 to 8 columns";
        let width = WIDTHS.iter().position(|&width| (1..=width).contains(&columns));
        let width = width.ok_or(Error::Shape { bytes: x.bytes(), address: x.address(), need })?;
        let (kind, (tiles, joined)) = (usize::from(self.value_bytes == 8), self.counts);
        let arguments = (CsrProduct {
            tiles: self.tiles.all().address(),
            payload: self.payload.all().address(),
            joins: self.joins.all().address(),
            x: x.address(),
            y: y.address(),
            parts: self.parts.all().address(),
            columns,
            joined,
        },);
        let start = |blocks: u64, kernel: &CudaFunction| {
            if blocks == 0 {
                return Ok(());
            }
            // SAFETY: the arguments of the kernels; x and y have the lengths that these need, and
            // columns and rows of a packed matrix lie within its shape.
            unsafe { Launch::row(blocks, THREADS).start(on, kernel, &arguments) }
        };
        let started = start(tiles, &self.kernels.multiply[kind][width]).and_then(|()| {
            let sums = u64::from(joined) * u64::from(columns);
            start(sums.div_ceil(THREADS.into()), &self.kernels.join[kind])
        });
        self.gpu.check("start a sparse product", started)
    }

    /// Fails unless a span has this many values.
    fn check(&self, span: DeviceSpan<'_>, values: u64, need: &'static str) -> Result<(), Error> {
        let span = span.check(self.value_bytes, self.value_bytes, need)?;
        if span.bytes() == values * self.value_bytes {
            return Ok(());
        }
        Err(Error::Shape { bytes: span.bytes(), address: span.address(), need })
    }
}

impl Gpu {
    /// Returns the kernels of sparse matrices, compiled or cached.
    ///
    /// # Errors
    /// An error of the compiler or the driver.
    fn csr_kernels(&self) -> Result<Arc<CsrKernels>, Error> {
        let mut kept = self.csr().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = &*kept {
            return Ok(kernels.clone());
        }
        let module = self.module(&Source::csr())?;
        let find = |name: String| self.check("find the kernels", module.load_function(&name));
        let widths = |kind: &str| -> Result<[CudaFunction; 4], Error> {
            let [a, b, c, d] = WIDTHS.map(|width| find(format!("csr_{kind}_{width}")));
            Ok([a?, b?, c?, d?])
        };
        let kernels = CsrKernels {
            multiply: [widths("float")?, widths("double")?],
            join: [find("csr_float_join".to_owned())?, find("csr_double_join".to_owned())?],
        };
        Ok(kept.insert(Arc::new(kernels)).clone())
    }
}
