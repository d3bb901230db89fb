//! The crates' log records reach `logging.getLogger("ahbm")`: the target `ahbm::engine` is the logger `ahbm.engine`.
//!
//! While `logging` has not been imported, nobody can have asked for records: it is not imported for them, and nothing is
//! logged. Afterwards Python's levels are looked at where a phase begins, with the interpreter lock held, so that a
//! disabled level costs the crates one load of an atomic.

use log::LevelFilter;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3_log::{Caching, Logger, ResetHandle};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A part of the core that logs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Engine,
    Data,
    Capture,
    Check,
    Synthesis,
    Formats,
}

/// Their loggers, in the order of [`Part`].
const NAMES: [&str; 6] = ["ahbm.engine", "ahbm.data", "ahbm.capture", "ahbm.check", "ahbm.synthesis", "ahbm.formats"];

/// The levels that each part's logger lets pass, as last seen.
static LEVELS: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

struct Installed {
    /// `getEffectiveLevel` of each logger.
    levels: [Py<PyAny>; NAMES.len()],
    caches: ResetHandle,
}

static INSTALLED: PyOnceLock<Option<Installed>> = PyOnceLock::new();

/// Follows changes of the levels of some parts. An error of `logging` means that nothing is logged.
pub(crate) fn refresh(py: Python<'_>, parts: &[Part]) {
    let installed = match INSTALLED.get(py) {
        Some(installed) => installed,
        None if !is_imported(py).unwrap_or(false) => return,
        None => INSTALLED.get_or_init(py, || install(py).ok()),
    };
    let Some(installed) = installed else { return };
    let mut changed = false;
    for &part in parts {
        let level = filter(py, &installed.levels[part as usize]).unwrap_or(LevelFilter::Off);
        changed |= LEVELS[part as usize].swap(level as usize, Ordering::Relaxed) != level as usize;
    }
    if changed {
        installed.caches.reset();
        let loudest = LEVELS.iter().map(|level| level.load(Ordering::Relaxed)).max().unwrap_or(0);
        let known = |level: &LevelFilter| *level as usize == loudest;
        log::set_max_level(LevelFilter::iter().find(known).unwrap_or(LevelFilter::Off));
    }
}

fn is_imported(py: Python<'_>) -> PyResult<bool> {
    py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?.contains(intern!(py, "logging"))
}

fn install(py: Python<'_>) -> PyResult<Installed> {
    let logging = py.import("logging")?;
    let of = |name| Ok(logging.call_method1("getLogger", (name,))?.getattr("getEffectiveLevel")?.unbind());
    let levels: Vec<Py<PyAny>> = NAMES.into_iter().map(of).collect::<PyResult<_>>()?;
    let levels = levels.try_into().expect("as many methods as names");
    let logger = Logger::new(py, Caching::LoggersAndLevels)?;
    let caches = logger.reset_handle();
    logger.install().map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    log::set_max_level(LevelFilter::Off);
    Ok(Installed { levels, caches })
}

/// The levels that a logger of an effective level lets pass.
fn filter(py: Python<'_>, level: &Py<PyAny>) -> PyResult<LevelFilter> {
    Ok(match level.call0(py)?.extract::<i64>(py)? {
        ..=10 => LevelFilter::Debug,
        11..=20 => LevelFilter::Info,
        21..=30 => LevelFilter::Warn,
        _ => LevelFilter::Error,
    })
}
