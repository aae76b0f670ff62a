//! Verification of the wave before the large run: plain memory against the CPU, compressed memory
//! against plain memory, bit for bit.

use super::{
    kernels::WaveKernels,
    model::{Grid, push},
    packed::PackedWave,
    plain::PlainWave,
    reference::Reference,
    report::{AllAlive, LargeCheck},
};
use crate::{Error, Lab, lab::none_wrong};

/// Cells and steps of the comparisons.
const SMALL: (Grid, u32) = (Grid { x: 128, y: 96, z: 90 }, 160);
const MIDDLE: (Grid, u32) = (Grid { x: 320, y: 256, z: 200 }, 420);

/// Performs all comparisons; stops at the first failure.
pub(super) fn verify(lab: &Lab, kernels: &WaveKernels) -> Result<Vec<LargeCheck>, Error> {
    let mut checks = vec![with_cpu(lab, kernels)?];
    for case in [Case::Raw, Case::Windows, Case::Scarce] {
        checks.push(with_plain(lab, kernels, case)?);
    }
    Ok(checks)
}

fn check(what: String, steps: u32, differing: u64) -> Result<LargeCheck, Error> {
    none_wrong(&what, differing)?;
    Ok(LargeCheck { what, steps, differing })
}

fn with_cpu(lab: &Lab, kernels: &WaveKernels) -> Result<LargeCheck, Error> {
    let (grid, steps) = SMALL;
    let (mut reference, mut plain) = (Reference::new(grid), PlainWave::new(lab, kernels, grid)?);
    for step in 0..steps {
        plain.advance(push(step))?;
        reference.advance();
    }
    let mut values = vec![0f32; grid.cells() as usize];
    lab.wait()?;
    plain.here.download(bytemuck::cast_slice_mut(&mut values))?;
    let differing = values.iter().zip(reference.values()).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    check(
        format!("plain memory beside the CPU, {} x {} x {} cells", grid.x, grid.y, grid.z),
        steps,
        differing as u64,
    )
}

/// Storage states of compressed memory to verify.
#[derive(Clone, Copy)]
enum Case {
    Raw,
    Windows,
    /// Memory for two fifths of the fields: windows, retargets and overflow.
    Scarce,
}

fn with_plain(lab: &Lab, kernels: &WaveKernels, case: Case) -> Result<LargeCheck, Error> {
    let (grid, steps) = MIDDLE;
    let fields = 8 * grid.cells();
    let (what, room, host) = match case {
        Case::Raw => ("raw bricks", fields, 0),
        Case::Windows => ("windows", fields, 0),
        Case::Scarce => ("room for 40%, the rest in host memory", fields * 2 / 5, fields),
    };
    let mut plain = PlainWave::new(lab, kernels, grid)?;
    let mut packed = PackedWave::new(lab, kernels, grid, Some(room), host)?;
    packed.windows = matches!(case, Case::Windows);
    let mut differing = 0;
    for step in 0..steps {
        plain.advance(push(step))?;
        packed.advance(push(step))?;
        if step % 10 == 9 {
            packed.look()?;
        }
        if step % 70 == 69 {
            differing += packed.differing(&plain)?;
        }
    }
    let [zero, window, raw, overflow] = packed.kinds()?.map(|share| 100.0 * share);
    let retargeted = packed.trims > 0 && packed.raises > 0 && packed.books.moved > 0;
    if matches!(case, Case::Scarce) && !retargeted {
        return Err(Error::Differs("nothing was retargeted where room is scarce".to_owned()));
    }
    let what = format!(
        "compressed beside plain memory, {what}: {zero:.1}% zero, {window:.1}% windows, {raw:.1}% raw, {overflow:.1}% overflow"
    );
    check(what, steps, differing)
}

/// Times a step with every cell nonzero, compared with plain memory on the way.
pub(super) fn all_alive(lab: &Lab, kernels: &WaveKernels, grid: Grid) -> Result<AllAlive, Error> {
    let mut plain = PlainWave::new(lab, kernels, grid)?;
    plain.fill()?;
    let plain_ms = lab.time(2, |_| plain.advance(0.0))? / 1e3;
    let mut packed = PackedWave::new(lab, kernels, grid, Some(8 * grid.cells()), 0)?;
    let mut times = [0.0; 2];
    for (windows, ms) in [false, true].into_iter().zip(&mut times) {
        packed.windows = windows;
        packed.pack(&plain)?;
        for _ in 0..3 {
            plain.advance(0.0)?;
            packed.launch()?;
        }
        none_wrong("waves everywhere", packed.differing(&plain)?)?;
        *ms = lab.time(2, |_| packed.launch())? / 1e3;
    }
    let [_, windows, ..] = packed.kinds()?;
    Ok(AllAlive { plain_ms, raw_ms: times[0], window_ms: times[1], windows })
}
