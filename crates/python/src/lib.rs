//! `buddy._native`: what the Python package calls. Its stubs are `python/buddy/_native.pyi`.
//!
//! Thin: results are records as JSON, which Python wraps; tensors are addresses and lengths, on the CPU or on a GPU, so that
//! neither NumPy nor PyTorch is needed to build or to import it. Memory is the caller's, streams too, and nothing waits but where
//! a function says so. Work that takes long is done without Python's lock.

mod activation;
mod decode;
mod failure;
mod frozen;
mod kv;
mod linear;
mod looking;
mod model;
mod norm;
mod place;
mod product;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::activation::{activate, activated, activation_gradients};
    #[pymodule_export]
    use super::decode::{decode_gate, decode_norm, decode_pick, gather_frozen};
    #[pymodule_export]
    use super::frozen::{freeze, frozen_header, frozen_room, read_frozen};
    #[pymodule_export]
    use super::kv::{kv_append, kv_attend, kv_attend_fresh, kv_bytes, kv_clear, kv_read, kv_train};
    #[pymodule_export]
    use super::linear::{linear, linear_ahead, linear_room};
    #[pymodule_export]
    use super::looking::{
        analysis_html, analysis_text, analyze_files, analyze_memory, command, survey, train,
    };
    #[pymodule_export]
    use super::model::{pack_model, unpack_model};
    #[pymodule_export]
    use super::norm::{normalise_relu, normalises};
    #[pymodule_export]
    use super::product::Product;
}
