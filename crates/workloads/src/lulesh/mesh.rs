//! The unstructured mesh: nodes and neighbours of each element, corners of each node.
//!
//! The mesh is a cube of cubes, but the solver only follows these lists.

use buddy_trace::pattern::List;

use super::hex::{Hex, Vec3};
use crate::random::Random;

/// Length of the cube's edge.
const SIDE: f64 = 1.125;
/// Material regions; region r is about r times as likely as region 1.
const REGIONS: u64 = 11;

/// Neighbour across an element's face.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    /// Neighbouring element.
    Element(usize),
    /// A symmetry plane, which mirrors the element.
    Mirror,
    /// The free outer boundary.
    Free,
}

/// Index lists of the mesh, all of them device arrays.
pub(super) struct Mesh {
    pub(super) edge: usize,
    /// Node of each corner, corner-major: corner 0 of all elements, then corner 1.
    pub(super) nodelist: List,
    /// Neighbour across each face: lower and upper along xi, eta and zeta.
    pub(super) neighbours: [List; 6],
    /// For each element and face, three bits: 1 a symmetry plane, 2 a free surface.
    pub(super) elem_bc: Vec<i32>,
    /// Start of each node's corners in `corner_list`.
    pub(super) node_elem_start: List,
    /// Corners (8 x element + corner) that meet at each node.
    pub(super) corner_list: List,
    /// Elements sorted by material region.
    pub(super) region_elems: List,
    /// Nodes on the symmetry plane across each axis.
    pub(super) symmetry: [Vec<i32>; 3],
}

impl Mesh {
    pub(super) fn new(edge: usize, seed: u64) -> Self {
        let nodelist = nodelist(edge);
        let (node_elem_start, corner_list) = corners_of_nodes(edge, &nodelist);
        let (neighbours, elem_bc) = neighbours(edge);
        Self {
            edge,
            nodelist: List::new(nodelist),
            neighbours: neighbours.map(List::new),
            elem_bc,
            node_elem_start: List::new(node_elem_start),
            corner_list: List::new(corner_list),
            region_elems: List::new(regions(edge.pow(3), seed)),
            symmetry: std::array::from_fn(|axis| symmetry_nodes(edge, axis)),
        }
    }

    pub(super) fn elements(&self) -> usize {
        self.edge.pow(3)
    }

    /// Returns the values of a node field at an element's corners.
    #[inline]
    pub(super) fn gather(&self, field: &[Vec<f64>; 3], element: usize) -> Hex {
        let elements = self.elements();
        std::array::from_fn(|corner| {
            let node = self.nodelist[corner * elements + element] as usize;
            [field[0][node], field[1][node], field[2][node]]
        })
    }

    /// Returns the corners that meet at `node`.
    pub(super) fn corners(&self, node: usize) -> &[i32] {
        &self.corner_list[self.node_elem_start[node] as usize..self.node_elem_start[node + 1] as usize]
    }

    /// Returns the neighbour across `face` of `element`.
    pub(super) fn beyond(&self, element: usize, face: usize) -> Beyond {
        match self.elem_bc[element] >> (3 * face) & 0b111 {
            0 => Beyond::Element(self.neighbours[face][element] as usize),
            1 => Beyond::Mirror,
            _ => Beyond::Free,
        }
    }
}

/// Returns the initial node positions.
pub(super) fn positions(edge: usize) -> [Vec<f64>; 3] {
    let side = edge + 1;
    let place = |node: usize| SIDE * node as f64 / edge as f64;
    let at =
        |node: usize| -> Vec3 { [place(node % side), place(node / side % side), place(node / side / side)] };
    std::array::from_fn(|axis| (0..side.pow(3)).map(|node| at(node)[axis]).collect())
}

fn nodelist(edge: usize) -> Vec<i32> {
    let side = edge + 1;
    let offsets = [0, 1, side + 1, side].map(|in_plane| [in_plane, in_plane + side * side]);
    let corners = (0..2).flat_map(|top| offsets.map(|offset| offset[top]));
    let lowest = |element: usize| {
        element % edge + side * (element / edge % edge) + side * side * (element / edge / edge)
    };
    corners
        .flat_map(|offset| (0..edge.pow(3)).map(move |element| (lowest(element) + offset) as i32))
        .collect()
}

fn corners_of_nodes(edge: usize, nodelist: &[i32]) -> (Vec<i32>, Vec<i32>) {
    let (nodes, elements) = ((edge + 1).pow(3), edge.pow(3));
    let mut start = vec![0_i32; nodes + 1];
    for &node in nodelist {
        start[node as usize + 1] += 1;
    }
    for node in 0..nodes {
        start[node + 1] += start[node];
    }
    let mut next = start.clone();
    let mut corners = vec![0_i32; nodelist.len()];
    for element in 0..elements {
        for corner in 0..8 {
            let slot = &mut next[nodelist[corner * elements + element] as usize];
            corners[*slot as usize] = (8 * element + corner) as i32;
            *slot += 1;
        }
    }
    (start, corners)
}

/// Returns the neighbours across the six faces, and the boundary faces: symmetry planes below, free
/// surfaces above.
fn neighbours(edge: usize) -> ([Vec<i32>; 6], Vec<i32>) {
    let elements = edge.pow(3);
    let strides = [1, edge, edge * edge];
    let mut bc = vec![0; elements];
    let neighbours = std::array::from_fn(|face| {
        let (stride, upper) = (strides[face / 2], face % 2 == 1);
        let next = |element: usize| {
            let place = element / stride % edge;
            let (outside, beyond, flag) = match upper {
                false => (place == 0, element.wrapping_sub(stride), 1),
                true => (place == edge - 1, element + stride, 2),
            };
            if outside {
                bc[element] |= flag << (3 * face);
            }
            if outside { element as i32 } else { beyond as i32 }
        };
        (0..elements).map(next).collect()
    });
    (neighbours, bc)
}

fn symmetry_nodes(edge: usize, axis: usize) -> Vec<i32> {
    let side = edge + 1;
    let stride = side.pow(axis as u32);
    (0..side.pow(3)).filter(|node| (node / stride).is_multiple_of(side)).map(|node| node as i32).collect()
}

/// Assigns runs of elements to regions, like pieces of material in a real mesh; sorted by region.
fn regions(elements: usize, seed: u64) -> Vec<i32> {
    let mut random = Random::new(seed);
    let mut lists = vec![Vec::new(); REGIONS as usize];
    let mut next = 0;
    while next < elements {
        let mut ticket = random.below(REGIONS * (REGIONS + 1) / 2);
        let mut region = 0;
        while ticket > region {
            ticket -= region + 1;
            region += 1;
        }
        let run = match random.below(100) {
            0..77 => 1 + random.below(15),
            77..98 => 16 + random.below(48),
            _ => 512 + random.below(1537),
        };
        let end = elements.min(next + run as usize);
        lists[region as usize].extend(next as i32..end as i32);
        next = end;
    }
    lists.concat()
}
