//! Writes any kernel in version 5 of the tracer's format, or as `.tracez` in version 6.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use lzma_rust2::{XzOptions, XzWriter};

use super::tracez;
use crate::{Addresses, At, Code, Error, Inst, Kernel, NO_REGISTER, Problem, opcode};

/// Writes a kernel to a file; a name ending in `.xz` or `.tracez` is compressed.
///
/// # Errors
/// [`Error`] if the file cannot be written or the kernel cannot be read.
pub fn write_file(path: &Path, kernel: &mut dyn Kernel) -> Result<(), Error> {
    let failed = |error| Error { file: path.display().to_string(), line: 0, problem: Problem::Io(error) };
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    write_named(path, &mut file, kernel)?;
    file.flush().map_err(failed)
}

/// Writes a kernel in the form that the end of the file's name implies.
pub(crate) fn write_named(path: &Path, mut out: impl Write, kernel: &mut dyn Kernel) -> Result<(), Error> {
    let failed = |error| Error { file: path.display().to_string(), line: 0, problem: Problem::Io(error) };
    match path.extension().and_then(|end| end.to_str()) {
        Some("xz") => {}
        Some("tracez") => return write_tracez(&mut out, kernel),
        _ => return write(&mut out, kernel),
    }
    let mut xz = XzWriter::new(out, XzOptions::with_preset(6)).map_err(failed)?;
    write(&mut xz, kernel)?;
    xz.finish().map(|_| ()).map_err(failed)
}

/// Writes a kernel as text.
///
/// # Errors
/// [`Error`] if `out` fails or the kernel cannot be read.
pub fn write(out: &mut impl Write, kernel: &mut dyn Kernel) -> Result<(), Error> {
    let failed = |error| Error { file: "the trace".to_owned(), line: 0, problem: Problem::Io(error) };
    write_header(out, kernel, Version::Five).map_err(failed)?;
    let launch = kernel.launch();
    let (blocks, warps, [nx, ny, _]) = (launch.blocks(), launch.warps(), launch.grid.map(u64::from));
    let (mut warp_code, mut piece) = (Vec::new(), Code::default());
    for block in 0..blocks {
        let (x, y, z) = (block % nx, block / nx % ny, block / nx / ny);
        write!(out, "#BEGIN_TB\n\nthread block = {x},{y},{z}\n\n").map_err(failed)?;
        for warp in 0..warps {
            let at = At { block, warp, step: 0 };
            let count = collect(kernel, at, Version::Five, &mut piece, &mut warp_code)?;
            write!(out, "warp = {warp}\ninsts = {count}\n").map_err(failed)?;
            out.write_all(&warp_code).and_then(|()| writeln!(out)).map_err(failed)?;
        }
        write!(out, "#END_TB\n\n").map_err(failed)?;
    }
    Ok(())
}

/// Writes a kernel as a `.tracez` file. Every block is a cluster of its own, and bulk copies have no
/// bytes.
///
/// # Errors
/// [`Error`] if `out` fails or the kernel cannot be read.
pub fn write_tracez(out: &mut impl Write, kernel: &mut dyn Kernel) -> Result<(), Error> {
    let failed = |error| Error { file: "the trace".to_owned(), line: 0, problem: Problem::Io(error) };
    let mut header = Vec::new();
    write_header(&mut header, kernel, Version::Six).map_err(failed)?;
    let launch = kernel.launch();
    let (blocks, warps, [nx, ny, _]) = (launch.blocks(), launch.warps(), launch.grid.map(u64::from));
    let mut writer = tracez::Writer::new(out, &header).map_err(failed)?;
    let (mut warp_code, mut piece) = (Vec::new(), Code::default());
    for block in 0..blocks {
        writer.begin_block([block % nx, block / nx % ny, block / nx / ny].map(|place| place as u32), warps);
        for warp in 0..warps {
            let at = At { block, warp, step: 0 };
            collect(kernel, at, Version::Six, &mut piece, &mut warp_code)?;
            writer.warp(&warp_code).map_err(failed)?;
        }
    }
    writer.finish().map_err(failed)
}

/// Version of the tracer whose lines are written.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    Five,
    Six,
}

fn write_header(out: &mut impl Write, kernel: &dyn Kernel, version: Version) -> io::Result<()> {
    // Accel-Sim chooses the table of opcodes by the binary's version; that of Hopper has the others.
    let (binary, version) = if version == Version::Six { (90, 6) } else { (70, 5) };
    let launch = kernel.launch();
    let triple = |[x, y, z]: [u32; 3]| format!("({x},{y},{z})");
    writeln!(out, "-kernel name = {}", launch.name)?;
    writeln!(out, "-kernel id = 1")?;
    writeln!(out, "-grid dim = {}", triple(launch.grid))?;
    writeln!(out, "-block dim = {}", triple(launch.block))?;
    writeln!(out, "-shmem = {}", launch.shared_bytes)?;
    writeln!(out, "-nregs = {}", launch.registers)?;
    writeln!(out, "-binary version = {binary}")?;
    writeln!(out, "-cuda stream id = 0")?;
    writeln!(out, "-shmem base_addr = 0x0000000000000000")?;
    writeln!(out, "-local mem base_addr = 0x0000000000000000")?;
    writeln!(out, "-nvbit version = none")?;
    writeln!(out, "-accelsim tracer version = {version}")?;
    writeln!(out, "-enable lineinfo = 0\n")?;
    writeln!(
        out,
        "#traces format = PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width \
                   [adrrescompress?] [mem_addresses] immediate\n"
    )
}

/// Collects the instruction lines of one warp; returns their number.
fn collect(
    kernel: &mut dyn Kernel,
    mut at: At,
    version: Version,
    piece: &mut Code,
    lines: &mut Vec<u8>,
) -> Result<u64, Error> {
    lines.clear();
    let mut count = 0;
    loop {
        piece.clear();
        kernel.fill(at, piece)?;
        if piece.insts().is_empty() {
            return Ok(count);
        }
        for (index, inst) in piece.insts().iter().enumerate() {
            let traced = piece.opcode(index).and_then(|number| kernel.opcodes().get(usize::from(number)));
            let name = traced.filter(|name| classifies_as(name, inst)).map(String::as_str);
            let line = write_inst(lines, (count * 16, name), version, inst, piece.addresses(inst));
            line.expect("memory takes any line");
            count += 1;
        }
        at.step += 1;
    }
}

/// Returns whether a traced opcode still classifies as the instruction. Generic accesses are
/// written as the access that their address resolved to.
fn classifies_as(name: &str, inst: &Inst) -> bool {
    let accesses = inst.width > 0;
    super::op_of(name, inst.dst, accesses) == inst.op && (!accesses || opcode::width(name) == inst.width)
}

fn write_inst(
    out: &mut Vec<u8>,
    (pc, name): (u64, Option<&str>),
    version: Version,
    inst: &Inst,
    addresses: Addresses<'_>,
) -> io::Result<()> {
    write!(out, "{pc:04x} {:08x}", inst.mask)?;
    match inst.dst {
        NO_REGISTER => write!(out, " 0")?,
        dst => write!(out, " 1 R{dst}")?,
    }
    // Trailing unused operands are omitted; R255 between others is kept to preserve the order.
    let used = inst.src.iter().rposition(|&register| register != NO_REGISTER).map_or(0, |last| last + 1);
    match name {
        Some(name) => write!(out, " {name} {used}")?,
        None => write!(out, " {} {used}", opcode::format_opcode(inst.op, inst.width))?,
    }
    for register in &inst.src[..used] {
        write!(out, " R{register}")?;
    }
    let is_product = name.is_some_and(|name| name.contains("GMMA"));
    if version == Version::Six && is_product {
        write!(out, " 0")?;
    }
    write!(out, " {}", inst.width)?;
    if inst.width > 0 {
        write_addresses(out, inst.mask, addresses)?;
    } else if version == Version::Six && name.is_some_and(opcode::is_bulk_copy) {
        // No barrier, no multicast, no bytes, no addresses.
        write!(out, " 0x0 0 0 0 3 0")?;
    }
    match version {
        Version::Five => writeln!(out, " 0"),
        Version::Six => writeln!(out, " 0 0 NoVal"),
    }
}

fn write_addresses(out: &mut Vec<u8>, mask: u32, addresses: Addresses<'_>) -> io::Result<()> {
    match addresses {
        Addresses::List(list) => {
            write!(out, " 0")?;
            list.iter().try_for_each(|address| write!(out, " 0x{address:x}"))
        }
        Addresses::Strided { base, stride } => {
            let run = mask.checked_shr(mask.trailing_zeros()).unwrap_or(0);
            if run & run.wrapping_add(1) == 0 {
                return write!(out, " 1 0x{base:x} {stride}");
            }
            // With gaps in the mask, differences are taken between active lanes.
            write!(out, " 2 0x{base:x}")?;
            let lanes: Vec<i64> = (0..32).filter(|lane| mask >> lane & 1 == 1).collect();
            lanes.windows(2).try_for_each(|pair| write!(out, " {}", (pair[1] - pair[0]) * i64::from(stride)))
        }
    }
}
