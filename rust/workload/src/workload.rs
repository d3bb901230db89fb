//! All ranks together: graphs that are shared, groups that are resolved.

use crate::build::RankGraph;
use crate::graph::Graph;
use crate::one;
use ahbm_findings::Diagnostic;
use indexmap::{IndexMap, IndexSet};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::sync::Arc;

/// Rank lists of process groups by name.
pub type Groups = IndexMap<String, Vec<u32>, FxBuildHasher>;

/// A process group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    /// Its name, `""` for that of all ranks.
    pub name: Arc<str>,
    /// Its ranks in the order of the group.
    pub ranks: Arc<[u32]>,
}

/// A rank of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Rank {
    /// Position of its graph in [`Workload::graphs`].
    pub graph: u32,
    /// Per group slot of the graph, a position in [`Workload::groups`].
    pub groups: Box<[u32]>,
    /// Per peer slot of the graph, a rank.
    pub peers: Box<[u32]>,
    /// Where it was written.
    pub file: Arc<str>,
}

/// A training job: what every rank does.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Name for people.
    pub name: String,
    /// Distinct graphs, in the order of the first rank that has them.
    pub graphs: Vec<Graph>,
    /// The ranks.
    pub ranks: Vec<Rank>,
    /// The process groups that calls name, in the order of first use.
    pub groups: Vec<Group>,
    /// What the source leaves open, and how it was taken.
    pub notes: Vec<Diagnostic>,
    /// Somebody recorded what ranks called: a replay chooses for each call what these ranks had, were they on its machine.
    pub recorded: bool,
}

impl Workload {
    /// The graph of a rank.
    pub fn graph(&self, rank: u32) -> &Graph {
        &self.graphs[self.ranks[rank as usize].graph as usize]
    }

    /// The group of a slot of a rank's graph.
    pub fn group(&self, rank: u32, slot: u32) -> &Group {
        &self.groups[self.ranks[rank as usize].groups[slot as usize] as usize]
    }

    /// The place at which a rank's node was written.
    pub fn origin(&self, rank: u32, at: u32) -> String {
        format!("{} node {}", self.ranks[rank as usize].file, self.graph(rank).node(at).id)
    }

    /// A node in words, for one side of a finding.
    pub fn label(&self, rank: u32, at: u32) -> String {
        format!("rank {rank}: {}", self.graph(rank).name(at))
    }

    /// Number of nodes over all ranks.
    pub fn nodes(&self) -> u64 {
        self.ranks.iter().map(|rank| self.graphs[rank.graph as usize].nodes().len() as u64).sum()
    }
}

/// Collects the ranks of a job in ascending order, and shares what they have in common.
#[derive(Debug)]
pub struct Gather {
    workload: Workload,
    /// Number of ranks.
    size: u32,
    named: Groups,
    /// Names of groups that the source only numbers.
    titles: FxHashMap<String, Arc<str>>,
    groups: IndexSet<Group, FxBuildHasher>,
    /// Positions of the graphs of a digest.
    known: FxHashMap<u64, Vec<u32>>,
}

impl Gather {
    /// A job of `size` ranks; `named` has the ranks of groups that nodes name without listing them.
    pub fn new(name: &str, size: u32, named: Groups) -> Self {
        let (graphs, ranks, groups, notes, recorded) = Default::default();
        let workload = Workload { name: name.into(), graphs, ranks, groups, notes, recorded };
        let (titles, known) = Default::default();
        Self { workload, size, named, titles, groups: IndexSet::default(), known }
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The job has so many ranks; none was added yet.
    pub fn resize(&mut self, size: u32) {
        self.size = size;
    }

    /// Adds ranks of a group that the source names, unless its name is known.
    pub fn name_group(&mut self, name: &str, ranks: Vec<u32>) {
        self.named.entry(name.to_owned()).or_insert(ranks);
    }

    /// Gives the groups that nodes call `number` a name of their own.
    pub fn title_group(&mut self, number: &str, name: &str) {
        self.titles.entry(number.to_owned()).or_insert_with(|| name.into());
    }

    /// The job is one that was recorded.
    pub fn recorded(&mut self) {
        self.workload.recorded = true;
    }

    /// Says what the source leaves open, once.
    pub fn note(&mut self, note: Diagnostic) {
        if !self.workload.notes.contains(&note) {
            self.workload.notes.push(note);
        }
    }

    /// The ranks of a group of [`Gather::group`].
    pub fn members(&self, group: u32) -> Arc<[u32]> {
        self.groups.get_index(group as usize).map(|group| Arc::clone(&group.ranks)).unwrap_or_default()
    }

    /// The other rank of a group of two.
    pub fn other_of_two(&self, group: u32, rank: u32) -> Option<u32> {
        match self.groups.get_index(group as usize)?.ranks[..] {
            [a, b] if a == rank => Some(b),
            [a, b] if b == rank => Some(a),
            _ => None,
        }
    }

    /// The group of a name, where a node states its ranks or somebody else has; a position in [`Workload::groups`].
    /// Without either, the groups `""` and `"0"` are those of all ranks.
    ///
    /// # Errors
    /// `AHBM-U234` an unknown group, `AHBM-F136` a group with a rank that does not exist, without `rank`, or with a
    /// rank twice; `origin` is the place of the node.
    pub fn group(
        &mut self,
        rank: u32,
        name: &str,
        listed: Option<Vec<u32>>,
        origin: impl Fn() -> String,
    ) -> Result<u32, Vec<Diagnostic>> {
        let all = || matches!(name, "" | "0").then(|| (0..self.size).collect());
        let Some(ranks) = listed.or_else(|| self.named.get(name).cloned()).or_else(all) else {
            let known: Vec<&str> = self.named.keys().map(String::as_str).take(16).collect();
            let what = format!("the trace does not say which ranks are in process group {name:?}");
            let hint = match &known[..] {
                [] => "give them: --groups FILE, a JSON object of rank lists by name".to_owned(),
                known => format!(
                    "known groups: {}; others by --groups FILE, a JSON object of rank lists by name",
                    known.join(", ")
                ),
            };
            let finding = Diagnostic::new("AHBM-U234", what).site(format!("rank {rank}"), origin());
            return Err(one(finding.hint(hint)));
        };
        let title = self.titles.get(name).map_or_else(|| name.into(), Arc::clone);
        let group = Group { name: title, ranks: ranks.into() };
        let known = self.groups.get_index_of(&group);
        if known.is_none() {
            let wrong = |how: String| {
                let what = format!("process group {name:?} {how}");
                one(Diagnostic::new("AHBM-F136", what).site(format!("rank {rank}"), origin()))
            };
            if let Some(outside) = group.ranks.iter().find(|&&rank| rank >= self.size) {
                return Err(wrong(format!("has rank {outside}, the job has {} ranks", self.size)));
            }
            let mut sorted = group.ranks.to_vec();
            sorted.sort_unstable();
            if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(wrong(format!("has rank {} twice", twice[0])));
            }
        }
        if !group.ranks.contains(&rank) {
            let listed: Vec<String> = group.ranks.iter().take(16).map(u32::to_string).collect();
            let more = if group.ranks.len() > 16 { ", …" } else { "" };
            let what = format!("rank {rank} is not in process group {name:?} of ranks {}{more}", listed.join(", "));
            return Err(one(Diagnostic::new("AHBM-F136", what).site(format!("rank {rank}"), origin())));
        }
        Ok(known.unwrap_or_else(|| self.groups.insert_full(group).0) as u32)
    }

    /// Adds the next rank.
    pub fn add(&mut self, rank: RankGraph) {
        debug_assert_eq!(rank.rank as usize, self.workload.ranks.len(), "ranks come in order");
        let graph = self.share(rank.graph);
        self.bind(graph, rank.groups, rank.peers, rank.file);
    }

    /// The position of a graph, which is added unless it is there.
    pub(crate) fn share(&mut self, graph: Graph) -> u32 {
        let graphs = &mut self.workload.graphs;
        let alike = self.known.entry(graph.digest()).or_default();
        if let Some(known) = alike.iter().copied().find(|&known| graphs[known as usize] == graph) {
            return known;
        }
        graphs.push(graph);
        alike.push(graphs.len() as u32 - 1);
        graphs.len() as u32 - 1
    }

    /// Adds a graph that no rank has yet; returns its position.
    pub(crate) fn add_graph(&mut self, graph: Graph) -> u32 {
        self.workload.graphs.push(graph);
        self.workload.graphs.len() as u32 - 1
    }

    /// A group of [`Gather::group`].
    pub(crate) fn known_group(&self, group: u32) -> &Group {
        &self.groups[group as usize]
    }

    /// Adds the next rank, whose graph is that of another one.
    pub fn bind(&mut self, graph: u32, groups: Vec<u32>, peers: Vec<u32>, file: Arc<str>) {
        self.workload.ranks.push(Rank { graph, groups: groups.into(), peers: peers.into(), file });
    }

    /// The rank that was added last, and its graph.
    pub fn last(&self) -> Option<(&Rank, &Graph)> {
        let rank = self.workload.ranks.last()?;
        Some((rank, &self.workload.graphs[rank.graph as usize]))
    }

    /// The name of a group.
    pub fn group_name(&self, group: u32) -> &str {
        self.groups.get_index(group as usize).map_or("", |group| &group.name)
    }

    /// Adds the next rank with the graph of an earlier one, `like`; `group` and `peer` give what the new rank has in
    /// the place of a group of [`Gather::group`], or a peer, of that one.
    pub fn add_like(
        &mut self,
        like: u32,
        file: impl Into<Arc<str>>,
        group: impl Fn(u32) -> u32,
        peer: impl Fn(u32) -> u32,
    ) {
        let known = &self.workload.ranks[like as usize];
        let groups = known.groups.iter().map(|&of| group(of)).collect();
        let peers = known.peers.iter().map(|&of| peer(of)).collect();
        let rank = Rank { graph: known.graph, groups, peers, file: file.into() };
        self.workload.ranks.push(rank);
    }

    /// Adds the next rank, which does what the one before does.
    ///
    /// # Errors
    /// `AHBM-F136` where its groups are not those of all ranks, or it sends or receives: what another rank does is then
    /// not known.
    pub fn repeat(&mut self) -> Result<(), Vec<Diagnostic>> {
        let rank = self.workload.ranks.len() as u32;
        let Some(last) = self.workload.ranks.last().cloned() else { return Ok(()) };
        let narrow = |group: &u32| self.members(*group).len() < self.size as usize;
        let what = match last.groups.iter().find(|group| narrow(group)) {
            Some(&group) => {
                let name = self.groups.get_index(group as usize).map_or("", |group| &*group.name);
                format!("process group {name:?} has not all ranks: what rank {rank} calls in its own is not known")
            }
            None if !last.peers.is_empty() => format!("to whom rank {rank} sends is not known"),
            None => {
                self.workload.ranks.push(last);
                return Ok(());
            }
        };
        Err(one(Diagnostic::new("AHBM-F136", what).site(format!("rank {}", rank - 1), &*last.file)))
    }

    /// Number of nodes of the ranks so far.
    pub fn nodes(&self) -> u64 {
        self.workload.nodes()
    }

    /// The job. Groups stand in the order in which ranks and their nodes call them.
    pub fn finish(mut self) -> Workload {
        let mut order: IndexSet<u32, FxBuildHasher> = IndexSet::default();
        for rank in &mut self.workload.ranks {
            rank.groups.iter_mut().for_each(|group| *group = order.insert_full(*group).0 as u32);
        }
        self.workload.groups = order.iter().map(|&group| self.groups[group as usize].clone()).collect();
        self.workload
    }
}
