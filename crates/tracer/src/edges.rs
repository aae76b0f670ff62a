//! Edge counts of the control-flow graph, derived from instruction counts.
//!
//! The counts of the edges into an instruction sum to its executions, and so do those out of it. If
//! only one edge of an instruction is unknown, it follows; repeating this determines most. Diverged
//! warps take both sides of a branch, which these sums ignore, so that results are approximate.

use std::collections::HashMap;

use crate::{
    counts::Counts,
    flow::successors,
    sass::{Instruction, Next},
};

/// Returns the edges that the counts determine.
pub(crate) fn solve(code: &[Instruction], counts: &Counts) -> HashMap<(usize, usize), f64> {
    let ahead: Vec<Vec<usize>> = (0..code.len()).map(|at| successors(code, at)).collect();
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); code.len()];
    for (at, next) in ahead.iter().enumerate() {
        next.iter().for_each(|&to| behind[to].push(at));
    }
    // Counts from outside the graph: the kernel's entry, and entries of called functions.
    let mut entered = vec![false; code.len()];
    entered[..1.min(code.len())].fill(true);
    for instruction in code {
        if let Next::Call(Some(target)) = instruction.next
            && target < code.len()
        {
            entered[target] = true;
        }
    }
    let mut edges = HashMap::new();
    loop {
        let before = edges.len();
        for at in 0..code.len() {
            let count = counts.0[at] as f64;
            // Exits and returns are not edges.
            let leaves = matches!(code[at].next, Next::Exit | Next::Return);
            if !leaves {
                complete(&mut edges, count, ahead[at].iter().map(|&to| (at, to)));
            }
            if !entered[at] {
                complete(&mut edges, count, behind[at].iter().map(|&from| (from, at)));
            }
        }
        if edges.len() == before {
            return edges;
        }
    }
}

/// Sets the only unknown edge of an instruction to the remainder.
fn complete(
    edges: &mut HashMap<(usize, usize), f64>,
    count: f64,
    all: impl Iterator<Item = (usize, usize)> + Clone,
) {
    let mut unknown = all.clone().filter(|edge| !edges.contains_key(edge));
    let (Some(edge), None) = (unknown.next(), unknown.next()) else { return };
    let known: f64 = all.filter_map(|edge| edges.get(&edge)).sum();
    edges.insert(edge, (count - known).max(0.0));
}
