//! Codec and target of a buffer.

use buddy_codec::{Codec, CodecKind, FrozenHeader};
use buddy_core::{Target, conservative_target};
use buddy_profile::{DEFAULT_THRESHOLD, Place, candidates, choose_codecs, histogram, sample};

/// Options of [`compress`](crate::compress). The default chooses everything from the data.
///
/// ```
/// use buddy::{CodecKind, Options, Target};
///
/// let data = [1; 1 << 16];
/// let options = Options { codec: Some(CodecKind::Bpc), target: Some(Target::X4), ..Options::default() };
/// let packed = buddy::compress(&data, options)?;
/// assert_eq!((packed.codec().kind(), packed.target()), (CodecKind::Bpc, Target::X4));
/// # Ok::<(), buddy::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Codec; `None` chooses the one with the smallest result.
    pub codec: Option<CodecKind>,
    /// Target; `None` chooses the largest one within the threshold.
    pub target: Option<Target>,
    /// Largest share of entries that may overflow a chosen target, 0 to 1. An overflowing entry is
    /// slower to read, since its second part is found through an index. A larger share allows a
    /// smaller result.
    pub threshold: f64,
}

impl Default for Options {
    /// Chooses codec and target, with the paper's threshold of 30%.
    fn default() -> Self {
        Self { codec: None, target: None, threshold: DEFAULT_THRESHOLD }
    }
}

/// Returns the codec and the target of the smallest result that the options allow.
pub(crate) fn choose(data: &[u8], options: &Options) -> (Codec, Target) {
    let sample = sample(&data);
    let codecs = match options.codec {
        Some(kind) => vec![kind.train(&sample)],
        None => choose_codecs(&[sample], &candidates(Place::Frozen), options.threshold),
    };
    let sized = codecs.into_iter().map(|codec| {
        let sizes = histogram(&data, &codec);
        let target = options.target.unwrap_or_else(|| conservative_target(&[sizes], options.threshold, true));
        let sectors = u32::try_from(sizes.sectors(target).1).unwrap_or(u32::MAX);
        let header = FrozenHeader { codec: codec.clone(), target, bytes: data.len() as u64, row: 0, sectors };
        (header.parts().total, codec, target)
    });
    let (_, codec, target) = sized.min_by_key(|sized| sized.0).expect("at least one codec is a candidate");
    (codec, target)
}
