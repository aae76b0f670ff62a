//! The device arrays, by the names and call sites of the GPU program.

use super::Lulesh;
use crate::Allocation;

const NODAL: &str = "lulesh.cu:AllocateNodalPersistent";
const ELEM: &str = "lulesh.cu:AllocateElemPersistent";
const SYMMETRY: &str = "lulesh.cu:AllocateSymm";
const SETUP: &str = "lulesh.cu:NewDomain";
const CORNER: &str = "lulesh.cu:CalcVolumeForceForElems";
const STRAIN: &str = "lulesh.cu:CalcLagrangeElements";
const GRADIENT: &str = "lulesh.cu:CalcQForElems";

/// Values of the elements.
#[derive(Debug)]
pub(super) struct Elems {
    /// Internal energy of each element.
    pub(super) e: Vec<f64>,
    /// Pressure in each element.
    pub(super) p: Vec<f64>,
    /// Artificial viscosity, and its linear and quadratic parts.
    pub(super) q: Vec<f64>,
    pub(super) ql: Vec<f64>,
    pub(super) qq: Vec<f64>,
    /// Relative volume; `volo` is the initial volume.
    pub(super) v: Vec<f64>,
    pub(super) volo: Vec<f64>,
    /// Volume after this step, and its change.
    pub(super) vnew: Vec<f64>,
    pub(super) delv: Vec<f64>,
    /// Rate of change of volume over volume.
    pub(super) vdov: Vec<f64>,
    /// Characteristic length of each element, which bounds the time step.
    pub(super) arealg: Vec<f64>,
    /// Speed of sound in each element.
    pub(super) ss: Vec<f64>,
    pub(super) mass: Vec<f64>,
}

impl Elems {
    /// Creates cold gas of relative volume one.
    pub(super) fn new(elements: usize) -> Self {
        let zeros = || vec![0.0; elements];
        Self {
            v: vec![1.0; elements],
            e: zeros(),
            p: zeros(),
            q: zeros(),
            ql: zeros(),
            qq: zeros(),
            volo: zeros(),
            vnew: zeros(),
            delv: zeros(),
            vdov: zeros(),
            arealg: zeros(),
            ss: zeros(),
            mass: zeros(),
        }
    }

    fn named(&self) -> [(&'static str, &[f64]); 13] {
        [
            ("e", &self.e),
            ("p", &self.p),
            ("q", &self.q),
            ("ql", &self.ql),
            ("qq", &self.qq),
            ("v", &self.v),
            ("volo", &self.volo),
            ("vnew", &self.vnew),
            ("delv", &self.delv),
            ("vdov", &self.vdov),
            ("arealg", &self.arealg),
            ("ss", &self.ss),
            ("elemMass", &self.mass),
        ]
    }
}

impl Lulesh {
    pub(super) fn device_arrays(&self) -> Vec<Allocation<'_>> {
        let mesh = &self.mesh;
        let mut list = vec![
            Allocation::i32("matElemlist", ELEM, &mesh.region_elems),
            Allocation::i32("nodelist", ELEM, &mesh.nodelist),
            Allocation::i32("elemBC", ELEM, &mesh.elem_bc),
            Allocation::i32("nodeElemStart", SETUP, &mesh.node_elem_start),
            Allocation::i32("nodeElemCornerList", SETUP, &mesh.corner_list),
            Allocation::f64("nodalMass", NODAL, &self.nodal_mass),
        ];
        let faces = ["lxim", "lxip", "letam", "letap", "lzetam", "lzetap"];
        list.extend(
            faces.iter().zip(&mesh.neighbours).map(|(name, list)| Allocation::i32(*name, ELEM, list)),
        );
        let planes = ["symmX", "symmY", "symmZ"];
        list.extend(
            planes.iter().zip(&mesh.symmetry).map(|(name, list)| Allocation::i32(*name, SYMMETRY, list)),
        );
        list.extend(self.elems.named().map(|(name, values)| Allocation::f64(name, ELEM, values)));
        list.extend(in_threes(["x", "y", "z"], NODAL, &self.position));
        list.extend(in_threes(["xd", "yd", "zd"], NODAL, &self.velocity));
        list.extend(in_threes(["xdd", "ydd", "zdd"], NODAL, &self.acceleration));
        list.extend(in_threes(["fx", "fy", "fz"], NODAL, &self.force));
        list.extend(in_threes(["fx_elem", "fy_elem", "fz_elem"], CORNER, &self.corner_force));
        list.extend(in_threes(["dxx", "dyy", "dzz"], STRAIN, &self.strain));
        list.extend(in_threes(["delx_xi", "delx_eta", "delx_zeta"], GRADIENT, &self.delx));
        list.extend(in_threes(["delv_xi", "delv_eta", "delv_zeta"], GRADIENT, &self.delv));
        list
    }
}

fn in_threes<'a>(
    names: [&str; 3],
    call_site: &'static str,
    arrays: &'a [Vec<f64>; 3],
) -> [Allocation<'a>; 3] {
    std::array::from_fn(|n| Allocation::f64(names[n], call_site, &arrays[n]))
}
