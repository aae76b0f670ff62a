//! Linear layers with a chosen kernel shape, for tuning.

use std::str::FromStr;

use buddy_codec::FrozenHeader;
use cudarc::driver::CudaStream;

use super::{
    Linear, MOST_SHARED, Plan, Sizes,
    plan::{NARROW, NARROWS, Narrow, Pieces},
    portable, sizes, unpack,
    wide::{LOW, SLICED, WIDE, Wide},
};
use crate::{Error, Gpu, Source};

/// A way to compute a layer: `n:` and the numbers of a narrow kernel (n8_tiles, warps, stages,
/// epilogue_warps, share, cluster), `w:` and those of a wide one (tokens, warpgroups, split_k,
/// entries, stages, cluster), `m:` and the eights of tokens of the portable one, or `p:` and the
/// rows that are unpacked at a time.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial(Plan);

impl Trial {
    /// Lists every shape that layers choose, and sixteen unpacked rows.
    pub fn all() -> Vec<Self> {
        let wide = WIDE.into_iter().chain(SLICED).chain(LOW).map(Plan::Wide);
        NARROWS
            .map(Plan::Narrow)
            .into_iter()
            .chain(wide)
            .chain(portable::N8_TILES.map(Plan::Portable))
            .chain([Plan::Plain(Pieces { rows: 16 })])
            .map(Self)
            .collect()
    }

    /// Lists the programs of linear layers in every form, also those of which [`Source::all`] has
    /// only one.
    pub fn all_forms() -> Vec<Source> {
        let forms = |Self(plan): Self| match plan {
            Plan::Narrow(narrow) => {
                [narrow, narrow.plain(), narrow.tight()].map(|narrow| narrow.source()).to_vec()
            }
            Plan::Wide(wide) => [wide, wide.gated(), wide.plain(), wide.tight(), wide.tight().gated()]
                .map(|wide| wide.source())
                .to_vec(),
            Plan::Portable(eights) => vec![portable::source(eights)],
            Plan::Plain(_) => vec![unpack::source()],
        };
        Self::all().into_iter().flat_map(forms).collect()
    }

    /// Returns the portable kernel for a number of tokens; `None` for too many.
    pub fn portable(tokens: u32) -> Option<Self> {
        portable::eights(tokens).map(|eights| Self(Plan::Portable(eights)))
    }

    /// Returns true if it reads tight weights.
    pub fn reads_tight(self) -> bool {
        !matches!(self.0, Plan::Portable(_))
    }

    /// Returns the tokens of a tile.
    pub fn tokens(self) -> u32 {
        match self.0 {
            Plan::Narrow(narrow) => 8 * narrow.n8_tiles,
            Plan::Wide(wide) => wide.tokens,
            Plan::Portable(eights) => 8 * eights,
            Plan::Plain(_) => 24,
        }
    }

    /// Returns true if it supports gated results.
    pub fn gates(self) -> bool {
        !matches!(self.0, Plan::Plain(_))
    }

    /// Returns its program; `None` for cuBLASLt.
    pub fn source(self) -> Option<Source> {
        match self.0 {
            Plan::Narrow(narrow) => Some(narrow.source()),
            Plan::Wide(wide) => Some(wide.source()),
            Plan::Portable(eights) => Some(portable::source(eights)),
            Plan::Plain(_) => None,
        }
    }

    /// Returns the shape for weights of the tight layout.
    ///
    /// # Panics
    /// For a shape that [cannot](Self::reads_tight) read them.
    pub fn tight(self) -> Self {
        match self.0 {
            Plan::Narrow(narrow) => Self(Plan::Narrow(narrow.tight())),
            Plan::Wide(wide) => Self(Plan::Wide(wide.tight())),
            Plan::Portable(_) | Plan::Plain(_) => panic!("{self:?} has no kernel for tight weights"),
        }
    }

    /// Returns a wide shape for plain weights, which benchmarks compare with.
    ///
    /// # Panics
    /// For another shape.
    pub fn plain(self) -> Self {
        let Plan::Wide(wide) = self.0 else { panic!("{self:?} is not wide") };
        Self(Plan::Wide(wide.plain()))
    }

    /// Returns a wide shape for groups of tokens.
    ///
    /// # Panics
    /// For another shape.
    pub fn grouped(self) -> Self {
        let Plan::Wide(wide) = self.0 else { panic!("{self:?} is not wide") };
        Self(Plan::Wide(wide.grouped()))
    }

    /// Returns the macros of its program, with the size of its shared memory, for tests that run the
    /// sources on the CPU.
    pub fn macros(self) -> Vec<String> {
        match self.0 {
            Plan::Narrow(narrow) => narrow.macros(),
            Plan::Wide(wide) => wide.macros(),
            Plan::Portable(eights) => portable::macros(eights),
            Plan::Plain(_) => Vec::new(),
        }
    }

    /// Returns its bytes of scratch memory.
    ///
    /// # Errors
    /// As for [`Linear::room`].
    pub fn room(self, gpu: &Gpu, weights: &FrozenHeader, tokens: u32) -> Result<u64, Error> {
        let (counts, rest) = self.0.room(gpu, sizes(weights, tokens)?);
        Ok(counts + rest)
    }

    /// Returns true if it supports a layer of these outputs, inputs and tokens.
    pub fn takes(self, [outputs, inputs, tokens]: [u32; 3]) -> bool {
        match self.0 {
            Plan::Narrow(narrow) => {
                let room =
                    MOST_SHARED.checked_sub(narrow.shared()).is_some_and(|left| left / tokens.max(1) > 16);
                tokens <= 8 * narrow.n8_tiles && room && {
                    let panel = narrow.panel(inputs, tokens);
                    panel > 0 && narrow.shared() + (panel * 128 + 16) * tokens <= MOST_SHARED
                }
            }
            // With split-K, k-blocks must be whole.
            Plan::Wide(wide) => {
                wide.shared() <= MOST_SHARED
                    && (wide.split_k == 1 || inputs.is_multiple_of(64 * wide.entries))
            }
            Plan::Portable(eights) => tokens <= 8 * eights,
            Plan::Plain(pieces) => pieces.rows.is_multiple_of(16) && outputs > 0,
        }
    }
}

impl FromStr for Trial {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is none of n:, w: with six numbers and m:, p: with one");
        let (kind, numbers) = text.split_once(':').ok_or_else(wrong)?;
        let numbers: Vec<u32> =
            numbers.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        match (kind, numbers.as_slice()) {
            ("n", &[n8_tiles, warps, stages, epilogue_warps, share, cluster]) => {
                Ok(Self(Plan::Narrow(Narrow {
                    n8_tiles,
                    warps,
                    stages,
                    epilogue_warps,
                    share,
                    cluster,
                    ..NARROW
                })))
            }
            ("w", &[tokens, warpgroups, split_k, entries, stages, cluster]) => Ok(Self(Plan::Wide(Wide {
                tokens,
                warpgroups,
                split_k,
                entries,
                stages,
                cluster,
                ..WIDE[0]
            }))),
            ("m", &[eights]) if portable::N8_TILES.contains(&eights) => Ok(Self(Plan::Portable(eights))),
            ("p", &[rows]) => Ok(Self(Plan::Plain(Pieces { rows }))),
            _ => Err(wrong()),
        }
    }
}

impl Linear<'_> {
    /// [`start`](Self::start) with a given shape instead of the chosen one.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    #[doc(hidden)]
    pub fn start_as(&self, on: &CudaStream, trial: Trial) -> Result<(), Error> {
        self.start_by(on, None, |_, sizes: Sizes| match trial.0 {
            Plan::Plain(Pieces { rows }) => {
                Plan::Plain(Pieces { rows: rows.min(sizes.outputs.next_multiple_of(16)) })
            }
            plan => plan,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_read_from_their_numbers() {
        let usual: Trial = "w:8,3,1,2,5,1".parse().unwrap();
        assert_eq!(usual, Trial(Plan::Wide(WIDE[0])));
        assert_eq!("n:1,8,3,3,4,1".parse(), Ok(Trial(Plan::Narrow(NARROW))));
        assert_eq!("p:2048".parse(), Ok(Trial(Plan::Plain(Pieces { rows: 2048 }))));
        assert_eq!("m:2".parse(), Ok(Trial(Plan::Portable(2))));
        for wrong in ["m:3", "w:8,3", "n:1,8,3,3,4,x", "q:1", "p:", ""] {
            assert!(wrong.parse::<Trial>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shapes_without_shared_memory_are_rejected() {
        let takes = |text: &str, of| text.parse::<Trial>().unwrap().takes(of);
        assert!(takes("w:64,2,2,2,6,1", [4096, 4096, 64]) && !takes("w:64,4,4,4,4,1", [4096, 4096, 64]));
        assert!(!takes("w:16,4,4,4,5,1", [4096, 64 * 5, 16]));
        assert!(takes("n:1,8,3,3,4,2", [4096, 4096, 8]) && !takes("n:1,8,3,3,4,1", [4096, 4096, 16]));
        assert!(!takes("n:1,8,5,3,4,1", [4096, 4096, 8]));
    }
}
