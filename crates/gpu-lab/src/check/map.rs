//! The kernels' constants and places are those of `buddy-core`.

use buddy_codec::CodecKind;
use buddy_core::{
    ENTRIES_PER_PAGE, ENTRY_BYTES, Nibble, SECTOR_BYTES, SizeClass, Target, TargetRange, Targets,
};

use buddy_cuda::{BuddyBuffer, BuddyPool, BuddyView, Carveout, Memory, Page, Params};

use super::same;
use crate::{Error, Lab};

const PAGES: usize = 23;

/// Compares constants, nibbles, and the places of buffers with one target and with many.
pub(super) fn check(lab: &Lab) -> Result<(), Error> {
    constants(lab)?;
    let entries = (PAGES * ENTRIES_PER_PAGE) as u64;
    let mut pool = BuddyPool::new(&lab.gpu, 1 << 20, Carveout::Device, 1 << 20)?;
    let mixed = Target::ALL.into_iter().cycle().take(PAGES).map(|target| TargetRange { pages: 1, target });
    for target in Target::ALL {
        let buffer = pool.buffer(CodecKind::Bpc.train(&[]), target, entries)?;
        places(lab, &pool, &buffer)?;
        drop(buffer);
        pool.clear()?;
    }
    let buffer = pool.buffer(CodecKind::Bpc.train(&[]), Targets::Pages(mixed.collect()), entries)?;
    places(lab, &pool, &buffer)
}

fn constants(lab: &Lab) -> Result<(), Error> {
    let out = lab.bytes(4096)?;
    lab.constants(out.all())?;
    let stored = 8 * SizeClass::S3.bytes();
    let mut expected = vec![ENTRY_BYTES, SECTOR_BYTES, ENTRIES_PER_PAGE, Target::X16.device_bytes(), stored];
    expected.extend([size_of::<Memory>(), size_of::<Page>(), size_of::<Params>(), size_of::<BuddyView>()]);
    for bits in 0..8 {
        let nibble = Nibble::from_bits(bits).expect("eight nibbles name a class");
        let class = nibble.class();
        let again = Nibble::new(class, nibble.layout()).bits();
        expected.extend([class.index(), nibble.layout() as usize, class.bytes(), usize::from(again)]);
    }
    let mut bytes = vec![0; 4 * expected.len()];
    out.download(&mut bytes)?;
    let found: Vec<usize> =
        bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word) as usize).collect();
    same(found, expected, || "constants".to_owned())
}

fn places(lab: &Lab, pool: &BuddyPool, buffer: &BuddyBuffer) -> Result<(), Error> {
    let entries: Vec<u32> = (0..buffer.entries() as u32).step_by(7).collect();
    let (list, out) = (lab.bytes(4 * entries.len() as u64)?, lab.bytes(40 * entries.len() as u64)?);
    list.upload(bytemuck::cast_slice(&entries))?;
    lab.places(buffer.view().memory, list.all(), out.all())?;
    let mut bytes = vec![0; out.len() as usize];
    out.download(&mut bytes)?;
    let found: Vec<u64> = bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
    let carveout = pool.spans()[1].address();
    for (found, &entry) in found.as_chunks::<5>().0.iter().zip(&entries) {
        let extent = buffer.extent(u64::from(entry));
        let within = if extent.entries == buffer.entries() { entry } else { entry % ENTRIES_PER_PAGE as u32 };
        let place = extent.locate(u64::from(within)).expect("an entry of the extent");
        let (device, buddy) = place.used(extent.target, SizeClass::Raw);
        // The last 16 bytes of a raw entry end its buddy part, or its device part if it has no
        // buddy part.
        let end =
            if buddy.bytes == 0 { device.start + device.bytes } else { carveout + buddy.start + buddy.bytes };
        let expected = [
            place.device.start,
            place.device.bytes,
            carveout + place.buddy.start,
            place.buddy.bytes,
            end - 16,
        ];
        same(*found, expected, || format!("place of entry {entry} at {}", extent.target))?;
    }
    Ok(())
}
