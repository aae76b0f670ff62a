//! Plans of linear layers: which kernel, its shape, and its scratch memory.

use super::{
    Sizes, portable, unpack,
    wide::{LOW, SLICED, SMALL, WIDE, Wide},
};
use crate::{Gpu, Source, driver::Launch};

/// The most shared memory of a CTA on Hopper.
pub(super) const MOST_SHARED: u32 = 227 << 10;
/// Bytes of a column of sixteen packed entries, of a plain entry, and of a column of plain entries.
pub(super) const COLUMN: u32 = 16 * 96;
pub(super) const ENTRY: u32 = 128;
const PLAIN_COLUMN: u32 = 16 * ENTRY;
/// Chunks in which a narrow kernel loads a panel of x.
const PARTS: u32 = 3;
/// The smallest size of a large weight matrix.
const LARGE: u64 = 48 << 20;
/// Alignment of scratch memory, and the least room for the fix-up counters at its beginning, which
/// are zero between layers.
pub(super) const ALIGN: u64 = 128;
const COUNTS: u64 = 64 << 10;
/// cuBLASLt's workspace.
const WORKSPACE: u64 = 32 << 20;
/// Results of a wave of cuBLASLt's tiles on 132 SMs; waves per piece of unpacked weights, for
/// matrices with very many rows and for others; and the most rows and bytes of a piece.
const WAVE: u32 = 132 * 128 * 256;
const WAVES: u32 = 8;
const FEW_WAVES: u32 = 2;
const MOST_ROWS: u32 = 8192;
const PIECE_BYTES: u64 = 128 << 20;

/// The way to compute a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// For few tokens: 16 rows at a time, x in shared memory.
    Narrow(Narrow),
    /// For more tokens: tiles of rows and tokens.
    Wide(Wide),
    /// For up to 32 tokens on GPUs other than Hopper: the kernel for these eights of tokens.
    Portable(u32),
    /// For very many tokens: cuBLASLt on unpacked pieces; the next piece is unpacked while one is
    /// multiplied.
    Plain(Pieces),
}

/// The pieces in which rows are unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// Rows of a piece.
    pub(super) rows: u32,
}

impl Pieces {
    /// Returns whole waves of cuBLASLt's tiles, as far as scratch memory allows.
    fn of(Sizes { outputs, inputs, tokens }: Sizes) -> Self {
        let room = u32::try_from(PIECE_BYTES / (2 * u64::from(inputs))).unwrap_or(u32::MAX).min(MOST_ROWS);
        let waves = if outputs > 2 * MOST_ROWS { WAVES } else { FEW_WAVES };
        let rows = (waves * WAVE / tokens.max(1)).min(room);
        let whole = if rows < 512 { 256 } else { 1 << rows.ilog2() };
        Self { rows: whole.min(outputs.next_multiple_of(16)) }
    }

    /// Returns the rows that are plain at a time: two pieces, or all.
    pub(super) fn plain_rows(self, outputs: u32) -> u32 {
        (2 * self.rows).min(outputs.next_multiple_of(16))
    }
}

/// A kernel's variant, besides its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Frozen weights.
    Frozen,
    /// Frozen weights and gated results: a separate kernel, since one for both would be larger and
    /// slower.
    Gated,
    /// Plain weights in the same order, for comparison.
    Plain,
    /// Frozen weights of several experts, and tokens in groups.
    Grouped,
    /// The same and gated results.
    GroupedGated,
    /// Weights of the tight layout.
    Tight,
    /// The same and gated results.
    TightGated,
}

impl Form {
    /// Returns the bytes of a column of sixteen entries.
    pub(super) fn column(self) -> u32 {
        if self == Self::Plain { PLAIN_COLUMN } else { COLUMN }
    }

    /// Returns true for weights of the tight layout.
    pub(super) fn is_tight(self) -> bool {
        matches!(self, Self::Tight | Self::TightGated)
    }

    /// Returns the form for weights of the tight layout.
    pub(super) fn tight(self) -> Self {
        if self == Self::Gated { Self::TightGated } else { Self::Tight }
    }

    /// Returns the form for gated results.
    pub(super) fn gated(self) -> Self {
        match self {
            Self::Tight | Self::TightGated => Self::TightGated,
            Self::Grouped | Self::GroupedGated => Self::GroupedGated,
            Self::Frozen | Self::Gated | Self::Plain => Self::Gated,
        }
    }

    /// Returns the macros, and the suffix of the program's name.
    pub(super) fn macros(self) -> (Vec<String>, &'static str) {
        match self {
            Self::Frozen => (vec!["BUDDY_LINEAR_GATED=0".to_owned()], ""),
            Self::Gated => (vec!["BUDDY_LINEAR_GATED=1".to_owned()], "-gated"),
            Self::Plain => {
                (vec!["BUDDY_LINEAR_GATED=0".to_owned(), "BUDDY_LINEAR_PLAIN=1".to_owned()], "-plain")
            }
            Self::Grouped => {
                (vec!["BUDDY_LINEAR_GATED=0".to_owned(), "BUDDY_LINEAR_GROUPED=1".to_owned()], "-grouped")
            }
            Self::GroupedGated => (
                vec!["BUDDY_LINEAR_GATED=1".to_owned(), "BUDDY_LINEAR_GROUPED=1".to_owned()],
                "-grouped-gated",
            ),
            Self::Tight => {
                (vec!["BUDDY_LINEAR_GATED=0".to_owned(), "BUDDY_LINEAR_TIGHT=1".to_owned()], "-tight")
            }
            Self::TightGated => {
                (vec!["BUDDY_LINEAR_GATED=1".to_owned(), "BUDDY_LINEAR_TIGHT=1".to_owned()], "-tight-gated")
            }
        }
    }
}

/// The shape of a narrow kernel: see `narrow_pipeline.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Narrow {
    /// The most tokens, divided by 8: the n8 tiles of the mma.
    pub(super) n8_tiles: u32,
    pub(super) warps: u32,
    pub(super) stages: u32,
    pub(super) epilogue_warps: u32,
    /// Columns of a warp in a k-block.
    pub(super) share: u32,
    /// CTAs that share x by multicast.
    pub(super) cluster: u32,
    pub(super) form: Form,
}

/// The fastest shape on an H200 for few tokens; three epilogue warps leave room for 4096 columns of
/// eight tokens.
pub(super) const NARROW: Narrow =
    Narrow { n8_tiles: 1, warps: 8, stages: 3, epilogue_warps: 3, share: 4, cluster: 1, form: Form::Frozen };
/// DEEP has more stages, if x leaves room: large matrices are 2% faster in a chain of layers. FINE
/// has smaller k-blocks, which suit small matrices.
const DEEP: Narrow = Narrow { stages: 4, ..NARROW };
const FINE: Narrow = Narrow { stages: 6, share: 2, ..NARROW };
/// x is shared by two CTAs, which halves the reads from L2: 0.2 to 0.5 µs of a launch with eight
/// tokens.
const SHARED: Narrow = Narrow { cluster: 2, ..NARROW };
const SHARED_FINE: Narrow = Narrow { stages: 5, share: 2, ..SHARED };
pub(super) const NARROWS: [Narrow; 5] = [NARROW, DEEP, FINE, SHARED, SHARED_FINE];
/// The fewest tokens for which x is shared.
const SHARED_FROM: u32 = 3;
/// The most tokens of the narrow kernel for large matrices whose x has more than two panels; and
/// the tokens above which weights are unpacked for cuBLASLt.
const FEW: u32 = 4;
const MANY: u32 = 1536;

/// Lists the programs of linear layers: all shapes, but one each of the gated and plain wide ones,
/// and some of the grouped.
pub(crate) fn sources() -> Vec<Source> {
    let others = [
        WIDE[0].gated(),
        WIDE[4].plain(),
        WIDE[0].grouped(),
        WIDE[4].grouped(),
        SLICED[2].grouped(),
        SLICED[0].grouped().gated(),
    ];
    let tight = [WIDE[0].tight(), WIDE[4].tight(), WIDE[5].tight(), SLICED[2].tight()];
    let others = [&others[..], &tight].concat();
    let narrow = NARROWS
        .into_iter()
        .chain([NARROW.plain(), NARROW.tight(), SHARED.tight()])
        .map(|narrow| narrow.source());
    WIDE.iter()
        .chain(&SLICED)
        .chain(&LOW)
        .chain(&others)
        .map(Wide::source)
        .chain(narrow)
        .chain([unpack::source(), Source::route()])
        .chain(portable::sources())
        .collect()
}

impl Plan {
    /// Chooses the plan of a layer.
    pub(crate) fn of(gpu: &Gpu, sizes: Sizes) -> Self {
        let Sizes { outputs, inputs, tokens } = sizes;
        if let Some(eights) = portable::eights(tokens).filter(|_| portable::is_chosen(gpu)) {
            return Self::Portable(eights);
        }
        if !gpu.is_hopper() || tokens > MANY {
            return Self::Plain(Pieces::of(sizes));
        }
        let weights = u64::from(outputs) * u64::from(inputs);
        let narrow = Narrow::of(sizes);
        if tokens <= FEW || (tokens <= 8 && (narrow.panels(sizes) <= 2 || weights < LARGE)) {
            return Self::Narrow(narrow);
        }
        let blocks = gpu.multiprocessors();
        Self::Wide(Wide::low(blocks, sizes).unwrap_or_else(|| Wide::usual(blocks, sizes)))
    }

    /// Returns the same kernel for weights of the tight layout.
    pub(super) fn for_tight(self, sizes: Sizes) -> Self {
        match self {
            Self::Narrow(narrow) => Self::Narrow(narrow.tight()),
            Self::Wide(wide) => Self::Wide(wide.tight()),
            // The portable kernel does not read the tight layout.
            Self::Portable(_) => Self::Plain(Pieces::of(sizes)),
            Self::Plain(pieces) => Self::Plain(pieces),
        }
    }

    /// Returns the same kernel for plain weights; `None` for cuBLASLt.
    pub(crate) fn for_plain(self) -> Option<Self> {
        match self {
            Self::Narrow(narrow) => Some(Self::Narrow(narrow.plain())),
            Self::Wide(wide) => Some(Self::Wide(wide.plain())),
            Self::Portable(_) | Self::Plain(_) => None,
        }
    }

    /// Lists numbers of tokens up to `tokens` that cover all plans: the plan of any smaller number
    /// is that of a listed one or of fewer tokens.
    pub(crate) fn steps(tokens: u32) -> impl Iterator<Item = u32> {
        let tiles = WIDE.iter().map(|wide| wide.tokens);
        (1..=8).chain(tiles).chain([MANY, MANY + 1]).filter(move |&step| step < tokens).chain([tokens])
    }

    /// Returns the bytes of counters, and of other scratch memory. Counters have the same room in
    /// every layer, unless they are very many: one layer's partials must not overwrite the next
    /// one's counters.
    pub(crate) fn room(self, gpu: &Gpu, sizes: Sizes) -> (u64, u64) {
        let rest = match self {
            Self::Narrow(narrow) => {
                narrow.panels(sizes) * sizes.tiles() * 32 * 16 * u64::from(narrow.n8_tiles)
            }
            Self::Wide(wide) => {
                2 * 4 * u64::from(wide.rows() * wide.tokens) * u64::from(gpu.multiprocessors())
            }
            Self::Portable(_) => 0,
            Self::Plain(pieces) => {
                u64::from(pieces.plain_rows(sizes.outputs)) * u64::from(sizes.inputs) * 2 + WORKSPACE
            }
        };
        (self.count_bytes(gpu, sizes).max(COUNTS), rest)
    }

    /// Returns the bytes of counters.
    pub(crate) fn count_bytes(self, gpu: &Gpu, sizes: Sizes) -> u64 {
        let counts = match self {
            Self::Narrow(narrow) => 1 + sizes.tiles() + narrow.panels(sizes),
            Self::Wide(wide) => u64::from(4 * wide.warpgroups * gpu.multiprocessors()),
            Self::Portable(_) | Self::Plain(_) => 0,
        };
        (4 * counts).next_multiple_of(ALIGN)
    }
}

impl Sizes {
    /// Returns the tiles of sixteen rows.
    fn tiles(self) -> u64 {
        u64::from(self.outputs.div_ceil(16))
    }
}

/// Returns the macros of a kernel's shape.
pub(super) fn defines(of: &str, names: &[&str], values: &[u32]) -> Vec<String> {
    names.iter().zip(values).map(|(name, value)| format!("BUDDY_{of}_{name}={value}")).collect()
}

impl Narrow {
    /// Chooses the shape for a layer.
    fn of(sizes: Sizes) -> Self {
        let weights = u64::from(sizes.outputs) * u64::from(sizes.inputs);
        match (sizes.tokens >= SHARED_FROM, weights) {
            (true, ..=SMALL) => SHARED_FINE,
            (true, _) => SHARED,
            (false, ..SMALL) => FINE,
            (false, LARGE..) if DEEP.panels(sizes) == 1 => DEEP,
            _ => NARROW,
        }
    }

    /// Returns the shape for a layer without programmatic dependent launch, with the same panels:
    /// more stages take longer to fill there (28.9 instead of 28.3 µs at 8192 x 8192).
    pub(super) fn alone(self) -> Self {
        if self.stages == DEEP.stages && self.share == DEEP.share {
            Self { stages: NARROW.stages, ..self }
        } else {
            self
        }
    }

    /// Returns the shape for weights of the tight layout.
    pub(super) fn tight(self) -> Self {
        Self { form: self.form.tight(), ..self }
    }

    /// Returns the columns of a k-block.
    fn step(&self) -> u32 {
        self.share * self.warps
    }

    /// Returns the shape for plain weights, with at most the same bytes in flight.
    pub(super) fn plain(self) -> Self {
        Self { stages: self.stages * COLUMN / PLAIN_COLUMN, form: Form::Plain, ..self }
    }

    /// Returns the shared memory without x, as `SharedStorage` in `narrow_pipeline.cuh` lays it
    /// out.
    pub(super) fn shared(&self) -> u32 {
        let (warps, stages, epilogue_warps) = (self.warps, self.stages, self.epilogue_warps);
        // Nibbles, sectors that overflow and their owners; or descriptors and row bytes.
        let (metadata, rest) = if self.form.is_tight() { (16, 16) } else { (8, 32 * (32 + 4)) };
        let steps = stages * (self.step() * (self.form.column() + metadata) + rest + 16);
        let sums = epilogue_warps * (self.n8_tiles * warps * 32 * 16 + 8);
        (steps + sums + 16 * (stages + epilogue_warps) + 8 * PARTS).next_multiple_of(128)
    }

    /// Returns the macros of the program.
    pub(super) fn macros(&self) -> Vec<String> {
        let names =
            ["N8_TILES", "MMA_WARPS", "STAGES", "EPILOGUE_WARPS", "WARP_COLUMNS", "CLUSTER", "SHARED"];
        let Self { n8_tiles, warps, stages, epilogue_warps, share, cluster, form } = *self;
        let values = [n8_tiles, warps, stages, epilogue_warps, share, cluster, self.shared()];
        [defines("NARROW", &names, &values), form.macros().0].concat()
    }

    pub(crate) fn source(&self) -> Source {
        let Self { stages, share, .. } = self;
        let shares = if self.cluster > 1 { "-clusters" } else { "" };
        let end = self.form.macros().1;
        Source::narrow(format!("narrow-{stages}x{share}{shares}{end}.cu"), &self.macros())
    }

    /// Returns the entries of a row of x that fit, with as few panels as possible.
    pub(super) fn panel(&self, inputs: u32, tokens: u32) -> u32 {
        let per_row = inputs / 64;
        let room = ((MOST_SHARED - self.shared()) / tokens.max(1) - 16) / ENTRY / self.step() * self.step();
        let panels = per_row.div_ceil(room.max(self.step()));
        per_row.div_ceil(panels).next_multiple_of(self.step())
    }

    /// Returns the panels of a row of x.
    fn panels(&self, sizes: Sizes) -> u64 {
        u64::from((sizes.inputs / 64).div_ceil(self.panel(sizes.inputs, sizes.tokens)))
    }

    pub(crate) fn launch(&self, gpu: &Gpu, inputs: u32, tokens: u32) -> (u32, Launch) {
        let panel = self.panel(inputs, tokens);
        let shared = self.shared() + (panel * ENTRY + 16) * tokens;
        let blocks = gpu.multiprocessors() / self.cluster * self.cluster;
        let launch = Launch::new((blocks, 1), 32 * (self.warps + self.epilogue_warps + 1), shared);
        (panel, Launch { cluster: self.cluster, ..launch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_room_in_shared_memory() {
        let all = WIDE.iter().chain(&SLICED).chain(&LOW);
        assert!(
            all.into_iter()
                .all(|wide| wide.shared() <= MOST_SHARED && wide.gated().shared() == wide.shared())
        );
    }

    #[test]
    fn eight_tokens_of_4096_columns_need_one_panel() {
        assert_eq!(NARROW.panel(4096, 8), 64);
        assert_eq!(NARROW.panel(4096, 1), 64);
        assert_eq!(SHARED_FINE.panel(4096, 8), 64);
    }

    #[test]
    fn tight_weights_take_no_more_shared_memory() {
        for wide in WIDE.into_iter().chain(SLICED).chain(LOW) {
            assert!(wide.tight().shared() <= wide.shared(), "{wide:?}");
        }
        for narrow in NARROWS {
            assert!(narrow.tight().shared() <= narrow.shared() && narrow.tight().alone().form == Form::Tight);
        }
    }

    #[test]
    fn narrow_kernels_are_chosen_by_tokens_and_size() {
        let of = |outputs, inputs, tokens| Narrow::of(Sizes { outputs, inputs, tokens });
        assert_eq!([4096, 6144, 28672].map(|outputs| of(outputs, 4096, 1)), [FINE, NARROW, DEEP]);
        assert_eq!(
            [4096, 6144, 28672].map(|outputs| of(outputs, 4096, 8)),
            [SHARED_FINE, SHARED_FINE, SHARED]
        );
        assert_eq!([DEEP, SHARED, FINE].map(Narrow::alone), [NARROW, SHARED, FINE]);
        // x leaves no room for more stages.
        assert_eq!([of(8192, 8192, 1), of(4096, 14336, 1)], [DEEP, NARROW]);
    }

    #[test]
    fn pieces_are_larger_for_more_rows_and_never_larger_for_more_tokens() {
        let rows = |outputs, inputs, tokens| Pieces::of(Sizes { outputs, inputs, tokens }).rows;
        assert_eq!([(4096, 4096), (8192, 28672)].map(|(n, k)| rows(n, k, 4096)), [2048, 2048]);
        assert_eq!(
            [(28672, 4096), (57344, 8192), (100, 64)].map(|(n, k)| rows(n, k, 4096)),
            [8192, 8192, 112]
        );
        // The memory for a number of tokens is then enough for more.
        for (outputs, inputs) in [(8192, 8192), (28672, 4096), (6144, 4096), (5000, 64), (40_000, 28672)] {
            let plain = |tokens| {
                let sizes = Sizes { outputs, inputs, tokens };
                (Pieces::of(sizes).rows, Pieces::of(sizes).plain_rows(outputs))
            };
            for tokens in MANY + 1..5000 {
                let ((rows, most), (before_rows, before)) = (plain(tokens), plain(tokens - 1));
                assert!(rows <= before_rows && most <= before, "{outputs} x {inputs}, {tokens} tokens");
            }
        }
    }

    /// `linear_pipeline.cuh` needs at least two stages.
    #[test]
    fn plain_weights_have_kernels_of_the_same_form() {
        for wide in WIDE.into_iter().chain(SLICED).chain(LOW) {
            let plain = wide.plain();
            assert!(
                plain.form == Form::Plain && plain.shared() <= MOST_SHARED && plain.stages >= 2,
                "{plain:?}"
            );
            assert_eq!((plain.tokens, plain.rows(), plain.entries), (wide.tokens, wide.rows(), wide.entries));
        }
        assert_eq!((NARROW.plain().stages, NARROW.plain().panel(4096, 8)), (2, 64));
        assert!(Plan::Plain(Pieces { rows: 256 }).for_plain().is_none());
    }

    #[test]
    fn panels_are_whole_k_blocks_that_fit() {
        let shapes = (64..40_000).step_by(64).flat_map(|inputs| (1..=8).map(move |tokens| (inputs, tokens)));
        for (inputs, tokens) in shapes {
            for narrow in NARROWS {
                let panel = narrow.panel(inputs, tokens);
                assert!(panel.is_multiple_of(narrow.step()) && panel > 0);
                let shared = narrow.shared() + (panel * ENTRY + 16) * tokens;
                // With this many tokens DEEP is not chosen.
                assert!(
                    shared <= MOST_SHARED || (narrow == DEEP && tokens >= SHARED_FROM),
                    "{inputs} x {tokens}"
                );
            }
        }
    }
}
