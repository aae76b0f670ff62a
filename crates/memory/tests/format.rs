//! Checks the worked example in `docs/reference/format.md`.

use buddy_core::{Extent, SizeClass, Target};
use buddy_memory::PageEntry;

#[test]
fn the_worked_example_matches() {
    let extent = Extent {
        target: Target::X2,
        entries: 64,
        device_base: 0x10000,
        buddy_base: 0x4000,
        nibble_base: 128,
    };
    let place = extent.locate(5).unwrap();
    let (device, buddy) = place.used(Target::X2, SizeClass::S3);
    let page = PageEntry {
        frame: extent.device_base / PageEntry::FRAME_BYTES,
        target: extent.target,
        buddy_quarters: extent.buddy_base as u32 / (8192 / 4),
    };
    let (at, slot) = (place.device.start, place.buddy.start);
    assert_eq!((device.bytes, buddy.bytes), (64, 32));
    let lines = [
        format!("device   {at:#x}, {} bytes: sectors {at:#x} and {:#x} hold", place.device.bytes, at + 32),
        format!("buddy    GBBR + {slot:#x}, {} bytes: sector GBBR + {slot:#x} holds", place.buddy.bytes),
        format!("nibble   133: byte {} of the metadata region, high four bits, value 4", place.nibble.byte),
        format!("page     entry {:#018x}", page.to_bits().unwrap()),
    ];
    assert_eq!((place.nibble.shift, SizeClass::S3.index()), (4, 4));
    let text = include_str!("../../../docs/reference/format.md");
    for line in lines {
        assert!(text.contains(&line), "docs/reference/format.md lacks: {line}");
    }
}
