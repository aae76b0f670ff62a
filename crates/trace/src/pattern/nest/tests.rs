use super::*;
use crate::{Addresses, Op};

const A: Array = Array { base: 1 << 20, element_bytes: 8 };
const B: Array = Array { base: 1 << 21, element_bytes: 4 };

fn all(nest: &mut Nest) -> Vec<(u32, Code)> {
    let mut pieces = Vec::new();
    for block in 0..nest.launch().blocks() {
        for (warp, step) in (0..WARPS).flat_map(|warp| (0..64).map(move |step| (warp, step))) {
            let mut code = Code::default();
            nest.fill(At { block, warp, step }, &mut code).unwrap();
            pieces.push((step, code));
        }
    }
    pieces
}

fn accesses(nest: &mut Nest) -> Vec<(Op, u64, u32)> {
    let first = |code: &Code, inst: &Inst| match code.addresses(inst) {
        Addresses::Strided { base, .. } => base,
        Addresses::List(list) => list[0],
    };
    let of = |code: &Code| -> Vec<_> {
        let memory = code.insts().iter().filter(|inst| inst.width > 0);
        memory.map(|inst| (inst.op, first(code, inst), inst.mask)).collect()
    };
    all(nest).iter().flat_map(|(_, code)| of(code)).collect()
}

#[test]
fn threads_and_steps_access_their_elements() {
    let place = Affine::along([1, 40, 400, 0]).stepping(4000);
    let body = Body::default().load_each(A, place.plus(1), &[0, -1]).work(Op::Fp64, 2, 1).store(B, place);
    let mut nest = Nest::new("n", [40, 2, 1, 1], 32).phase(2, &body);
    let found = accesses(&mut nest);
    // Four warps: 32 and 8 threads of two rows; two steps of three accesses.
    assert_eq!(found.len(), 4 * 2 * 3);
    assert_eq!(found[0], (Op::LoadGlobal, A.address(1), u32::MAX));
    assert_eq!(found[5], (Op::StoreGlobal, B.address(4000), u32::MAX));
    assert_eq!(found[6], (Op::LoadGlobal, A.address(33), 0xff));
    assert_eq!(found[23], (Op::StoreGlobal, B.address(4072), 0xff));
    // Two addresses, two loads, two sums, a store, and three for the loop.
    assert_eq!(nest.instructions(), 4 * 2 * 10);
    let made: usize = all(&mut nest).iter().map(|(_, code)| code.insts().len()).sum();
    assert_eq!(made as u64, nest.instructions());
}

#[test]
fn lists_are_followed_and_short_rows_are_predicated_off() {
    let list = List::new(vec![5, 6, 7, 8, 9]);
    let rows = List::new(vec![0, 2, 2, 5]);
    let index = Index { array: B, list, place: Affine::LINE, rows: Some(rows) };
    let body = Body::default().index(&index).gather(A, &index, 2, 1);
    let found = accesses(&mut Nest::new("n", [3, 1, 1, 1], 32).phase(3, &body));
    let lists = [(B.address(0), 0b101), (B.address(1), 0b101), (B.address(4), 0b100)];
    let gathered = [(A.address(11), 0b101), (A.address(13), 0b101), (A.address(19), 0b100)];
    let wanted = lists.iter().zip(&gathered).flat_map(|(list, gathered)| [*list, *gathered]);
    let wanted: Vec<_> = wanted.map(|(address, mask)| (Op::LoadGlobal, address, mask)).collect();
    assert_eq!(found, wanted);
}

#[test]
fn a_long_body_is_split_into_chunks() {
    let mut nest = Nest::new("n", [1, 1, 1, 1], 32).phase(1, &Body::default().work(Op::Fp64, 100, 4));
    let pieces: Vec<usize> = all(&mut nest).iter().map(|(_, code)| code.insts().len()).collect();
    assert_eq!(pieces[..4], [48, 48, 7, 0]);
}
