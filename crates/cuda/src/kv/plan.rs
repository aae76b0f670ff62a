//! How blocks share attention: equal runs of all tokens, or an item, a head of keys and values of a
//! sequence, to a cluster.

use crate::{
    driver::Launch,
    source::{AttentionBlock, Source},
};

/// Threads of a team, and of a warp that fetches.
const TEAM_THREADS: u32 = 2 * 32;
const FETCHING_THREADS: u32 = 32;
/// Tokens of a tile; tiles that a block of a run has at least, if blocks are few; and tiles of a
/// block from which on all blocks have runs.
const TILE_TOKENS: u64 = 32;
const TILES_OF_BLOCK: u64 = 8;
const TILES_OF_LONG: u64 = 64;
/// Tiles that a block of a cluster has: at least, if there are several; at most where
/// multiprocessors have two blocks; and at most where each has one. On an H200 a block's share took
/// 0.5 us a tile above 8.5 us, runs 0.3 to 0.4 us a tile above 12 us.
const LEAST_SHARE: u64 = 4;
const MOST_SHARE: u64 = 48;
const MOST_SHARE_ALONE: u64 = 24;
/// Eighths of the room for blocks, two to a multiprocessor, that clusters of 1, 2, 4 and 8 blocks
/// can have at once: a cluster is in one part of the GPU, and parts differ in size. 64 clusters of
/// 4 did not all run at once on an H200.
const ROOM: [u32; 4] = [8, 8, 7, 6];
const TOGETHER: u32 = 2;
/// Columns, heads times tokens that ask, that the widest kernel takes; and that clusters take.
pub(super) const MOST_COLUMNS: u32 = 16;
const CLUSTER_COLUMNS: u32 = 8;

/// How blocks share attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionPlan {
    /// So many blocks, a run of all tokens to each.
    Runs(u32),
    /// So many items, a cluster to each, of two to the power of `split` blocks.
    Clusters {
        /// Items.
        items: u32,
        /// The logarithm of a cluster's blocks.
        split: u32,
    },
}

impl AttentionPlan {
    /// Values of a head, columns and a plan of each kernel that there is.
    pub(crate) const ALL_KINDS: [(u32, u32, Self); 6] = [
        (64, 8, Self::Runs(1)),
        (64, 16, Self::Runs(1)),
        (128, 8, Self::Runs(1)),
        (128, 16, Self::Runs(1)),
        (64, 8, Self::Clusters { items: 1, split: 0 }),
        (128, 8, Self::Clusters { items: 1, split: 0 }),
    ];

    /// The plan for so many items of at most so many tokens. Where all blocks of short items run at
    /// once, what they found goes from block to block; long ones are cut such that every
    /// multiprocessor has as much to do.
    pub fn of(items: u32, tokens: u64, columns: u32, multiprocessors: u32) -> Self {
        let tiles = tokens / TILE_TOKENS;
        let slots = TOGETHER * multiprocessors;
        let room = |split: u32| slots * ROOM[split as usize] / 8;
        let fits = |split: &u32| items <= room(*split) >> split && tiles >> split >= LEAST_SHARE;
        let split = (1..ROOM.len() as u32).rev().find(fits).unwrap_or(0);
        // Where some have none, runs would use them all.
        let (blocks, all) = (u64::from(items) << split, u64::from(multiprocessors));
        let most = if blocks > all { MOST_SHARE } else { MOST_SHARE_ALONE * blocks / all };
        if items > slots || columns > CLUSTER_COLUMNS || tiles >> split > most.max(LEAST_SHARE) {
            return Self::Runs(blocks_of(items, tiles, multiprocessors));
        }
        Self::Clusters { items, split }
    }

    /// Whether items are clusters'.
    pub fn has_clusters(self) -> bool {
        matches!(self, Self::Clusters { .. })
    }

    /// The logarithm of a cluster's blocks.
    pub fn split(self) -> u32 {
        match self {
            Self::Runs(_) => 0,
            Self::Clusters { split, .. } => split,
        }
    }

    fn block(self, columns: u32) -> AttentionBlock {
        if self.has_clusters() { AttentionBlock::of_clusters() } else { AttentionBlock::of_runs(columns) }
    }

    /// The program, over keys and values of a struct of `attention_source.cuh`, for heads of so
    /// many values and so many columns.
    pub fn source(self, from: &str, values: u32, columns: u32, fresh: bool) -> Source {
        Source::attention(from, values, columns, fresh, self.block(columns))
    }

    /// The grid. Only compressed memory has metadata to fetch.
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

/// Blocks of runs for so many items of so many tiles each, at most `most`: a block for each
/// multiprocessor, and for short contexts fewer, each with the same share of one item or with as
/// many whole items: what several blocks find of one must be joined.
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
        // Sequences times 8 heads, and tiles of 1024 and of 32,768 tokens.
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
