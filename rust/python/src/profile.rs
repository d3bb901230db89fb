//! What an accelerator did: in a trace of PyTorch's profiler, and in a job.

use crate::errors;
use crate::formats::budget;
use crate::given::{Given, given, within};
use crate::interrupt::interruptible;
use crate::workload::Workload;
use ahbm_formats::pytorch;
use ahbm_workload::Work;
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use std::path::PathBuf;

/// What one accelerator did in a trace of PyTorch's profiler, operation by operation.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Profile {
    inner: pytorch::Profile,
}

/// A table of whole numbers.
type Rows<'py> = Bound<'py, PyArray2<i64>>;

#[pymethods]
impl Profile {
    /// The accelerator's name, units and bytes of memory; None for what the trace does not say.
    #[getter]
    fn device(&self) -> (Option<&str>, Option<u64>, Option<u64>) {
        (self.inner.device.as_deref(), self.inner.units, self.inner.memory)
    }

    /// Whether it recorded stacks of Python, which slow the host down.
    #[getter]
    fn stacks(&self) -> bool {
        self.inner.stacks
    }

    /// Names of operations, each with what it states of its operands, as a JSON object: "Input Dims", "Input type", "Input
    /// Strides", "Concrete Inputs".
    #[getter]
    fn signatures(&self) -> Vec<(&str, &str)> {
        self.inner.signatures.iter().map(|(name, stated)| (&**name, &**stated)).collect()
    }

    /// Names of kernels.
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.inner.names.iter().map(AsRef::as_ref).collect()
    }

    /// Per operation of the host, in the order of threads and starts: the place of its signature, the row of the operation
    /// that it is part of (-1: none), its thread, its start and its duration in ps.
    #[getter]
    fn operations<'py>(&self, py: Python<'py>) -> PyResult<Rows<'py>> {
        let row = |op: &pytorch::Operation| {
            let parent = op.parent.map_or(-1, i64::from);
            [op.signature.into(), parent, op.thread.into(), whole(op.start), whole(op.ps)]
        };
        rows(py, self.inner.operations.iter().map(row))
    }

    /// Per kernel, copy and fill of the device, in the order of starts: the row of the innermost operation that launched it
    /// (-1: none), the place of its name, its stream, its start and its duration in ps, and the bytes that it states.
    #[getter]
    fn kernels<'py>(&self, py: Python<'py>) -> PyResult<Rows<'py>> {
        let row = |kernel: &pytorch::Launched| {
            let operation = kernel.operation.map_or(-1, i64::from);
            let (start, ps, bytes) = (whole(kernel.start), whole(kernel.ps), whole(kernel.bytes));
            [operation, kernel.name.into(), kernel.stream.into(), start, ps, bytes]
        };
        rows(py, self.inner.kernels.iter().map(row))
    }
}

fn whole(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn rows<const N: usize>(py: Python<'_>, rows: impl Iterator<Item = [i64; N]>) -> PyResult<Rows<'_>> {
    let all: Vec<i64> = rows.flatten().collect();
    let shape = [all.len() / N, N];
    PyArray1::from_vec(py, all).reshape(shape)
}

/// Reads what one accelerator did from a trace of PyTorch's profiler, plain or gzip.
///
/// Raises `FormatError`: AHBM-F183 for no such trace, F184 for kernels of several devices, F132, F139; `BudgetError`
/// (AHBM-B201 to B208).
#[pyfunction]
#[pyo3(signature = (path, *, limits=Vec::new()), text_signature = "(path, *, limits=())")]
pub(crate) fn read_profile(py: Python<'_>, path: PathBuf, limits: Vec<(String, u64)>) -> PyResult<Profile> {
    let budget = budget(&limits).map_err(|finding| errors::raise_one(py, finding))?;
    let inner = interruptible(py, || pytorch::profile(&path, budget).map_err(|finding| vec![finding]))?;
    Ok(Profile { inner })
}

/// Name, stated duration in ps, and what `Machine.kernels_ps` takes.
type Computation = (String, u64, (&'static str, Vec<u32>, u64, u64, &'static str, bool));

/// The computations of the device of a rank that say what they do or how long they take, in the order of the trace: name,
/// stated duration in ps (0: none), and what `Machine.kernels_ps` takes of each.
///
/// Raises `ConfigError` (AHBM-C129) for a rank that is not there.
#[pyfunction]
#[pyo3(text_signature = "(workload, rank)")]
pub(crate) fn kernels_of(workload: &Workload, rank: Given<usize>) -> PyResult<Vec<Computation>> {
    given!(rank);
    let workload = &workload.inner.workload;
    within("rank", rank, workload.ranks.len())?;
    let graph = workload.graph(rank as u32);
    let row = |(at, node): (u32, &ahbm_workload::Node)| match node.work {
        Work::Compute(kernel) if !node.cpu && (node.ps > 0 || !kernel.is_empty()) => {
            let (kind, dims) = (kernel.kind.name(), kernel.dims.to_vec());
            let of = (kind, dims, kernel.operations, kernel.bytes, kernel.arithmetic.name(), kernel.host);
            Some((graph.name(at).to_owned(), node.ps, of))
        }
        _ => None,
    };
    Ok((0..).zip(graph.nodes()).filter_map(row).collect())
}
