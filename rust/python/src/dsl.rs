//! Recorders for programs of other languages.
//!
//! - [`mscclpp`]: the classes behind `ahbm.dsl.mscclpp`.
//! - [`iterations`]: where a statement stands, and the loops around it.
//! - [`msccl`], [`msccl_ref`] (references to chunks), [`msccl_arguments`]: those behind `ahbm.dsl.msccl`.

mod iterations;
pub(crate) mod msccl;
pub(crate) mod msccl_arguments;
pub(crate) mod msccl_ref;
pub(crate) mod mscclpp;

use crate::errors;
use ahbm_dsl::Fault;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// The exception for a fault: one of `ahbm.errors`, and of the class that the language's own compiler raises.
pub(crate) fn raise(py: Python<'_>, fault: &Fault) -> PyErr {
    let call = || -> PyResult<PyErr> {
        let list: Bound<'_, PyList> = errors::to_list(py, &fault.findings)?;
        let made = py.import("ahbm.errors")?.getattr("program_error")?.call1((list, fault.raised.name()))?;
        Ok(PyErr::from_value(made))
    };
    call().unwrap_or_else(|error| error)
}
