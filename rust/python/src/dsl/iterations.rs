//! Where a statement stands, and in which iteration of the loops around it.

use crate::origin::Here;
use ahbm_program::{Locus, Origin};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};
use rustc_hash::FxHashMap;
use std::ffi::c_long;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest value that is told, characters.
const LONGEST: usize = 16;
/// Calls that are followed back to a loop.
const CALLS: usize = 4;
/// Statements of a program that are told with their iterations. Later ones have their lines, so that the places of
/// a program take a bounded part of its memory.
const MOST: usize = 1 << 18;

/// The loops around an instruction.
enum Around {
    /// Their variables, outermost first.
    Variables(Vec<Py<PyString>>),
    /// None in its function; there may be some around the call.
    Call,
    /// None at all.
    Nothing,
}

/// An instruction of an author.
struct Site {
    line: Origin,
    folder: PathBuf,
    around: Around,
    /// Keeps the address alive that is a part of the key.
    _code: Py<PyAny>,
}

/// The instructions that made statements of a program.
#[derive(Default)]
pub(super) struct Sites {
    known: Mutex<FxHashMap<(usize, c_long), Arc<Site>>>,
    told: AtomicUsize,
}

impl Sites {
    /// The line of a statement, with the values of the variables of the loops around it. Where its function has no loop
    /// around it, the loops around the call count, if that stands in the same folder.
    ///
    /// Runs Python: no lock may be held that another thread takes with the interpreter's.
    pub(super) fn origin(&self, here: &Here<'_>) -> PyResult<Origin> {
        let site = self.site(here, None)?;
        let plain = || Ok(site.line.clone());
        let Locus::Line(line) = site.line.locus else { return plain() };
        if matches!(site.around, Around::Nothing) || self.told.load(Ordering::Relaxed) >= MOST {
            return plain();
        }
        let (mut of, mut caller) = (Arc::clone(&site), None);
        for _ in 0..CALLS {
            let at = caller.as_ref().unwrap_or(here);
            match &of.around {
                Around::Nothing => break,
                Around::Call => {
                    let Some(back) = at.back()? else { break };
                    of = self.site(&back, Some(&site.folder))?;
                    caller = Some(back);
                }
                Around::Variables(names) => {
                    let values = values(&at.locals()?, names)?;
                    if values.is_empty() {
                        break;
                    }
                    self.told.fetch_add(1, Ordering::Relaxed);
                    let locus = Locus::Iteration(line, values.into());
                    return Ok(Origin { file: Arc::clone(&site.line.file), locus });
                }
            }
        }
        plain()
    }

    /// The instruction; outside of `folder` nothing is said of its loops.
    fn site(&self, here: &Here<'_>, folder: Option<&Path>) -> PyResult<Arc<Site>> {
        if let Some(known) = self.lock().get(&here.key()) {
            return Ok(Arc::clone(known));
        }
        let path = here.path()?;
        let own = Path::new(&path).parent().map(Path::to_owned).unwrap_or_default();
        let line = here.origin();
        let around = match line.locus {
            Locus::Line(number) if folder.is_none_or(|folder| folder == own) => around(here, &path, number)?,
            _ => Around::Nothing,
        };
        let site = Arc::new(Site { line, folder: own, around, _code: here.code().unbind() });
        self.lock().insert(here.key(), Arc::clone(&site));
        Ok(site)
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<(usize, c_long), Arc<Site>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn around(here: &Here<'_>, path: &str, line: u32) -> PyResult<Around> {
    let py = here.code().py();
    let loops = py.import("ahbm.dsl.loops")?.getattr("loops")?.call1((path,))?.cast_into::<PyDict>()?;
    if let Some(names) = loops.get_item(line)? {
        return Ok(Around::Variables(names.extract()?));
    }
    let module = here.code().getattr(intern!(py, "co_name"))?.eq(intern!(py, "<module>"))?;
    Ok(if module { Around::Nothing } else { Around::Call })
}

/// `rank=3, peer=5`, without variables that have no value yet, or neither a small integer nor a short string.
fn values(locals: &Bound<'_, PyAny>, names: &[Py<PyString>]) -> PyResult<String> {
    let py = locals.py();
    let mut text = String::new();
    for name in names {
        let name = name.bind(py);
        let found = match locals.cast_exact::<PyDict>() {
            Ok(locals) => locals.get_item(name)?,
            Err(_) => locals.get_item(name).ok(),
        };
        let Some(value) = found else { continue };
        let before = text.len();
        let _ = write!(text, "{}{}=", if before > 0 { ", " } else { "" }, name.to_str()?);
        let start = text.len();
        if let Ok(value) = value.cast_exact::<PyInt>() {
            if let Ok(value) = value.extract::<i64>() {
                let _ = write!(text, "{value}");
            }
        } else if let Ok(value) = value.cast_exact::<PyString>()
            && value.len()? <= LONGEST
        {
            text.push_str(value.repr()?.to_str()?);
        }
        if !(1..=LONGEST).contains(&text[start..].chars().count()) {
            text.truncate(before);
        }
    }
    Ok(text)
}
