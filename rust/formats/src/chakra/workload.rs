//! Traces of jobs: what every rank computes and which collectives it enters, ready to be scheduled.
//!
//! The n-th collective node of a process group, dependencies first and then by id, is the same call on every rank of
//! the group; calls of one group run one after the other. Sends and receives meet per process group, ranks and tag, and
//! run one after the other too. A chain of nodes is a host of [`ahbm_program::job`]; a node that another chain waits
//! for and that is no communication is a launch of nothing.

use super::chains::Chains;
use super::pairs::{At, number, pairs, wrong};
use super::{Graph, Trace, one};
use ahbm_machine::Diagnostic;
use ahbm_program::job::Step;
use ahbm_wire::chakra::{COLLECTIVES, NodeKind};
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

type Map<K, V> = IndexMap<K, V, FxBuildHasher>;

/// A collective, or a send and its receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The schema's name in lower case, or `send_recv`.
    pub collective: String,
    /// Name of the process group.
    pub group: String,
    /// Its ranks; of a send, sender and receiver.
    pub ranks: Vec<u32>,
    /// `comm_size`: a chunk for all_gather and gather, else all that a rank has.
    pub bytes: u64,
    /// Longest chunk in elements, where the trace states how an all_to_all is split.
    pub longest: Option<u64>,
    /// Element type, where the trace states it.
    pub dtype: Option<String>,
    /// Reduction operator, where the trace states it.
    pub op: Option<String>,
    /// Global rank of the root, where the trace states it.
    pub root: Option<u32>,
    /// The call that must have ended before.
    pub after: Option<u32>,
    /// The place at which it was written: the first rank's node.
    pub origin: String,
}

/// A job as hosts and calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workload {
    /// Rank and steps of every host. Steps name calls; numbers beyond them are launches of nothing.
    pub hosts: Vec<(u32, Vec<Step>)>,
    /// The calls, each after the one it follows.
    pub calls: Vec<Call>,
    /// Launches of nothing.
    pub events: u32,
    /// Computations that state no duration.
    pub untimed: u64,
}

/// The most that a rank may compute in all, eleven days: far below the end of simulated time.
const LONGEST_PS: u64 = 1_000_000_000_000_000_000;

/// The definition of a collective, for whoever has it wrong.
const ONE_CALL: &str = "the n-th collective node of a group is one call on all of its ranks";

/// Name and ranks of a process group.
type Group = (String, Vec<u32>);

/// Rank lists of process groups that a trace only names.
pub type Groups = FxHashMap<String, Vec<u32>>;

impl Trace {
    /// True for the trace of a job: it has collectives, or says that it was recorded from one.
    pub fn is_workload(&self) -> bool {
        let recorded = |graph: &Graph| graph.metadata.integer("world_size").is_some();
        self.graphs.iter().any(|graph| recorded(graph) || graph.count(NodeKind::Collective) > 0)
    }

    /// The job. `groups` holds the ranks of process groups that nodes name without listing them.
    ///
    /// # Errors
    /// `AHBM-F136` an attribute that is missing or out of range, `AHBM-F137` and `AHBM-F138` sends and receives that do
    /// not fit, `AHBM-F149` a collective that ranks lack or disagree on, `AHBM-U231` memory nodes, `AHBM-U234` a
    /// process group of unknown ranks.
    pub fn workload(&self, groups: &Groups) -> Result<Workload, Vec<Diagnostic>> {
        if let Some(cycle) = self.graphs.iter().find_map(|graph| graph.cycle.as_ref()) {
            return Err(vec![cycle.clone()]);
        }
        let mut workload = Workload::default();
        let mut of = self.collectives(groups, &mut workload.calls)?;
        self.messages(&mut workload.calls, &mut of)?;
        for graph in &self.graphs {
            workload.hosts(graph, &of).map_err(one)?;
        }
        Ok(workload)
    }

    /// Files the collectives of all ranks; returns the call of every node.
    fn collectives(&self, groups: &Groups, calls: &mut Vec<Call>) -> Result<FxHashMap<At, u32>, Vec<Diagnostic>> {
        let mut of = FxHashMap::default();
        let mut filed: Map<Group, Vec<(u32, Vec<u32>)>> = Map::default();
        for graph in &self.graphs {
            let mut counts: FxHashMap<Group, usize> = FxHashMap::default();
            let collective = |at: &u32| graph.nodes[*at as usize].kind == NodeKind::Collective;
            for node in graph.order().iter().copied().filter(collective) {
                let call = self.call(graph, node, groups).map_err(one)?;
                let key = (call.group.clone(), call.ranks.clone());
                let number = counts.entry(key.clone()).or_default();
                let sequence = filed.entry(key).or_default();
                if sequence.len() == *number {
                    let after = sequence.last().map(|(before, _)| *before);
                    calls.push(Call { after, ..call.clone() });
                    sequence.push((calls.len() as u32 - 1, Vec::new()));
                }
                let (known, present) = &mut sequence[*number];
                *number += 1;
                calls[*known as usize].join(&call)?;
                present.push(graph.rank);
                of.insert(At { rank: graph.rank, node }, *known);
            }
        }
        for (call, present) in filed.values().flatten() {
            let call = &calls[*call as usize];
            // Filed in order of ranks, each at most once.
            if let Some(missing) = call.ranks.iter().find(|rank| present.binary_search(rank).is_err()) {
                let what = format!("rank {missing} does not take part in a {} of its group", call.collective);
                let finding = Diagnostic::new("AHBM-F149", what).site("what the others do", &*call.origin);
                return Err(vec![finding.hint(ONE_CALL)]);
            }
        }
        Ok(of)
    }

    fn call(&self, graph: &Graph, at: u32, groups: &Groups) -> Result<Call, Diagnostic> {
        let node = &graph.nodes[at as usize];
        let kind = number(graph, at, "comm_type")?.ok_or_else(|| wrong(graph, at, "comm_type", "is missing"))?;
        let collective = usize::try_from(kind).ok().and_then(|n| COLLECTIVES.get(n));
        let collective = collective.ok_or_else(|| wrong(graph, at, "comm_type", &format!("is {kind}")))?.to_lowercase();
        let group = node.text("pg_name").unwrap_or_default();
        let ranks = match (node.integers("ranks"), groups.get(group)) {
            (Some(ranks), _) => ranks.iter().map(|&rank| u32::try_from(rank).unwrap_or(u32::MAX)).collect(),
            (None, Some(ranks)) => ranks.clone(),
            (None, None) if matches!(group, "" | "0") => (0..self.graphs.len() as u32).collect(),
            (None, None) => {
                let (label, origin) = graph.site(at);
                let what = format!("the trace does not say which ranks are in process group {group:?}");
                return Err(Diagnostic::new("AHBM-U234", what)
                    .site(label, origin)
                    .hint("give them: --groups FILE, a JSON object of rank lists by name"));
            }
        };
        if let Some(rank) = ranks.iter().find(|&&rank| rank as usize >= self.graphs.len()) {
            let what = format!("has rank {rank}, the trace has {} ranks", self.graphs.len());
            return Err(wrong(graph, at, "ranks", &what));
        }
        if !ranks.contains(&graph.rank) {
            return Err(wrong(graph, at, "ranks", &format!("lacks rank {} itself", graph.rank)));
        }
        let bytes = match number(graph, at, "comm_size")? {
            Some(bytes) => bytes,
            None if collective == "barrier" => 0,
            None => return Err(wrong(graph, at, "comm_size", "is missing")),
        };
        let root = number(graph, at, "root")?.map(u32::try_from);
        let root = root.transpose().map_err(|_| wrong(graph, at, "root", "is no rank"))?;
        let splits = [node.integers("in_splits"), node.integers("out_splits")];
        let longest = splits.iter().flatten().flatten().max().map(|&n| u64::try_from(n).unwrap_or(0));
        Ok(Call {
            collective,
            group: group.to_owned(),
            ranks,
            bytes,
            longest,
            dtype: node.text("dtype").map(str::to_owned),
            op: node.text("op").map(str::to_owned),
            root,
            after: None,
            origin: graph.origin(at),
        })
    }

    /// Files sends and receives.
    fn messages(&self, calls: &mut Vec<Call>, of: &mut FxHashMap<At, u32>) -> Result<(), Vec<Diagnostic>> {
        let mut last: FxHashMap<(String, u32, u32, u32), u32> = FxHashMap::default();
        let mut places: Vec<Vec<u32>> = self.graphs.iter().map(|graph| vec![0; graph.nodes.len()]).collect();
        for (graph, places) in self.graphs.iter().zip(&mut places) {
            (0..).zip(graph.order()).for_each(|(place, &node)| places[node as usize] = place);
        }
        let mut pairs = pairs(self, false)?;
        pairs.sort_by_key(|pair| (pair.send.rank, places[pair.send.rank as usize][pair.send.node as usize]));
        for pair in pairs {
            let graph = &self.graphs[pair.send.rank as usize];
            let node = &graph.nodes[pair.send.node as usize];
            let group = node.text("pg_name").unwrap_or_default().to_owned();
            let bytes = number(graph, pair.send.node, "comm_size").map_err(one)?;
            let bytes = bytes.ok_or_else(|| vec![wrong(graph, pair.send.node, "comm_size", "is missing")])?;
            let call = calls.len() as u32;
            calls.push(Call {
                collective: "send_recv".into(),
                ranks: vec![pair.send.rank, pair.recv.rank],
                bytes,
                longest: None,
                dtype: node.text("dtype").map(str::to_owned),
                op: None,
                root: None,
                after: last.insert((group.clone(), pair.send.rank, pair.recv.rank, pair.tag), call),
                origin: graph.origin(pair.send.node),
                group,
            });
            of.extend([(pair.send, call), (pair.recv, call)]);
        }
        Ok(())
    }
}

impl Call {
    /// Checks that another rank's node is the same call.
    fn join(&mut self, other: &Self) -> Result<(), Vec<Diagnostic>> {
        let uneven = self.collective == "all_to_all";
        let facts = |call: &Self| {
            let bytes = if uneven { 0 } else { call.bytes };
            (call.collective.clone(), bytes, call.dtype.clone(), call.op.clone(), call.root)
        };
        if facts(self) != facts(other) {
            let label = |call: &Self| format!("{} of {} bytes", call.collective, call.bytes);
            let finding = Diagnostic::new("AHBM-F149", format!("the ranks of group {:?} disagree", self.group));
            let finding = finding.site(label(self), &*self.origin).site(label(other), &*other.origin);
            return Err(vec![finding.hint(ONE_CALL)]);
        }
        self.bytes = self.bytes.max(other.bytes);
        self.longest = self.longest.max(other.longest);
        Ok(())
    }
}

impl Workload {
    /// Adds the chains of a rank.
    fn hosts(&mut self, graph: &Graph, calls: &FxHashMap<At, u32>) -> Result<(), Diagnostic> {
        let cover = Chains::of(graph);
        let first = (self.calls.len() as u32) + self.events;
        let mut launch_of = vec![u32::MAX; graph.nodes.len()];
        for (node, launch) in (0..).zip(&mut launch_of) {
            *launch = match calls.get(&At { rank: graph.rank, node }) {
                Some(&call) => call,
                None if cover.awaited[node as usize] => {
                    self.events += 1;
                    self.calls.len() as u32 + self.events - 1
                }
                None => u32::MAX,
            };
        }
        let mut total = 0u64;
        for chain in &cover.chains {
            let mut steps = Vec::new();
            for &node in chain {
                let waits = cover.waits[node as usize].iter().map(|&link| launch_of[cover.node(link) as usize]);
                steps.extend(waits.map(Step::Wait));
                let launch = launch_of[node as usize];
                match graph.nodes[node as usize].kind {
                    NodeKind::Collective | NodeKind::Send | NodeKind::Recv => {
                        steps.extend([Step::Arrive(launch), Step::Wait(launch)]);
                        continue;
                    }
                    NodeKind::Comp => match graph.duration_ps(node)? {
                        0 => self.untimed += 1,
                        ps => {
                            total = total.saturating_add(ps);
                            if total > LONGEST_PS {
                                return Err(wrong(graph, node, "duration", "is too much, with those before it"));
                            }
                            steps.push(Step::Advance(ps));
                        }
                    },
                    NodeKind::Metadata => {}
                    kind => {
                        let (label, origin) = graph.site(node);
                        let what = format!("{} cannot be replayed", kind.name());
                        return Err(Diagnostic::new("AHBM-U231", what)
                            .site(label, origin)
                            .hint("a job is computation, collectives, sends and receives"));
                    }
                }
                if launch >= first && launch != u32::MAX {
                    steps.push(Step::Arrive(launch));
                }
            }
            self.hosts.push((graph.rank, steps));
        }
        Ok(())
    }
}
