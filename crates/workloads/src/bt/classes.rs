//! NAS's published norms of BT.

use crate::flow::Reference;

/// Classes S and W. Larger ones need more steps than a run here takes.
#[expect(clippy::excessive_precision, reason = "the digits as NAS publishes them")]
pub(super) static CLASSES: [Reference; 2] = [
    Reference {
        n: 12,
        dt: 0.01,
        steps: 60,
        residual: [
            1.703_428_370_954_131_1e-1,
            1.297_525_207_003_409_7e-2,
            3.252_792_698_948_605_5e-2,
            2.643_642_127_516_680_1e-2,
            1.921_178_413_174_443e-1,
        ],
        error: [
            4.997_691_334_581_157_9e-4,
            4.519_566_678_296_192_7e-5,
            7.397_376_517_292_135_7e-5,
            7.382_123_863_243_973_1e-5,
            8.926_963_098_749_144_6e-4,
        ],
    },
    Reference {
        n: 24,
        dt: 0.0008,
        steps: 200,
        residual: [
            0.112_559_040_934_4e3,
            0.118_000_759_573_1e2,
            0.271_032_976_784_6e2,
            0.246_917_493_766_9e2,
            0.263_842_787_431_7e3,
        ],
        error: [
            0.441_965_573_600_8e1,
            0.463_853_126_000_2,
            0.101_155_174_996_7e1,
            0.923_587_872_994_4,
            0.101_804_583_771_8e2,
        ],
    },
];

/// Cells per side and step length of every class.
pub(super) const STEP_LENGTHS: [(usize, f64); 6] =
    [(12, 0.01), (24, 0.0008), (64, 0.0008), (102, 0.0003), (162, 0.0001), (408, 0.000_02)];
