//! `lulesh` on a GPU: cycles. Threads over elements gather their corners through the mesh's own
//! lists; threads over nodes gather the corners that meet there.
//!
//! Instructions counted: the forces of an element are 240 for the normals of its faces, 480 for the
//! derivatives of its volume, 480 for its four hourglass modes and 50 more; its motion 60 for the
//! volume, 240 for its length and 150 for the strain.

use buddy_trace::{
    Application, Op,
    pattern::{Affine, Array, Body, Index, List, Nest},
};

use super::Lulesh;
use crate::layout::{Layout, repeated};

/// Cycles: a billion warp instructions at the paper's footprint.
const CYCLES: usize = 5;
const ELEMENT: Affine = Affine::LINE;

pub(super) fn application(lulesh: &Lulesh) -> Application {
    let layout = Layout::of(lulesh);
    let trace = Trace { lulesh, layout: &layout };
    let cycle = [
        trace.forces(),
        trace.accelerations(),
        trace.motion(),
        trace.deformation(),
        trace.gradients(),
        trace.viscosity(),
        trace.material(),
        trace.constraints(),
    ];
    layout.application("lulesh", repeated(CYCLES, &cycle))
}

struct Trace<'a> {
    lulesh: &'a Lulesh,
    layout: &'a Layout,
}

impl Trace<'_> {
    fn over_elements(&self, name: &str, registers: u32, body: &Body) -> Nest {
        Nest::new(name, [self.lulesh.mesh.elements(), 1, 1, 1], registers).phase(1, body)
    }

    fn nodes(&self) -> usize {
        (self.lulesh.mesh.edge + 1).pow(3)
    }

    fn load<const N: usize>(&self, body: Body, names: [&str; N]) -> Body {
        self.layout.arrays(names).iter().fold(body, |body, array| body.load(*array, ELEMENT))
    }

    fn store<const N: usize>(&self, body: Body, names: [&str; N]) -> Body {
        self.layout.arrays(names).iter().fold(body, |body, array| body.store(*array, ELEMENT))
    }

    fn index(&self, name: &str, list: &List, place: Affine) -> Index {
        Index { array: self.layout.array(name), list: list.clone(), place, rows: None }
    }

    /// Gathers positions and velocities of an element's corners.
    fn gather_corners(&self) -> Body {
        let (mesh, mut body) = (&self.lulesh.mesh, Body::default());
        let fields: [Array; 6] = self.layout.arrays(["x", "y", "z", "xd", "yd", "zd"]);
        for corner in 0..8 {
            let place = ELEMENT.plus((corner * mesh.elements()) as i64);
            let index = self.index("nodelist", &mesh.nodelist, place);
            body = body.index(&index);
            body = fields.iter().fold(body, |body, field| body.gather(*field, &index, 1, 0));
        }
        body
    }

    /// Computes each element's force on its corners, eight contiguous numbers.
    fn forces(&self) -> Nest {
        let body = self.load(self.gather_corners(), ["p", "q", "volo", "v", "ss", "elemMass"]);
        let mut body = body.work(Op::Fp64, 1250, 8);
        for array in self.layout.arrays(["fx_elem", "fy_elem", "fz_elem"]) {
            for corner in 0..8 {
                body = body.store(array, Affine::along([8, 0, 0, 0]).plus(corner));
            }
        }
        self.over_elements("forces", 255, &body)
    }

    /// Sums the corners that meet at a node.
    fn accelerations(&self) -> Nest {
        let mesh = &self.lulesh.mesh;
        let rows = Some(mesh.node_elem_start.clone());
        let index = Index { rows, ..self.index("nodeElemCornerList", &mesh.corner_list, Affine::LINE) };
        let ends = Body::default().load_each(self.layout.array("nodeElemStart"), Affine::LINE, &[0, 1]);
        let corners = self.layout.arrays(["fx_elem", "fy_elem", "fz_elem"]);
        let sum = Body::default().index(&index);
        let sum = corners.iter().fold(sum, |body, array| body.gather(*array, &index, 1, 0));
        let end = self.load(Body::default(), ["nodalMass"]).work(Op::Fp64, 20, 3);
        let end = self.store(end, ["fx", "fy", "fz", "xdd", "ydd", "zdd"]);
        Nest::new("accelerations", [self.nodes(), 1, 1, 1], 40)
            .phase(1, &ends)
            .phase(8, &sum.work(Op::Fp64, 3, 3))
            .phase(1, &end)
    }

    fn motion(&self) -> Nest {
        let body = self.load(Body::default(), ["xdd", "ydd", "zdd", "xd", "yd", "zd", "x", "y", "z"]);
        let body = self.store(body.work(Op::Fp64, 9, 3), ["xd", "yd", "zd", "x", "y", "z"]);
        Nest::new("motion", [self.nodes(), 1, 1, 1], 40).phase(1, &body)
    }

    fn deformation(&self) -> Nest {
        let body = self.load(self.gather_corners(), ["volo", "v"]).work(Op::Fp64, 450, 7);
        let body = self.store(body, ["vnew", "delv", "arealg", "vdov", "dxx", "dyy", "dzz"]);
        self.over_elements("deformation", 128, &body)
    }

    fn gradients(&self) -> Nest {
        let body = self.load(self.gather_corners(), ["volo", "vnew"]).work(Op::Fp64, 180, 6);
        let names = ["delx_xi", "delx_eta", "delx_zeta", "delv_xi", "delv_eta", "delv_zeta"];
        self.over_elements("gradients", 128, &self.store(body, names))
    }

    /// Compares each element's gradient with those of its neighbours.
    fn viscosity(&self) -> Nest {
        let mut body = self.load(Body::default(), ["vdov", "elemMass", "volo", "vnew", "elemBC"]);
        let faces = ["lxim", "lxip", "letam", "letap", "lzetam", "lzetap"];
        let directions = [("delx_xi", "delv_xi"), ("delx_eta", "delv_eta"), ("delx_zeta", "delv_zeta")];
        for (axis, (delx, delv)) in directions.into_iter().enumerate() {
            body = self.load(body, [delx, delv]);
            for face in [2 * axis, 2 * axis + 1] {
                let index = self.index(faces[face], &self.lulesh.mesh.neighbours[face], ELEMENT);
                body = body.index(&index).gather(self.layout.array(delv), &index, 1, 0);
            }
        }
        self.over_elements("viscosity", 64, &self.store(body.work(Op::Fp64, 90, 3), ["ql", "qq"]))
    }

    /// Applies the equation of state, region by region.
    fn material(&self) -> Nest {
        let index = self.index("matElemlist", &self.lulesh.mesh.region_elems, ELEMENT);
        let from = self.layout.arrays(["e", "p", "q", "ql", "qq", "delv", "vnew"]);
        let body = Body::default().index(&index);
        let body = from.iter().fold(body, |body, array| body.gather(*array, &index, 1, 0));
        let body = body.work(Op::Fp64, 130, 2);
        let to = self.layout.arrays(["e", "p", "q", "ss", "v"]);
        let body = to.iter().fold(body, |body, array| body.scatter(*array, &index, 1, 0));
        self.over_elements("material", 64, &body)
    }

    fn constraints(&self) -> Nest {
        let index = self.index("matElemlist", &self.lulesh.mesh.region_elems, ELEMENT);
        let from = self.layout.arrays(["vdov", "arealg", "ss"]);
        let body = Body::default().index(&index);
        let body = from.iter().fold(body, |body, array| body.gather(*array, &index, 1, 0));
        self.over_elements("constraints", 40, &body.work(Op::Fp64, 40, 2).exchange(8))
    }
}
