//! Data-parallel replicas of a job: more of them than were recorded, or fewer.
//!
//! Ranks stand in a mesh, as `torch.distributed.DeviceMesh` and Megatron-LM number them: rank = (block * replicas +
//! replica) * stride + offset. A mesh fits a job where the groups along its replicas are there, every other group has
//! all replicas of its ranks or one replica alone, and messages stay inside of a replica. Of several that fit, the one
//! with the largest stride counts: data-parallel replicas stand outside of tensor-parallel and sharded ranks.
//!
//! A job of one replica has groups of one rank in which replicas would meet: those that say so in their names, or else
//! those that do not name another dimension of a mesh, or the only ones that there are.

use crate::graph::Graph;
use crate::node::{CallSpec, Collective, Work};
use crate::one;
use crate::workload::{Group, Rank, Workload};
use ahbm_findings::Diagnostic;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::sync::Arc;

/// Most ranks of a job that was scaled.
const MAX_RANKS: u64 = 1 << 16;
/// Most nodes of all its ranks.
const MAX_NODES: u64 = 1 << 27;
const CODE: &str = "AHBM-U236";

/// Where the replicas of a job are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mesh {
    replicas: u32,
    stride: u32,
}

impl Mesh {
    fn replica(self, rank: u32) -> u32 {
        rank / self.stride % self.replicas
    }

    /// The number, among `mesh.replicas` replicas, of the rank that stands in `replica` where `rank` stands in its own.
    fn moved(self, rank: u32, mesh: Self, replica: u32) -> u32 {
        let (block, offset) = (rank / (self.stride * self.replicas), rank % self.stride);
        (block * mesh.replicas + replica) * self.stride + offset
    }

    fn rank(self, rank: u32, replica: u32) -> u32 {
        self.moved(rank, self, replica)
    }

    /// Whether a group has all replicas of each of its ranks.
    fn spans(self, ranks: &[u32], known: &FxHashSet<u32>) -> bool {
        self.replicas > 1
            && ranks.iter().all(|&rank| (0..self.replicas).all(|replica| known.contains(&self.rank(rank, replica))))
    }
}

impl Workload {
    /// The job with another number of data-parallel replicas.
    ///
    /// Added replicas do what recorded ones do, in turn; the last ones go first. An all_gather and a reduce_scatter
    /// among replicas move the same whole in other shares. Computing stays as it was recorded.
    ///
    /// # Errors
    /// `AHBM-U236` a job without replicas, one that does what no number of ranks can be given for, no replica, or too
    /// large a job.
    pub fn replicated(&self, replicas: u32) -> Result<Self, Vec<Diagnostic>> {
        let mesh = self.mesh()?;
        let wanted = Mesh { replicas, ..mesh };
        let alone = |group: &Group| group.ranks.len() == 1;
        if replicas == mesh.replicas && !self.groups.iter().any(alone) {
            return Ok(self.clone());
        }
        let ranks = self.ranks.len() as u64 / u64::from(mesh.replicas) * u64::from(replicas);
        let nodes = self.nodes() / u64::from(mesh.replicas) * u64::from(replicas);
        if replicas == 0 || ranks > MAX_RANKS || nodes > MAX_NODES {
            let recorded = mesh.replicas;
            let what = format!("{replicas} in place of {recorded} replicas would be {ranks} ranks with {nodes} nodes");
            return Err(one(
                Diagnostic::new(CODE, what).hint(format!("1 to {MAX_RANKS} ranks, at most {MAX_NODES} nodes"))
            ));
        }
        let mut scaled = Scaling::new(self, mesh, wanted);
        for rank in 0..ranks as u32 {
            scaled.add(rank)?;
        }
        let mut notes = self.notes.clone();
        if replicas != mesh.replicas {
            let (recorded, next) = (mesh.replicas, mesh.stride);
            let of = if recorded == 1 { "1 replica".into() } else { format!("{recorded} replicas") };
            let what = format!(
                "{replicas} in place of {of}, the first with rank 0, the next with rank {next}: computing stays as it \
                 was recorded"
            );
            notes.push(Diagnostic::new(CODE, what));
        }
        let groups = scaled.groups.into_iter().collect();
        let (name, recorded) = (self.name.clone(), self.recorded);
        let mut made = Self { name, graphs: scaled.graphs, ranks: scaled.ranks, groups, notes, recorded };
        if made.without_lone_calls() {
            made.notes.push(Diagnostic::new(CODE, "communications of groups of one rank are left out"));
        }
        Ok(made)
    }

    /// Calls of groups of one rank become events; whether there were any.
    fn without_lone_calls(&mut self) -> bool {
        let mut seen: Vec<Option<Box<[bool]>>> = vec![None; self.graphs.len()];
        for rank in &self.ranks {
            let alone = |&group: &u32| self.groups[group as usize].ranks.len() == 1;
            let known = seen[rank.graph as usize].get_or_insert_with(|| vec![true; rank.groups.len()].into());
            known.iter_mut().zip(&rank.groups).for_each(|(known, group)| *known &= alone(group));
        }
        let mut any = false;
        for (graph, alone) in self.graphs.iter_mut().zip(&seen) {
            if let Some(alone) = alone {
                any |= graph.without_calls(|spec| alone[spec.group as usize]);
            }
        }
        any
    }

    /// Whether replicas of a job that has one would meet in this group of one rank.
    fn would_meet(&self, group: &Group) -> bool {
        let mut names: Vec<&str> =
            self.groups.iter().filter(|group| group.ranks.len() == 1).map(|group| &*group.name).collect();
        names.sort_unstable();
        names.dedup();
        let outer = |name: &str| says(name, &["replicate"]);
        let outermost = names.iter().any(|name| outer(name)) && names.iter().any(|name| says(name, &["shard"]));
        group.ranks.len() == 1
            && match names[..] {
                [_] => true,
                _ if outermost => outer(&group.name),
                _ => says(&group.name, &OF_REPLICAS) || !says(&group.name, &OF_OTHERS),
            }
    }

    /// Per group whether it has all replicas of its ranks.
    fn spanning(&self, mesh: Mesh) -> Vec<bool> {
        if mesh.replicas == 1 {
            return self.groups.iter().map(|group| self.would_meet(group)).collect();
        }
        let spans = |group: &Group| mesh.spans(&group.ranks, &group.ranks.iter().copied().collect());
        self.groups.iter().map(spans).collect()
    }

    fn mesh(&self) -> Result<Mesh, Vec<Diagnostic>> {
        let sorted = |group: &Group| {
            let mut ranks = group.ranks.to_vec();
            ranks.sort_unstable();
            ranks
        };
        let known: IndexSet<Vec<u32>, FxBuildHasher> = self.groups.iter().map(sorted).collect();
        let mut meshes: Vec<Mesh> = known.iter().filter_map(|ranks| self.along(ranks, &known)).collect();
        meshes.sort_unstable_by_key(|mesh| u32::MAX - mesh.stride);
        let mut why = None;
        for mesh in meshes {
            match self.unfit(mesh) {
                None => return Ok(mesh),
                Some(finding) => why = why.or(Some(finding)),
            }
        }
        if why.is_none() && self.groups.iter().any(|group| self.would_meet(group)) {
            return Ok(Mesh { replicas: 1, stride: self.ranks.len() as u32 });
        }
        let none = || Diagnostic::new(CODE, "no groups of the job are those of data-parallel replicas");
        let hint = "groups of ranks that stand at equal distances, one for every rank of a replica, make replicas";
        Err(one(why.unwrap_or_else(none).hint(hint)))
    }

    /// The mesh along whose replicas the group of rank 0 is, where every rank is in such a group.
    fn along(&self, ranks: &[u32], known: &IndexSet<Vec<u32>, FxBuildHasher>) -> Option<Mesh> {
        let (&[0, stride, ..], count) = (ranks, ranks.len() as u32) else { return None };
        let mesh = Mesh { replicas: count, stride };
        let size = self.ranks.len() as u32;
        let regular = |at: u32| (0..count).map(|replica| mesh.rank(at, replica)).collect::<Vec<_>>();
        let block = count.checked_mul(stride)?;
        let all = size.is_multiple_of(block)
            && (0..size).filter(|&rank| mesh.replica(rank) == 0).all(|rank| known.contains(&regular(rank)));
        (all && regular(0) == ranks).then_some(mesh)
    }

    /// What ties the replicas of a mesh together, so that they are none.
    fn unfit(&self, mesh: Mesh) -> Option<Diagnostic> {
        let mixed = |group: &&Group| group.ranks.iter().any(|&rank| mesh.replica(rank) != mesh.replica(group.ranks[0]));
        let spans = self.spanning(mesh);
        let tied = self.groups.iter().zip(spans).find(|(group, spans)| !spans && mixed(group));
        if let Some((group, _)) = tied {
            let what = format!("process group {:?} has parts of several replicas: it cannot be scaled", group.name);
            return Some(Diagnostic::new(CODE, what));
        }
        for (rank, bound) in (0..).zip(&self.ranks) {
            if let Some(&peer) = bound.peers.iter().find(|&&peer| mesh.replica(peer) != mesh.replica(rank)) {
                let what = format!("ranks {rank} and {peer} of different replicas send to each other");
                return Some(Diagnostic::new(CODE, what).site(format!("rank {rank}"), &*bound.file));
            }
        }
        None
    }
}

/// A job in the making.
struct Scaling<'a> {
    job: &'a Workload,
    mesh: Mesh,
    wanted: Mesh,
    /// Per group of the job, whether it has all replicas of its ranks.
    spans: Vec<bool>,
    graphs: Vec<Graph>,
    /// Position of the graph that does what one of the job's does with these calls.
    known: FxHashMap<(u32, Vec<CallSpec>), u32>,
    ranks: Vec<Rank>,
    groups: IndexSet<Group, FxBuildHasher>,
}

impl<'a> Scaling<'a> {
    fn new(job: &'a Workload, mesh: Mesh, wanted: Mesh) -> Self {
        let (graphs, known, ranks) = Default::default();
        Self { job, mesh, wanted, spans: job.spanning(mesh), graphs, known, ranks, groups: IndexSet::default() }
    }

    /// Adds the next rank.
    fn add(&mut self, rank: u32) -> Result<(), Vec<Diagnostic>> {
        let replica = self.wanted.replica(rank);
        let like = self.wanted.moved(rank, self.mesh, replica % self.mesh.replicas);
        let bound = &self.job.ranks[like as usize];
        let specs = self.specs(like, replica)?;
        let graph = match self.known.get(&(bound.graph, specs.clone())) {
            Some(&graph) => graph,
            None => {
                let from = &self.job.graphs[bound.graph as usize];
                let same = from.specs().iter().eq(&specs);
                self.graphs.push(if same { from.clone() } else { from.with_specs(&specs) });
                self.known.insert((bound.graph, specs), self.graphs.len() as u32 - 1);
                self.graphs.len() as u32 - 1
            }
        };
        let groups = bound.groups.iter().map(|&group| self.group(group, replica)).collect();
        let inside = |&peer: &u32| self.mesh.moved(peer, self.wanted, replica);
        let peers = bound.peers.iter().map(inside).collect();
        self.ranks.push(Rank { graph, groups, peers, file: Arc::clone(&bound.file) });
        Ok(())
    }

    /// A group of the job as it is at a rank of `replica`.
    fn group(&mut self, group: u32, replica: u32) -> u32 {
        let Group { name, ranks } = &self.job.groups[group as usize];
        let moved = |&rank: &u32, replica: u32| self.mesh.moved(rank, self.wanted, replica);
        let ranks = if self.spans[group as usize] {
            let firsts = ranks.iter().filter(|&&rank| self.mesh.replica(rank) == 0);
            let mut all: Vec<u32> =
                firsts.flat_map(|rank| (0..self.wanted.replicas).map(move |at| moved(rank, at))).collect();
            all.sort_unstable();
            all
        } else {
            ranks.iter().map(|rank| moved(rank, replica)).collect()
        };
        self.groups.insert_full(Group { name: Arc::clone(name), ranks: ranks.into() }).0 as u32
    }

    /// The calls of a rank of `replica` that does what `like` does.
    fn specs(&self, like: u32, replica: u32) -> Result<Vec<CallSpec>, Vec<Diagnostic>> {
        let (graph, bound) = (self.job.graph(like), &self.job.ranks[like as usize]);
        let mut found: Vec<CallSpec> = graph.specs().iter().cloned().collect();
        for spec in &mut found {
            let group = bound.groups[spec.group as usize];
            let spans = self.spans[group as usize];
            if spans {
                self.share(spec, self.job.groups[group as usize].ranks.len() as u64).map_err(|why| {
                    let node = (0..graph.nodes().len() as u32).find(|&at| graph.spec(at) == Some(&*spec)).unwrap_or(0);
                    let finding = Diagnostic::new(CODE, format!("{} of replicas {why}", spec.collective.name()));
                    one(finding.site(self.job.label(like, node), self.job.origin(like, node)))
                })?;
            }
            if let Some(root) = spec.root {
                let of = if spans { self.mesh.replica(root) } else { replica };
                if of >= self.wanted.replicas {
                    let what =
                        format!("the root of a {}, rank {root}, is in a replica that goes", spec.collective.name());
                    return Err(one(Diagnostic::new(CODE, what).site(format!("rank {like}"), &*bound.file)));
                }
                spec.root = Some(self.mesh.moved(root, self.wanted, of));
            }
        }
        for node in graph.nodes() {
            let Work::Part(part) = node.work else { continue };
            let Some(spec) = graph.spec(part.call) else { continue };
            if self.spans[bound.groups[spec.group as usize] as usize] {
                let what = "nodes wait for chunks of a call of replicas, which has others then";
                return Err(one(Diagnostic::new(CODE, what).site(format!("rank {like}"), &*bound.file)));
            }
        }
        Ok(found)
    }

    /// The call of a group that had `ranks` ranks, among as many as it will have; or why there is none.
    fn share(&self, spec: &mut CallSpec, ranks: u64) -> Result<(), &'static str> {
        let count = ranks / u64::from(self.mesh.replicas) * u64::from(self.wanted.replicas);
        let unit = width(spec.dtype.as_deref());
        if spec.dimensions.is_some() {
            return Err("names dimensions of a network");
        }
        match spec.collective {
            Collective::AllReduce | Collective::Reduce | Collective::Broadcast | Collective::Barrier => {}
            Collective::AllGather => {
                spec.bytes = spec.bytes.saturating_mul(ranks).div_ceil(count * unit).saturating_mul(unit);
            }
            Collective::ReduceScatter | Collective::ReduceScatterBlock => {
                spec.bytes = spec.bytes.div_ceil(count * unit).saturating_mul(count * unit);
            }
            Collective::Gather | Collective::Scatter | Collective::AllToAll => {
                return Err("has as many chunks as there are ranks: what each would hold is not known");
            }
        }
        Ok(())
    }
}

/// What names of groups of data-parallel replicas say (PyTorch's device meshes, Megatron-LM, DeepSpeed).
const OF_REPLICAS: [&str; 7] = ["dp", "ddp", "fsdp", "edp", "data", "replicate", "shard"];
/// What those of other dimensions say.
const OF_OTHERS: [&str; 12] =
    ["tp", "tensor", "model", "pp", "pipe", "pipeline", "cp", "context", "ep", "expert", "sp", "sequence"];

/// Whether a name has one of these words, by whatever it is divided.
fn says(name: &str, words: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    name.split(|c: char| !c.is_ascii_alphabetic()).any(|part| words.contains(&part))
}

/// Bytes of an element by the name of its type, as "bf16"; 1 where it has none.
fn width(dtype: Option<&str>) -> u64 {
    let digits = |name: &str| -> String {
        name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect()
    };
    dtype.and_then(|name| digits(name).parse().ok()).map_or(1, |bits: u64| bits.div_ceil(8).clamp(1, 16))
}
