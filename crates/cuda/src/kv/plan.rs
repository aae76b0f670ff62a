//! Partition of attention among CTAs: equal runs of all tiles (stream-K), or a cluster per item,
//! which is a KV head of a sequence.

use crate::{
    driver::Launch,
    source::{AttentionBlock, Source},
};

/// Threads of a team of consumer warps, and of a producer warp.
const TEAM_THREADS: u32 = 2 * 32;
const FETCHING_THREADS: u32 = 32;
/// Tokens of a tile; the fewest tiles of a CTA in a run, if there are few CTAs; and the tiles per
/// CTA from which on every SM has a run.
const TILE_TOKENS: u64 = 32;
const TILES_OF_BLOCK: u64 = 8;
const TILES_OF_LONG: u64 = 64;
/// Tiles of a CTA in a cluster: the fewest, if there are several CTAs; the most with two CTAs per
/// SM; the most with one. On an H200, clusters took 0.5 us per tile beyond 8.5 us, and runs 0.3 to
/// 0.4 us per tile beyond 12 us.
const LEAST_SHARE: u64 = 4;
const MOST_SHARE: u64 = 48;
const MOST_SHARE_ALONE: u64 = 24;
/// Eighths of the CTA slots, two per SM, that clusters of 1, 2, 4 and 8 CTAs can fill: a cluster is
/// within one GPC, and GPCs differ in size. 64 clusters of 4 were not all resident on an H200.
const ROOM: [u32; 4] = [8, 8, 7, 6];
const TOGETHER: u32 = 2;
/// The most columns, query heads times tokens, of the widest kernel, and of clusters.
pub(super) const MOST_COLUMNS: u32 = 16;
const CLUSTER_COLUMNS: u32 = 8;

/// Partition of attention among CTAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionPlan {
    /// Stream-K: this number of CTAs, each with a run of all tiles.
    Runs(u32),
    /// A cluster of `1 << split` CTAs per item.
    Clusters {
        /// Items.
        items: u32,
        /// log2 of a cluster's CTAs.
        split: u32,
    },
}

impl AttentionPlan {
    /// Head dimension, columns and plan of each kernel.
    pub(crate) const ALL_KINDS: [(u32, u32, Self); 6] = [
        (64, 8, Self::Runs(1)),
        (64, 16, Self::Runs(1)),
        (128, 8, Self::Runs(1)),
        (128, 16, Self::Runs(1)),
        (64, 8, Self::Clusters { items: 1, split: 0 }),
        (128, 8, Self::Clusters { items: 1, split: 0 }),
    ];

    /// Returns the plan for `items` items of at most `tokens` tokens. Short items whose CTAs are
    /// all resident use clusters; long ones are cut so that every SM has equal work.
    pub fn of(items: u32, tokens: u64, columns: u32, multiprocessors: u32) -> Self {
        let tiles = tokens / TILE_TOKENS;
        let slots = TOGETHER * multiprocessors;
        let room = |split: u32| slots * ROOM[split as usize] / 8;
        let fits = |split: &u32| items <= room(*split) >> split && tiles >> split >= LEAST_SHARE;
        let split = (1..ROOM.len() as u32).rev().find(fits).unwrap_or(0);
        // If some SMs have no cluster, runs would use all SMs.
        let (blocks, all) = (u64::from(items) << split, u64::from(multiprocessors));
        let most = if blocks > all { MOST_SHARE } else { MOST_SHARE_ALONE * blocks / all };
        if items > slots || columns > CLUSTER_COLUMNS || tiles >> split > most.max(LEAST_SHARE) {
            return Self::Runs(blocks_of(items, tiles, multiprocessors));
        }
        Self::Clusters { items, split }
    }

    /// Returns true for clusters.
    pub fn has_clusters(self) -> bool {
        matches!(self, Self::Clusters { .. })
    }

    /// Returns log2 of a cluster's CTAs.
    pub fn split(self) -> u32 {
        match self {
            Self::Runs(_) => 0,
            Self::Clusters { split, .. } => split,
        }
    }

    fn block(self, columns: u32) -> AttentionBlock {
        if self.has_clusters() { AttentionBlock::of_clusters() } else { AttentionBlock::of_runs(columns) }
    }

    /// Returns the program over a source of keys and values, a struct of `attention_source.cuh`,
    /// for a head dimension and a number of columns.
    pub fn source(self, from: &str, values: u32, columns: u32, fresh: bool) -> Source {
        Source::attention(from, values, columns, fresh, self.block(columns))
    }

    /// Returns the grid. Only compressed memory has nibbles to load.
    pub fn launch(self, columns: u32, metadata: bool) -> Launch {
        let block = self.block(columns);
        let threads = block.teams * TEAM_THREADS + FETCHING_THREADS * (1 + u32::from(metadata));
        let blocks = match self {
            Self::Runs(blocks) => blocks,
            Self::Clusters { items, split } => items << split,
        };
        Launch { cluster: 1 << self.split(), ..Launch::new((blocks, 1), threads, block.shared) }
    }
}

/// Returns the CTAs of runs for `items` items of `tiles` tiles, at most `most`: one per SM; for
/// short contexts fewer, each with equal shares of one item or with whole items, since items shared
/// by CTAs need a reduction.
fn blocks_of(items: u32, tiles: u64, most: u32) -> u32 {
    if items <= most && tiles * u64::from(items) <= TILES_OF_LONG * u64::from(most) {
        return items * (tiles / TILES_OF_BLOCK).clamp(1, u64::from(most / items)) as u32;
    }
    let each = items.div_ceil(most);
    let more = tiles * u64::from(each) - tiles * u64::from(items) / u64::from(most);
    if items > most && more <= TILES_OF_BLOCK { items.div_ceil(each) } else { most }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_contexts_have_blocks_with_whole_heads_and_long_ones_all_blocks() {
        // Sequences times 8 heads, and the tiles of 1024 and of 32,768 tokens.
        assert_eq!(blocks_of(8, 32, 132), 32);
        assert_eq!(blocks_of(64, 32, 132), 128);
        assert_eq!(blocks_of(256, 32, 132), 128, "two heads to a block");
        assert_eq!(blocks_of(512, 32, 132), 128, "four");
        assert_eq!(blocks_of(160, 32, 132), 132, "two to half of the blocks and one to the others");
        assert_eq!(blocks_of(64, 1024, 132), 132);
        assert_eq!(blocks_of(256, 1024, 132), 132);
    }

    #[test]
    fn short_items_are_clusters_that_all_run_at_once() {
        let split = |items, tokens| match AttentionPlan::of(items, tokens, 8, 132) {
            AttentionPlan::Clusters { split, .. } => Some(split),
            AttentionPlan::Runs(_) => None,
        };
        assert_eq!(split(8, 1024), Some(3));
        assert_eq!(split(64, 1024), Some(1), "256 blocks of 264 would do, but not in clusters of 4");
        assert_eq!((split(32, 1024), split(128, 1024), split(256, 1024)), (Some(2), Some(1), Some(0)));
        assert_eq!(split(8, 64), Some(0), "two tiles");
        assert_eq!((split(8, 32768), split(64, 32768), split(512, 1024)), (None, None, None));
        assert_eq!(
            (split(8, 2048), split(8, 8192), split(64, 4096)),
            (Some(3), None, None),
            "runs use them all"
        );
        assert!(
            !AttentionPlan::of(8, 1024, 16, 132).has_clusters(),
            "more columns have no room for two blocks"
        );
    }
}
