//! The portable kernel of linear layers with few tokens, for GPUs without Hopper's instructions.
//! Without it their weights would be unpacked for cuBLASLt, which moves 3.7 times the packed bytes: it
//! reads them, writes plain ones and reads those. It was measured on an H200 alone.

use std::collections::hash_map::Entry;

use cudarc::driver::{CudaFunction, CudaStream};

use super::{Linear, plan::COLUMN, plan::defines};
use crate::{Error, Gpu, Source, driver::Launch, layout::LinearView};

/// The most tokens, by eights of tokens of the kernels.
pub(super) const N8_TILES: [u32; 3] = [1, 2, 4];
/// Warps of a CTA, and columns in a warp's ring: as `portable.cu` defines them.
const WARPS: u32 = 8;
const DEPTH: u32 = 4;
/// The most CTAs per SM: the kernel's launch bounds.
const CTAS: u32 = 2;
/// Set to 1 every GPU uses the kernel, set to 0 none; unset, all but Hopper do.
const SWITCH: &str = "BUDDY_PORTABLE_LINEAR";

/// Returns the CTAs of an SM of this GPU. Of 99 KB of shared memory (8.6, 8.9, 12.0) one takes more
/// than half.
fn resident(gpu: &Gpu, eights: u32) -> u32 {
    gpu.resident(shared(eights)).clamp(1, CTAS)
}

/// Returns true if layers of few tokens use the kernel on this GPU.
pub(super) fn is_chosen(gpu: &Gpu) -> bool {
    match std::env::var(SWITCH).as_deref() {
        Ok("1") => true,
        Ok("0") => false,
        _ => !gpu.is_hopper(),
    }
}

/// Returns the eights of tokens of the smallest kernel for a layer; `None` for too many tokens.
pub(super) fn eights(tokens: u32) -> Option<u32> {
    N8_TILES.into_iter().find(|&eights| tokens <= 8 * eights)
}

/// Returns the shared memory: `PortableStorage` of `portable.cu`.
fn shared(eights: u32) -> u32 {
    WARPS * (DEPTH * (COLUMN + 8) + eights * 32 * 16) + 128
}

/// Returns the macros of the program.
pub(super) fn macros(eights: u32) -> Vec<String> {
    defines("PORTABLE", &["N8_TILES", "SHARED"], &[eights, shared(eights)])
}

pub(super) fn source(eights: u32) -> Source {
    Source::portable(format!("portable-{eights}.cu"), &macros(eights))
}

/// Lists the programs.
pub(super) fn sources() -> [Source; 3] {
    N8_TILES.map(source)
}

/// Returns the kernel, loaded at its first use.
pub(super) fn kernel(gpu: &Gpu, eights: u32) -> Result<CudaFunction, Error> {
    match gpu.linear_kernels().portable.entry(eights) {
        Entry::Occupied(known) => Ok(known.get().clone()),
        Entry::Vacant(new) => {
            let module = gpu.module(&source(eights))?;
            let found = gpu.check("find the kernels", module.load_function("linear_portable"))?;
            Ok(new.insert(found).clone())
        }
    }
}

impl Linear<'_> {
    pub(super) fn portable(&self, on: &CudaStream, eights: u32, view: LinearView) -> Result<(), Error> {
        let gpu = self.weights.gpu();
        let kernel = kernel(gpu, eights)?;
        // As many tiles for each CTA.
        let tiles = view.outputs.div_ceil(16);
        let rounds = tiles.div_ceil(resident(gpu, eights) * gpu.multiprocessors());
        let launch = Launch::new((tiles.div_ceil(rounds), 1), 32 * WARPS, shared(eights));
        // SAFETY: the arguments of `linear_portable`; `check` and `start` verified the size of all
        // memory.
        let started = unsafe { launch.start(on, &kernel, &(view,)) };
        gpu.check("start a linear layer", started)
    }
}
