//! One rank's nodes as a graph: dependencies resolved, an order that respects them, cycles found.

use crate::node::{CallSpec, Node, Work};
use ahbm_machine::Diagnostic;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHasher};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{Hash, Hasher};

/// The nodes of a rank, or of several ranks that do the same. Positions are of type `u32`.
#[derive(Debug, Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    names: IndexSet<Box<str>, FxBuildHasher>,
    specs: IndexSet<CallSpec, FxBuildHasher>,
    /// Per node what it waits for, ascending; start of each node's entries, and the end.
    deps: (Vec<u32>, Vec<u32>),
    users: (Vec<u32>, Vec<u32>),
    order: Vec<u32>,
    /// Dependencies on ids that no node has, left out; lenient reading only.
    pub dangling: usize,
    /// Dependencies that closed a circle, left out, as (node, dependency) ids; lenient reading only.
    pub cut: Vec<(u64, u64)>,
}

impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        // Users and order follow from the rest. Sets compare without order, which positions depend on.
        self.nodes == other.nodes
            && self.deps == other.deps
            && self.names.iter().eq(&other.names)
            && self.specs.iter().eq(&other.specs)
            && (self.dangling, &self.cut) == (other.dangling, &other.cut)
    }
}

/// How many nodes a message lists before it says `…`.
const LISTED: usize = 8;

impl Graph {
    pub(crate) fn new(
        nodes: Vec<Node>,
        names: IndexSet<Box<str>, FxBuildHasher>,
        specs: IndexSet<CallSpec, FxBuildHasher>,
        deps: (Vec<u32>, Vec<u32>),
        dangling: usize,
    ) -> Self {
        Self { nodes, names, specs, deps, users: Default::default(), order: Vec::new(), dangling, cut: Vec::new() }
    }

    /// Orders the graph, or says what keeps it from being one.
    pub(crate) fn checked(
        mut self,
        rank: u32,
        file: &str,
        missing: &[(u64, u64)],
        lenient: bool,
    ) -> Result<Self, Vec<Diagnostic>> {
        let label = |at: u32| format!("rank {rank}: {}", self.name(at));
        let origin = |id: u64| format!("{file} node {id}");
        if !lenient && let Some(&(node, _)) = missing.first() {
            let listed: Vec<String> = missing.iter().take(LISTED).map(|(n, d)| format!("{n} on {d}")).collect();
            let more = if missing.len() > LISTED { ", …" } else { "" };
            let what =
                format!("{} dependencies on nodes that do not exist: {}{more}", missing.len(), listed.join(", "));
            return Err(vec![
                Diagnostic::new("AHBM-F134", what)
                    .site(format!("rank {rank}: node {node}"), origin(node))
                    .hint("the trace was cut or linked badly; read leniently to leave such dependencies out"),
            ]);
        }
        for (at, node) in (0..).zip(&self.nodes) {
            if let Work::Part(part) = &node.work
                && !self.nodes.get(part.call as usize).is_some_and(|call| matches!(call.work, Work::Call(_)))
            {
                let what = "attribute part_of names a node that is no collective";
                return Err(vec![Diagnostic::new("AHBM-F136", what).site(label(at), origin(node.id))]);
            }
        }
        self.users = self.turned();
        let sorted = match self.sort() {
            Err(_) if lenient => {
                self.open_circles();
                self.users = self.turned();
                self.sort()
            }
            sorted => sorted,
        };
        match sorted {
            Ok(order) => {
                self.order = order;
                Ok(self)
            }
            Err(cycle) => {
                let id = |at: u32| self.nodes[at as usize].id;
                let ids: Vec<String> = cycle.iter().take(LISTED).map(|&at| id(at).to_string()).collect();
                let more = if cycle.len() > LISTED { " -> …" } else { "" };
                let what =
                    format!("{} nodes wait for each other: {}{more} -> {}", cycle.len(), ids.join(" -> "), ids[0]);
                let mut finding = Diagnostic::new("AHBM-F135", what);
                for &at in cycle.iter().take(LISTED) {
                    finding = finding.site(format!("rank {rank}: {}", self.name(at)), origin(id(at)));
                }
                Err(vec![finding.hint("dependencies must form no circle; an arrow reads `waits for`")])
            }
        }
    }

    /// Leaves out every dependency that lies on a circle and points to a higher id: in a recording ids ascend with
    /// time, so these point back.
    fn open_circles(&mut self) {
        let circle = self.circles();
        let (mut edges, mut starts) = (Vec::with_capacity(self.deps.0.len()), vec![0u32]);
        let mut cut = Vec::new();
        for at in 0..self.nodes.len() as u32 {
            for &dep in self.deps(at) {
                if dep >= at && circle[dep as usize] == circle[at as usize] {
                    cut.push((self.nodes[at as usize].id, self.nodes[dep as usize].id));
                } else {
                    edges.push(dep);
                }
            }
            starts.push(edges.len() as u32);
        }
        (self.deps, self.cut) = ((edges, starts), cut);
    }

    /// Per node the number of its strongly connected component (R. Tarjan, SIAM J. Comput. 1, 1972), without recursion.
    fn circles(&self) -> Vec<u32> {
        const NEW: u32 = u32::MAX;
        let count = self.nodes.len();
        let (mut number, mut low, mut component) = (vec![NEW; count], vec![0; count], vec![NEW; count]);
        let (mut next, mut components) = (0, 0);
        let (mut open, mut calls): (Vec<u32>, Vec<(u32, usize)>) = (Vec::new(), Vec::new());
        for root in 0..count as u32 {
            if number[root as usize] == NEW {
                calls.push((root, 0));
            }
            while let Some((at, edge)) = calls.pop() {
                if edge == 0 {
                    number[at as usize] = next;
                    low[at as usize] = next;
                    next += 1;
                    open.push(at);
                }
                if let Some(&dep) = self.deps(at).get(edge) {
                    calls.push((at, edge + 1));
                    if number[dep as usize] == NEW {
                        calls.push((dep, 0));
                    } else if component[dep as usize] == NEW {
                        low[at as usize] = low[at as usize].min(number[dep as usize]);
                    }
                    continue;
                }
                if low[at as usize] == number[at as usize] {
                    while let Some(member) = open.pop() {
                        component[member as usize] = components;
                        if member == at {
                            break;
                        }
                    }
                    components += 1;
                }
                if let Some(&(caller, _)) = calls.last() {
                    low[caller as usize] = low[caller as usize].min(low[at as usize]);
                }
            }
        }
        component
    }

    fn turned(&self) -> (Vec<u32>, Vec<u32>) {
        let mut starts = vec![0u32; self.nodes.len() + 1];
        self.deps.0.iter().for_each(|&at| starts[at as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut users = vec![0u32; self.deps.0.len()];
        for at in 0..self.nodes.len() as u32 {
            for &dep in self.deps(at) {
                users[next[dep as usize] as usize] = at;
                next[dep as usize] += 1;
            }
        }
        (users, starts)
    }

    /// Dependencies first, smallest id first among the ready ones; else one cycle, each node waiting for the next.
    fn sort(&self) -> Result<Vec<u32>, Vec<u32>> {
        let mut open: Vec<u32> = (0..self.nodes.len() as u32).map(|at| self.deps(at).len() as u32).collect();
        let mut heap: BinaryHeap<_> =
            (0..open.len() as u32).filter(|&at| open[at as usize] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(open.len());
        while let Some(Reverse(at)) = heap.pop() {
            order.push(at);
            for &user in self.users(at) {
                open[user as usize] -= 1;
                if open[user as usize] == 0 {
                    heap.push(Reverse(user));
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

    /// The nodes, in ascending order of their ids.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node at a position.
    pub fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    /// The name of a node.
    pub fn name(&self, at: u32) -> &str {
        self.names.get_index(self.nodes[at as usize].name as usize).map_or("", |name| name)
    }

    /// Distinct calls; [`Work::Call`] holds a position in it.
    pub fn specs(&self) -> &IndexSet<CallSpec, FxBuildHasher> {
        &self.specs
    }

    /// The call of a node, where it is one.
    pub fn spec(&self, at: u32) -> Option<&CallSpec> {
        match self.nodes[at as usize].work {
            Work::Call(spec) => self.specs.get_index(spec as usize),
            _ => None,
        }
    }

    /// Positions of the nodes that a node waits for, ascending and distinct.
    pub fn deps(&self, at: u32) -> &[u32] {
        let (edges, starts) = &self.deps;
        &edges[starts[at as usize] as usize..starts[at as usize + 1] as usize]
    }

    /// Positions of the nodes that wait for a node, ascending and distinct.
    pub fn users(&self, at: u32) -> &[u32] {
        let (edges, starts) = &self.users;
        &edges[starts[at as usize] as usize..starts[at as usize + 1] as usize]
    }

    /// Node positions in an order that respects every dependency, smallest id first among the ready ones.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Per node its place in [`Graph::order`].
    pub fn places(&self) -> Vec<u32> {
        let mut places = vec![0; self.nodes.len()];
        (0..).zip(&self.order).for_each(|(place, &at)| places[at as usize] = place);
        places
    }

    /// Equal graphs have equal hashes.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.nodes.hash(&mut hasher);
        self.deps.hash(&mut hasher);
        hasher.finish()
    }
}
