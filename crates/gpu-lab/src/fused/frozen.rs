//! Work before a linear layer: packing and reading weights, compared with nvCOMP; and the host time
//! to create a buffer.

use std::time::Instant;

use buddy_codec::CodecKind;
use buddy_core::Target;
use buddy_cuda::{Allocation, BufferBytes, BufferMemory, ExternalBuffer, FrozenBuffer};

use super::{FusedRow, Speeds, linear::Layer};
use crate::{
    Error, Lab,
    nvcomp::{Format, Nvcomp},
};

/// Buffers created one after the other for a measurement.
const MADE: u32 = 200;
/// Bytes of each buffer.
const BYTES: u64 = 1 << 20;

impl Layer<'_> {
    /// Measures packing and reading a matrix, compared with nvCOMP's formats if that library is
    /// available.
    pub(super) fn packing(&self, speeds: Speeds, nvcomp: Option<&Nvcomp>) -> Result<Vec<FusedRow>, Error> {
        let (lab, plain, memory) = (self.lab, &self.plain[0], &self.frozen[0]);
        let (header, back) = (self.headers[0].clone(), lab.bytes(plain.len())?);
        let how = (&header.codec.clone(), header.target, header.row);
        let pack = || FrozenBuffer::pack(&lab.gpu, &lab.stream, how, plain.all(), memory.all()).map(drop);
        let pack_us = lab.time(3, |_| Ok(pack()?))?;
        let weights = FrozenBuffer::new(&lab.gpu, header, memory.all())?;
        let read_us = lab.time(3, |_| Ok(weights.read(&lab.stream, 0, back.all())?))?;
        lab.same("frozen weights", plain.all(), back.all())?;
        let copy_us = 2.0 * plain.len() as f64 / speeds.copy_gb_per_s / 1e3;
        let moved = plain.len() + plain.len() / 128 * 96 + plain.len() / 256;
        let row = |what: &str, fused_us: f64, (against, against_us): (String, f64)| FusedRow {
            what: format!("weights {what}, {} x {}", self.size.0, self.size.1),
            tokens: None,
            memory: "bf16 frozen at 4/3x".to_owned(),
            fused_us,
            overlapped_us: None,
            against,
            against_us,
            twin_us: copy_us,
            twin_overlapped_us: None,
            fused_bytes: moved,
            plain_bytes: 2 * plain.len(),
            of_memory: moved as f64 / speeds.copy_gb_per_s / 1e3 / fused_us,
            overflow: 0.0,
            limiter: "memory".to_owned(),
        };
        let mut rows = Vec::new();
        for format in [Format::Ans(2), Format::Bitcomp(2)] {
            let Some(nvcomp) = nvcomp else { break };
            let peer = nvcomp.measure(lab, format, plain.all(), back.all())?;
            let against = format!("nvCOMP {}, ratio {:.2}, buffers given", format.name(), peer.ratio);
            rows.push(row("packed", pack_us, (against.clone(), peer.pack_us)));
            rows.push(row("read", read_us, (against, peer.unpack_us)));
        }
        if rows.is_empty() {
            let copy = || ("a copy of plain memory".to_owned(), copy_us);
            rows = vec![row("packed", pack_us, copy()), row("read", read_us, copy())];
        }
        Ok(rows)
    }
}

/// Measures the host time of a buffer over given memory, its creation on the stream included,
/// compared with one that allocates.
pub(super) fn creation(lab: &Lab) -> Result<FusedRow, Error> {
    let (target, codec) = (Target::X4Over3, CodecKind::Bf16.train(&[]));
    let room = BufferBytes::of(target, BYTES);
    let parts = [lab.bytes(room.device)?, lab.bytes(room.metadata)?, lab.bytes(room.overflow)?];
    let [device, metadata, overflow] = parts.each_ref().map(|part| part.all());
    let given = BufferMemory { device, metadata, overflow };
    let over_given = || Ok(ExternalBuffer::new(&lab.gpu, &codec, target, BYTES, given)?.clear(&lab.stream)?);
    let fused_us = host_us(lab, over_given)?;
    let against_us = host_us(lab, || Ok(Allocation::new(&lab.gpu, BYTES, target, codec.clone()).map(drop)?))?;
    Ok(FusedRow {
        what: "a buffer of 1 MiB made and cleared, host time".to_owned(),
        tokens: None,
        memory: "bf16 at 4/3x over given memory".to_owned(),
        fused_us,
        overlapped_us: None,
        against: "one that takes its own memory".to_owned(),
        against_us,
        twin_us: against_us,
        twin_overlapped_us: None,
        fused_bytes: room.metadata,
        plain_bytes: room.metadata,
        of_memory: 0.0,
        overflow: 0.0,
        limiter: "the host".to_owned(),
    })
}

/// Returns the mean microseconds of host time of an operation.
fn host_us(lab: &Lab, operation: impl Fn() -> Result<(), Error>) -> Result<f64, Error> {
    operation()?;
    lab.wait()?;
    let start = Instant::now();
    (0..MADE).try_for_each(|_| operation())?;
    let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(MADE);
    lab.wait()?;
    Ok(us)
}
