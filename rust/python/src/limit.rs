//! The bounds that no run can beat.

use crate::given::{Wanted, wanted};
use crate::interrupt::interruptible;
use crate::machine::Machine;
use crate::operand;
use ahbm_findings::Diagnostic;
use ahbm_machine::NetworkModel;
use ahbm_synthesis::{Collective, Network, Parts};
use pyo3::prelude::*;
use std::collections::BTreeSet;

/// The least time of one collective on one machine, as a function of the data. Immutable.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Limit {
    inner: ahbm_synthesis::Limit,
}

wanted! { Bound<'_, Limit>: "a Limit" }

#[pymethods]
impl Limit {
    /// Bounds `collective` among the first `ranks` SIPs of `machine` (0: all of them), or among those of `sips`, which
    /// are its ranks in order; with `cubes`, among the cubes of one SIP, all other SIPs taken together as one node more.
    /// `root` is the rank that is the root of rooted collectives, `dst` the receiver of send_recv, whose sender is `root`.
    /// The interpreter lock is released meanwhile.
    ///
    /// Raises `UnsupportedError` for networks without a bound (unlimited bandwidth, a single node), and
    /// ConfigError for an unknown collective.
    #[new]
    #[pyo3(signature = (machine, collective, *, ranks=0, root=0, dst=0, cubes=false, sips=Vec::new()),
           text_signature = "(machine, collective, *, ranks=0, root=0, dst=0, cubes=False, sips=())")]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    fn new(
        py: Python<'_>,
        machine: &Machine,
        collective: &str,
        ranks: u32,
        root: u32,
        dst: u32,
        cubes: bool,
        sips: Vec<u32>,
    ) -> PyResult<Self> {
        let work = || -> Result<Self, Diagnostic> {
            let machine = &machine.inner;
            let network = if cubes { Network::of_cubes(machine) } else { Network::of_sips(machine) };
            let count = if cubes { network.nodes() } else { machine.sfr().sips };
            let sips = match (sips.is_empty(), ranks) {
                (false, _) => sips,
                (true, 0) => (0..count).collect(),
                (true, ranks) => (0..ranks.min(count.saturating_add(1))).collect(),
            };
            let known: BTreeSet<u32> = sips.iter().copied().collect();
            if known.len() != sips.len()
                || known.last().is_none_or(|&last| last >= count)
                || root.max(dst) as usize >= sips.len()
            {
                let text = format!("ranks 0 to {} of {} on {count} nodes", root.max(dst), sips.len());
                return Err(Diagnostic::new("AHBM-T201", text));
            }
            let [root, dst] = [root, dst].map(|rank| sips[rank as usize]);
            let inner = match collective {
                "send_recv" => network.between(root, dst)?,
                // Everybody hears of everybody, without data.
                "barrier" => network.limit_among(&sips, Collective::AllReduce, root)?,
                _ => match Collective::parse(collective) {
                    Some(collective) => network.limit_among(&sips, collective, root)?,
                    None => {
                        let names = Collective::ALL.map(|c| c.0);
                        return Err(*operand::unknown("AHBM-C205", "collective", collective, &names));
                    }
                },
            };
            let contended = machine.costs().network != NetworkModel::Analytic;
            Ok(Self { inner: if contended { inner } else { inner.without_contention() } })
        };
        interruptible(py, || work().map_err(|finding| vec![finding]))
    }

    /// The bound of so many bytes that leave a SIP, or enter it: what `ps` is given.
    ///
    /// Raises `UnsupportedError` for networks without a bound, ConfigError (AHBM-T201) for a SIP that is not there.
    #[staticmethod]
    fn around(py: Python<'_>, machine: &Machine, sip: u32, enters: bool) -> PyResult<Self> {
        let work = || -> Result<Self, Diagnostic> {
            let machine = &machine.inner;
            if sip >= machine.sfr().sips {
                return Err(Diagnostic::new("AHBM-T201", format!("SIP {sip} of {}", machine.sfr().sips)));
            }
            let inner = Network::of_sips(machine).around(sip, enters)?;
            let contended = machine.costs().network != NetworkModel::Analytic;
            Ok(Self { inner: if contended { inner } else { inner.without_contention() } })
        };
        interruptible(py, || work().map_err(|finding| vec![finding]))
    }

    /// Least time in ps for `nbytes` per node: its own share of the result where every node has one, else the whole
    /// buffer.
    fn ps(&self, nbytes: u64) -> u64 {
        self.inner.ps(nbytes)
    }

    /// The two terms of `ps` in ps, which is the larger of them: that of the longest way, and that of the tight cut, 0
    /// where links carry any number of messages at once.
    fn terms(&self, nbytes: u64) -> (u64, u64) {
        self.inner.terms(nbytes)
    }

    /// True when the tight cut, not the longest way, is what limits `nbytes` per node.
    fn by_bandwidth(&self, nbytes: u64) -> bool {
        self.inner.by_bandwidth(nbytes)
    }

    /// True when no cut is tighter and no way longer. False where the search for them ended before it had seen all, and
    /// where it looks at some only: among a part of the nodes, and, on networks without a regular shape, for all_to_all
    /// and for all_reduce over links that differ by direction, where no routing is known to match what it found.
    #[getter]
    fn tightest(&self) -> bool {
        self.inner.is_tightest()
    }

    /// The tight cut: the number of its parts; the nodes of the part where it is one against all others, as ranges
    /// (first, after the last); the bandwidth across it in GB/s, the number of links across it, and how many shares have
    /// to cross it.
    #[getter]
    fn cut(&self) -> (usize, Vec<(u32, u32)>, f64, u32, u64) {
        let cut = self.inner.cut();
        let side = match &cut.parts {
            Parts::Side(ranges) => ranges.iter().map(|nodes| (nodes.start, nodes.end)).collect(),
            Parts::Each(_) | Parts::Blocks(_) => Vec::new(),
        };
        (cut.parts.count(), side, self.inner.cut_gbs(), cut.links, cut.demand)
    }
}

impl Limit {
    /// The part of each node in the tight cut.
    pub(crate) fn parts(&self) -> Vec<u32> {
        let parts = &self.inner.cut().parts;
        let mut found = Vec::new();
        for (part, nodes) in (1..).zip(parts.lists()) {
            for node in nodes {
                if found.len() <= node as usize {
                    found.resize(node as usize + 1, 0);
                }
                found[node as usize] = part;
            }
        }
        found
    }
}
