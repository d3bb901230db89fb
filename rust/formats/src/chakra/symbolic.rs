//! Traces whose nodes carry the chunk, thread block and step of a plan, but not its buffers: the public converter's.
//!
//! There one offset serves source and destination, so all that moves is in one memory: the larger of input and output
//! of a plan that runs in place. A step of its own in the plan that is no node here (`nop`) is a gap in the numbers of
//! the steps; its dependency is one more of the next node.

use super::graph::wrong;
use super::pairs::{flag, number};
use super::{Graph, Trace, one};
use ahbm_findings::Diagnostic;
use ahbm_plan::blocks::{Action, Block, Dep, Places, Rank, Slot, Step};
use ahbm_plan::collective::Extent;
use ahbm_plan::{Budget, Plan, Protocol, Space};
use ahbm_wire::chakra::NodeKind;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The attributes that every message of such a trace has.
const ATTRIBUTES: [&str; 5] = ["tb_id", "local_time_step", "msg_chunk_idx", "msg_chunk_cnt", "total_chunk_cnt"];

impl Trace {
    /// True when every message says which chunks it carries.
    pub fn is_symbolic(&self) -> bool {
        let named = |node: &super::Node| ATTRIBUTES.iter().all(|name| node.integer(name).is_some());
        let messages = |g: &Graph| g.nodes.iter().filter(|n| n.kind != NodeKind::Comp).all(named);
        self.is_algorithm() && self.graphs.iter().all(messages)
    }

    /// The plan that a symbolic trace was made of, as far as it can be told.
    ///
    /// # Errors
    /// Why it cannot: `AHBM-F136` attributes out of range or contradicting each other, and what [`Plan::verify`] finds.
    pub fn symbolic_plan(&self, budget: &Budget) -> Result<Plan, Vec<Diagnostic>> {
        let goal = self.goal();
        let scattered = goal.relation().is_some_and(|relation| relation.result == Extent::Own);
        let space = if scattered { Space::Input } else { Space::Output };
        let mut total = None;
        let ranks =
            self.graphs.iter().map(|g| rank(g, space, &mut total)).collect::<Result<Vec<_>, _>>().map_err(one)?;
        let channels = ranks.iter().flat_map(|r| &r.blocks).map(|b| b.channel.saturating_add(1)).max().unwrap_or(1);
        let plan = Plan {
            name: self.name.clone(),
            file: Arc::from(&*self.name),
            places: Places::Nodes(self.graphs.iter().map(|g| Arc::clone(&g.file)).collect()),
            goal,
            in_place: true,
            out_of_place: false,
            protocol: Protocol::Simple,
            channels,
            chunks: total.unwrap_or(1),
            min_bytes: None,
            max_bytes: None,
            ranks,
            relays: 0,
            warnings: Vec::new(),
        };
        plan.verify(budget)?;
        Ok(plan)
    }
}

/// A node's step, and the steps it waits for beside the one before it.
struct Found {
    node: u32,
    step: Step,
    extra: Vec<Dep>,
}

fn rank(graph: &Graph, space: Space, total: &mut Option<u32>) -> Result<Rank, Diagnostic> {
    let places = places(graph)?;
    let mut blocks: BTreeMap<u32, (Block, BTreeMap<u32, Found>)> = BTreeMap::new();
    for at in 0..graph.nodes.len() as u32 {
        let node = &graph.nodes[at as usize];
        if node.kind == NodeKind::Comp {
            continue;
        }
        let small = |name: &str| {
            let n = number(graph, at, name)?.ok_or_else(|| wrong(graph, at, name, "is missing"))?;
            u32::try_from(n).map_err(|_| wrong(graph, at, name, &format!("is {n}")))
        };
        let sends = node.kind == NodeKind::Send;
        let (peer, channel) = (small(if sends { "comm_dst" } else { "comm_src" })?, small("comm_tag")?);
        let own = places[at as usize];
        let (block, steps) = blocks
            .entry(own.block)
            .or_insert_with(|| (Block { channel, line: line(graph, at), ..Block::default() }, BTreeMap::new()));
        let end = if sends { &mut block.send } else { &mut block.recv };
        if *end.get_or_insert(peer) != peer || block.channel != channel {
            return Err(wrong(graph, at, "tb_id", &format!("is {}, which has another peer or channel", own.block)));
        }
        let chunks = small("total_chunk_cnt")?;
        if chunks == 0 || *total.get_or_insert(chunks) != chunks {
            return Err(wrong(graph, at, "total_chunk_cnt", &format!("is {chunks}, other nodes have another number")));
        }
        let action = match (sends, flag(graph, at, "is_rrc")?) {
            (true, _) => Action::Send,
            (false, true) => Action::RecvReduceCopy,
            (false, false) => Action::Recv,
        };
        let depends = node.whole("depid").map_err(|other| wrong(graph, at, "depid", &other))?;
        let wait = match depends.filter(|n| *n >= 0) {
            None => None,
            Some(_) => Some(Dep { block: small("depid")?, step: small("deps")? }),
        };
        let slot = Slot { space, chunk: small("msg_chunk_idx")? };
        let posts = flag(graph, at, "hasdep")?;
        let count = small("msg_chunk_cnt")?;
        let step = Step { action, src: slot, dst: slot, count, wait, posts, line: line(graph, at) };
        let extra = graph.deps(at).iter().map(|&dep| places[dep as usize]);
        let extra = extra.filter(|&dep| dep.block != own.block && Some(dep) != wait).collect();
        if steps.insert(own.step, Found { node: at, step, extra }).is_some() {
            return Err(wrong(graph, at, "local_time_step", &format!("is {} for a second time", own.step)));
        }
    }
    let mut rank = Rank::default();
    for (expected, (id, (mut block, steps))) in (0..).zip(blocks) {
        if id != expected {
            let (label, origin) = graph.site(steps.values().next().map_or(0, |f| f.node));
            let message = format!("rank {} has no thread block {expected}", graph.rank);
            return Err(Diagnostic::new("AHBM-F136", message).site(label, origin));
        }
        block.steps = with_gaps(graph, steps)?;
        rank.blocks.push(block);
    }
    report(&mut rank);
    Ok(rank)
}

/// The step of every node: its own, or for a reduction that of the message it reduces.
fn places(graph: &Graph) -> Result<Vec<Dep>, Diagnostic> {
    let place = |at: u32| {
        let small = |name| number(graph, at, name).map(|n| n.and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX));
        Ok(Dep { block: small("tb_id")?, step: small("local_time_step")? })
    };
    let mut reduced = FxHashMap::default();
    (0..graph.nodes.len() as u32)
        .map(|at| {
            if graph.nodes[at as usize].kind != NodeKind::Comp {
                return place(at);
            }
            let reduces =
                |dep: u32| Ok(graph.nodes[dep as usize].kind == NodeKind::Recv && flag(graph, dep, "is_rrc")?);
            match *graph.deps(at) {
                [recv] if reduces(recv)? && reduced.insert(recv, at).is_none() => place(recv),
                _ => {
                    Err(wrong(graph, at, "is_rrc", "of what this computes on is not set, or this is not all that does"))
                }
            }
        })
        .collect()
}

/// Steps by position, with a `nop` for every number that no node has.
fn with_gaps(graph: &Graph, steps: BTreeMap<u32, Found>) -> Result<Vec<Step>, Diagnostic> {
    let mut list: Vec<Step> = Vec::with_capacity(steps.len());
    for (position, found) in steps {
        let gap = position as usize - list.len();
        // A gap is not longer than the dependencies that explain it, so numbers cannot ask for memory.
        if gap != found.extra.len() {
            let how = format!(
                "is {position}, after {} steps and with {} dependencies beside its own",
                list.len(),
                found.extra.len()
            );
            return Err(wrong(graph, found.node, "local_time_step", &how));
        }
        let none = Slot { space: Space::Input, chunk: 0 };
        let nop = |wait| Step {
            action: Action::Nop,
            src: none,
            dst: none,
            count: 0,
            wait: Some(wait),
            posts: false,
            line: found.step.line,
        };
        list.extend(found.extra.iter().copied().map(nop));
        list.push(found.step);
    }
    Ok(list)
}

/// In a graph whatever is waited for reports.
fn report(rank: &mut Rank) {
    let waits: Vec<Dep> = rank.blocks.iter().flat_map(|b| &b.steps).filter_map(|s| s.wait).collect();
    for dep in waits {
        if let Some(step) = rank.blocks.get_mut(dep.block as usize).and_then(|b| b.steps.get_mut(dep.step as usize)) {
            step.posts = true;
        }
    }
}

/// Ids beyond 32 bits are shown as the largest.
fn line(graph: &Graph, at: u32) -> u32 {
    u32::try_from(graph.nodes[at as usize].id).unwrap_or(u32::MAX)
}
