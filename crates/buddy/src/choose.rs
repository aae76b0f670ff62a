//! Codec and target of a buffer.

use buddy_codec::{Codec, CodecKind, FrozenHeader};
use buddy_core::Target;
use buddy_profile::{
    DEFAULT_THRESHOLD, Place, candidates, choose_codecs, histogram, sample, smallest_buffer,
};

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
    /// Codec; `None` chooses the one with the smallest result, among those that a packed buffer can
    /// store and a GPU can read.
    pub codec: Option<CodecKind>,
    /// Target; `None` chooses the one with the smallest result within the threshold.
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
    let first = codecs[0].clone();
    let target = options.target.unwrap_or(Target::X1);
    let like = FrozenHeader { codec: first, target, bytes: data.len() as u64, row: 0, sectors: 0 };
    let found = codecs.into_iter().map(|codec| (codec.clone(), histogram(&data, &codec)));
    let chosen = smallest_buffer(found, &like, options.target, options.threshold).unwrap_or(like);
    (chosen.codec, chosen.target)
}
