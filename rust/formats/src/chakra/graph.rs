//! One rank's nodes as a graph: dependencies resolved, duplicates, dangling ends and cycles found.

use super::pairs::wrong;
use ahbm_machine::Diagnostic;
use ahbm_wire::chakra::{Metadata, Node, NodeKind};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
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
    /// Positions of every node's dependencies, node by node.
    edges: Vec<u32>,
    /// Start of each node's entries in `edges`, and the end.
    starts: Vec<u32>,
    /// Node positions, dependencies first, smallest id first among the ready ones; empty with a cycle.
    order: Vec<u32>,
}

/// How many node ids a message lists before it says `…`.
const LISTED: usize = 8;

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
        let index: FxHashMap<u64, u32> = nodes.iter().enumerate().map(|(at, n)| (n.id, at as u32)).collect();
        let mut graph = Self {
            rank,
            file,
            metadata,
            nodes,
            dangling: 0,
            cycle: None,
            edges: Vec::new(),
            starts: vec![0],
            order: Vec::new(),
        };
        let mut missing = Vec::new();
        for node in &graph.nodes {
            let start = graph.edges.len();
            for dep in node.deps() {
                match index.get(&dep) {
                    Some(&at) => graph.edges.push(at),
                    None => missing.push((node.id, dep)),
                }
            }
            let own = &mut graph.edges[start..];
            own.sort_unstable();
            let mut kept = start;
            for at in start..graph.edges.len() {
                if at == start || graph.edges[at] != graph.edges[kept - 1] {
                    graph.edges[kept] = graph.edges[at];
                    kept += 1;
                }
            }
            graph.edges.truncate(kept);
            graph.starts.push(kept as u32);
        }
        graph.dangling = missing.len();
        if !lenient && let Some(&(node, _)) = missing.first() {
            return Err(vec![graph.dangling_finding(&missing, node)]);
        }
        match graph.sort() {
            Ok(order) => graph.order = order,
            Err(cycle) if lenient => graph.cycle = Some(graph.cycle_finding(&cycle)),
            Err(cycle) => return Err(vec![graph.cycle_finding(&cycle)]),
        }
        Ok(graph)
    }

    fn dangling_finding(&self, missing: &[(u64, u64)], first: u64) -> Diagnostic {
        let listed: Vec<String> = missing.iter().take(LISTED).map(|(n, d)| format!("{n} on {d}")).collect();
        let more = if missing.len() > LISTED { ", …" } else { "" };
        let count = missing.len();
        Diagnostic::new(
            "AHBM-F134",
            format!("{count} dependencies on nodes that do not exist: {}{more}", listed.join(", ")),
        )
        .site(format!("rank {}: node {first}", self.rank), self.origin_of(first))
        .hint("the trace was cut or linked badly; read leniently to leave such dependencies out")
    }

    fn cycle_finding(&self, cycle: &[u32]) -> Diagnostic {
        let ids: Vec<String> = cycle.iter().take(LISTED).map(|&at| self.nodes[at as usize].id.to_string()).collect();
        let more = if cycle.len() > LISTED { " -> …" } else { "" };
        let closing = &ids[0];
        let mut finding = Diagnostic::new(
            "AHBM-F135",
            format!("{} nodes wait for each other: {}{more} -> {closing}", cycle.len(), ids.join(" -> ")),
        );
        for &at in cycle.iter().take(LISTED) {
            let node = &self.nodes[at as usize];
            finding = finding.site(format!("rank {}: {} {}", self.rank, node.kind.name(), node.name), self.origin(at));
        }
        finding.hint("dependencies must form no circle; an arrow reads `waits for`")
    }

    /// Dependencies first; else one cycle, each node waiting for the next.
    fn sort(&self) -> Result<Vec<u32>, Vec<u32>> {
        let (starts, users) = self.users();
        let mut open: Vec<u32> = (0..self.nodes.len() as u32).map(|at| self.deps(at).len() as u32).collect();
        let ready = |at: u32| Reverse((self.nodes[at as usize].id, at));
        let mut heap: BinaryHeap<_> = (0..open.len() as u32).filter(|&at| open[at as usize] == 0).map(ready).collect();
        let mut order = Vec::with_capacity(open.len());
        while let Some(Reverse((_, at))) = heap.pop() {
            order.push(at);
            for &user in &users[starts[at as usize] as usize..starts[at as usize + 1] as usize] {
                open[user as usize] -= 1;
                if open[user as usize] == 0 {
                    heap.push(ready(user));
                }
            }
        }
        if order.len() == open.len() { Ok(order) } else { Err(self.cycle(&open)) }
    }

    /// Every node that is still open waits for another open one, so following them closes a circle.
    fn cycle(&self, open: &[u32]) -> Vec<u32> {
        let is_open = |at: &u32| open[*at as usize] > 0;
        let mut seen = vec![u32::MAX; self.nodes.len()];
        let mut path = Vec::new();
        let mut at = (0..self.nodes.len() as u32).find(is_open).unwrap_or(0);
        while seen[at as usize] == u32::MAX {
            seen[at as usize] = path.len() as u32;
            path.push(at);
            match self.deps(at).iter().copied().find(is_open) {
                Some(next) => at = next,
                None => break,
            }
        }
        path.split_off(seen[at as usize] as usize)
    }

    /// The edges in the other direction: start per node, and the users of each node.
    pub(super) fn users(&self) -> (Vec<u32>, Vec<u32>) {
        let mut starts = vec![0u32; self.nodes.len() + 1];
        self.edges.iter().for_each(|&at| starts[at as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut users = vec![0u32; self.edges.len()];
        for at in 0..self.nodes.len() as u32 {
            for &dep in self.deps(at) {
                users[next[dep as usize] as usize] = at;
                next[dep as usize] += 1;
            }
        }
        (starts, users)
    }

    /// Positions of the nodes that node `at` waits for, ascending and distinct.
    pub fn deps(&self, at: u32) -> &[u32] {
        &self.edges[self.starts[at as usize] as usize..self.starts[at as usize + 1] as usize]
    }

    /// Node positions in an order that respects every dependency; empty with a cycle.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// How long a computation takes: `duration_ns` where the trace has it, else whole microseconds.
    pub(super) fn duration_ps(&self, at: u32) -> Result<u64, Diagnostic> {
        let node = &self.nodes[at as usize];
        let ps = match node.real("duration_ns") {
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
        self.origin_of(self.nodes[at as usize].id)
    }

    fn origin_of(&self, id: u64) -> String {
        format!("{} node {id}", self.file)
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
