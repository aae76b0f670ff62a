//! Sparse matrices of `buddy.h`: packed on the CPU, multiplied there or on a GPU.

use std::{
    collections::HashMap,
    ffi::c_void,
    ptr::NonNull,
    slice,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use buddy_codec::{Csr, Real};
use buddy_cuda::{CsrMatrix, DeviceSpan, Gpu};

use crate::{
    error::{Failure, guard},
    functions::some,
    state,
    types::{Code, DevicePointer, Handle, Stream},
};

static MATRICES: LazyLock<Mutex<Matrices>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Matrices {
    by_handle: HashMap<Handle, Arc<Matrix>>,
    last: Handle,
}

/// A matrix in host memory, and its copy in each context that multiplied with it.
struct Matrix {
    packed: Csr,
    copies: Mutex<HashMap<u64, (Gpu, Arc<CsrMatrix>)>>,
}

impl Drop for Matrix {
    fn drop(&mut self) {
        let copies = self.copies.get_mut().unwrap_or_else(PoisonError::into_inner);
        let current = Gpu::current_id().ok();
        for (context, (gpu, copy)) in copies.drain() {
            if current != Some(context) && !gpu.has_context(context) {
                // The driver freed the memory with its context.
                std::mem::forget((gpu, copy));
            }
        }
    }
}

/// The arrays of a plain matrix in host memory.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CsrArrays {
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub columns: u32,
    /// The first element of each row, and the number of elements.
    pub starts: *const u64,
    /// The column of each element.
    pub indices: *const u32,
    /// The values.
    pub values: *const c_void,
    /// Bytes of a value: 4 or 8.
    pub value_bytes: u32,
    /// Zero.
    pub reserved: u32,
}

/// Packs a sparse matrix.
///
/// # Safety
/// `matrix` is null or writable; `arrays` is null or describes readable arrays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyCsrCreate(matrix: *mut Handle, arrays: *const CsrArrays) -> Code {
    guard(|| {
        let matrix = some(matrix, "matrix")?;
        // SAFETY: the caller's promise.
        let arrays = unsafe { some(arrays.cast_mut(), "arrays")?.read_unaligned() };
        let packed = match arrays.value_bytes {
            // SAFETY: the caller's promise.
            4 => unsafe { pack::<f32>(&arrays) }?,
            // SAFETY: the caller's promise.
            8 => unsafe { pack::<f64>(&arrays) }?,
            other => return Err(Failure::Value(format!("values have 4 or 8 bytes, not {other}"))),
        };
        let mut all = matrices();
        all.last += 1;
        let handle = all.last;
        all.by_handle.insert(handle, Arc::new(Matrix { packed, copies: Mutex::default() }));
        // SAFETY: the caller's promise.
        unsafe { matrix.write(handle) };
        Ok(())
    })
}

/// Writes the bytes of the packed matrix, and of the plain one with 32-bit columns.
///
/// # Safety
/// `packed` and `plain` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyCsrBytes(matrix: Handle, packed: *mut u64, plain: *mut u64) -> Code {
    guard(|| {
        let matrix = find(matrix)?;
        for (to, bytes) in [(packed, matrix.packed.bytes()), (plain, matrix.packed.plain_bytes())] {
            if !to.is_null() {
                // SAFETY: the caller's promise.
                unsafe { to.write(bytes) };
            }
        }
        Ok(())
    })
}

/// Enqueues y = A x on a GPU.
///
/// # Safety
/// x and y are device memory of the lengths that the matrix needs until the stream has passed this
/// call; `stream` belongs to the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyCsrMultiply(
    matrix: Handle,
    x: DevicePointer,
    y: DevicePointer,
    columns: usize,
    stream: Stream,
) -> Code {
    guard(|| {
        let (matrix, columns) = (find(matrix)?, width(columns)?);
        let copy = matrix.copy()?;
        let bytes = |rows: u32| u64::from(rows) * columns as u64 * u64::from(matrix.packed.value_bytes());
        // SAFETY: the caller's promises.
        let (x, y, stream) = unsafe {
            let x = DeviceSpan::from_raw(x, bytes(matrix.packed.columns()));
            let y = DeviceSpan::from_raw(y, bytes(matrix.packed.rows()));
            (x.check_reach()?, y.check_reach()?, state::gpu()?.borrow_stream(stream)?)
        };
        Ok(copy.multiply(&stream, x, y, columns as u32)?)
    })
}

/// Computes y = A x on the CPU.
///
/// # Safety
/// x and y have the lengths that the matrix needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyCsrMultiplyHost(
    matrix: Handle,
    x: *const c_void,
    y: *mut c_void,
    columns: usize,
) -> Code {
    guard(|| {
        let (matrix, columns) = (find(matrix)?, width(columns)?);
        match matrix.packed.value_bytes() {
            // SAFETY: the caller's promise.
            4 => unsafe { multiply::<f32>(&matrix.packed, x, y, columns) },
            // SAFETY: the caller's promise.
            _ => unsafe { multiply::<f64>(&matrix.packed, x, y, columns) },
        }
    })
}

/// Frees a matrix after all work on it.
#[unsafe(no_mangle)]
pub extern "C" fn buddyCsrDestroy(matrix: Handle) -> Code {
    guard(|| {
        let taken = matrices().by_handle.remove(&matrix);
        // Freeing waits for the GPU, so it happens outside the lock.
        taken.map(drop).ok_or(Failure::Matrix(matrix))
    })
}

impl Matrix {
    /// Returns the copy in the current context, made at the first call.
    fn copy(&self) -> Result<Arc<CsrMatrix>, Failure> {
        let (context, gpu) = (Gpu::current_id()?, state::gpu()?);
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, copy)) = copies.get(&context) {
            return Ok(copy.clone());
        }
        let copy = Arc::new(CsrMatrix::new(&gpu, &self.packed)?);
        copies.insert(context, (gpu, copy.clone()));
        Ok(copy)
    }
}

fn matrices() -> MutexGuard<'static, Matrices> {
    MATRICES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(handle: Handle) -> Result<Arc<Matrix>, Failure> {
    matrices().by_handle.get(&handle).cloned().ok_or(Failure::Matrix(handle))
}

fn width(columns: usize) -> Result<usize, Failure> {
    let error = || Failure::Value(format!("a product takes 1 to 8 columns, not {columns}"));
    (1..=buddy_codec::CSR_COLUMNS).contains(&columns).then_some(columns).ok_or_else(error)
}

fn value(error: impl std::fmt::Display) -> Failure {
    Failure::Value(error.to_string())
}

/// # Safety
/// The arrays are readable.
unsafe fn pack<V: Real>(arrays: &CsrArrays) -> Result<Csr, Failure> {
    // SAFETY: the caller's promise.
    let starts = unsafe { read(arrays.starts, arrays.rows as usize + 1, "starts") }?;
    let elements = starts.last().map_or(0, |&last| last as usize);
    // SAFETY: the caller's promise.
    let (indices, values) = unsafe {
        (read(arrays.indices, elements, "indices")?, read(arrays.values.cast::<V>(), elements, "values")?)
    };
    Csr::pack(arrays.columns, starts, indices, values).map_err(value)
}

/// # Safety
/// As for [`buddyCsrMultiplyHost`].
unsafe fn multiply<V: Real>(
    matrix: &Csr,
    x: *const c_void,
    y: *mut c_void,
    columns: usize,
) -> Result<(), Failure> {
    let rows = matrix.rows() as usize * columns;
    // SAFETY: the caller's promise.
    let x = unsafe { read(x.cast::<V>(), matrix.columns() as usize * columns, "x") }?;
    if rows == 0 {
        return Ok(());
    }
    let y = aligned(y.cast::<V>(), "y")?;
    // SAFETY: the caller's promise.
    let y = unsafe { slice::from_raw_parts_mut(y.as_ptr(), rows) };
    matrix.multiply(x, y, columns).map_err(value)
}

/// # Safety
/// `from` is null or has `count` readable values.
unsafe fn read<'a, T>(from: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    let from = aligned(from.cast_mut(), name)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { slice::from_raw_parts(from.as_ptr(), count) })
}

fn aligned<T>(pointer: *mut T, name: &str) -> Result<NonNull<T>, Failure> {
    let error = || Failure::Value(format!("{name} is not aligned to its values"));
    some(pointer, name).and_then(|pointer| pointer.is_aligned().then_some(pointer).ok_or_else(error))
}
