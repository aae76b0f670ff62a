//! Machine code executed on the CPU: kernels of `crates/gpu-lab/kernels/micro`, compiled for three
//! architectures.

mod common;

use buddy_trace::{
    Kernel, Launch, Op,
    sass::{Argument, Array, Content, Program, SassKernel},
};
use common::warps;

const TEXTS: [&str; 3] =
    [include_str!("sass/sm_80.sass"), include_str!("sass/sm_90.sass"), include_str!("sass/sm_100.sass")];

const BASE: u64 = 0x7f00_0000_0000;

fn array(index: u64, bytes: u64, content: Content) -> Array {
    Array { base: BASE + (index << 32), bytes, content }
}

fn pointer(index: u64) -> Argument {
    Argument::Pointer(BASE + (index << 32))
}

fn kernel(
    text: &str,
    name: &str,
    grid: (u32, u32),
    arguments: &[Argument],
    arrays: Vec<Array>,
) -> SassKernel {
    let program = Program::parse(text, name).unwrap();
    SassKernel::new(program, Launch::linear(name, grid.0, grid.1), arguments, arrays).unwrap()
}

#[test]
fn a_vector_add_reads_and_writes_its_elements() {
    for text in TEXTS {
        // The last of 300 elements is in the tenth warp, which has 12 active lanes.
        let arrays = (0..3).map(|index| array(index, 1200, Content::Unknown)).collect();
        let arguments = [pointer(0), pointer(1), pointer(2), Argument::Int(300)];
        let all = warps(&mut kernel(text, "vector_add", (5, 64), &arguments, arrays)).unwrap();
        assert_eq!(all.len(), 10);
        for (warp, insts) in all.iter().enumerate() {
            let first = 4 * 32 * warp as u64;
            let accesses: Vec<_> = insts.iter().filter(|(inst, _)| inst.op.is_global()).collect();
            let [left, right, sum] = accesses[..] else { panic!("{} accesses", accesses.len()) };
            let lanes = if warp == 9 { 12 } else { 32 };
            let addresses = |index: u64| {
                (0..lanes).map(|lane| BASE + (index << 32) + first + 4 * lane).collect::<Vec<_>>()
            };
            let mut loads = [left.1.clone(), right.1.clone()];
            loads.sort();
            assert_eq!((loads, &sum.1), ([addresses(0), addresses(1)], &addresses(2)));
            assert_eq!((left.0.op, sum.0.op, sum.0.width), (Op::LoadGlobal, Op::StoreGlobal, 4));
            assert_eq!(insts.last().unwrap().0.op, Op::Exit);
        }
    }
}

#[test]
fn a_chase_follows_its_pointers() {
    for text in TEXTS {
        // A ring of four pointers: 0, 2, 3, 1.
        let next = [2u64, 0, 3, 1].map(|slot| BASE + 8 * slot);
        let words = next.iter().flat_map(|next| [*next as u32, (next >> 32) as u32]).collect();
        let arrays = vec![array(0, 32, Content::Words(words)), array(1, 8, Content::Unknown)];
        let arguments = [pointer(0), Argument::Int(10), pointer(1)];
        let all = warps(&mut kernel(text, "chase", (1, 1), &arguments, arrays)).unwrap();
        let loads = all[0].iter().filter(|(inst, _)| inst.op == Op::LoadGlobal);
        let slots: Vec<u64> = loads.map(|(_, addresses)| (addresses[0] - BASE) / 8).collect();
        assert_eq!(slots, [0, 2, 3, 1, 0, 2, 3, 1, 0, 2]);
    }
}

#[test]
fn a_histogram_matches_the_cpu_result() {
    for text in TEXTS {
        let data: Vec<u32> = (0..1000u32).map(|n| n.wrapping_mul(2_654_435_761) >> 7).collect();
        let arrays =
            vec![array(0, 4000, Content::Words(data.clone())), array(1, 64, Content::Words(vec![0; 16]))];
        let arguments = [pointer(0), pointer(1), Argument::Int(15), Argument::Int(1000)];
        let mut kernel = kernel(text, "histogram_shared", (3, 128), &arguments, arrays);
        let all = warps(&mut kernel).unwrap();
        let mut bins = [0; 16];
        data.iter().for_each(|value| bins[(value & 15) as usize] += 1);
        let found: Vec<u32> = (0..16).map(|bin| kernel.word(BASE + (1 << 32) + 4 * bin).unwrap()).collect();
        assert_eq!(found, bins);
        let barriers = all.iter().flatten().filter(|(inst, _)| inst.op == Op::Barrier).count();
        assert_eq!(barriers, 2 * 12, "two barriers of twelve warps");
        assert!(kernel.unknown().is_empty(), "{:?}", kernel.unknown());
    }
}

#[test]
fn paths_that_depend_on_unknown_data_are_refused() {
    for text in TEXTS {
        let arrays = vec![array(0, 32, Content::Unknown), array(1, 8, Content::Unknown)];
        let arguments = [pointer(0), Argument::Int(10), pointer(1)];
        let error = warps(&mut kernel(text, "chase", (1, 1), &arguments, arrays)).unwrap_err().to_string();
        assert!(error.contains("LD.E.64 at") && error.contains("needs a known address"), "{error}");
        // One element past the end of its array.
        let arrays = (0..3).map(|index| array(index, 400, Content::Unknown)).collect();
        let arguments = [pointer(0), pointer(1), pointer(2), Argument::Int(101)];
        let error =
            warps(&mut kernel(text, "vector_add", (4, 32), &arguments, arrays)).unwrap_err().to_string();
        assert!(error.contains("an address inside an array"), "{error}");
    }
}

#[test]
fn diverged_lanes_reconverge() {
    for text in TEXTS {
        // Two rows for two warps, of 40 and 3 elements. Every lane must be active for the shuffles.
        let rows = Content::Words(vec![0, 40, 43]);
        let columns = Content::Words((0..43).collect());
        let arrays = vec![
            array(0, 12, rows),
            array(1, 172, columns),
            array(2, 172, Content::Unknown),
            array(3, 172, Content::Unknown),
            array(4, 8, Content::Unknown),
        ];
        let arguments = [pointer(0), pointer(1), pointer(2), pointer(3), pointer(4), Argument::Int(2)];
        let all = warps(&mut kernel(text, "spmv_warp", (1, 64), &arguments, arrays)).unwrap();
        for (insts, mut lanes) in all.iter().zip([vec![32, 8], vec![3]]) {
            let shuffles: Vec<u32> = insts
                .iter()
                .filter(|(inst, _)| inst.op == Op::Shuffle)
                .map(|(inst, _)| inst.lanes())
                .collect();
            assert_eq!(shuffles, [32; 5]);
            let x = insts.iter().filter(|(_, at)| at.first().is_some_and(|at| (at - BASE) >> 32 == 3));
            let read: Vec<u32> = x.map(|(inst, _)| inst.lanes()).collect();
            assert_eq!(read, std::mem::take(&mut lanes));
        }
    }
}
