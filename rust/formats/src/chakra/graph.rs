//! One rank's nodes as a graph: dependencies resolved, duplicates, dangling ends and cycles found.

use ahbm_findings::Diagnostic;
use ahbm_wire::chakra::{Metadata, Node, NodeKind};
use ahbm_workload::{Edges, circular, dangling};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The trace of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// Position in the trace's file numbering.
    pub rank: u32,
    /// File name for origins.
    pub file: Arc<str>,
    /// The metadata that stands before the nodes.
    pub metadata: Metadata,
    /// Nodes in file order.
    pub nodes: Vec<Node>,
    /// Dependencies on ids that no node has, left out (lenient reading only).
    pub dangling: usize,
    /// Nodes that wait for each other (lenient reading only): such a graph can be counted but not run.
    pub cycle: Option<Diagnostic>,
    edges: Edges,
    /// Node positions, dependencies first, smallest id first among the ready ones; empty with a cycle.
    order: Vec<u32>,
}

impl Graph {
    /// Resolves the dependencies of `nodes`, whose ids are distinct.
    ///
    /// # Errors
    /// `AHBM-F134` a dependency on an id no node has, `AHBM-F135` a cycle; neither when `lenient`.
    pub(super) fn new(
        rank: u32,
        file: Arc<str>,
        metadata: Metadata,
        nodes: Vec<Node>,
        lenient: bool,
    ) -> Result<Self, Vec<Diagnostic>> {
        // Most ids are positions.
        let plain = nodes.iter().zip(0..).all(|(node, at): (_, u64)| node.id == at);
        let index: FxHashMap<u64, u32> = match plain {
            true => FxHashMap::default(),
            false => nodes.iter().enumerate().map(|(at, n)| (n.id, at as u32)).collect(),
        };
        let count = nodes.len() as u64;
        let position = |id: u64| match plain {
            true => (id < count).then_some(id as u32),
            false => index.get(&id).copied(),
        };
        let mut graph =
            Self { rank, file, metadata, nodes, dangling: 0, cycle: None, edges: Edges::default(), order: Vec::new() };
        let mut missing = Vec::new();
        for node in &graph.nodes {
            graph.edges.push(node.deps().filter_map(|dep| {
                let at = position(dep);
                if at.is_none() {
                    missing.push((node.id, dep));
                }
                at
            }));
        }
        graph.dangling = missing.len();
        if !lenient && let Some(finding) = dangling(rank, &graph.file, &missing) {
            return Err(vec![finding]);
        }
        match graph.edges.sorted(&graph.users(), |at| graph.nodes[at as usize].id) {
            Ok(order) => graph.order = order,
            Err(circle) => {
                let named = |&at: &u32| {
                    let node = &graph.nodes[at as usize];
                    (node.id, format!("{} {}", node.kind.name(), node.name))
                };
                let finding = circular(rank, &graph.file, &circle.iter().map(named).collect::<Vec<_>>());
                if !lenient {
                    return Err(vec![finding]);
                }
                graph.cycle = Some(finding);
            }
        }
        Ok(graph)
    }

    /// The nodes that wait for each node.
    pub(super) fn users(&self) -> Edges {
        self.edges.turned()
    }

    /// Positions of the nodes that node `at` waits for, ascending and distinct.
    pub fn deps(&self, at: u32) -> &[u32] {
        self.edges.of(at)
    }

    /// Node positions in an order that respects every dependency; empty with a cycle.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// How long a computation takes: `duration_ns` where the trace has it, else whole microseconds.
    pub(super) fn duration_ps(&self, at: u32) -> Result<u64, Diagnostic> {
        let node = &self.nodes[at as usize];
        let ns = node.number("duration_ns").map_err(|other| wrong(self, at, "duration_ns", &other))?;
        let ps = match ns {
            Some(ns) => (ns * 1000.0).round(),
            None => node.duration_micros as f64 * 1e6,
        };
        // Eleven days: far below the end of simulated time.
        if !(0.0..1e18).contains(&ps) {
            return Err(wrong(self, at, "duration", &format!("is {ps} ps")));
        }
        Ok(ps as u64)
    }

    /// Whether a node is work of its rank alone that takes a known time: computation, and memory of traces that were
    /// measured.
    pub(super) fn is_local(node: &Node) -> bool {
        let timed = node.duration_micros > 0 || node.real("duration_ns").is_some();
        node.kind == NodeKind::Comp || (matches!(node.kind, NodeKind::MemLoad | NodeKind::MemStore) && timed)
    }

    /// `file node id`.
    pub fn origin(&self, at: u32) -> String {
        format!("{} node {}", self.file, self.nodes[at as usize].id)
    }

    /// A node in words with its origin, for one side of a finding.
    pub(super) fn site(&self, at: u32) -> (String, String) {
        let node = &self.nodes[at as usize];
        (format!("rank {}: {} {}", self.rank, node.kind.name(), node.name), self.origin(at))
    }

    /// Number of nodes of a kind.
    pub fn count(&self, kind: NodeKind) -> usize {
        self.nodes.iter().filter(|n| n.kind == kind).count()
    }
}

/// An attribute of a node that says something impossible.
pub(super) fn wrong(graph: &Graph, at: u32, name: &str, how: &str) -> Diagnostic {
    let (label, origin) = graph.site(at);
    Diagnostic::new("AHBM-F136", format!("attribute {name} {how}")).site(label, origin)
}
