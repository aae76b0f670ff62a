//! `buddy._native`: the native functions of the Python package. Stubs: `python/buddy/_native.pyi`.
//!
//! Results are records as JSON. Tensors are spans (an address, a length and the owner), so neither
//! NumPy nor PyTorch is needed to build or import the module. Memory and streams belong to the
//! caller. GPU functions enqueue and return unless their documentation says that they block. Long
//! CPU work releases the GIL.

mod activation;
mod analysis;
mod choose;
mod csr;
mod decode;
mod device;
mod error;
mod experts;
mod kv;
mod linear;
mod linear_plan;
mod model;
mod norm;
mod packing;
mod pages;
mod threads;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::activation::{activation_backward, activation_forward, activation_output};
    #[pymodule_export]
    use super::analysis::{
        analysis_html, analysis_text, analyze_files, analyze_memory, command, survey, train,
    };
    #[pymodule_export]
    use super::choose::{choose, frozen_codecs};
    #[pymodule_export]
    use super::csr::CsrPacked;
    #[pymodule_export]
    use super::decode::{decode_argmax, decode_norm, decode_swiglu, gather};
    #[pymodule_export]
    use super::device::Span;
    #[pymodule_export]
    use super::experts::{experts_combine, experts_linear, experts_route, experts_scratch_bytes};
    #[pymodule_export]
    use super::kv::kv_attends;
    #[pymodule_export]
    use super::kv::{
        kv_append, kv_append_attend, kv_attend, kv_bytes, kv_clear, kv_load, kv_parts, kv_read, kv_train,
    };
    #[pymodule_export]
    use super::linear::{linear, linear_counter_bytes, linear_load, linear_prefetched, linear_scratch_bytes};
    #[pymodule_export]
    use super::linear_plan::LinearPlan;
    #[pymodule_export]
    use super::model::{pack_model, unpack_model, verify_model, verify_shards};
    #[pymodule_export]
    use super::norm::{norm_relu, norm_relu_supports};
    #[pymodule_export]
    use super::packing::{check_packed, pack, packed_bytes, parse_header, unpack};
    #[pymodule_export]
    use super::packing::{parse_tight, read_tight};
    #[pymodule_export]
    use super::pages::{pack_pages, unpack_pages};
}
