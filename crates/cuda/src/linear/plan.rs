//! Which kernel a linear layer takes, its shape, and the memory it works in.

use super::{
    Sizes, unpack,
    wide::{LOW, SLICED, WIDE, Wide},
};
use crate::{Gpu, Source, driver::Launch};

/// Shared memory that a block of Hopper's may have.
pub(super) const MOST_SHARED: u32 = 227 << 10;
/// Bytes of a column of sixteen compressed entries, of a plain entry, and of a column of plain ones.
pub(super) const COLUMN: u32 = 16 * 96;
pub(super) const ENTRY: u32 = 128;
const PLAIN_COLUMN: u32 = 16 * ENTRY;
/// Parts by which a panel of x comes into a narrow kernel.
const PARTS: u32 = 3;
/// Weights of a large matrix, at least.
const LARGE: u64 = 48 << 20;
/// What scratch is aligned to. It begins with counts, which are zeros between layers, and have so much room, at least.
pub(super) const ALIGN: u64 = 128;
const COUNTS: u64 = 64 << 10;
/// Memory that the vendor's library may work in.
const WORKSPACE: u64 = 32 << 20;
/// Results of a piece of plain weights, at most: two waves of the vendor's tiles on 132 multiprocessors; and its bytes.
const PIECE: u32 = 2 * 132 * 128 * 256;
const PIECE_BYTES: u64 = 128 << 20;

/// How a layer is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// For few tokens: sixteen rows at a time, x in shared memory.
    Narrow(Narrow),
    /// For more: tiles of rows and of tokens.
    Wide(Wide),
    /// For very many: so many rows at a time made plain, those of the next piece while one is multiplied.
    Plain(u32),
}

/// What a kernel is compiled for, besides its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Frozen weights.
    Frozen,
    /// The same, and results that are gated: a kernel of its own, since the others' would be larger for it, and slower.
    Gated,
    /// Plain weights in the same order, to compare with.
    Plain,
}

impl Form {
    /// Bytes of a column of sixteen entries.
    pub(super) fn column(self) -> u32 {
        if self == Self::Plain { PLAIN_COLUMN } else { COLUMN }
    }

    /// Its macros, and the end of its program's name.
    pub(super) fn macros(self) -> (Vec<String>, &'static str) {
        match self {
            Self::Frozen => (vec!["BUDDY_LINEAR_GATED=0".to_owned()], ""),
            Self::Gated => (vec!["BUDDY_LINEAR_GATED=1".to_owned()], "-gated"),
            Self::Plain => {
                (vec!["BUDDY_LINEAR_GATED=0".to_owned(), "BUDDY_LINEAR_PLAIN=1".to_owned()], "-plain")
            }
        }
    }
}

/// The shape of a narrow kernel: see `narrow_plan.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Narrow {
    /// How many times eight tokens it takes at most.
    pub(super) eights: u32,
    pub(super) warps: u32,
    pub(super) stages: u32,
    pub(super) adders: u32,
    /// Columns of a warp in a step.
    pub(super) share: u32,
    /// Blocks that share x.
    pub(super) cluster: u32,
    pub(super) form: Form,
}

/// What measured best on an H200; three warps that add up leave room for 4096 columns of eight tokens.
pub(super) const NARROW: Narrow =
    Narrow { eights: 1, warps: 8, stages: 3, adders: 3, share: 4, cluster: 1, form: Form::Frozen };
/// Tokens that the narrow kernel takes even of large matrices whose x has no room in shared memory; and those above which weights
/// are made plain.
const FEW: u32 = 4;
const MANY: u32 = 512;

/// Every program of linear layers, of the gated ones and of the plain wide ones one.
pub(crate) fn sources() -> Vec<Source> {
    let others = [WIDE[0].gated(), WIDE[4].plain()];
    let narrow = [NARROW, NARROW.plain()].map(|narrow| narrow.source());
    WIDE.iter()
        .chain(&SLICED)
        .chain(&LOW)
        .chain(&others)
        .map(Wide::source)
        .chain(narrow)
        .chain([unpack::source()])
        .collect()
}

impl Plan {
    /// The plan of a layer.
    pub(crate) fn of(gpu: &Gpu, sizes: Sizes) -> Self {
        let Sizes { outputs, inputs, tokens } = sizes;
        if !gpu.is_hopper() || tokens > MANY {
            let room = u32::try_from(PIECE_BYTES / (2 * u64::from(inputs))).unwrap_or(u32::MAX);
            let rows = (PIECE / tokens.max(1)).min(room) / 256 * 256;
            return Self::Plain(rows.max(256).min(outputs.next_multiple_of(16)));
        }
        let weights = u64::from(outputs) * u64::from(inputs);
        let has_room = NARROW.panel(inputs, tokens.min(8)) * 64 >= inputs;
        if tokens <= FEW || (tokens <= 8 && (has_room || weights < LARGE)) {
            return Self::Narrow(NARROW);
        }
        let blocks = gpu.multiprocessors();
        Self::Wide(Wide::low(blocks, sizes).unwrap_or_else(|| Wide::usual(blocks, sizes)))
    }

    /// The same kernel for plain weights; none where the vendor's multiplies.
    pub(crate) fn for_plain(self) -> Option<Self> {
        match self {
            Self::Narrow(narrow) => Some(Self::Narrow(narrow.plain())),
            Self::Wide(wide) => Some(Self::Wide(wide.plain())),
            Self::Plain(_) => None,
        }
    }

    /// Numbers of tokens up to this one, such that every plan up to it is that of one of them or of fewer tokens.
    pub(crate) fn steps(tokens: u32) -> impl Iterator<Item = u32> {
        let tiles = WIDE.iter().map(|wide| wide.tokens);
        (1..=8).chain(tiles).chain([MANY, MANY + 1]).filter(move |&step| step < tokens).chain([tokens])
    }

    /// Bytes of counts, and of other memory to work in. Counts have the same room whatever the layer, unless it has very many: what one
    /// layer works in must not be the counts of the next.
    pub(crate) fn room(self, gpu: &Gpu, sizes: Sizes) -> (u64, u64) {
        let rest = match self {
            Self::Narrow(narrow) => narrow.panels(sizes) * sizes.tiles() * 32 * 16 * u64::from(narrow.eights),
            Self::Wide(wide) => {
                2 * 4 * u64::from(wide.rows() * wide.tokens) * u64::from(gpu.multiprocessors())
            }
            Self::Plain(rows) => {
                let pieces = if rows < sizes.outputs { 2 } else { 1 };
                pieces * u64::from(rows) * u64::from(sizes.inputs) * 2 + WORKSPACE
            }
        };
        (self.count_bytes(gpu, sizes).max(COUNTS), rest)
    }

    /// Bytes of counts alone.
    pub(crate) fn count_bytes(self, gpu: &Gpu, sizes: Sizes) -> u64 {
        let counts = match self {
            Self::Narrow(narrow) => 1 + sizes.tiles() + narrow.panels(sizes),
            Self::Wide(wide) => u64::from(4 * wide.groups * gpu.multiprocessors()),
            Self::Plain(_) => 0,
        };
        (4 * counts).next_multiple_of(ALIGN)
    }
}

impl Sizes {
    /// Tiles of sixteen rows.
    fn tiles(self) -> u64 {
        u64::from(self.outputs.div_ceil(16))
    }
}

/// Macros that say a kernel's shape.
pub(super) fn defines(of: &str, names: &[&str], values: &[u32]) -> Vec<String> {
    names.iter().zip(values).map(|(name, value)| format!("BUDDY_{of}_{name}={value}")).collect()
}

impl Narrow {
    /// Columns of a step.
    fn step(&self) -> u32 {
        self.share * self.warps
    }

    /// The shape for plain weights, with at most as many bytes of them on their way.
    pub(super) fn plain(self) -> Self {
        Self { stages: self.stages * COLUMN / PLAIN_COLUMN, form: Form::Plain, ..self }
    }

    /// Shared memory but for x: as `Room` in `narrow_plan.cuh` has it.
    pub(super) fn shared(&self) -> u32 {
        let (warps, stages, adders) = (self.warps, self.stages, self.adders);
        let steps = stages * (self.step() * (self.form.column() + 8) + 32 * (32 + 4) + 16);
        let sums = adders * (self.eights * warps * 32 * 16 + 8);
        (steps + sums + 16 * (stages + adders) + 8 * PARTS).next_multiple_of(128)
    }

    pub(crate) fn source(&self) -> Source {
        let names = ["EIGHTS", "WARPS", "STAGES", "ADDERS", "SHARE", "CLUSTER", "SHARED"];
        let Self { eights, warps, stages, adders, share, cluster, form } = *self;
        let values = [eights, warps, stages, adders, share, cluster, self.shared()];
        let (macros, end) = form.macros();
        let shares = if cluster > 1 { "-clusters" } else { "" };
        Source::narrow(
            format!("narrow{shares}{end}.cu"),
            &[defines("NARROW", &names, &values), macros].concat(),
        )
    }

    /// Entries of a row of x that have room, as few panels of them as can be.
    pub(super) fn panel(&self, inputs: u32, tokens: u32) -> u32 {
        let per_row = inputs / 64;
        let room = ((MOST_SHARED - self.shared()) / tokens.max(1) - 16) / ENTRY / self.step() * self.step();
        let panels = per_row.div_ceil(room.max(self.step()));
        per_row.div_ceil(panels).next_multiple_of(self.step())
    }

    /// Panels of a row of x.
    fn panels(&self, sizes: Sizes) -> u64 {
        u64::from((sizes.inputs / 64).div_ceil(self.panel(sizes.inputs, sizes.tokens)))
    }

    pub(crate) fn launch(&self, gpu: &Gpu, inputs: u32, tokens: u32) -> (u32, Launch) {
        let panel = self.panel(inputs, tokens);
        let shared = self.shared() + (panel * ENTRY + 16) * tokens;
        let blocks = gpu.multiprocessors() / self.cluster * self.cluster;
        let launch = Launch::new((blocks, 1), 32 * (self.warps + self.adders + 1), shared);
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
    }

    /// `linear_plan.cuh` wants two steps at least.
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
        assert!(Plan::Plain(256).for_plain().is_none());
    }

    #[test]
    fn panels_are_whole_steps_that_have_room() {
        let shapes = (64..40_000).step_by(64).flat_map(|inputs| (1..=8).map(move |tokens| (inputs, tokens)));
        for (inputs, tokens) in shapes {
            let panel = NARROW.panel(inputs, tokens);
            assert!(panel.is_multiple_of(NARROW.step()) && panel > 0);
            assert!(NARROW.shared() + (panel * ENTRY + 16) * tokens <= MOST_SHARED, "{inputs} x {tokens}");
        }
    }
}
