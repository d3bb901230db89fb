//! What this module was built from.

use pyo3::prelude::*;

/// Digest of the Rust sources and of the versions of what they use, 16 hex digits: builds with equal ones give equal
/// times and bytes.
#[pyfunction]
pub(crate) fn sources() -> &'static str {
    env!("AHBM_SOURCES")
}
