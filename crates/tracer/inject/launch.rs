//! Traced launches: copies their records from the device after each launch, and writes them in a
//! compact form.

use std::{
    cell::Cell,
    collections::HashMap,
    ffi::CStr,
    fs::File,
    io::{BufWriter, Write},
};

use crate::{
    sanitizer::{DriverCall, Handle, LaunchData, Sanitizer},
    settings::Settings,
};

/// As in `kernels/patches.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    pc: u64,
    mask: u32,
    kind: u32,
    block: u32,
    warp: u32,
    size: u32,
    flags: u32,
    address: [u64; 32],
}

/// As in `kernels/patches.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Buffer {
    taken: u64,
    room: u64,
    blocks: u32,
    unused: u32,
    records: Handle,
}

/// Records that are copied from the device at a time.
const PIECE: usize = 1 << 16;

thread_local! {
    /// Dynamic shared memory of this thread's current launch.
    static SHARED_BYTES: Cell<u32> = const { Cell::new(0) };
}

/// Records the dynamic shared memory of a launch call.
///
/// # Safety
/// The parameters belong to the named call.
pub(crate) unsafe fn note_shared_bytes(call: &DriverCall) {
    if call.site != 0 || call.name.is_null() || call.parameters.is_null() {
        return;
    }
    // SAFETY: a name that ends in zero.
    let name = unsafe { CStr::from_ptr(call.name) }.to_bytes();
    let parameters = call.parameters.cast::<u8>();
    // The first parameter of cuLaunchKernelEx points to its configuration: grid, block, shared
    // memory. cuLaunchKernel has the function, then grid, block, shared memory.
    let at = if name.starts_with(b"cuLaunchKernelEx") {
        // SAFETY: a pointer to the configuration.
        (unsafe { parameters.cast::<*const u8>().read() }, 24)
    } else if name.starts_with(b"cuLaunchKernel") || name.starts_with(b"cuLaunchCooperativeKernel") {
        (parameters, 32)
    } else {
        return;
    };
    // SAFETY: within the configuration or the parameters.
    SHARED_BYTES.set(unsafe { at.0.add(at.1).cast::<u32>().read_unaligned() });
}

/// State of the traced launches.
#[derive(Default)]
pub(crate) struct Launches {
    /// Launches of kernels with the requested name.
    matching: u64,
    traced: u64,
    /// The two allocations of each context: the buffer's header and its records.
    buffers: HashMap<usize, (usize, usize)>,
    /// Launches in progress, by grid id: grid, block and shared memory.
    open: HashMap<u64, Shape>,
}

struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
}

impl Launches {
    /// Attaches a buffer to a launch that is to be traced.
    pub(crate) fn begin(
        &mut self,
        sanitizer: &Sanitizer,
        settings: &Settings,
        launch: &LaunchData,
    ) -> Result<(), String> {
        // SAFETY: Sanitizer's name ends in zero.
        let name = unsafe { CStr::from_ptr(launch.name) }.to_string_lossy();
        if !name.contains(&settings.kernel) {
            return sanitizer.set_data(launch, std::ptr::null_mut());
        }
        self.matching += 1;
        if self.matching <= settings.skip || self.traced + self.open.len() as u64 >= settings.count {
            return sanitizer.set_data(launch, std::ptr::null_mut());
        }
        let room = settings.room / size_of::<Record>() as u64;
        let (head, records) = self.buffer(sanitizer, launch, room)?;
        let buffer = Buffer { taken: 0, room, blocks: settings.blocks, unused: 0, records };
        sanitizer.to_device(head, &buffer, launch)?;
        sanitizer.set_data(launch, head)?;
        let shape = Shape { grid: launch.grid, block: launch.block, shared: SHARED_BYTES.get() };
        self.open.insert(launch.grid_id, shape);
        Ok(())
    }

    fn buffer(
        &mut self,
        sanitizer: &Sanitizer,
        launch: &LaunchData,
        room: u64,
    ) -> Result<(Handle, Handle), String> {
        let context = launch.context as usize;
        if !self.buffers.contains_key(&context) {
            let records = sanitizer.alloc(launch.context, room as usize * size_of::<Record>())?;
            let head = sanitizer.alloc(launch.context, size_of::<Buffer>())?;
            self.buffers.insert(context, (head as usize, records as usize));
        }
        let (head, records) = self.buffers[&context];
        Ok((head as Handle, records as Handle))
    }

    /// Writes the records of a traced launch.
    pub(crate) fn end(
        &mut self,
        sanitizer: &Sanitizer,
        settings: &Settings,
        launch: &LaunchData,
        module: usize,
    ) -> Result<(), String> {
        let Some(shape) = self.open.remove(&launch.grid_id) else { return Ok(()) };
        let (head, records) = self.buffers[&(launch.context as usize)];
        let mut buffer = [Buffer { taken: 0, room: 0, blocks: 0, unused: 0, records: std::ptr::null_mut() }];
        sanitizer.to_host(&mut buffer, head as Handle, launch)?;
        let (pc, bytes) = sanitizer.function_pc(launch)?;
        let [buffer] = buffer;
        let (kept, lost) = (buffer.taken.min(buffer.room), buffer.taken.saturating_sub(buffer.room));
        let file = settings.out.join(format!("launch-{:05}.raw", self.traced));
        let wrong = |error| format!("cannot write {}: {error}", file.display());
        let mut out = BufWriter::new(File::create(&file).map_err(wrong)?);
        // SAFETY: Sanitizer's name ends in zero.
        let name = unsafe { CStr::from_ptr(launch.name) }.to_string_lossy();
        let [gx, gy, gz] = shape.grid;
        let [bx, by, bz] = shape.block;
        write!(
            out,
            "buddy-raw 1\nkernel {name}\nnumber {}\nmodule {module}\nbytes {bytes}\ngrid {gx} {gy} {gz}\n\
             block {bx} {by} {bz}\nshared {}\nblocks {}\nevents {kept}\nlost {lost}\n\n",
            self.matching - 1,
            shape.shared,
            settings.blocks,
        )
        .map_err(wrong)?;
        let mut piece = Vec::new();
        let mut done = 0;
        while done < kept {
            let count = PIECE.min((kept - done) as usize);
            piece.resize(count, EMPTY);
            let from = records + done as usize * size_of::<Record>();
            sanitizer.to_host(&mut piece, from as Handle, launch)?;
            for record in &piece {
                write_record(&mut out, record, pc).map_err(wrong)?;
            }
            done += count as u64;
        }
        out.flush().map_err(wrong)?;
        self.traced += 1;
        Ok(())
    }
}

const EMPTY: Record =
    Record { pc: 0, mask: 0, kind: 0, block: 0, warp: 0, size: 0, flags: 0, address: [0; 32] };

/// Writes 22 bytes of kind and position, then the addresses of the active lanes: none, the first
/// and a stride, or all.
fn write_record(out: &mut impl Write, record: &Record, pc: u64) -> std::io::Result<()> {
    out.write_all(&(record.pc.wrapping_sub(pc) as u32).to_le_bytes())?;
    for word in [record.mask, record.block, record.flags] {
        out.write_all(&word.to_le_bytes())?;
    }
    out.write_all(&(record.warp as u16).to_le_bytes())?;
    out.write_all(&(record.size.min(u16::MAX.into()) as u16).to_le_bytes())?;
    out.write_all(&[record.kind as u8])?;
    let lanes = (0..32).filter(|lane| record.mask >> lane & 1 == 1);
    let list: Vec<u64> = lanes.map(|lane| record.address[lane]).collect();
    let stride = if list.len() > 1 { list[1].wrapping_sub(list[0]) } else { 0 };
    if list.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == stride) {
        out.write_all(&[1])?;
        out.write_all(&list.first().copied().unwrap_or(0).to_le_bytes())?;
        return out.write_all(&stride.to_le_bytes());
    }
    out.write_all(&[2])?;
    list.iter().try_for_each(|address| out.write_all(&address.to_le_bytes()))
}
