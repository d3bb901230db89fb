//! A rank's graph while it is read: nodes in any order, dependencies by id.

use crate::edges::Edges;
use crate::graph::Graph;
use crate::node::{CallSpec, Collective, Node, Work};
use ahbm_findings::Diagnostic;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::sync::Arc;

/// A node and what it waits for.
#[derive(Debug, Clone)]
pub struct NodeBuilder {
    id: u64,
    name: Box<str>,
    work: Work,
    ps: u64,
    cpu: bool,
    stream: Option<u32>,
    priority: i32,
    after: Vec<u64>,
}

impl NodeBuilder {
    /// A node that does nothing yet.
    pub fn new(id: u64, name: impl Into<Box<str>>) -> Self {
        Self {
            id,
            name: name.into(),
            work: Work::Nothing,
            ps: 0,
            cpu: false,
            stream: None,
            priority: 0,
            after: Vec::new(),
        }
    }

    /// Sets what it does.
    #[must_use]
    pub fn work(mut self, work: Work) -> Self {
        self.work = work;
        self
    }

    /// Sets how long it takes, in picoseconds.
    #[must_use]
    pub fn ps(mut self, ps: u64) -> Self {
        self.ps = ps;
        self
    }

    /// Sets whether it runs on the host.
    #[must_use]
    pub fn cpu(mut self, cpu: bool) -> Self {
        self.cpu = cpu;
        self
    }

    /// Sets the stream it was recorded on.
    #[must_use]
    pub fn stream(mut self, stream: Option<u32>) -> Self {
        self.stream = stream;
        self
    }

    /// Sets its priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Adds nodes that must have ended before, by id.
    #[must_use]
    pub fn after(mut self, ids: &[u64]) -> Self {
        self.after.extend_from_slice(ids);
        self
    }
}

/// A rank's graph and what its slots stand for.
#[derive(Debug, Clone)]
pub struct RankGraph {
    pub(crate) rank: u32,
    pub(crate) file: Arc<str>,
    pub(crate) graph: Graph,
    pub(crate) groups: Vec<u32>,
    pub(crate) peers: Vec<u32>,
}

/// Collects the nodes of a rank.
#[derive(Debug)]
pub struct RankBuilder {
    rank: u32,
    file: Arc<str>,
    nodes: Vec<NodeBuilder>,
    specs: IndexSet<CallSpec, FxBuildHasher>,
    groups: IndexSet<u32, FxBuildHasher>,
    peers: IndexSet<u32, FxBuildHasher>,
}

impl RankBuilder {
    /// A rank without nodes; `file` is where its nodes were written, for origins.
    pub fn new(rank: u32, file: impl Into<Arc<str>>) -> Self {
        Self {
            rank,
            file: file.into(),
            nodes: Vec::new(),
            specs: IndexSet::default(),
            groups: IndexSet::default(),
            peers: IndexSet::default(),
        }
    }

    /// The rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Adds a node.
    pub fn push(&mut self, node: NodeBuilder) {
        self.nodes.push(node);
    }

    /// The slot of a group of [`crate::Gather::group`].
    pub fn group(&mut self, group: u32) -> u32 {
        self.groups.insert_full(group).0 as u32
    }

    /// The slot of a rank that messages go to or come from.
    pub fn peer(&mut self, rank: u32) -> u32 {
        self.peers.insert_full(rank).0 as u32
    }

    /// A call of `bytes` in a group of [`crate::Gather::group`], with nothing else stated.
    pub fn call(&mut self, collective: Collective, group: u32, bytes: u64) -> Work {
        let group = self.group(group);
        self.call_of(CallSpec { bytes, ..CallSpec::new(collective, group) })
    }

    /// A call; its group is a slot.
    pub fn call_of(&mut self, spec: CallSpec) -> Work {
        Work::Call(self.specs.insert_full(spec).0 as u32)
    }

    /// Numbers calls, groups and peers in the order of the nodes: a graph does not depend on the order of its file.
    fn renumber(&mut self) {
        let (mut specs, mut groups, mut peers) = (IndexSet::default(), IndexSet::default(), IndexSet::default());
        let mut known = vec![None; self.specs.len()];
        for node in &mut self.nodes {
            match &mut node.work {
                Work::Call(spec) => {
                    let was = *spec as usize;
                    *spec = *known[was].get_or_insert_with(|| {
                        let mut of = self.specs[was].clone();
                        of.group = groups.insert_full(self.groups[of.group as usize]).0 as u32;
                        specs.insert_full(of).0 as u32
                    });
                }
                Work::Send(message) | Work::Recv(message) => {
                    message.peer = peers.insert_full(self.peers[message.peer as usize]).0 as u32;
                    message.group = message.group.map(|slot| groups.insert_full(self.groups[slot as usize]).0 as u32);
                }
                _ => {}
            }
        }
        (self.specs, self.groups, self.peers) = (specs, groups, peers);
    }

    /// The graph. When `lenient`, dependencies on ids that no node has are left out and counted, and circles are cut
    /// at the dependencies on higher ids.
    ///
    /// # Errors
    /// `AHBM-F133` two nodes with one id, `AHBM-F134` a dependency on an id that no node has, `AHBM-F135` nodes that
    /// wait for each other, `AHBM-F136` a part of a node that is no call.
    pub fn finish(mut self, lenient: bool) -> Result<RankGraph, Vec<Diagnostic>> {
        self.nodes.sort_by_key(|node| node.id);
        self.renumber();
        let file = Arc::clone(&self.file);
        let origin = |id: u64| format!("{file} node {id}");
        if let Some(pair) = self.nodes.windows(2).find(|pair| pair[0].id == pair[1].id) {
            let id = pair[0].id;
            return Err(vec![
                Diagnostic::new("AHBM-F133", format!("rank {}: two nodes have the id {id}", self.rank))
                    .site(format!("first: {}", pair[0].name), origin(id))
                    .site(format!("second: {}", pair[1].name), origin(id)),
            ]);
        }
        let place = Places::of(&self.nodes);
        let mut names: IndexSet<Box<str>, FxBuildHasher> = IndexSet::default();
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let mut edges = Edges::default();
        let mut missing = Vec::new();
        for node in self.nodes {
            edges.push(node.after.iter().filter_map(|&dep| {
                let at = place.at(dep);
                if at.is_none() {
                    missing.push((node.id, dep));
                }
                at
            }));
            let (id, ps, cpu, stream, priority) = (node.id, node.ps, node.cpu, node.stream, node.priority);
            let name = names.insert_full(node.name).0 as u32;
            nodes.push(Node { id, name, work: node.work, ps, cpu, stream, priority });
        }
        let graph = Graph::new(nodes, names, self.specs, edges, missing.len());
        let graph = graph.checked(self.rank, &self.file, &missing, lenient)?;
        Ok(RankGraph {
            rank: self.rank,
            file: self.file,
            graph,
            groups: self.groups.into_iter().collect(),
            peers: self.peers.into_iter().collect(),
        })
    }
}

/// Where the node of an id is.
enum Places {
    /// Ids without gaps: the first, and how many.
    Run(u64, u64),
    /// Any others.
    Index(FxHashMap<u64, u32>),
}

impl Places {
    /// Of nodes in ascending order of their ids.
    fn of(nodes: &[NodeBuilder]) -> Self {
        match (nodes.first(), nodes.last()) {
            (Some(first), Some(last)) if last.id - first.id == nodes.len() as u64 - 1 => {
                Self::Run(first.id, nodes.len() as u64)
            }
            _ => Self::Index((0..).zip(nodes).map(|(at, node)| (node.id, at)).collect()),
        }
    }

    fn at(&self, id: u64) -> Option<u32> {
        match self {
            Self::Run(first, many) => id.checked_sub(*first).filter(|at| at < many).map(|at| at as u32),
            Self::Index(index) => index.get(&id).copied(),
        }
    }
}
