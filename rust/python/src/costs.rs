//! What the calls of a communication library cost: protocols, channels, network interfaces.

use crate::given::{Given, given};
use ahbm_machine::CallCosts;
use pyo3::prelude::*;
use std::num::NonZero;

/// [`CallCosts`] as Python has them, field by field.
pub(crate) type CostsRow = (Option<String>, u64, Option<u32>, Option<u64>, Option<u32>, bool, (u64, NonZero<u64>));

pub(crate) fn costs((protocol, nbytes, channels, math_per_ns, interfaces, even, part): CostsRow) -> CallCosts {
    CallCosts { protocol, nbytes, channels, math_per_ns, interfaces, even, part: (part.0, part.1.get()) }
}

/// A protocol of a machine's library: which calls it is used for, and whether bandwidths depend on their size.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Protocol {
    /// Its name.
    #[pyo3(get)]
    name: String,
    /// The algorithms that it is used with; empty for all.
    #[pyo3(get)]
    algorithms: Vec<String>,
    /// Messages a queue holds; None as the algorithm says.
    #[pyo3(get)]
    slots: Option<u32>,
    /// Most channels of a call; None: it has none.
    #[pyo3(get)]
    channels: Option<u32>,
    /// GB/s of the links, and of the network interfaces, that its bandwidths were measured with; None: they hold over all.
    #[pyo3(get)]
    wires: (Option<f64>, Option<f64>),
    /// Whether bandwidths depend on the size of a call.
    #[pyo3(get)]
    by_size: bool,
    of: ahbm_machine::Protocol,
}

impl Protocol {
    pub(crate) fn new((name, of): &(String, ahbm_machine::Protocol)) -> Self {
        Self {
            name: name.clone(),
            algorithms: of.algorithms.clone(),
            slots: of.slots,
            channels: of.channels.map(|all| all.most),
            wires: (of.wire.map(|wire| wire.gbs()), of.nic_wire.map(|wire| wire.gbs())),
            by_size: of.by_size(),
            of: of.clone(),
        }
    }
}

#[pymethods]
impl Protocol {
    /// Whether the library uses it for `nbytes` bytes of one rank's array among `ranks` ranks.
    fn is_for(&self, nbytes: Given<u64>, ranks: Given<u64>) -> PyResult<bool> {
        given!(nbytes, ranks);
        Ok(self.of.is_for(nbytes, ranks))
    }
}
