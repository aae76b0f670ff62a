//! The linear kernels on wgmma: their shapes, the choice among them, and their launches.

use super::{
    Sizes,
    plan::{ENTRY, Form, MOST_SHARED, defines},
};
use crate::{Gpu, Source, driver::Launch};

/// Slots for irregular entries of a k-block, and bytes of a warp's 16 x 16 staging tile in the
/// epilogue.
const SLOTS: u32 = 8;
const OUT: u32 = 16 * 32;

/// The shape of a wide kernel: see `Shape` in `linear_pipeline.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Wide {
    pub(super) tokens: u32,
    pub(super) warpgroups: u32,
    /// Warpgroups that split each k-block of the same rows: 1, or all.
    pub(super) split_k: u32,
    pub(super) entries: u32,
    pub(super) stages: u32,
    /// CTAs that share x by multicast.
    pub(super) cluster: u32,
    pub(super) form: Form,
}

const fn wide(tokens: u32, [warpgroups, split_k, entries, stages, cluster]: [u32; 5]) -> Wide {
    Wide { tokens, warpgroups, split_k, entries, stages, cluster, form: Form::Frozen }
}

/// Shapes by the most tokens of a tile; more tokens take several tiles.
pub(super) const WIDE: [Wide; 6] = [
    wide(8, [3, 1, 2, 5, 1]),
    wide(16, [3, 1, 2, 5, 1]),
    wide(32, [3, 1, 2, 4, 1]),
    wide(64, [3, 1, 2, 4, 1]),
    wide(128, [3, 1, 2, 3, 2]),
    wide(256, [2, 1, 1, 4, 1]),
];

/// Tiles of fewer rows, so that fewer CTAs share each: up to 32 tokens, four warpgroups with
/// split-K, for matrices whose tiles divide evenly among CTAs.
pub(super) const SLICED: [Wide; 3] =
    [wide(8, [4, 4, 4, 5, 1]), wide(16, [4, 4, 4, 5, 1]), wide(32, [4, 4, 4, 4, 1])];
/// For more tokens: one warpgroup, for small matrices that divide evenly, or two.
pub(super) const LOW: [Wide; 4] = [
    wide(64, [1, 1, 2, 7, 1]),
    wide(64, [2, 1, 2, 5, 1]),
    wide(128, [1, 1, 2, 4, 1]),
    wide(128, [2, 1, 2, 3, 1]),
];
/// The largest weight matrices for which one warpgroup per CTA decodes fast enough, and two with 64
/// tokens; and for which x may be read again for every 64 or 128 rows.
pub(super) const SMALL: u64 = 24 << 20;
const MEDIUM: u64 = 60 << 20;
const MIDDLE: u64 = 96 << 20;

impl Wide {
    /// Returns the kernel for any matrix.
    pub(super) fn usual(blocks: u32, sizes: Sizes) -> Self {
        let tokens = sizes.tokens;
        let [.., narrower, widest] = WIDE;
        let usual = *WIDE.iter().find(|wide| tokens <= wide.tokens).unwrap_or(&widest);
        // Smaller tiles help where there are fewer tiles than CTAs and these do not divide evenly.
        let smaller = usual == widest
            && usual.tiles(sizes) < u64::from(blocks / usual.cluster)
            && usual.pieces(blocks, sizes).is_none()
            && narrower.pieces(blocks, sizes).is_some();
        if smaller { narrower } else { usual }
    }

    /// Returns the kernel with fewer rows per tile, for matrices that gain by it.
    pub(super) fn low(blocks: u32, sizes: Sizes) -> Option<Self> {
        let Sizes { outputs, inputs, tokens } = sizes;
        let weights = u64::from(outputs) * u64::from(inputs);
        let fits = |wide: &Self| {
            let cuts_alike = wide.pieces(blocks, sizes).is_some();
            let is_whole = inputs.is_multiple_of(64 * wide.entries);
            match (wide.tokens, wide.warpgroups) {
                (16, _) => cuts_alike && is_whole,
                (8 | 32, _) => cuts_alike && is_whole && weights < MIDDLE,
                (_, 1) => cuts_alike && weights < SMALL,
                (64, _) => weights < MEDIUM,
                _ => weights < MIDDLE,
            }
        };
        let next = SLICED.iter().chain(&LOW).map(|wide| wide.tokens).find(|&most| tokens <= most);
        SLICED.into_iter().chain(LOW).filter(|wide| Some(wide.tokens) == next).find(fits)
    }

    /// Returns the CTAs per tile, if tiles divide evenly with at most a tenth of the CTAs idle.
    fn pieces(&self, blocks: u32, sizes: Sizes) -> Option<u64> {
        let (most, tiles) = (u64::from(blocks / self.cluster), self.tiles(sizes).max(1));
        let pieces = most / tiles;
        (10 * pieces * tiles >= 9 * most).then_some(pieces)
    }

    /// Returns the tokens of a tile that a CTA loads.
    pub(crate) fn share(&self) -> u32 {
        self.tokens / self.cluster
    }

    /// Returns the rows of a tile.
    pub(super) fn rows(&self) -> u32 {
        64 * self.warpgroups / self.split_k
    }

    /// Returns the number of tiles, in units of a cluster.
    fn tiles(&self, sizes: Sizes) -> u64 {
        u64::from(sizes.outputs.div_ceil(self.cluster * self.rows()))
            * u64::from(sizes.tokens.div_ceil(self.tokens))
    }

    /// Returns the shape for gated results.
    pub(crate) fn gated(self) -> Self {
        Self { form: self.form.gated(), ..self }
    }

    /// Returns the shape for weights of the tight layout.
    pub(super) fn tight(self) -> Self {
        Self { form: self.form.tight(), ..self }
    }

    /// Returns the shape for tokens in groups.
    pub(super) fn grouped(self) -> Self {
        Self { form: Form::Grouped, ..self }
    }

    /// Returns the shape for plain weights, with as many stages as fit.
    pub(super) fn plain(self) -> Self {
        let most = (1..=self.stages).rev().map(|stages| Self { stages, form: Form::Plain, ..self });
        most.into_iter().find(|wide| wide.shared() <= MOST_SHARED).unwrap_or(self)
    }

    /// Returns the shared memory, as `Shape` in `linear_pipeline.cuh` lays it out.
    pub(super) fn shared(&self) -> u32 {
        let columns = self.rows() / 16 * self.entries;
        let step = columns * (self.form.column() + 16) + self.entries * self.tokens * ENTRY;
        // Slots, sectors that overflow and their owners; or row bytes.
        let rest = if self.form.is_tight() { self.rows() } else { SLOTS * (ENTRY + 4) + 32 * (32 + 4) };
        let all = self.stages * (step + rest + 32) + 4 * self.warpgroups * OUT;
        let sums = (self.split_k - 1) * self.rows() * self.tokens * 4;
        if self.split_k > 1 { all.next_multiple_of(128) + sums } else { all }
    }

    /// Returns the macros of the program.
    pub(super) fn macros(&self) -> Vec<String> {
        let names = ["TOKENS", "WARPGROUPS", "SPLIT_K", "ENTRIES", "STAGES", "CLUSTER", "SHARED"];
        let Self { tokens, warpgroups, split_k, entries, stages, cluster, form } = *self;
        let values = [tokens, warpgroups, split_k, entries, stages, cluster, self.shared()];
        [defines("LINEAR", &names, &values), form.macros().0].concat()
    }

    pub(crate) fn source(&self) -> Source {
        let end = self.form.macros().1;
        Source::wide(format!("linear-{}x{}{end}.cu", self.tokens, self.rows()), &self.macros())
    }

    pub(crate) fn launch(&self, gpu: &Gpu, sizes: Sizes) -> Launch {
        let tiles = self.tiles(sizes);
        let steps = tiles * u64::from((sizes.inputs / 64).div_ceil(self.entries));
        // Evenly divided tiles have fewer CTAs and fewer partials to reduce, which is worth up to a
        // tenth of the CTAs.
        let even = self.pieces(gpu.multiprocessors(), sizes).map(|pieces| pieces * tiles);
        let most = u64::from(gpu.multiprocessors() / self.cluster);
        let clusters = even.unwrap_or(most).min(steps) as u32;
        Launch::new((self.cluster * clusters, 1), 128 * (self.warpgroups + 1), self.shared())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_few_rows_are_for_matrices_that_they_cut_alike() {
        let rows = |outputs, inputs, tokens| {
            let sizes = Sizes { outputs, inputs, tokens };
            Wide::low(132, sizes).unwrap_or_else(|| Wide::usual(132, sizes)).rows()
        };
        assert_eq!(
            [4096, 6144, 8192, 10240, 28672].map(|outputs| rows(outputs, 4096, 16)),
            [64, 192, 64, 192, 192]
        );
        assert_eq!([4096, 8192].map(|outputs| rows(outputs, 64 * 5, 16)), [192, 192]);
        assert_eq!([8192, 28672].map(|inputs| rows(8192, inputs, 32)), [64, 192]);
        let of = |tokens| {
            [(4096, 4096), (6144, 4096), (4096, 14336), (8192, 8192), (10240, 8192)]
                .map(|(outputs, inputs)| rows(outputs, inputs, tokens))
        };
        assert_eq!(of(64), [64, 128, 128, 192, 192]);
        assert_eq!(of(128), [64, 128, 128, 128, 128]);
        assert_eq!(of(256), [128, 192, 128, 128, 128]);
        assert_eq!(of(512), [128, 192, 128, 128, 128]);
    }
}
