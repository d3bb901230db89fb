//! Addresses of PEs, and the directions that `tl` calls take.

use crate::operand::{self, Fault, fault};
use crate::symbolic::{Operand, Path};
use ahbm_machine::Direction;
use ahbm_program::class::Way;
use ahbm_program::formula::Function;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The address of a PE: a value for `dir=` of `tl.send`, `tl.recv` and `tl.recv_async`; what `tl.peer` returns.
///
/// It is equal to the text that says the same, `"sip2.cube5.pe0"`.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Peer {
    path: Arc<Path>,
    /// SIP, cube and PE; `None` means "same as mine".
    parts: [Option<Operand>; 3],
}

impl Peer {
    /// The PE with these indices, if they are that: an index at another place may be none.
    pub(crate) fn new(py: Python<'_>, path: &Arc<Path>, parts: [Option<Operand>; 3]) -> PyResult<Result<Self, Fault>> {
        for part in parts.into_iter().flatten() {
            let (first, last) = (Operand::plain(0), Operand::plain(u32::MAX.into()));
            if path.ask(py, Function::Lt, part, first)? || path.ask(py, Function::Lt, last, part)? {
                let what = fault("AHBM-K208", format!("{} is no index of a peer", part.value));
                return Ok(Err(what.hint("an index is an integer from 0 on").into()));
            }
        }
        if parts.iter().all(Option::is_none) {
            let what = fault("AHBM-K208", "an address of nobody");
            return Ok(Err(what.hint("tl.peer takes sip=, cube= and pe=, or some of them").into()));
        }
        Ok(Ok(Self { path: Arc::clone(path), parts }))
    }

    fn direction(&self) -> Direction {
        let [sip, cube, pe] = self.parts.map(|part| part.map(|part| part.value as u32));
        Direction::Peer { sip, cube, pe }
    }

    /// Its text, for which its indices become conditions.
    fn plain(&self, py: Python<'_>) -> PyResult<String> {
        for part in self.parts.iter().flatten() {
            if let Some(term) = part.term {
                self.path.fix(py, term, part.value)?;
            }
        }
        Ok(self.direction().to_string())
    }
}

#[pymethods]
impl Peer {
    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        self.plain(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<peer {}>", self.plain(py)?))
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, &self.plain(py)?).hash()
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let other = match other.cast::<Self>() {
            Ok(peer) => PyString::new(py, &peer.get().plain(py)?).into_any(),
            Err(_) => other.clone(),
        };
        PyString::new(py, &self.plain(py)?).rich_compare(other, op).map(Bound::unbind)
    }
}

/// An argument that is a direction: a text or a peer.
pub(crate) struct Dir<'py>(Bound<'py, PyAny>);

impl<'py> FromPyObject<'_, 'py> for Dir<'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if value.cast::<Peer>().is_err() {
            value.cast::<PyString>()?;
        }
        Ok(Self(value.to_owned()))
    }
}

impl Dir<'_> {
    /// The direction on a path.
    pub(crate) fn toward(&self, py: Python<'_>, path: &Arc<Path>) -> PyResult<Toward<'_>> {
        let Ok(peer) = self.0.cast::<Peer>() else {
            return Ok(Toward::Text(Cow::Borrowed(self.0.cast::<PyString>()?.to_str()?)));
        };
        let peer = peer.get();
        if !Arc::ptr_eq(&peer.path, path) {
            return peer.plain(py).map(|text| Toward::Text(Cow::Owned(text)));
        }
        let parts = peer.parts.map(|part| part.map(|part| path.term(part)));
        Ok(Toward::Peer(peer.direction(), Way::Peer(parts)))
    }
}

/// A direction that a call names.
pub(crate) enum Toward<'a> {
    Text(Cow<'a, str>),
    Peer(Direction, Way),
}

impl Toward<'_> {
    /// The direction for this call, and for every call of the class.
    pub(crate) fn known(&self) -> Result<(Direction, Way), Fault> {
        match self {
            Self::Text(text) => {
                let direction = Direction::parse(text).ok_or_else(|| operand::unknown_direction(text))?;
                Ok((direction, Way::Named(direction)))
            }
            Self::Peer(direction, way) => Ok((*direction, *way)),
        }
    }
}

impl fmt::Display for Toward<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Peer(direction, _) => write!(f, "{direction}"),
        }
    }
}
