//! Finds the kernel's line behind a call.
#![allow(unsafe_code)] // Frames have no safe wrapper under the limited API.

use ahbm_program::{Locus, Origin, OriginId, Origins};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::{ffi, intern};
use rustc_hash::FxHashMap;
use std::ffi::c_long;
use std::path::Path;
use std::sync::Arc;

/// The instruction that is executing in the innermost Python frame.
pub(crate) struct Here<'py> {
    frame: Bound<'py, PyAny>,
    code: Bound<'py, PyAny>,
    instruction: c_long,
}

impl<'py> Here<'py> {
    /// Looks at the interpreter's stack.
    pub(crate) fn now(py: Python<'py>) -> PyResult<Self> {
        // SAFETY: the interpreter lock is held. `PyEval_GetFrame` lends a reference, of which a new one is
        // taken; `PyFrame_GetCode` returns a new one and never fails.
        unsafe {
            let frame = ffi::PyEval_GetFrame();
            if frame.is_null() {
                return Err(PyRuntimeError::new_err("tl was called without a Python frame"));
            }
            let code = Bound::from_owned_ptr(py, ffi::PyFrame_GetCode(frame).cast());
            let frame = Bound::from_borrowed_ptr(py, frame.cast());
            let index = frame.getattr(intern!(py, "f_lasti"))?;
            let instruction = ffi::PyLong_AsLong(index.as_ptr());
            Ok(Self { frame, code, instruction })
        }
    }

    /// The place of the call that led to this frame.
    pub(crate) fn back(&self) -> PyResult<Option<Self>> {
        let frame = self.frame.getattr(intern!(self.frame.py(), "f_back"))?;
        if frame.is_none() {
            return Ok(None);
        }
        let code = frame.getattr(intern!(frame.py(), "f_code"))?;
        let instruction = frame.getattr(intern!(frame.py(), "f_lasti"))?.extract()?;
        Ok(Some(Self { frame, code, instruction }))
    }

    /// The lines of all calls that led here from the code of `caller`.
    fn calls(&self, caller: usize) -> Origin {
        let mut lines = vec![self.origin()];
        let mut back = self.back();
        while let Ok(Some(here)) = back {
            if here.key().0 == caller {
                break;
            }
            lines.push(here.origin());
            back = here.back();
        }
        lines.reverse();
        Origin::called(lines)
    }

    /// The instruction, as long as its code lives.
    pub(crate) fn key(&self) -> (usize, c_long) {
        (self.code.as_ptr() as usize, self.instruction)
    }

    /// The code it belongs to.
    pub(crate) fn code(&self) -> Bound<'py, PyAny> {
        self.code.clone()
    }

    /// The variables of its frame, a mapping.
    pub(crate) fn locals(&self) -> PyResult<Bound<'py, PyAny>> {
        self.frame.getattr(intern!(self.frame.py(), "f_locals"))
    }

    /// Full name of the file.
    pub(crate) fn path(&self) -> PyResult<String> {
        self.code.getattr(intern!(self.code.py(), "co_filename"))?.extract()
    }

    /// File name and line. Slow: the line table is decoded from its start.
    pub(crate) fn origin(&self) -> Origin {
        // SAFETY: `self.frame` is the frame object the interpreter handed out.
        let line = unsafe { ffi::PyFrame_GetLineNumber(self.frame.as_ptr().cast()) };
        Origin { file: file_of(&self.code), locus: Locus::Line(u32::try_from(line).unwrap_or(0)) }
    }
}

/// Origins by instruction, so that a loop pays for its lines once.
#[derive(Default)]
pub(crate) struct Lines {
    /// The code that called the kernel.
    caller: Option<usize>,
    /// Whether origins have the lines of all calls from the kernel's on.
    by_calls: bool,
    known: FxHashMap<(usize, c_long), OriginId>,
    /// Keeps the code objects alive whose addresses are keys.
    codes: FxHashMap<usize, Py<PyAny>>,
    origins: Origins,
}

impl Lines {
    /// Lines of a kernel that the code of `caller` calls. `by_calls`: origins have the lines of all calls from the
    /// kernel's on.
    pub(crate) fn of_kernel(caller: &Here<'_>, by_calls: bool) -> Self {
        Self { caller: Some(caller.key().0), by_calls, ..Self::default() }
    }

    /// The lines of all calls from the kernel's to an instruction.
    pub(crate) fn calls(&self, here: &Here<'_>) -> Origin {
        self.caller.map_or_else(|| here.origin(), |caller| here.calls(caller))
    }

    /// The origin of an instruction.
    pub(crate) fn origin(&mut self, here: &Here<'_>) -> OriginId {
        if self.by_calls {
            let origin = self.calls(here);
            return self.origins.intern(origin);
        }
        let key = here.key();
        if let Some(&id) = self.known.get(&key) {
            return id;
        }
        self.codes.entry(key.0).or_insert_with(|| here.code().unbind());
        let id = self.origins.intern(here.origin());
        self.known.insert(key, id);
        id
    }

    /// The origins met, by id.
    pub(crate) fn into_origins(self) -> Origins {
        self.origins
    }
}

/// The lines of an exception's frames that lie in the file of `code`, from the outermost on: `file:line -> file:line`
/// (of the deepest frame at all when there is none); empty without a traceback.
pub(crate) fn of_error(py: Python<'_>, error: &PyErr, code: Option<&Bound<'_, PyAny>>) -> String {
    let own = code.map(file_of);
    let (mut lines, mut deepest) = (Vec::new(), String::new());
    let mut next = error.traceback(py).map(Bound::into_any);
    while let Some(entry) = next.filter(|entry| !entry.is_none()) {
        let place = || -> PyResult<(Arc<str>, u32)> {
            let code = entry.getattr("tb_frame")?.getattr("f_code")?;
            Ok((file_of(&code), entry.getattr("tb_lineno")?.extract()?))
        };
        if let Ok((file, line)) = place() {
            deepest = format!("{file}:{line}");
            if own.as_ref() == Some(&file) {
                lines.push(deepest.clone());
            }
        }
        next = entry.getattr("tb_next").ok();
    }
    if lines.is_empty() { deepest } else { lines.join(" -> ") }
}

/// `file:line` of a code object's first line.
pub(crate) fn of_code(code: &Bound<'_, PyAny>) -> String {
    let line: u32 = code.getattr("co_firstlineno").and_then(|line| line.extract()).unwrap_or(0);
    format!("{}:{line}", file_of(code))
}

/// The base name of a code object's file: short, and the same wherever the project lies. A cell of a notebook is
/// `<cell>`, whatever name the notebook's kernel makes up at every execution.
fn file_of(code: &Bound<'_, PyAny>) -> Arc<str> {
    let path: String = code.getattr("co_filename").and_then(|name| name.extract()).unwrap_or_default();
    if path.contains("ipykernel_") || path.starts_with("<ipython-input-") {
        return "<cell>".into();
    }
    Path::new(&path).file_name().map_or_else(|| path.as_str().into(), |name| name.to_string_lossy().into())
}
