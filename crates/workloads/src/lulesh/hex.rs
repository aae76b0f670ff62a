//! Geometry of one hexahedron: volume, face normals, derivatives of the shape functions and of the
//! volume.
//!
//! Nodes 0 to 3 go round the bottom face, 4 to 7 round the top face above them.

/// A point or a direction.
pub(super) type Vec3 = [f64; 3];
/// A value at each of the eight nodes of an element.
pub(super) type Hex = [Vec3; 8];

/// The six faces, oriented so that normals point out.
const FACES: [[usize; 4]; 6] =
    [[0, 1, 2, 3], [0, 4, 5, 1], [1, 5, 6, 2], [2, 6, 7, 3], [3, 7, 4, 0], [4, 7, 6, 5]];

/// Neighbours of each node, in the order of the volume derivative.
const AROUND: [[usize; 6]; 8] = [
    [1, 2, 3, 4, 5, 7],
    [2, 3, 0, 5, 6, 4],
    [3, 0, 1, 6, 7, 5],
    [0, 1, 2, 7, 4, 6],
    [7, 6, 5, 0, 3, 1],
    [4, 7, 6, 1, 0, 2],
    [5, 4, 7, 2, 1, 3],
    [6, 5, 4, 3, 2, 0],
];

pub(super) fn add(a: Vec3, b: Vec3) -> Vec3 {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

pub(super) fn sub(a: Vec3, b: Vec3) -> Vec3 {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

pub(super) fn scale(a: Vec3, s: f64) -> Vec3 {
    [a[0] * s, a[1] * s, a[2] * s]
}

pub(super) fn dot(a: Vec3, b: Vec3) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub(super) fn cross(a: Vec3, b: Vec3) -> Vec3 {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// Returns the exact volume of a hexahedron with ruled faces.
pub(super) fn volume(x: &Hex) -> f64 {
    let d = |a: usize, b: usize| sub(x[a], x[b]);
    let triple = |a, b, c| dot(a, cross(b, c));
    (triple(add(d(3, 1), d(7, 2)), d(6, 3), d(2, 0))
        + triple(add(d(4, 3), d(5, 7)), d(6, 4), d(7, 0))
        + triple(add(d(1, 4), d(2, 5)), d(6, 1), d(5, 0)))
        / 12.0
}

/// Returns volume over the largest face: the distance for a sound wave to cross the element.
pub(super) fn characteristic_length(x: &Hex, volume: f64) -> f64 {
    let mut largest = 0.0_f64;
    for [a, b, c, d] in FACES {
        let (ca, db) = (sub(x[c], x[a]), sub(x[d], x[b]));
        let (f, g) = (sub(ca, db), add(ca, db));
        largest = largest.max(dot(f, f) * dot(g, g) - dot(f, g).powi(2));
    }
    4.0 * volume / largest.sqrt()
}

/// Returns a quarter of each face's area vector, summed at its four nodes.
pub(super) fn node_normals(x: &Hex) -> Hex {
    let mut normals = [[0.0; 3]; 8];
    for face in FACES {
        let [a, b, c, d] = face.map(|node| x[node]);
        let across = scale(sub(add(d, c), add(b, a)), 0.5);
        let along = scale(sub(add(c, b), add(d, a)), 0.5);
        let quarter = scale(cross(across, along), 0.25);
        for node in face {
            normals[node] = add(normals[node], quarter);
        }
    }
    normals
}

/// Returns the derivatives of the volume by the node positions.
pub(super) fn volume_derivatives(x: &Hex) -> Hex {
    AROUND.map(|around| {
        let [n0, n1, n2, n3, n4, n5] = around.map(|node| x[node]);
        let pairs = [
            cross(add(n1, n2), add(n0, n1)),
            cross(add(n0, n4), add(n3, n4)),
            cross(add(n3, n5), add(n2, n5)),
        ];
        scale(add(add(pairs[0], pairs[1]), pairs[2]), 1.0 / 12.0)
    })
}

/// Returns the shape-function derivatives at the centre for nodes 0 to 3 (those of 6, 7, 4, 5 are
/// their negatives), and the corresponding volume.
pub(super) fn shape_derivatives(x: &Hex) -> ([Vec3; 4], f64) {
    let [d60, d53, d71, d42] = [sub(x[6], x[0]), sub(x[5], x[3]), sub(x[7], x[1]), sub(x[4], x[2])];
    let xi = scale(sub(sub(add(d60, d53), d71), d42), 0.125);
    let eta = scale(sub(add(sub(d60, d53), d71), d42), 0.125);
    let zeta = scale(add(add(add(d60, d53), d71), d42), 0.125);
    let (a, b, c) = (cross(eta, zeta), cross(zeta, xi), cross(xi, eta));
    let corner = |sa, sb| sub(add(scale(a, sa), scale(b, sb)), c);
    let derivatives = [corner(-1.0, -1.0), corner(1.0, -1.0), corner(1.0, 1.0), corner(-1.0, 1.0)];
    (derivatives, 8.0 * dot(eta, b))
}
