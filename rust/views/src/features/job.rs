//! The calls of a training job, and what computes beside them.

use super::per;
use ahbm_emulator::training::Terms;
use ahbm_workload::{Graph, Linked, Work};
use std::rc::Rc;

/// A collective of a job. Where its ranks differ, a truth is that of any rank, and a number the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Call {
    /// Binary logarithm of the bytes that its node states, rounded down; 0 for none.
    pub message_size_bin: u32,
    /// Some computation neither waits for the call nor is waited for by it.
    pub pipelined: bool,
    /// Tensors are merged before it: it waits for several computations, or its name or that of a computation that it
    /// waits for says so.
    pub fused: bool,
    /// Some node waits for a chunk of it, or delivers one.
    pub overlap_capable: bool,
    /// Computations that the node itself waits for.
    pub producers: u32,
    /// Nodes that wait for the node itself.
    pub branch_factor: u32,
    /// Calls and messages of the longest chain that ends in it, over all ranks.
    pub dependency_depth: u32,
}

/// A job: its calls in the order of [`Linked::calls`], and sums over the nodes of all ranks. Computations are those of
/// the accelerator.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Job {
    /// The calls.
    pub calls: Vec<Call>,
    /// Computations.
    pub computations: u64,
    /// Arithmetic operations that computations state.
    pub operations: u64,
    /// Time of computations: as stated, else by the machine's roofline.
    pub compute_ps: u64,
    /// Bytes that the nodes of collectives and sends state.
    pub comm_bytes: u64,
}

impl Job {
    /// Reads the columns off a job. `terms` say how long computations take.
    pub fn of(job: &Linked, terms: &Terms) -> Self {
        let workload = &job.workload;
        let graphs: Vec<Known> = workload.graphs.iter().map(|graph| Known::of(graph, terms)).collect();
        let mut found = Self::default();
        for rank in &workload.ranks {
            let known = &graphs[rank.graph as usize];
            found.computations += known.computations;
            found.operations = found.operations.saturating_add(known.operations);
            found.compute_ps = found.compute_ps.saturating_add(known.compute_ps);
            found.comm_bytes = found.comm_bytes.saturating_add(known.comm_bytes);
        }
        let depths = depths(job);
        for (launch, call) in job.calls.iter().enumerate() {
            let mut own = Call {
                message_size_bin: call.spec.bytes.checked_ilog2().unwrap_or(0),
                dependency_depth: depths[launch],
                ..Call::default()
            };
            for (&rank, &node) in workload.groups[call.group as usize].ranks.iter().zip(&call.nodes) {
                let graph = workload.ranks[rank as usize].graph as usize;
                let here = &graphs[graph].nodes[node as usize];
                own.pipelined |= here.pipelined;
                own.fused |= here.fused;
                own.producers = own.producers.max(here.producers);
                own.branch_factor = own.branch_factor.max(workload.graphs[graph].users(node).len() as u32);
            }
            found.calls.push(own);
        }
        for chunk in &job.chunks {
            if let Some(call) = found.calls.get_mut(chunk.share.launch as usize) {
                call.overlap_capable = true;
            }
        }
        found
    }

    /// Computations per byte that is communicated.
    pub fn model_intensity(&self) -> f64 {
        per(self.computations as f64, self.comm_bytes)
    }

    /// Arithmetic operations per byte that is communicated.
    pub fn arithmetic_intensity(&self) -> f64 {
        per(self.operations as f64, self.comm_bytes)
    }

    /// Nanoseconds of computing per byte that is communicated.
    pub fn compute_to_comm_ratio(&self) -> f64 {
        per(self.compute_ps as f64 / 1000.0, self.comm_bytes)
    }
}

/// What a graph says of a call's node.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    pipelined: bool,
    fused: bool,
    producers: u32,
}

/// What a graph says, once for all ranks that have it.
struct Known {
    nodes: Vec<Node>,
    computations: u64,
    operations: u64,
    compute_ps: u64,
    comm_bytes: u64,
}

impl Known {
    fn of(graph: &Graph, terms: &Terms) -> Self {
        let count = graph.nodes().len();
        let computes: Vec<bool> = (0..count as u32).map(|at| computes(graph, at)).collect();
        let order = graph.order();
        let reversed: Vec<u32> = order.iter().rev().copied().collect();
        let before = above_all(order, &computes, |at| graph.deps(at));
        let behind = above_all(&reversed, &computes, |at| graph.users(at));
        let mut known =
            Self { nodes: vec![Node::default(); count], computations: 0, operations: 0, compute_ps: 0, comm_bytes: 0 };
        for at in 0..count as u32 {
            let node = graph.node(at);
            match &node.work {
                Work::Compute(kernel) if computes[at as usize] => {
                    known.computations += 1;
                    known.operations = known.operations.saturating_add(kernel.operations);
                    known.compute_ps = known.compute_ps.saturating_add(terms.cost(graph.name(at), node));
                }
                Work::Call(_) => {
                    known.comm_bytes = known.comm_bytes.saturating_add(graph.spec(at).map_or(0, |spec| spec.bytes));
                    let producers = graph.deps(at).iter().filter(|&&dep| computes[dep as usize]);
                    let merges = |&dep: &u32| merges(graph.name(dep));
                    known.nodes[at as usize] = Node {
                        pipelined: !(before[at as usize] && behind[at as usize]),
                        fused: producers.clone().count() > 1 || producers.clone().any(merges) || merges(&at),
                        producers: producers.count() as u32,
                    };
                }
                Work::Send(message) => known.comm_bytes = known.comm_bytes.saturating_add(message.bytes),
                _ => {}
            }
        }
        known
    }
}

/// A computation of the accelerator that takes time, as far as the source tells.
fn computes(graph: &Graph, at: u32) -> bool {
    let node = graph.node(at);
    matches!(node.work, Work::Compute(kernel) if !node.cpu && (node.ps > 0 || !kernel.is_empty()))
}

/// Words of the names of operators and kernels that merge tensors.
const MERGES: [&str; 5] = ["concat", "catarray", "flatten", "coalesc", "bucket"];

/// Whether a name says that tensors are merged: one of its words is `cat` or begins with one of [`MERGES`].
fn merges(name: &str) -> bool {
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| {
        let starts = |begin: &&str| word.get(..begin.len()).is_some_and(|start| start.eq_ignore_ascii_case(begin));
        word.eq_ignore_ascii_case("cat") || MERGES.iter().any(starts)
    })
}

/// Per node, whether every computation that stands before it in `order` is one that it depends on.
///
/// Among the computations before a node, those count on which no other one depends: the last ones. All are behind the
/// node where every last one is, and the last ones that a node depends on reach it through nodes that compute nothing.
fn above_all<'a>(order: &[u32], computes: &[bool], deps: impl Fn(u32) -> &'a [u32]) -> Vec<bool> {
    let count = computes.len();
    let mut all = vec![false; count];
    let mut last = vec![false; count];
    let mut lasts = 0;
    // Per node that computes nothing, the last computations that reach it; a computation stands for itself.
    let mut reached: Vec<Rc<[u32]>> = vec![Rc::from([]); count];
    for &at in order {
        let list = match deps(at) {
            [one] if !computes[*one as usize] => Rc::clone(&reached[*one as usize]),
            deps => {
                let mut list: Vec<u32> = Vec::new();
                for &dep in deps {
                    list.extend(reached[dep as usize].iter().copied().filter(|&at| last[at as usize]));
                    list.extend(Some(dep).filter(|&dep| last[dep as usize]));
                }
                list.sort_unstable();
                list.dedup();
                list.into()
            }
        };
        all[at as usize] = list.iter().filter(|&&at| last[at as usize]).count() == lasts;
        if computes[at as usize] {
            for &covered in list.iter() {
                lasts -= usize::from(std::mem::take(&mut last[covered as usize]));
            }
            last[at as usize] = true;
            lasts += 1;
        } else {
            reached[at as usize] = list;
        }
    }
    all
}

/// Per call and message, how many the longest chain has that ends in it.
fn depths(job: &Linked) -> Vec<u32> {
    let mut walk = Depths {
        job,
        launches: vec![0; job.launches()],
        missing: (0..job.launches() as u32).map(|launch| job.ranks(launch).len() as u32).collect(),
        nodes: vec![0; job.nodes()],
        open: Vec::with_capacity(job.nodes()),
        ready: Vec::new(),
    };
    for rank in 0..job.workload.ranks.len() as u32 {
        let graph = job.workload.graph(rank);
        walk.open.extend((0..graph.nodes().len() as u32).map(|at| graph.deps(at).len() as u32));
        walk.ready.extend((0..graph.nodes().len() as u32).filter(|&at| graph.deps(at).is_empty()).map(|at| (rank, at)));
    }
    while let Some((rank, at)) = walk.ready.pop() {
        walk.arrive(rank, at);
    }
    walk.launches
}

/// Follows a job node by node.
struct Depths<'a> {
    job: &'a Linked,
    launches: Vec<u32>,
    /// Per launch, the parts that have not arrived.
    missing: Vec<u32>,
    /// Per place, the depth of what it has waited for.
    nodes: Vec<u32>,
    /// Per place, the dependencies that have not ended.
    open: Vec<u32>,
    ready: Vec<(u32, u32)>,
}

impl Depths<'_> {
    fn arrive(&mut self, rank: u32, at: u32) {
        let place = self.job.place(rank, at);
        let Some(share) = self.job.share(place) else { return self.end(rank, at, self.nodes[place as usize]) };
        let launch = share.launch as usize;
        self.missing[launch] -= 1;
        let own = self.nodes[place as usize];
        match (self.job.is_message(share.launch), share.part) {
            (true, 0) => {
                self.launches[launch] = own + 1;
                self.end(rank, at, own + 1);
            }
            (true, _) => {}
            (false, _) => self.launches[launch] = self.launches[launch].max(own + 1),
        }
        if self.missing[launch] > 0 {
            return;
        }
        // A sender has ended already.
        let first = usize::from(self.job.is_message(share.launch));
        for &place in &self.job.places(share.launch)[first..] {
            let (rank, at) = self.job.node(place);
            self.end(rank, at, self.launches[launch].max(self.nodes[place as usize]));
        }
    }

    fn end(&mut self, rank: u32, at: u32, depth: u32) {
        let job = self.job;
        for &user in job.workload.graph(rank).users(at) {
            let place = job.place(rank, user) as usize;
            self.nodes[place] = self.nodes[place].max(depth);
            self.open[place] -= 1;
            if self.open[place] == 0 {
                self.ready.push((rank, user));
            }
        }
    }
}
