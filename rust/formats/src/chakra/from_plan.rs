//! A plan as a trace that says everything the plan says, and that consumers of bare traces accept.
//!
//! A step is one to three nodes, in the order COMM_RECV_NODE, COMP_NODE, COMM_SEND_NODE: messages are what they are,
//! everything that a step does to its own memory is computation. Steps of a thread block follow each other by
//! `ctrl_deps`; what a step waits for, and what a node uses of its own step, are `data_deps`.
//!
//! | attribute | arm | of | meaning |
//! |---|---|---|---|
//! | `comm_size` | `int64_val` | messages | bytes at the size that the trace was written for |
//! | `comm_src`, `comm_dst`, `comm_tag` | `int32_val` | messages | peer; the channel |
//! | `msg_chunk_cnt` of `total_chunk_cnt` | `int64_val` | messages | the same size as a share of the buffer |
//! | `tb_id`, `local_time_step` | `int32_val` | all | thread block, and step by position |
//! | `type` | `string_val` | first of a step | `s r rrc rcs rrs rrcs cpy re nop` |
//! | `srcbuf`, `dstbuf`, `srcoff`, `dstoff` | `string_val`, `int64_val` | first of a step | `i`, `o` or `s`, and the chunk |
//! | `depid`, `deps`, `hasdep` | `int32_val` | first of a step | what it waits for; whether it reports |
//!
//! The metadata of every rank holds the header of the plan, the chunks of the rank's buffers, and three lists with
//! one entry per thread block: `tb_send`, `tb_recv` (-1 is no peer) and `tb_chan`. Copies outside thread blocks are
//! nodes of type `precopy` and `postcopy`. A COMP_NODE has no duration: how long memory takes is for a machine to say.

use super::Trace;
use super::pairs::pairs;
use crate::Format;
use ahbm_findings::Diagnostic;
use ahbm_plan::Plan;
use ahbm_plan::blocks::{Action, Block, Dep, Precopy, Rank, Step};
use ahbm_wire::chakra::{Arm, Attribute, Metadata, Names, Node, NodeKind, Value};
use rustc_hash::FxHashMap;

/// How a plan is written as a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanOptions {
    /// Bytes of the larger of input and output, by which `comm_size` is reckoned; `None` takes about 1 MiB.
    pub bytes: Option<u64>,
    /// Orders the sends from a rank to each other one by control dependencies, for consumers that would else let
    /// them contend in another order than they become possible.
    pub link_order: bool,
}

impl Trace {
    /// The trace of a plan, as `name.0.et`, `name.1.et`, ….
    ///
    /// # Errors
    /// `AHBM-U292` steps that a graph cannot express: waits that nothing ends, and steps that wait for each other.
    /// `AHBM-F127` a size that does not split into the plan's chunks.
    pub fn from_plan(name: &str, plan: &Plan, options: &PlanOptions) -> Result<Self, Vec<Diagnostic>> {
        let chunk = chunk_bytes(plan, options.bytes).map_err(|error| vec![error])?;
        let mut writer = Writer { plan, chunk, names: Names::default() };
        let mut ranks = Vec::with_capacity(plan.ranks.len());
        for (id, rank) in (0..).zip(&plan.ranks) {
            ranks.push((writer.metadata(rank), writer.rank(id, rank).map_err(|error| vec![error])?));
        }
        let circles = |findings: Vec<Diagnostic>| {
            let told = |finding: Diagnostic| {
                let what = format!("steps that wait for each other: {}", finding.message);
                let mut told = Format::Chakra.cannot_express(what);
                told.sites = finding.sites;
                told.site("plan", plan.whole().to_string())
            };
            findings.into_iter().map(told).collect::<Vec<_>>()
        };
        let trace = Self::from_ranks(name, ranks).map_err(circles)?;
        if options.link_order { trace.with_link_order() } else { Ok(trace) }
    }

    /// The same trace with the sends of every link one after another, in an order that every dependency, within
    /// ranks and across, allows.
    fn with_link_order(self) -> Result<Self, Vec<Diagnostic>> {
        let levels = self.levels()?;
        let name = self.name.clone();
        let mut ranks = Vec::with_capacity(self.graphs.len());
        for (graph, levels) in self.graphs.into_iter().zip(levels) {
            let mut nodes = graph.nodes;
            let mut sends: Vec<u32> = (0..nodes.len() as u32).collect();
            sends.retain(|&at| nodes[at as usize].kind == NodeKind::Send);
            sends.sort_by_key(|&at| (levels[at as usize], nodes[at as usize].id));
            let mut last: FxHashMap<Option<i128>, u64> = FxHashMap::default();
            for at in sends {
                let node = &mut nodes[at as usize];
                if let Some(before) = last.insert(node.integer("comm_dst"), node.id)
                    && !node.deps().any(|dep| dep == before)
                {
                    node.ctrl_deps.push(before);
                }
            }
            ranks.push((graph.metadata, nodes));
        }
        Self::from_ranks(&name, ranks)
    }

    /// Per rank and node, the length of the longest way to it, messages included.
    fn levels(&self) -> Result<Vec<Vec<u32>>, Vec<Diagnostic>> {
        let mut sent = FxHashMap::default();
        let mut open: Vec<Vec<u32>> =
            self.graphs.iter().map(|g| (0..g.nodes.len() as u32).map(|at| g.deps(at).len() as u32).collect()).collect();
        for pair in pairs(self, false)? {
            sent.insert((pair.send.rank, pair.send.node), pair.recv);
            open[pair.recv.rank as usize][pair.recv.node as usize] += 1;
        }
        let users: Vec<_> = self.graphs.iter().map(super::Graph::users).collect();
        let mut levels: Vec<Vec<u32>> = open.iter().map(|nodes| vec![0; nodes.len()]).collect();
        let mut ready: Vec<(usize, usize)> = Vec::new();
        for (rank, nodes) in open.iter().enumerate() {
            ready.extend(nodes.iter().enumerate().filter(|(_, open)| **open == 0).map(|(at, _)| (rank, at)));
        }
        while let Some((rank, at)) = ready.pop() {
            let next = levels[rank][at] + 1;
            let own = users[rank].of(at as u32).iter().map(|&user| (rank, user as usize));
            let across = sent.get(&(rank as u32, at as u32)).map(|to| (to.rank as usize, to.node as usize));
            for (rank, at) in own.chain(across) {
                levels[rank][at] = levels[rank][at].max(next);
                open[rank][at] -= 1;
                if open[rank][at] == 0 {
                    ready.push((rank, at));
                }
            }
        }
        Ok(levels)
    }
}

/// Bytes of a chunk. Without a size of its own the whole is the least from 1 MiB on whose chunks hold any element.
fn chunk_bytes(plan: &Plan, bytes: Option<u64>) -> Result<u64, Diagnostic> {
    let chunks = u64::from(plan.chunks);
    match bytes {
        None => Ok((1u64 << 20).div_ceil(chunks).next_multiple_of(8)),
        Some(bytes) if bytes > 0 && bytes.is_multiple_of(chunks) => Ok(bytes / chunks),
        Some(bytes) => Err(Diagnostic::new("AHBM-F127", format!("{bytes} bytes do not split into {chunks} chunks"))
            .site("plan", plan.whole().to_string())
            .hint(format!("take {} bytes", bytes.div_ceil(chunks).max(1).saturating_mul(chunks)))),
    }
}

/// The nodes of a step, in order.
fn parts(step: &Step) -> &'static [NodeKind] {
    use NodeKind::{Comp, Recv, Send};
    match step.action {
        // Without chunks there is no message; the step's place in the order remains.
        _ if step.count == 0 => &[Comp],
        Action::Send => &[Send],
        Action::Recv => &[Recv],
        Action::RecvCopySend => &[Recv, Send],
        Action::RecvReduceCopy => &[Recv, Comp],
        Action::RecvReduceSend | Action::RecvReduceCopySend => &[Recv, Comp, Send],
        Action::Copy | Action::Reduce | Action::Nop => &[Comp],
    }
}

struct Writer<'a> {
    plan: &'a Plan,
    chunk: u64,
    names: Names,
}

/// Per thread block, the id of the first node of every step, and the id after the last.
type Ids = Vec<Vec<u64>>;

impl Writer<'_> {
    fn integer(&mut self, name: &str, arm: Arm, n: impl Into<i128>) -> Attribute {
        Attribute::integer(&self.names.intern(name), arm, n)
    }

    fn text(&mut self, name: &str, text: &str) -> Attribute {
        Attribute::text(&self.names.intern(name), text)
    }

    fn metadata(&mut self, rank: &Rank) -> Metadata {
        let plan = self.plan;
        let mut attributes = vec![
            self.text("schema", "1.0.2-chakra.0.0.4"),
            self.text("name", &plan.name),
            self.text("collective", plan.goal.name()),
            self.text("proto", plan.protocol.name()),
            self.integer("nchannels", Arm::Int64, plan.channels),
            self.integer("nchunksperloop", Arm::Int64, plan.chunks),
            self.integer("inplace", Arm::Bool, plan.in_place),
            self.integer("outofplace", Arm::Bool, plan.out_of_place),
        ];
        if let Some((name, n)) = plan.goal.parameter() {
            attributes.push(self.integer(name, Arm::Int64, n));
        }
        for (name, bytes) in [("minBytes", plan.min_bytes), ("maxBytes", plan.max_bytes)] {
            attributes.extend(bytes.map(|bytes| self.integer(name, Arm::Uint64, bytes)));
        }
        for (name, n) in ["i_chunks", "o_chunks", "s_chunks"].into_iter().zip(rank.declared) {
            attributes.push(self.integer(name, Arm::Int64, n));
        }
        let peer = |peer: Option<u32>| peer.map_or(-1, i64::from);
        let column = |each: &dyn Fn(&Block) -> i64| rank.blocks.iter().map(each).collect::<Vec<_>>();
        for (name, column) in [
            ("tb_send", column(&|b| peer(b.send))),
            ("tb_recv", column(&|b| peer(b.recv))),
            ("tb_chan", column(&|b| b.channel.into())),
        ] {
            attributes.push(Attribute::integers(&self.names.intern(name), &column));
        }
        Metadata { version: "0.0.4".into(), attributes }
    }

    fn rank(&mut self, id: u32, rank: &Rank) -> Result<Vec<Node>, Diagnostic> {
        let mut next = rank.before.len() as u64;
        let mut ids: Ids = Vec::with_capacity(rank.blocks.len());
        for block in &rank.blocks {
            let starts = std::iter::once(0).chain(block.steps.iter().map(|s| parts(s).len() as u64));
            ids.push(
                starts
                    .map(|nodes| {
                        next += nodes;
                        next
                    })
                    .collect(),
            );
        }
        let mut nodes = Vec::with_capacity((next as usize).saturating_add(rank.after.len()));
        self.copies(&mut nodes, "precopy", &rank.before, Vec::new());
        let first: Vec<u64> = (0..nodes.len() as u64).next_back().into_iter().collect();
        for (tb, block) in (0..).zip(&rank.blocks) {
            for at in 0..block.steps.len() {
                self.step(&mut nodes, (id, rank), &ids, (tb, at), &first)?;
            }
        }
        let ended = |steps: &Vec<u64>| (steps.len() > 1).then(|| steps[steps.len() - 1] - 1);
        let last: Vec<u64> = ids.iter().filter_map(ended).chain(first).collect();
        self.copies(&mut nodes, "postcopy", &rank.after, last);
        Ok(nodes)
    }

    /// Copies outside every thread block, one after another, the first one after `deps`.
    fn copies(&mut self, nodes: &mut Vec<Node>, kind: &str, copies: &[Precopy], mut deps: Vec<u64>) {
        for (index, copy) in (0u32..).zip(copies) {
            let id = nodes.len() as u64;
            let mut node = Node::new(id, format!("{kind}{index}"), NodeKind::Comp);
            node.data_deps = std::mem::replace(&mut deps, vec![id]);
            node.attributes.push(self.integer("local_time_step", Arm::Int32, index));
            node.attributes.push(self.text("type", kind));
            let numbers = [("srcoff", copy.input), ("dstoff", copy.output), ("msg_chunk_cnt", copy.count)];
            node.attributes.extend(numbers.map(|(name, n)| self.integer(name, Arm::Int64, n)));
            nodes.push(node);
        }
    }

    fn step(
        &mut self,
        nodes: &mut Vec<Node>,
        (id, rank): (u32, &Rank),
        ids: &Ids,
        (tb, at): (u32, usize),
        first: &[u64],
    ) -> Result<(), Diagnostic> {
        let block = &rank.blocks[tb as usize];
        let step = &block.steps[at];
        for (index, &kind) in parts(step).iter().enumerate() {
            let own = ids[tb as usize][at] + index as u64;
            let mut node = Node::new(own, format!("tb{tb}_step{at}"), kind);
            let (message, begins) = (kind != NodeKind::Comp, index == 0);
            // As many as follow: those of a message, of all, and of a step ([`Self::meaning`]).
            let meaning = 5 + usize::from(!message) + 2 * usize::from(step.wait.is_some()) + usize::from(step.posts);
            node.attributes.reserve_exact(2 + if message { 5 } else { 0 } + if begins { meaning } else { 0 });
            if index > 0 {
                node.data_deps.push(own - 1);
            } else {
                node.data_deps.extend(step.wait.map(|dep| self.awaited(id, rank, ids, dep, step)).transpose()?);
                match at {
                    0 => node.ctrl_deps.extend(first),
                    _ => node.ctrl_deps.push(own - 1),
                }
            }
            let sends = kind == NodeKind::Send;
            if kind != NodeKind::Comp {
                let peer = if sends { block.send } else { block.recv };
                let (Some(peer), Ok(channel)) = (peer, i32::try_from(block.channel)) else {
                    let what = format!("a message to or from nobody, or on channel {}", block.channel);
                    let origin = self.plan.origin(id, step.line).to_string();
                    return Err(Format::Chakra.cannot_express(what).site("step", origin));
                };
                node.attributes.extend([
                    self.integer("comm_size", Arm::Int64, u64::from(step.count).saturating_mul(self.chunk)),
                    self.integer(if sends { "comm_dst" } else { "comm_src" }, Arm::Int32, peer),
                    self.integer("comm_tag", Arm::Int32, channel),
                    self.integer("msg_chunk_cnt", Arm::Int64, step.count),
                    self.integer("total_chunk_cnt", Arm::Int64, self.plan.chunks),
                ]);
            }
            node.attributes.push(self.integer("tb_id", Arm::Int32, tb));
            node.attributes.push(self.integer("local_time_step", Arm::Int32, at as u32));
            if index == 0 {
                self.meaning(&mut node, step);
            }
            nodes.push(node);
        }
        Ok(())
    }

    /// Adds to the first node of a step the attributes that reading the step again needs.
    fn meaning(&mut self, node: &mut Node, step: &Step) {
        node.attributes.push(self.text("type", step.action.name()));
        for (names, slot) in [(["srcbuf", "srcoff"], step.src), (["dstbuf", "dstoff"], step.dst)] {
            node.attributes.push(self.text(names[0], slot.space.name()));
            node.attributes.push(self.integer(names[1], Arm::Int64, slot.chunk));
        }
        if node.kind == NodeKind::Comp {
            node.attributes.push(self.integer("msg_chunk_cnt", Arm::Int64, step.count));
        }
        if let Some(dep) = step.wait {
            node.attributes.push(self.integer("depid", Arm::Int32, dep.block));
            node.attributes.push(self.integer("deps", Arm::Int32, dep.step));
        }
        if step.posts {
            node.attributes.push(self.integer("hasdep", Arm::Int32, 1));
        }
    }

    /// The node after which a wait is over: the end of the first step from the awaited one on that reports.
    fn awaited(&self, id: u32, rank: &Rank, ids: &Ids, dep: Dep, step: &Step) -> Result<u64, Diagnostic> {
        let steps = rank.blocks.get(dep.block as usize).map_or(&[][..], |b| &b.steps);
        let reports = (dep.step as usize..steps.len()).find(|&at| steps[at].posts);
        reports.map(|at| ids[dep.block as usize][at + 1] - 1).ok_or_else(|| {
            let what = format!("a wait for step {} of thread block {}, which never reports", dep.step, dep.block);
            Format::Chakra
                .cannot_express(what)
                .site("step", self.plan.origin(id, step.line).to_string())
                .hint("it would wait forever; set hasdep=\"1\" on that step")
        })
    }
}

/// The value of an attribute, whatever arm a number is in.
pub(super) fn same_value(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Integer(_, a), Value::Integer(_, b)) => a == b,
        _ => expected == found,
    }
}
