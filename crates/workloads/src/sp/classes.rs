//! NAS's published norms of SP.

use crate::flow::Reference;

/// Classes S and W. Larger ones need more steps than a run here takes.
#[expect(clippy::excessive_precision, reason = "the digits as NAS publishes them")]
pub(super) static CLASSES: [Reference; 2] = [
    Reference {
        n: 12,
        dt: 0.015,
        steps: 100,
        residual: [
            2.747_031_545_133_947_9e-2,
            1.036_074_670_528_541_7e-2,
            1.623_574_506_509_553_2e-2,
            1.584_055_722_445_561_5e-2,
            3.484_904_060_936_246e-2,
        ],
        error: [
            2.728_925_855_737_722_7e-5,
            1.036_444_664_083_728_5e-5,
            1.615_479_828_716_647_1e-5,
            1.575_070_499_448_010_2e-5,
            3.417_766_618_339_053_1e-5,
        ],
    },
    Reference {
        n: 36,
        dt: 0.0015,
        steps: 400,
        residual: [
            0.189_325_373_358_4e-2,
            0.171_707_544_777_5e-3,
            0.277_815_335_093_6e-3,
            0.288_747_540_998_4e-3,
            0.314_361_116_124_2e-2,
        ],
        error: [
            0.754_208_859_953_4e-4,
            0.651_285_225_308_6e-5,
            0.104_909_228_568_8e-4,
            0.112_883_867_153_5e-4,
            0.121_284_563_977_3e-3,
        ],
    },
];

/// Cells per side and step length of every class.
pub(super) const STEP_LENGTHS: [(usize, f64); 6] =
    [(12, 0.015), (36, 0.0015), (64, 0.0015), (102, 0.001), (162, 0.000_67), (408, 0.0003)];
