//! What the calls of a communication library cost: protocols, channels, network interfaces.

use crate::errors;
use crate::given::{Given, Wanted, given, wanted};
use crate::machine::Machine;
use crate::program::Program;
use ahbm_findings::Diagnostic;
use pyo3::prelude::*;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZero;
use std::sync::Arc;

/// What the costs of a call depend on besides the machine, immutable and hashable: see `Machine.with_costs`.
#[pyclass(frozen, eq, module = "ahbm._core")]
#[derive(Clone, PartialEq)]
pub struct CallCosts {
    pub(crate) inner: ahbm_machine::CallCosts,
}

wanted! { Bound<'_, CallCosts>: "CallCosts" }

/// As the constructor takes them.
type Arguments = (Option<String>, u64, Option<u32>, Option<u64>, Option<u32>, bool, (u64, u64));

#[pymethods]
impl CallCosts {
    /// The costs of messages with a `protocol`, by its name, at `nbytes` bytes of one rank's array, 0 where they are not
    /// known. `channels`: instead of those that the bytes fill. `math_per_ns`: f16 elements that the math engine processes
    /// per nanosecond, None for the machine's. `interfaces`: those of a node that messages between nodes are spread over;
    /// None for a call inside a node. With `even`, no switch reduces what crosses them; `part` is the part of an
    /// interface's bandwidth that the call gets, as a fraction.
    #[new]
    #[pyo3(signature = (protocol=Given::ok(None), nbytes=Given::ok(0), channels=Given::ok(None),
                        math_per_ns=Given::ok(None), interfaces=Given::ok(None), even=Given::ok(false),
                        part=Given::ok((1, NonZero::<u64>::MIN))),
           text_signature = "(protocol=None, nbytes=0, channels=None, math_per_ns=None, interfaces=None, even=False, part=(1, 1))")]
    fn new(
        protocol: Given<Option<String>>,
        nbytes: Given<u64>,
        channels: Given<Option<u32>>,
        math_per_ns: Given<Option<u64>>,
        interfaces: Given<Option<u32>>,
        even: Given<bool>,
        part: Given<(u64, NonZero<u64>)>,
    ) -> PyResult<Self> {
        given!(protocol, nbytes, channels, math_per_ns, interfaces, even, part);
        let part = (part.0, part.1.get());
        let inner = ahbm_machine::CallCosts { protocol, nbytes, channels, math_per_ns, interfaces, even, part };
        Ok(Self { inner })
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.inner.hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, pyo3::types::PyType>, Arguments) {
        let ahbm_machine::CallCosts { protocol, nbytes, channels, math_per_ns, interfaces, even, part } =
            self.inner.clone();
        (py.get_type::<Self>(), (protocol, nbytes, channels, math_per_ns, interfaces, even, part))
    }
}

/// A protocol of a machine's library: which calls it is used for, and whether bandwidths depend on their size.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Protocol {
    name: String,
    inner: ahbm_machine::Protocol,
}

impl Protocol {
    pub(crate) fn of((name, inner): &(String, ahbm_machine::Protocol)) -> Self {
        Self { name: name.clone(), inner: inner.clone() }
    }
}

#[pymethods]
impl Protocol {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The algorithms that it is used with; empty for all.
    #[getter]
    fn algorithms(&self) -> Vec<String> {
        self.inner.algorithms.clone()
    }

    /// Messages a queue holds; None as the algorithm says.
    #[getter]
    fn slots(&self) -> Option<u32> {
        self.inner.slots
    }

    /// Most channels of a call; None: it has none.
    #[getter]
    fn channels(&self) -> Option<u32> {
        self.inner.channels.map(|all| all.most)
    }

    /// GB/s of the links, and of the network interfaces, that its bandwidths were measured with; None: they hold over all.
    #[getter]
    fn wires(&self) -> (Option<f64>, Option<f64>) {
        (self.inner.wire.map(|wire| wire.gbs()), self.inner.nic_wire.map(|wire| wire.gbs()))
    }

    /// Whether bandwidths depend on the size of a call.
    #[getter]
    fn by_size(&self) -> bool {
        self.inner.by_size()
    }

    /// Whether the library uses it for `nbytes` bytes of one rank's array among `ranks` ranks.
    fn is_for(&self, nbytes: Given<u64>, ranks: Given<u64>) -> PyResult<bool> {
        given!(nbytes, ranks);
        Ok(self.inner.is_for(nbytes, ranks))
    }
}

/// The programs of a job on `machine`, none where nothing runs: each with the costs of its call.
///
/// # Errors
/// `AHBM-V125` for programs of other machines.
pub(crate) fn with_costs<'a>(
    py: Python<'_>,
    machine: &Machine,
    programs: impl Iterator<Item = Option<&'a Program>>,
) -> PyResult<Vec<Option<Arc<ahbm_program::Program>>>> {
    let hash = machine.inner.hash();
    let mut other = None;
    let programs: Vec<_> = programs
        .map(|program| {
            let program = program?;
            if !Arc::ptr_eq(&program.machine, &machine.inner) && program.machine.hash() != hash {
                other.get_or_insert(&program.inner.name);
            }
            Some((&program.inner, program.machine.call()))
        })
        .collect();
    let made = match other {
        Some(name) => Err(Diagnostic::new("AHBM-V125", format!("{name} was made for another machine"))),
        None => ahbm_program::job::with_costs(programs.into_iter()),
    };
    made.map_err(|finding| errors::raise_one(py, finding))
}
