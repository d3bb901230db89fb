//! Files of other projects, read and converted; the plans that they become.

use crate::errors;
use crate::interrupt::interruptible;
use crate::logs::{self, Part};
use ahbm_check::{PlanCheck, as_blocks};
use ahbm_findings::Diagnostic;
use ahbm_formats::chakra::PlanOptions;
use ahbm_formats::{Document, Format, Reading, convert, packed, pytorch};
use ahbm_plan::blocks::Places;
use ahbm_plan::execution::ExecutionPlan;
use ahbm_plan::{Algorithm, BY_PROTOCOL, Budget, Limit, Plan};
use ahbm_program::Origin;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// An algorithm that was read from a file, or made in memory. Immutable; knows no machine.
#[pyclass(frozen, name = "Plan", module = "ahbm._core")]
pub struct PyDocument {
    pub(crate) inner: Document,
    pub(crate) budget: Budget,
    /// Messages its queues hold where nobody asks for others.
    pub(crate) slots: u32,
    /// Where the program stands that became it, if it is nobody's file.
    pub(crate) whole: Option<Origin>,
}

/// Reads a plan: MSCCL-IR (.xml), an MSCCL++ execution plan (.json) or a Chakra trace (PREFIX.<rank>.et).
///
/// `quirks` follows the defects of the runtime that a format belongs to instead of what was meant; `lenient` leaves out
/// dependencies of a trace on nodes that do not exist; `limits` are pairs of a name of `plan_limits()` and a number.
/// The interpreter lock is released meanwhile. Raises `FormatError` for a malformed file, `BudgetError`,
/// `UnsupportedError`.
#[pyfunction]
#[pyo3(signature = (path, *, quirks=false, lenient=false, limits=Vec::new()),
       text_signature = "(path, *, quirks=False, lenient=False, limits=())")]
pub(crate) fn read_plan(
    py: Python<'_>,
    path: PathBuf,
    quirks: bool,
    lenient: bool,
    limits: Vec<(String, u64)>,
) -> PyResult<PyDocument> {
    let budget = budget(&limits).map_err(|finding| errors::raise_one(py, finding))?;
    let reading = Reading { budget, quirks, lenient };
    logs::refresh(py, &[Part::Formats]);
    interruptible(py, || Document::read(&path, &reading)).map(|inner| PyDocument::new(inner, budget))
}

/// Reads `source` as `read_plan` does and writes it as what the name of `target` says: `.xml`, `.json` or `.et`.
///
/// The files of a trace are `PREFIX.<rank>.et`. `nbytes` is the size by which a trace states `comm_size` (of the
/// larger of operand and result, default about 1 MiB); `link_order` orders the sends of every link of a trace; `slots`
/// is how many messages the queues of an execution plan hold.
/// Returns the paths that were written; after an error none was. The interpreter lock is released meanwhile. Raises
/// as `read_plan`; `UnsupportedError` (AHBM-U292) for what the format of `target` cannot express.
#[pyfunction]
#[pyo3(signature = (source, target, *, nbytes=None, link_order=false, slots=0, quirks=false, limits=Vec::new()),
       text_signature = "(source, target, *, nbytes=None, link_order=False, slots=0, quirks=False, limits=())")]
#[allow(clippy::too_many_arguments)]
pub(crate) fn convert_plan(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    nbytes: Option<u64>,
    link_order: bool,
    slots: u32,
    quirks: bool,
    limits: Vec<(String, u64)>,
) -> PyResult<Vec<PathBuf>> {
    let budget = budget(&limits).map_err(|finding| errors::raise_one(py, finding))?;
    let reading = Reading { budget, quirks, lenient: false };
    let options = PlanOptions { bytes: nbytes, link_order };
    let check = PlanCheck { budget, slots, ..PlanCheck::default() };
    interruptible(py, || convert::convert(&source, &target, &reading, slots, &options, |it| as_blocks(it, &check)))
}

/// The files that make up the plan at `path`: those of all ranks for a trace, else itself.
///
/// Raises `FormatError` (AHBM-F139) for a trace without files, or with a rank missing.
#[pyfunction]
pub(crate) fn plan_files(py: Python<'_>, path: PathBuf) -> PyResult<Vec<PathBuf>> {
    Document::files(&path, &Budget::default()).map_err(|finding| errors::raise_one(py, finding))
}

/// The first `most` bytes of what a file holds: packed as gzip (RFC 1952), as Zstandard (RFC 8878, windows of at most
/// 100 MiB), or not packed. `cut`: `content` is the beginning of a file, and as much as it gives is returned.
///
/// Raises OSError where the stream is broken before that.
#[pyfunction]
#[pyo3(signature = (content, most, *, cut=false), text_signature = "(content, most, *, cut=False)")]
pub(crate) fn unpacked<'py>(py: Python<'py>, content: &[u8], most: u64, cut: bool) -> PyResult<Bound<'py, PyBytes>> {
    if cut {
        return Ok(PyBytes::new(py, &packed::beginning(content, most)));
    }
    let found = packed::unpacked(content, most).map_err(|error| {
        let name = packed::Packing::of(content).map_or("", packed::Packing::name);
        PyOSError::new_err(format!("broken {name} stream: {error}"))
    })?;
    Ok(PyBytes::new(py, &found))
}

/// Every format of plans: suffix of its files with the dot, name for people.
#[pyfunction]
pub(crate) fn plan_formats() -> Vec<(String, &'static str)> {
    Format::ALL.map(|format| (format!(".{}", format.suffix()), format.title())).to_vec()
}

/// Every limit of `read_plan` with its default.
#[pyfunction]
pub(crate) fn plan_limits() -> Vec<(&'static str, u64)> {
    let budget = Budget::default();
    Limit::ALL.into_iter().map(|limit| (limit.name(), budget.get(limit))).collect()
}

impl PyDocument {
    fn new(inner: Document, budget: Budget) -> Self {
        Self { inner, budget, slots: BY_PROTOCOL, whole: None }
    }

    /// A plan that no file holds yet. Its times are those of queues that hold every message.
    pub(crate) fn made(plan: Plan) -> Self {
        Self::raised(plan, Budget::default(), u32::MAX)
    }

    /// What a program of the MSCCL++ DSL became, treated as one that was read.
    pub(crate) fn program(plan: ExecutionPlan, budget: Budget) -> Self {
        Self::new(Document::mscclpp(plan), budget)
    }

    /// What a program of MSCCLang became, treated as one that was read. The first place of a program is its own.
    pub(crate) fn lowered(plan: Plan, budget: Budget) -> Self {
        let whole = match &plan.places {
            Places::Listed(places) => places.first().cloned(),
            _ => None,
        };
        Self { whole, ..Self::new(Document::msccl(plan), budget) }
    }

    /// The plan of a kernel, whose queues hold `slots` messages.
    pub(crate) fn raised(plan: Plan, budget: Budget, slots: u32) -> Self {
        Self { slots, ..Self::authored(plan, budget) }
    }

    /// A plan that an author wrote, treated as one that was read.
    pub(crate) fn authored(plan: Plan, budget: Budget) -> Self {
        Self::new(Document::made(plan), budget)
    }

    pub(crate) fn algorithm(&self) -> &Algorithm {
        &self.inner.algorithm
    }
}

pub(crate) fn budget(limits: &[(String, u64)]) -> Result<Budget, Diagnostic> {
    limits.iter().try_fold(Budget::default(), |budget, (name, value)| {
        let limit = Limit::ALL.into_iter().find(|limit| limit.name() == name).ok_or_else(|| {
            Diagnostic::new("AHBM-C211", format!("there is no limit {name:?}"))
                .hint(Limit::ALL.map(Limit::name).join(", "))
        })?;
        Ok(budget.with(limit, *value))
    })
}

/// Whether a path names traces that PyTorch wrote: the file of a rank, or a folder.
#[pyfunction]
#[pyo3(text_signature = "(path)")]
pub(crate) fn is_pytorch_trace(path: PathBuf) -> bool {
    pytorch::kind(&path).is_some()
}

/// The files of the job that a path names, where PyTorch wrote its traces: that of a rank and those of the others beside
/// it, or those in a folder.
///
/// Raises `FormatError` (AHBM-F139, F183, F185), `BudgetError` (AHBM-B206).
#[pyfunction]
#[pyo3(text_signature = "(path)")]
pub(crate) fn pytorch_traces(py: Python<'_>, path: PathBuf) -> PyResult<Vec<PathBuf>> {
    pytorch::files(&path, &pytorch::Options::default()).map_err(|finding| errors::raise_one(py, finding))
}
