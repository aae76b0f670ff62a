//! nvCOMP, NVIDIA's compression library, for comparison: through its C interface, with preallocated
//! buffers. It is optional; the wheel `nvidia-libnvcomp-cu13` has it.

use std::ffi::c_void;

use buddy_cuda::{DeviceBytes, DeviceSpan};
use libloading::Library;

use crate::{Error, Lab, lab::at};

/// The library, in the version of these functions.
const NAME: &str = "libnvcomp.so.6";
/// Bytes per chunk, as its documentation recommends.
const CHUNK: u64 = 64 << 10;
/// Launches that are timed together.
const LAUNCHES: usize = 3;
/// Its code for a type that the stream names.
const NAMED_BY_STREAM: u32 = 0xff;

/// A format of nvCOMP and the bytes of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Ans(u32),
    Bitcomp(u32),
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ans(_) => "ANS",
            Self::Bitcomp(_) => "Bitcomp",
        }
    }

    /// Returns options for packing, of which the second is the type of values. ANS supports halves,
    /// and takes everything else as bytes.
    fn to_pack(self) -> Options {
        let kind = match self {
            Self::Ans(2) => 10,
            Self::Ans(_) => 0,
            Self::Bitcomp(2) => 3,
            Self::Bitcomp(8) => 7,
            Self::Bitcomp(_) => 5,
        };
        Options::with(kind)
    }

    fn to_unpack(self) -> Options {
        Options::with(if matches!(self, Self::Ans(_)) { NAMED_BY_STREAM } else { 0 })
    }
}

/// Options of any call: 64 bytes, zeros except for a type.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Options([u32; 16]);

impl Options {
    fn with(kind: u32) -> Self {
        let mut words = [0; 16];
        words[1] = kind;
        Self(words)
    }
}

type TempSize = unsafe extern "C" fn(usize, usize, Options, *mut usize, usize, *mut c_void) -> i32;
type MostBytes = unsafe extern "C" fn(usize, Options, *mut usize) -> i32;
/// Chunks, their sizes, the largest size, their number; scratch memory; packed chunks, their sizes;
/// options, statuses, stream.
type Pack =
    unsafe extern "C" fn(u64, u64, usize, usize, u64, usize, u64, u64, Options, u64, *mut c_void) -> i32;
/// Packed chunks, their sizes; capacities and sizes of plain ones, their number; scratch memory;
/// plain chunks; options, statuses, stream.
type Unpack =
    unsafe extern "C" fn(u64, u64, u64, u64, usize, u64, usize, u64, Options, u64, *mut c_void) -> i32;

/// Measurements of one format.
pub(crate) struct Peer {
    /// Plain bytes over packed ones.
    pub(crate) ratio: f64,
    pub(crate) pack_us: f64,
    pub(crate) unpack_us: f64,
}

/// The library.
pub(crate) struct Nvcomp(Library);

impl Nvcomp {
    /// Loads the library, if available.
    pub(crate) fn load() -> Option<Self> {
        // SAFETY: loading the library runs only its own initialisers.
        unsafe { Library::new(NAME) }.ok().map(Self)
    }

    /// Packs data, unpacks it to `back`, and compares.
    ///
    /// # Errors
    /// [`Error::Nvcomp`] with the library's status, [`Error::Differs`], or a driver error.
    pub(crate) fn measure(
        &self,
        lab: &Lab,
        format: Format,
        data: DeviceSpan<'_>,
        back: DeviceSpan<'_>,
    ) -> Result<Peer, Error> {
        lab.gpu.check("bind the context", lab.stream.context().bind_to_thread())?;
        let batch = Batch::new(self, lab, format, data.bytes())?;
        let (plain, plain_back) =
            (batch.pointers(data.address(), CHUNK)?, batch.pointers(back.address(), CHUNK)?);
        let pack_us = lab.time(LAUNCHES, |_| batch.pack(&plain))?;
        let unpack_us = lab.time(LAUNCHES, |_| batch.unpack(&plain_back))?;
        lab.same("what nvCOMP unpacked", data, back)?;
        Ok(Peer { ratio: data.bytes() as f64 / batch.packed_bytes()? as f64, pack_us, unpack_us })
    }

    /// Finds a function of a format.
    fn function<T: Copy>(&self, format: Format, name: &str) -> Result<T, Error> {
        let name = format!("nvcompBatched{}{name}", format.name());
        // SAFETY: the types are those of the header of this version.
        let found = unsafe { self.0.get::<T>(name.as_bytes()) };
        found.map(|found| *found).map_err(|error| Error::Nvcomp(format!("has no {name}: {error}")))
    }
}

/// Chunks of a format, with their memory.
struct Batch<'a> {
    lab: &'a Lab,
    format: Format,
    pack: Pack,
    unpack: Unpack,
    bytes: u64,
    /// Plain sizes of chunks, packed ones, and those found by unpacking.
    sizes: [DeviceBytes; 3],
    statuses: DeviceBytes,
    /// Packed chunks, and their addresses.
    _packed: DeviceBytes,
    packed_at: DeviceBytes,
    work: DeviceBytes,
}

impl<'a> Batch<'a> {
    fn new(from: &Nvcomp, lab: &'a Lab, format: Format, bytes: u64) -> Result<Self, Error> {
        let count = bytes.div_ceil(CHUNK);
        let (mut pack_work, mut unpack_work, mut most) = (0, 0, 0);
        let stream = lab.stream.cu_stream().cast();
        let of: MostBytes = from.function(format, "CompressGetMaxOutputChunkSize")?;
        // SAFETY: the arguments of the header; the numbers are written at once.
        done(unsafe { of(CHUNK as usize, format.to_pack(), &raw mut most) })?;
        let options = [
            ("Compress", format.to_pack(), &mut pack_work),
            ("Decompress", format.to_unpack(), &mut unpack_work),
        ];
        for (way, options, size) in options {
            let of: TempSize = from.function(format, &format!("{way}GetTempSize"))?;
            // SAFETY: as above.
            done(unsafe { of(count as usize, CHUNK as usize, options, size, bytes as usize, stream) })?;
        }
        let (most, numbers) = ((most as u64).next_multiple_of(256), || lab.bytes(8 * count));
        let sizes = [numbers()?, numbers()?, numbers()?];
        let plain: Vec<u64> = (0..count).map(|i| CHUNK.min(bytes - i * CHUNK)).collect();
        sizes[0].upload(bytemuck::cast_slice(&plain))?;
        let packed = lab.bytes(most * count)?;
        let (pack, unpack) =
            (from.function(format, "CompressAsync")?, from.function(format, "DecompressAsync")?);
        let (statuses, work) = (numbers()?, lab.bytes((pack_work.max(unpack_work) as u64).max(256))?);
        let packed_at = addresses(lab, count, at(&packed), most)?;
        Ok(Self { lab, format, pack, unpack, bytes, sizes, statuses, _packed: packed, packed_at, work })
    }

    fn count(&self) -> u64 {
        self.bytes.div_ceil(CHUNK)
    }

    fn pointers(&self, first: u64, pitch: u64) -> Result<DeviceBytes, Error> {
        addresses(self.lab, self.count(), first, pitch)
    }

    fn pack(&self, plain: &DeviceBytes) -> Result<(), Error> {
        let (count, chunk, work) = (self.count() as usize, CHUNK as usize, self.work.len() as usize);
        let [sizes, packed_sizes, _] = self.sizes.each_ref().map(at);
        let (options, stream) = (self.format.to_pack(), self.lab.stream.cu_stream().cast());
        let (plain, to, statuses) = (at(plain), at(&self.packed_at), at(&self.statuses));
        // SAFETY: the arguments of the header, with memory of the sizes that the library requested.
        done(unsafe {
            (self.pack)(
                plain,
                sizes,
                chunk,
                count,
                at(&self.work),
                work,
                to,
                packed_sizes,
                options,
                statuses,
                stream,
            )
        })
    }

    fn unpack(&self, plain: &DeviceBytes) -> Result<(), Error> {
        let (count, work) = (self.count() as usize, self.work.len() as usize);
        let [room, packed_sizes, found] = self.sizes.each_ref().map(at);
        let (options, stream) = (self.format.to_unpack(), self.lab.stream.cu_stream().cast());
        let (from, plain, statuses) = (at(&self.packed_at), at(plain), at(&self.statuses));
        // SAFETY: as above.
        done(unsafe {
            (self.unpack)(
                from,
                packed_sizes,
                room,
                found,
                count,
                at(&self.work),
                work,
                plain,
                options,
                statuses,
                stream,
            )
        })
    }

    fn packed_bytes(&self) -> Result<u64, Error> {
        let mut sizes = vec![0u64; self.count() as usize];
        self.sizes[1].download(bytemuck::cast_slice_mut(&mut sizes))?;
        Ok(sizes.iter().sum())
    }
}

/// Returns evenly spaced addresses, in device memory.
fn addresses(lab: &Lab, count: u64, first: u64, pitch: u64) -> Result<DeviceBytes, Error> {
    let addresses: Vec<u64> = (0..count).map(|i| first + i * pitch).collect();
    let to = lab.bytes(8 * count)?;
    to.upload(bytemuck::cast_slice(&addresses))?;
    Ok(to)
}

fn done(status: i32) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        other => Err(Error::Nvcomp(format!("answers with status {other}"))),
    }
}
