//! Findings cross the border as exceptions of `ahbm.errors`.

use ahbm_findings::{Diagnostic, codes as registry};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};
use std::panic::{AssertUnwindSafe, catch_unwind};

const MODULE: &str = "ahbm.errors";

/// Every error code, its meaning, an example of what leads to it, and what to do, by code.
#[pyfunction]
pub(crate) fn codes() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    registry::all().map(|row| (row.code, row.meaning, row.example, row.remedy)).collect()
}

/// The exception for `findings`; the first one's code decides its class.
pub(crate) fn raise(py: Python<'_>, findings: &[Diagnostic]) -> PyErr {
    let call = || -> PyResult<()> {
        let list = PyList::empty(py);
        for finding in findings {
            list.append(to_dict(py, finding)?)?;
        }
        py.import(MODULE)?.getattr("raise_findings")?.call1((list,))?;
        Ok(())
    };
    call().err().unwrap_or_else(|| PyRuntimeError::new_err("ahbm.errors.raise_findings returned"))
}

/// The exception for one finding.
pub(crate) fn raise_one(py: Python<'_>, finding: Diagnostic) -> PyErr {
    raise(py, &[finding])
}

/// True when `error` is one of `ahbm.errors` already.
pub(crate) fn is_typed(py: Python<'_>, error: &PyErr) -> bool {
    let class = || py.import(MODULE)?.getattr("AhbmError")?.cast_into::<PyType>().map_err(PyErr::from);
    class().is_ok_and(|class| error.is_instance(py, &class))
}

/// True for what ends all calls of a kernel: Ctrl-C, and an error that does not depend on whether its rank is symbolic.
pub(crate) fn is_final(py: Python<'_>, error: &PyErr) -> bool {
    const OUTSIDE: [&str; 3] = ["AHBM-K217", "AHBM-K218", "AHBM-K219"];
    let code = || error.value(py).getattr("code")?.extract::<String>();
    error.is_instance_of::<PyKeyboardInterrupt>(py) || code().is_ok_and(|code| OUTSIDE.contains(&code.as_str()))
}

/// Runs `work`; a panic inside becomes the finding `AHBM-Z001` instead of unwinding into the interpreter.
pub(crate) fn guard<T>(work: impl FnOnce() -> Result<T, Vec<Diagnostic>>) -> Result<T, Vec<Diagnostic>> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".into());
        Err(vec![
            Diagnostic::new("AHBM-Z001", format!("internal error: {what}"))
                .hint("this is a defect of ahbm, not of your program; please report it"),
        ])
    })
}

/// A finding with the keys of `Finding.to_json`.
pub(crate) fn to_dict<'py>(py: Python<'py>, finding: &Diagnostic) -> PyResult<Bound<'py, PyDict>> {
    let sites = PyList::empty(py);
    for site in &finding.sites {
        let entry = PyDict::new(py);
        entry.set_item("label", &site.label)?;
        entry.set_item("origin", &site.origin)?;
        sites.append(entry)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("code", finding.code)?;
    dict.set_item("message", &finding.message)?;
    dict.set_item("sites", sites)?;
    dict.set_item("hint", finding.hint.as_deref())?;
    Ok(dict)
}

/// Findings with the keys of `Finding.to_json`.
pub(crate) fn to_list<'py>(py: Python<'py>, findings: &[Diagnostic]) -> PyResult<Bound<'py, PyList>> {
    let dicts = findings.iter().map(|finding| to_dict(py, finding)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, dicts)
}
