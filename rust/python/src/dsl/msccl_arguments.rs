//! Arguments of MSCCLang's calls, refused as upstream refuses them: programs of 2021 pass others.

use super::iterations::Sites;
use crate::errors;
use crate::origin::Here;
use ahbm_dsl::msccl::{Kind, Refusal};
use ahbm_findings::Diagnostic;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The hint for calls that upstream took until 2021.
const OUTDATED: &str = "this looks like a program written for msccl-tools before 2.3, where copy() and reduce() took \
                        another rank's place: write chunk(rank, buffer, index).reduce(other) and c.copy(...)";

/// The exception for a refusal, at the line of the program that made the call.
#[cold]
pub(crate) fn raise(py: Python<'_>, refusal: Refusal) -> PyErr {
    let Refusal { kind, mut findings } = refusal;
    for finding in findings.iter_mut().filter(|finding| finding.sites.is_empty()) {
        if let Ok(origin) = Here::now(py).and_then(|here| Sites::default().origin(&here)) {
            *finding = finding.clone().site("statement", origin.to_string());
        }
    }
    let call = || -> PyResult<PyErr> {
        let list = errors::to_list(py, &findings)?;
        let error = py.import("ahbm.errors")?.getattr("program_error")?.call1((list, kind.name()))?;
        Ok(PyErr::from_value(error))
    };
    call().unwrap_or_else(|error| error)
}

/// The exception for one finding.
#[cold]
pub(crate) fn refuse(py: Python<'_>, kind: Kind, code: &'static str, message: impl Into<String>) -> PyErr {
    raise(py, *Refusal::new(kind, Diagnostic::new(code, message)))
}

/// The exception for a call by the interface of 2021.
#[cold]
pub(crate) fn outdated(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raise(py, *Refusal::new(Kind::Outdated, Diagnostic::new("AHBM-A202", message).hint(OUTDATED)))
}

/// What a call was given, by parameter.
pub(crate) fn bind<'py, const N: usize>(
    function: &str,
    names: [&'static str; N],
    required: usize,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<[Option<Bound<'py, PyAny>>; N]> {
    let py = args.py();
    if args.len() > N {
        let message = format!("{function}() takes {N} positional arguments but {} were given", args.len());
        return Err(outdated(py, message));
    }
    let mut bound = [const { None }; N];
    for (slot, value) in bound.iter_mut().zip(args.iter()) {
        *slot = Some(value);
    }
    if let Some(kwargs) = kwargs {
        for (key, value) in kwargs.iter() {
            let key = key.cast::<pyo3::types::PyString>()?.to_cow()?;
            match names.iter().position(|name| *name == key) {
                None => return Err(outdated(py, format!("{function}() got an unexpected keyword argument '{key}'"))),
                Some(at) if bound[at].is_some() => {
                    return Err(outdated(py, format!("{function}() got multiple values for argument '{key}'")));
                }
                Some(at) => bound[at] = Some(value),
            }
        }
    }
    if let Some(missing) = (0..required).find(|&at| bound[at].is_none()) {
        let message = format!("{function}() missing 1 required positional argument: '{}'", names[missing]);
        return Err(outdated(py, message));
    }
    Ok(bound)
}

/// A whole number, or `otherwise` without one.
pub(crate) fn number(value: Option<&Bound<'_, PyAny>>, otherwise: i64, name: &str) -> PyResult<i64> {
    let Some(value) = value else { return Ok(otherwise) };
    value.extract().map_err(|_| {
        let class = value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        let message = format!("{name}: '{class}' object cannot be interpreted as an integer of 64 bits");
        refuse(value.py(), Kind::Type, "AHBM-A202", message)
    })
}
