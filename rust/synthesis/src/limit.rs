//! The bounds that no run can beat, whatever its algorithm: those of [`mod@crate::bound`] for any amount of data.

use crate::bound::{Bound, Cut, bound, bound_among, bound_around, bound_between};
use crate::graph::Regular;
use crate::{Collective, Graph, Link};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Machine, Ps, SipNetwork};

/// A network whose collectives are bounded. Its list of links is made where no closed form does without it.
#[derive(Debug, Clone)]
pub struct Network<'a> {
    machine: &'a Machine,
    regular: Option<Regular>,
    graph: fn(&Machine) -> Result<Graph, Diagnostic>,
    nodes: u32,
}

impl<'a> Network<'a> {
    /// The SIPs of a machine.
    pub fn of_sips(machine: &'a Machine) -> Self {
        Self { machine, regular: Regular::of(machine), graph: Graph::of, nodes: machine.sfr().sips }
    }

    /// The cubes of one of its SIPs: see [`cubes_of_a_sip`].
    pub fn of_cubes(machine: &'a Machine) -> Self {
        let nodes = machine.sfr().cubes() + u32::from(machine.sfr().sips > 1);
        Self { machine, regular: None, graph: cubes_of_a_sip, nodes }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The bound of a collective among `members`, the others relaying, with the given root where it has one: nodes, each
    /// once.
    ///
    /// # Errors
    /// Those of [`Graph::of`] and [`cubes_of_a_sip`].
    pub fn limit_among(&self, members: &[u32], collective: Collective, root: u32) -> Result<Limit, Diagnostic> {
        let ranks = members.len() as u32;
        let alike = matches!(self.machine.sfr().network, SipNetwork::Switch | SipNetwork::FullyConnected);
        // Any of them are like the first, where no link differs.
        let place = members.iter().position(|&member| member == root).unwrap_or(0) as u32;
        if members.iter().copied().eq(0..ranks) || alike && self.regular.is_some() {
            return self.limit(ranks, collective, place);
        }
        Ok(Limit::among(&(self.graph)(self.machine)?, members, collective, root))
    }

    /// The same among the first `ranks` nodes.
    ///
    /// # Errors
    /// Those of [`Graph::of`] and [`cubes_of_a_sip`].
    pub fn limit(&self, ranks: u32, collective: Collective, root: u32) -> Result<Limit, Diagnostic> {
        if let Some(shape) = &self.regular
            && let Some(bound) = shape.bound(ranks, collective, 0, root)
        {
            return Ok(Limit { bound, unit_gbs: shape.unit_gbs(), contended: true });
        }
        Ok(Limit::of(&(self.graph)(self.machine)?, ranks, collective, root))
    }

    /// The bound of so many bytes that leave a node, or enter it, wherever they go to or come from.
    ///
    /// # Errors
    /// Those of [`Graph::of`] and [`cubes_of_a_sip`].
    pub fn around(&self, node: u32, enters: bool) -> Result<Limit, Diagnostic> {
        if matches!(self.machine.sfr().network, SipNetwork::Switch) {
            // Its one link carries whatever goes to, or comes from, any of the others.
            let other = u32::from(node == 0);
            return if enters { self.between(other, node) } else { self.between(node, other) };
        }
        let graph = (self.graph)(self.machine)?;
        Ok(Limit { bound: bound_around(&graph, node, enters), unit_gbs: graph.unit_gbs(), contended: true })
    }

    /// The bound of a message from one node to another.
    ///
    /// # Errors
    /// Those of [`Graph::of`] and [`cubes_of_a_sip`].
    pub fn between(&self, from: u32, to: u32) -> Result<Limit, Diagnostic> {
        if let Some(shape) = &self.regular
            && let Some(bound) = shape.between(from, to)
        {
            return Ok(Limit { bound, unit_gbs: shape.unit_gbs(), contended: true });
        }
        Ok(Limit::between(&(self.graph)(self.machine)?, from, to))
    }
}

/// The least time of one collective on one network, as a function of the data.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    bound: Bound,
    unit_gbs: f64,
    contended: bool,
}

impl Limit {
    /// A collective among the first `ranks` nodes, the others relaying, with the given root where it has one.
    pub fn of(graph: &Graph, ranks: u32, collective: Collective, root: u32) -> Self {
        if ranks < graph.nodes() {
            return Self::among(graph, &(0..ranks).collect::<Vec<_>>(), collective, root);
        }
        Self { bound: bound(graph, collective, 0, root), unit_gbs: graph.unit_gbs(), contended: true }
    }

    /// A collective among some of the nodes, the others relaying.
    pub fn among(graph: &Graph, members: &[u32], collective: Collective, root: u32) -> Self {
        let bound = bound_among(graph, members, collective, 0, root);
        Self { bound, unit_gbs: graph.unit_gbs(), contended: true }
    }

    /// A message from one node to another.
    pub fn between(graph: &Graph, from: u32, to: u32) -> Self {
        Self { bound: bound_between(graph, from, to), unit_gbs: graph.unit_gbs(), contended: true }
    }

    /// The same where links carry any number of messages at once (the `analytic` network model): only distance counts.
    #[must_use]
    pub fn without_contention(self) -> Self {
        Self { contended: false, ..self }
    }

    /// Least time for `bytes` per node (its own share of the result where every node has one).
    pub fn ps(&self, bytes: u64) -> Ps {
        let (latency, bandwidth) = self.terms(bytes);
        latency.max(bandwidth)
    }

    /// The time of the longest way, and that of the tight cut: 0 without data, and without contention.
    pub fn terms(&self, bytes: u64) -> (Ps, Ps) {
        let crosses = bytes > 0 && self.contended;
        let fluid = || self.bound.bandwidth_ps + self.bound.cut.fluid_ps(bytes, self.unit_gbs);
        (self.bound.latency_ps, if crosses { fluid() } else { 0 })
    }

    /// True when the cut, not the distance, is what limits `bytes` per node.
    pub fn by_bandwidth(&self, bytes: u64) -> bool {
        self.ps(bytes) > self.bound.latency_ps
    }

    /// No cut is tighter and no way longer: see [`Bound::tightest`].
    pub fn is_tightest(&self) -> bool {
        self.bound.tightest
    }

    /// The tight cut.
    pub fn cut(&self) -> &Cut {
        &self.bound.cut
    }

    /// Bandwidth across the tight cut in GB/s.
    pub fn cut_gbs(&self) -> f64 {
        self.bound.cut.capacity as f64 * self.unit_gbs
    }
}

/// The cubes of one SIP by number; with more SIPs, all else contracted into one node more, behind the I/O chiplet.
///
/// # Errors
/// `AHBM-U402` a single cube alone, `AHBM-U403` links of unlimited bandwidth.
pub fn cubes_of_a_sip(machine: &Machine) -> Result<Graph, Diagnostic> {
    let (cubes, alone) = (machine.sfr().cubes(), machine.sfr().sips == 1);
    let ports = machine.cube_ports().filter(|p| !alone || (p.from < cubes && p.to < cubes));
    let links = ports.map(|p| Link { from: p.from, to: p.to, rate: p.rate, latency_ps: p.latency_ps }).collect();
    let graph = Graph::new(cubes + u32::from(!alone), links)?;
    Ok(if alone { graph.known_as_mesh(&[machine.sfr().cube_w, machine.sfr().cube_h]) } else { graph })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::grid;

    #[test]
    fn a_limit_is_its_bound() {
        let graph = grid(&[4, 4], false);
        for (_, collective) in Collective::ALL {
            let limit = Limit::of(&graph, 16, collective, 5);
            for bytes in [1u64, 1 << 10, 1 << 20, 1 << 30] {
                assert_eq!(limit.ps(bytes), bound(&graph, collective, bytes, 5).ps, "{collective:?} {bytes}");
            }
            assert_eq!(limit.ps(0), limit.ps(1).min(limit.ps(0)));
        }
    }

    #[test]
    fn a_message_leaves_its_corner_over_two_links() {
        let limit = Limit::between(&grid(&[4, 4], false), 0, 15);
        assert_eq!(limit.ps(0), 6 * 500_000);
        // 1 GB at 100 GB/s and one latency.
        assert_eq!(limit.ps(1_000_000_000), 10_000_000_000 + 500_000);
        assert_eq!((limit.cut().links, limit.cut_gbs()), (2, 100.0));
    }

    #[test]
    fn a_switch_that_reduces_takes_everything_once() {
        let limit = |reduces: bool, ranks: u32, collective| {
            let sips = format!("{{count: 8, topology: switch, switch: {{reduces: {reduces}}}}}");
            let machine = Machine::from_yaml(&format!("system: {{sips: {sips}}}"), "switch", &[]).unwrap();
            Limit::of(&Graph::of(&machine).unwrap(), ranks, collective, 0)
        };
        let share = |limit: &Limit| limit.cut().demand as f64 * 128.0 / limit.cut_gbs();
        assert_eq!(share(&limit(false, 8, Collective::AllReduce)), 14.0 / 8.0);
        assert_eq!(share(&limit(true, 8, Collective::AllReduce)), 1.0);
        assert_eq!(limit(true, 8, Collective::AllReduce).ps(0), limit(false, 8, Collective::AllReduce).ps(0));
        for (_, collective) in Collective::ALL.into_iter().filter(|(_, c)| *c != Collective::AllReduce) {
            assert_eq!(limit(true, 8, collective), limit(false, 8, collective), "{collective:?}");
        }
        for (_, collective) in Collective::ALL {
            assert_eq!(limit(true, 5, collective), limit(false, 5, collective), "{collective:?}");
        }
    }

    #[test]
    fn cubes_and_what_is_outside() {
        let machine = Machine::from_yaml("", "default", &[]).unwrap();
        let graph = cubes_of_a_sip(&machine).unwrap();
        assert_eq!((graph.nodes(), graph.links().len()), (17, 2 * 24 + 32));
        let one = [("system.sips.count".to_string(), "1".to_string())];
        let machine = Machine::from_yaml("", "one", &one).unwrap();
        let graph = cubes_of_a_sip(&machine).unwrap();
        assert_eq!((graph.nodes(), graph.links().len()), (16, 2 * 24));
    }
}
