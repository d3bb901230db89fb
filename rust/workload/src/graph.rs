//! One rank's nodes as a graph: dependencies resolved, an order that respects them, cycles found.

use crate::edges::{Edges, circular, dangling};
use crate::node::{CallSpec, Node, Work};
use ahbm_findings::Diagnostic;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHasher};
use std::hash::{Hash, Hasher};

/// The nodes of a rank, or of several ranks that do the same. Positions are of type `u32`.
#[derive(Debug, Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    names: IndexSet<Box<str>, FxBuildHasher>,
    specs: IndexSet<CallSpec, FxBuildHasher>,
    deps: Edges,
    users: Edges,
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

impl Graph {
    pub(crate) fn new(
        nodes: Vec<Node>,
        names: IndexSet<Box<str>, FxBuildHasher>,
        specs: IndexSet<CallSpec, FxBuildHasher>,
        deps: Edges,
        dangling: usize,
    ) -> Self {
        Self { nodes, names, specs, deps, users: Edges::default(), order: Vec::new(), dangling, cut: Vec::new() }
    }

    /// Orders the graph, or says what keeps it from being one.
    pub(crate) fn checked(
        mut self,
        rank: u32,
        file: &str,
        missing: &[(u64, u64)],
        lenient: bool,
    ) -> Result<Self, Vec<Diagnostic>> {
        if !lenient && let Some(finding) = dangling(rank, file, missing) {
            return Err(vec![finding]);
        }
        for (at, node) in (0..).zip(&self.nodes) {
            if let Work::Part(part) = &node.work
                && !self.nodes.get(part.call as usize).is_some_and(|call| matches!(call.work, Work::Call(_)))
            {
                let what = "attribute part_of names a node that is no collective";
                let (label, origin) = (format!("rank {rank}: {}", self.name(at)), format!("{file} node {}", node.id));
                return Err(vec![Diagnostic::new("AHBM-F136", what).site(label, origin)]);
            }
        }
        self.users = self.deps.turned();
        let sorted = match self.deps.sorted(&self.users, |at| at) {
            Err(_) if lenient => {
                self.open_circles();
                self.users = self.deps.turned();
                self.deps.sorted(&self.users, |at| at)
            }
            sorted => sorted,
        };
        match sorted {
            Ok(order) => {
                self.order = order;
                Ok(self)
            }
            Err(circle) => {
                let named = |&at: &u32| (self.nodes[at as usize].id, self.name(at).to_owned());
                Err(vec![circular(rank, file, &circle.iter().map(named).collect::<Vec<_>>())])
            }
        }
    }

    /// Leaves out every dependency that lies on a circle and points to a higher id: in a recording ids ascend with
    /// time, so these point back.
    fn open_circles(&mut self) {
        let circle = self.circles();
        let (mut kept, mut cut) = (Edges::default(), Vec::new());
        for at in 0..self.nodes.len() as u32 {
            let back = |dep: u32| dep >= at && circle[dep as usize] == circle[at as usize];
            let id = |at: u32| self.nodes[at as usize].id;
            cut.extend(self.deps(at).iter().filter(|&&dep| back(dep)).map(|&dep| (id(at), id(dep))));
            kept.push(self.deps(at).iter().copied().filter(|&dep| !back(dep)));
        }
        (self.deps, self.cut) = (kept, cut);
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

    /// The graph with other calls: `specs` has one for each of [`Graph::specs`], and may have equal ones.
    pub(crate) fn with_specs(&self, specs: &[CallSpec]) -> Self {
        let mut graph = self.clone();
        graph.specs = IndexSet::default();
        let moved: Vec<u32> = specs.iter().map(|spec| graph.specs.insert_full(spec.clone()).0 as u32).collect();
        for node in &mut graph.nodes {
            if let Work::Call(spec) = &mut node.work {
                *spec = moved[*spec as usize];
            }
        }
        graph
    }

    /// Makes calls that `gone` holds for events that take no time; whether there were any.
    pub(crate) fn without_calls(&mut self, gone: impl Fn(&CallSpec) -> bool) -> bool {
        let left: Vec<bool> = self.specs.iter().map(gone).collect();
        let mut any = false;
        for node in &mut self.nodes {
            if let Work::Call(spec) = node.work
                && left[spec as usize]
            {
                (node.work, any) = (Work::Nothing, true);
            }
        }
        any
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
        self.deps.of(at)
    }

    /// Positions of the nodes that wait for a node, ascending and distinct.
    pub fn users(&self, at: u32) -> &[u32] {
        self.users.of(at)
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
