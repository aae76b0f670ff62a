//! Which kernel a linear layer takes, its shape, and the memory it works in.

use crate::{Gpu, Source, driver::Launch, linear::Sizes};

/// Shared memory that a block of Hopper's may have.
const MOST_SHARED: u32 = 227 << 10;
/// Bytes of a column of sixteen compressed entries, and of a plain entry.
const COLUMN: u32 = 16 * 96;
const ENTRY: u32 = 128;
/// Memory that the vendor's library may work in.
const WORKSPACE: u64 = 32 << 20;
/// Results of a piece of plain weights: two waves of the vendor's tiles on 132 multiprocessors.
const PIECE: u32 = 2 * 132 * 128 * 256;

/// How a layer is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// For few tokens: sixteen rows at a time, x in shared memory.
    Narrow(Narrow),
    /// For more: tiles of rows and of tokens.
    Wide(Wide),
    /// For very many: so many rows at a time made plain.
    Plain(u32),
}

/// The shape of a narrow kernel: see `narrow_plan.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Narrow {
    /// How many times eight tokens it takes at most.
    eights: u32,
    warps: u32,
    stages: u32,
    adders: u32,
    /// Columns of a warp in a step.
    share: u32,
}

/// The shape of a wide kernel: see `Shape` in `linear_plan.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Wide {
    tokens: u32,
    groups: u32,
    fetchers: u32,
    fragments: u32,
    entries: u32,
    stages: u32,
}

/// What measured best on an H200, by the most tokens; three warps that add up leave room for 4096 columns of eight tokens.
const NARROW: [Narrow; 2] = [
    Narrow { eights: 1, warps: 8, stages: 3, adders: 3, share: 4 },
    Narrow { eights: 2, warps: 8, stages: 4, adders: 3, share: 2 },
];

const fn wide(tokens: u32, groups: u32, fetchers: u32, fragments: u32, entries: u32, stages: u32) -> Wide {
    Wide { tokens, groups, fetchers, fragments, entries, stages }
}

/// By the most tokens of a tile.
const WIDE: [Wide; 3] = [wide(32, 3, 2, 1, 2, 4), wide(64, 3, 2, 1, 2, 3), wide(128, 2, 2, 1, 2, 3)];

/// Every program of linear layers.
pub(crate) fn sources() -> Vec<Source> {
    WIDE.iter().map(Wide::source).chain(NARROW.iter().map(Narrow::source)).collect()
}

impl Plan {
    /// The plan of a layer.
    pub(crate) fn of(gpu: &Gpu, sizes: Sizes) -> Self {
        let Sizes { outputs, tokens, .. } = sizes;
        if !gpu.is_hopper() || tokens > WIDE[WIDE.len() - 1].tokens {
            let rows = PIECE.div_ceil(tokens.max(1)).next_multiple_of(256);
            return Self::Plain(rows.min(outputs.next_multiple_of(16)));
        }
        if let Some(narrow) = NARROW.iter().find(|narrow| tokens <= 8 * narrow.eights) {
            return Self::Narrow(*narrow);
        }
        Self::Wide(*WIDE.iter().find(|wide| tokens <= wide.tokens).expect("the last takes them"))
    }

    /// Numbers of tokens up to this one, such that every plan up to it is that of one of them or of fewer tokens.
    pub(crate) fn steps(tokens: u32) -> impl Iterator<Item = u32> {
        let few = 1..=8 * NARROW[NARROW.len() - 1].eights;
        let tiles = WIDE.iter().map(|wide| wide.tokens);
        few.chain(tiles)
            .chain([1 + WIDE[WIDE.len() - 1].tokens])
            .filter(move |&step| step < tokens)
            .chain([tokens])
    }

    /// Bytes of counts, and of other memory to work in.
    pub(crate) fn room(self, gpu: &Gpu, sizes: Sizes) -> (u64, u64) {
        let (per_row, tiles) = (u64::from(sizes.inputs / 64), u64::from(sizes.outputs.div_ceil(16)));
        match self {
            Self::Narrow(narrow) => {
                let panels = per_row.div_ceil(u64::from(narrow.panel(sizes.inputs, sizes.tokens)));
                (4 * (1 + tiles + panels), panels * tiles * 32 * 16 * u64::from(narrow.eights))
            }
            Self::Wide(wide) => {
                let sums = 4 * u64::from(wide.rows() * wide.tokens);
                (4 * wide.tiles(sizes), 2 * sums * u64::from(gpu.multiprocessors()))
            }
            Self::Plain(rows) => (0, u64::from(rows) * u64::from(sizes.inputs) * 2 + WORKSPACE),
        }
    }
}

/// Macros that say a kernel's shape.
fn defines(of: &str, names: &[&str], values: &[u32]) -> Vec<String> {
    names.iter().zip(values).map(|(name, value)| format!("BUDDY_{of}_{name}={value}")).collect()
}

impl Narrow {
    /// Columns of a step.
    fn step(&self) -> u32 {
        self.share * self.warps
    }

    /// Shared memory but for x: as `Room` in `narrow_plan.cuh` has it.
    fn shared(&self) -> u32 {
        let (warps, stages, adders) = (self.warps, self.stages, self.adders);
        let steps = stages * (self.step() * (COLUMN + 8) + 32 * (32 + 4) + 16);
        let sums = adders * (self.eights * warps * 32 * 16 + 8);
        (steps + sums + 16 * (stages + adders) + 8).next_multiple_of(128)
    }

    pub(crate) fn source(&self) -> Source {
        let names = ["EIGHTS", "WARPS", "STAGES", "ADDERS", "SHARE", "SHARED"];
        let values = [self.eights, self.warps, self.stages, self.adders, self.share, self.shared()];
        Source::narrow(format!("linear-{}.cu", 8 * self.eights), &defines("NARROW", &names, &values))
    }

    /// Entries of a row of x that have room, as few panels of them as can be.
    fn panel(&self, inputs: u32, tokens: u32) -> u32 {
        let per_row = inputs / 64;
        let room = ((MOST_SHARED - self.shared()) / tokens - 16) / ENTRY / self.step() * self.step();
        let panels = per_row.div_ceil(room.max(self.step()));
        per_row.div_ceil(panels).next_multiple_of(self.step())
    }

    pub(crate) fn launch(&self, gpu: &Gpu, inputs: u32, tokens: u32) -> (u32, Launch) {
        let panel = self.panel(inputs, tokens);
        let shared = self.shared() + (panel * ENTRY + 16) * tokens;
        (panel, Launch::new((gpu.multiprocessors(), 1), 32 * (self.warps + self.adders + 1), shared))
    }
}

impl Wide {
    /// Rows of W of a tile.
    fn rows(&self) -> u32 {
        64 * self.groups * self.fragments
    }

    fn tiles(&self, sizes: Sizes) -> u64 {
        u64::from(sizes.outputs.div_ceil(self.rows())) * u64::from(sizes.tokens.div_ceil(self.tokens))
    }

    /// Shared memory: as `Shape` in `linear_plan.cuh` has it.
    fn shared(&self) -> u32 {
        let columns = self.rows() / 16 * self.entries;
        let step = columns * (COLUMN + 8) + self.entries * self.tokens * ENTRY + 32 * (32 + 4);
        self.stages * (step + 24) + 16
    }

    pub(crate) fn source(&self) -> Source {
        let names = ["TOKENS", "GROUPS", "FETCHERS", "FRAGMENTS", "ENTRIES", "STAGES", "SHARED"];
        let values = [
            self.tokens,
            self.groups,
            self.fetchers,
            self.fragments,
            self.entries,
            self.stages,
            self.shared(),
        ];
        Source::wide(format!("linear-{}.cu", self.tokens), &defines("LINEAR", &names, &values))
    }

    pub(crate) fn launch(&self, gpu: &Gpu, sizes: Sizes) -> Launch {
        let steps = self.tiles(sizes) * u64::from((sizes.inputs / 64).div_ceil(self.entries));
        let blocks = u64::from(gpu.multiprocessors()).min(steps) as u32;
        Launch::new((blocks, 1), 128 * (self.groups + self.fetchers), self.shared())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_room_in_shared_memory() {
        assert!(WIDE.iter().all(|wide| wide.shared() <= MOST_SHARED));
    }

    #[test]
    fn eight_tokens_of_4096_columns_need_one_panel() {
        assert_eq!(NARROW[0].panel(4096, 8), 64);
        assert_eq!(NARROW[0].panel(4096, 1), 64);
    }

    #[test]
    fn panels_are_whole_steps_that_have_room() {
        for narrow in NARROW {
            for (inputs, tokens) in (64..40_000)
                .step_by(64)
                .flat_map(|inputs| (1..=8 * narrow.eights).map(move |tokens| (inputs, tokens)))
            {
                let panel = narrow.panel(inputs, tokens);
                assert!(panel.is_multiple_of(narrow.step()) && panel > 0);
                assert!(
                    narrow.shared() + (panel * ENTRY + 16) * tokens <= MOST_SHARED,
                    "{inputs} x {tokens}"
                );
            }
        }
    }
}
