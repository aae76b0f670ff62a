//! The functions of `buddy.h` for writable bf16 matrices, in the caller's memory.

use std::ffi::c_char;

use buddy_codec::Codec;
use buddy_cuda::{CudaStream, DeviceSpan, Gpu, WritableMatrix};

use crate::{
    codec::codec,
    error::{Failure, guard},
    external::{Parts, parts},
    frozen::{Layer, row, scratch, start},
    functions::{borrow, some},
    state,
    types::{Code, DevicePointer, Stream},
};

/// A matrix over the caller's memory: `buddyMatrix` of `buddy.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Matrix {
    /// Compressed parts of the entries, at 4/3x.
    pub device: DevicePointer,
    /// Metadata: four bits per entry, and the fault.
    pub metadata: DevicePointer,
    /// Overflow slots.
    pub overflow: DevicePointer,
    /// Rows of the matrix.
    pub rows: usize,
    /// Bytes of a row, a multiple of 128.
    pub row_bytes: usize,
    /// The codec's name: bf16 with its window.
    pub codec: *const c_char,
}

/// Writes the sizes of a matrix's parts.
///
/// # Safety
/// `room` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyMatrixRoom(rows: usize, row_bytes: usize, room: *mut Parts) -> Code {
    guard(|| {
        let room = some(room, "room")?;
        let (rows, columns) = shape(rows, row_bytes)?;
        // SAFETY: the caller's promise.
        unsafe { room.write(WritableMatrix::room(rows, columns)?.into()) };
        Ok(())
    })
}

/// Fills a matrix with zeros, as every matrix must be first.
///
/// # Safety
/// `matrix` is null or a matrix whose parts are as large as [`buddyMatrixRoom`] says, until the
/// stream has passed this call; its codec is null or a string that ends in NUL; `stream` is one of
/// the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyMatrixClear(matrix: *const Matrix, stream: Stream) -> Code {
    // SAFETY: the caller's promises.
    guard(|| unsafe { on(matrix, |gpu, matrix| Ok(matrix.clear(&*gpu.borrow_stream(stream)?)?)) })
}

/// Compresses plain rows into a matrix, from row `first` on.
///
/// # Safety
/// As for [`buddyMatrixClear`]; `from` has `rows` readable rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyMatrixWrite(
    matrix: *const Matrix,
    first: usize,
    from: DevicePointer,
    rows: usize,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's promises.
    unsafe {
        transfer(matrix, first, (from, rows), stream, |matrix, on, (first, from)| {
            matrix.write(on, first, from)
        })
    }
}

/// Decompresses rows of a matrix.
///
/// # Safety
/// As for [`buddyMatrixClear`]; `to` has `rows` writable rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyMatrixRead(
    matrix: *const Matrix,
    first: usize,
    to: DevicePointer,
    rows: usize,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's promises.
    unsafe {
        transfer(matrix, first, (to, rows), stream, |matrix, on, (first, to)| matrix.read(on, first, to))
    }
}

/// Writes the scratch bytes of layers of up to `tokens` tokens.
///
/// # Safety
/// As for [`buddyMatrixClear`]; `room` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyMatrixLinearRoom(
    matrix: *const Matrix,
    tokens: usize,
    room: *mut usize,
) -> Code {
    // SAFETY: the caller's promises.
    guard(|| unsafe { on(matrix, |gpu, matrix| scratch(gpu, matrix.into(), tokens, room)) })
}

/// Computes y = W x, plus the bias if given.
///
/// # Safety
/// As for [`buddyMatrixClear`]; `layer` is null or describes memory of the sizes in `buddy.h`,
/// valid until the stream has passed this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn buddyMatrixLinear(
    matrix: *const Matrix,
    layer: *const Layer,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's promises.
    guard(|| unsafe { on(matrix, |gpu, matrix| start(gpu, matrix.into(), layer, stream)) })
}

/// Moves rows between a matrix and the caller's device memory.
///
/// # Safety
/// As for [`buddyMatrixClear`]; the memory has `rows` rows.
unsafe fn transfer(
    matrix: *const Matrix,
    first: usize,
    (plain, rows): (DevicePointer, usize),
    stream: Stream,
    go: impl FnOnce(&WritableMatrix<'_>, &CudaStream, (u32, DeviceSpan<'_>)) -> Result<(), buddy_cuda::Error>,
) -> Code {
    let go = |gpu: &Gpu, matrix: &WritableMatrix<'_>| {
        let (first, rows) = (number(first, "first")?, u64::from(number(rows, "rows")?));
        let bytes = rows * u64::from(matrix.header().row) * 128;
        // SAFETY: the caller's promises.
        let (stream, plain) = unsafe { borrow(gpu, stream, (plain, bytes))? };
        Ok(go(matrix, &stream, (first, plain.check_reach()?))?)
    };
    // SAFETY: the caller's promises.
    guard(|| unsafe { on(matrix, go) })
}

/// Calls `go` with a matrix of the caller.
///
/// # Safety
/// As for [`buddyMatrixClear`].
unsafe fn on(
    matrix: *const Matrix,
    go: impl FnOnce(&Gpu, &WritableMatrix<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let matrix = some(matrix.cast_mut(), "matrix")?;
    // SAFETY: the caller's promise.
    let (gpu, matrix) = (state::gpu()?, unsafe { matrix.read() });
    // SAFETY: the caller's promise.
    let Codec::Bf16(bf16) = unsafe { codec(matrix.codec) }? else {
        return Err(Failure::Value("a matrix has the codec bf16".to_owned()));
    };
    let shape = shape(matrix.rows, matrix.row_bytes)?;
    let room = WritableMatrix::room(shape.0, shape.1)?;
    // SAFETY: the caller's promises.
    let given = unsafe { parts([matrix.device, matrix.metadata, matrix.overflow], room) };
    go(&gpu, &WritableMatrix::new(&gpu, bf16, shape, given)?)
}

/// Returns rows and columns.
fn shape(rows: usize, row_bytes: usize) -> Result<(u32, u32), Failure> {
    let columns = row(row_bytes)?.checked_mul(64);
    let columns = columns.ok_or_else(|| Failure::Value(format!("a row of {row_bytes} bytes is too long")))?;
    Ok((number(rows, "rows")?, columns))
}

/// Converts a number of rows.
fn number(value: usize, what: &str) -> Result<u32, Failure> {
    u32::try_from(value)
        .map_err(|_| Failure::Value(format!("{what} is {value}; a matrix has fewer than 2^32 rows")))
}
