//! A trace as the plan it was written from: what [`super::from_plan`] says, read again and held against its order.

use super::from_plan::{PlanOptions, same_value};
use super::graph::wrong;
use super::pairs::{flag, number, word};
use super::{Graph, Trace, one};
use ahbm_findings::Diagnostic;
use ahbm_plan::blocks::{Action, Block, Dep, Places, Precopy, Rank, Slot, Step};
use ahbm_plan::{Budget, Goal, Plan, Protocol, Space};
use ahbm_wire::chakra::{Node, NodeKind, Value};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Trace {
    /// True when every rank lists thread blocks: such a trace says which bytes travel.
    pub fn is_plan(&self) -> bool {
        let listed =
            |g: &Graph| ["tb_send", "tb_recv", "tb_chan"].iter().all(|name| g.metadata.integers(name).is_some());
        !self.graphs.is_empty() && self.graphs.iter().all(listed)
    }

    /// The plan that a trace with thread blocks was written from.
    ///
    /// # Errors
    /// `AHBM-F136` attributes that are missing, out of range or contradict each other, `AHBM-F130` nodes whose
    /// dependencies are not those of their steps, `AHBM-U201` an unknown step type, and what [`Plan::verify`] finds.
    pub fn to_plan(&self, budget: &Budget) -> Result<Plan, Vec<Diagnostic>> {
        let header = Header::of(self).map_err(one)?;
        let mut ranks = Vec::with_capacity(self.graphs.len());
        let mut findings = Vec::new();
        for graph in &self.graphs {
            match rank(graph) {
                Ok(rank) => ranks.push(rank),
                Err(finding) => findings.push(finding),
            }
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        let plan = header.plan(self, ranks);
        plan.verify(budget)?;
        self.follows(&plan)?;
        Ok(plan)
    }

    /// Whether nodes, sizes and dependencies are those of the plan. Sends of one link may have an order of their own.
    fn follows(&self, plan: &Plan) -> Result<(), Vec<Diagnostic>> {
        let chunk = self.chunk_bytes().map_err(one)?;
        let options = PlanOptions { bytes: chunk.map(|c| c.saturating_mul(plan.chunks.into())), link_order: false };
        let expected = Self::from_plan(&self.name, plan, &options)?;
        let mut findings = Vec::new();
        for (graph, expected) in self.graphs.iter().zip(&expected.graphs) {
            findings.extend(follows(graph, expected).err());
        }
        if findings.is_empty() { Ok(()) } else { Err(findings) }
    }

    /// Bytes of a chunk, as the first message has them.
    fn chunk_bytes(&self) -> Result<Option<u64>, Diagnostic> {
        for graph in &self.graphs {
            if let Some(at) = graph.nodes.iter().position(|n| matches!(n.kind, NodeKind::Send | NodeKind::Recv)) {
                let at = at as u32;
                let chunks = needed(graph, at, "msg_chunk_cnt")?;
                let bytes = needed(graph, at, "comm_size")?;
                if chunks == 0 || bytes == 0 || !bytes.is_multiple_of(chunks) {
                    return Err(wrong(graph, at, "comm_size", &format!("is {bytes}, for {chunks} chunks")));
                }
                return Ok(Some(bytes / chunks));
            }
        }
        Ok(None)
    }
}

/// The facts about the plan as a whole that all ranks state.
struct Header {
    name: String,
    goal: Goal,
    protocol: Protocol,
    channels: u32,
    chunks: u32,
    places: [bool; 2],
    bytes: [Option<u64>; 2],
}

impl Header {
    fn of(trace: &Trace) -> Result<Self, Diagnostic> {
        let graph = &trace.graphs[0];
        let metadata = &graph.metadata;
        let missing = |name: &str| unusable(graph, name, "is missing");
        let text = |name: &str| metadata.text(name).ok_or_else(|| missing(name));
        let optional =
            |name: &str, most: u64| match metadata.whole(name).map_err(|other| unusable(graph, name, &other))? {
                None => Ok(None),
                Some(n) if (0..=i128::from(most)).contains(&n) => Ok(Some(n as u64)),
                Some(n) => Err(unusable(graph, name, &format!("is {n}"))),
            };
        let integer = |name: &str, most: u64| optional(name, most)?.ok_or_else(|| missing(name));
        let proto = text("proto")?;
        let mut goal = Goal::parse(text("collective")?);
        if let Some((name, _)) = goal.parameter() {
            goal = goal.with_parameter(integer(name, u32::MAX.into())? as u32);
        }
        let chunks = integer("nchunksperloop", u32::MAX.into())? as u32;
        if chunks == 0 {
            return Err(unusable(graph, "nchunksperloop", "is 0"));
        }
        Ok(Self {
            name: text("name")?.to_owned(),
            goal,
            protocol: Protocol::parse(proto).ok_or_else(|| unusable(graph, "proto", "is no protocol"))?,
            channels: integer("nchannels", u32::MAX.into())? as u32,
            chunks,
            places: [integer("inplace", 1)? == 1, integer("outofplace", 1)? == 1],
            bytes: [optional("minBytes", u64::MAX)?, optional("maxBytes", u64::MAX)?],
        })
    }

    fn plan(self, trace: &Trace, ranks: Vec<Rank>) -> Plan {
        let used = ranks.iter().flat_map(|r| &r.blocks).map(|b| b.channel.saturating_add(1)).max().unwrap_or(1);
        Plan {
            name: self.name,
            file: Arc::from(&*trace.name),
            places: Places::Nodes(trace.graphs.iter().map(|g| Arc::clone(&g.file)).collect()),
            goal: self.goal,
            in_place: self.places[0],
            out_of_place: self.places[1],
            protocol: self.protocol,
            channels: self.channels.max(used),
            chunks: self.chunks,
            min_bytes: self.bytes[0],
            max_bytes: self.bytes[1],
            ranks,
            relays: 0,
            warnings: Vec::new(),
        }
    }
}

/// The thread blocks and copies of a rank.
fn rank(graph: &Graph) -> Result<Rank, Diagnostic> {
    let mut rank = Rank { blocks: blocks(graph)?, ..Rank::default() };
    for (declared, name) in rank.declared.iter_mut().zip(["i_chunks", "o_chunks", "s_chunks"]) {
        let found = graph.metadata.whole(name).map_err(|other| unusable(graph, name, &other))?;
        let found = found.and_then(|n| u32::try_from(n).ok());
        *declared = found.ok_or_else(|| unusable(graph, name, "is missing or out of range"))?;
    }
    let mut steps: Vec<BTreeMap<u32, (u32, Step)>> = Vec::new();
    steps.resize_with(rank.blocks.len(), BTreeMap::new);
    let mut copies: [BTreeMap<u32, (u32, Precopy)>; 2] = Default::default();
    for at in 0..graph.nodes.len() as u32 {
        let node = &graph.nodes[at as usize];
        let Some(kind) = word(graph, at, "type")? else { continue };
        let position = small(graph, at, "local_time_step")?;
        let line = u32::try_from(node.id).map_err(|_| wrong(graph, at, "id", &format!("is {}", node.id)))?;
        let twice = match kind {
            "precopy" | "postcopy" => {
                let count = small(graph, at, "msg_chunk_cnt")?;
                let copy =
                    Precopy { input: small(graph, at, "srcoff")?, output: small(graph, at, "dstoff")?, count, line };
                copies[usize::from(kind == "postcopy")].insert(position, (at, copy)).is_some()
            }
            _ => {
                let block = small(graph, at, "tb_id")?;
                let list = steps.get_mut(block as usize);
                let list = list.ok_or_else(|| wrong(graph, at, "tb_id", &format!("is {block}")))?;
                list.insert(position, (at, step(graph, at, kind, line)?)).is_some()
            }
        };
        if twice {
            return Err(wrong(graph, at, "local_time_step", &format!("is {position} for a second time")));
        }
    }
    for (block, steps) in rank.blocks.iter_mut().zip(steps) {
        block.steps = dense(graph, steps)?;
        block.line = block.steps.first().map_or(0, |s| s.line);
    }
    let [before, after] = copies;
    (rank.before, rank.after) = (dense(graph, before)?, dense(graph, after)?);
    Ok(rank)
}

/// Peers and channels from the lists of the metadata.
fn blocks(graph: &Graph) -> Result<Vec<Block>, Diagnostic> {
    let column = |name: &str| {
        graph.metadata.integers(name).ok_or_else(|| unusable(graph, name, "is missing or no list of integers"))
    };
    let [send, recv, channel] = [column("tb_send")?, column("tb_recv")?, column("tb_chan")?];
    if send.len() != recv.len() || send.len() != channel.len() {
        return Err(unusable(graph, "tb_send, tb_recv or tb_chan", "is of another length"));
    }
    let number = |name: &str, n: i64| u32::try_from(n).map_err(|_| unusable(graph, name, &format!("has {n}")));
    let peer = |name: &str, n: i64| if n == -1 { Ok(None) } else { number(name, n).map(Some) };
    (0..send.len())
        .map(|tb| {
            Ok(Block {
                send: peer("tb_send", send[tb])?,
                recv: peer("tb_recv", recv[tb])?,
                channel: number("tb_chan", channel[tb])?,
                ..Block::default()
            })
        })
        .collect()
}

fn step(graph: &Graph, at: u32, kind: &str, line: u32) -> Result<Step, Diagnostic> {
    let action = Action::ALL.into_iter().find(|action| action.name() == kind).ok_or_else(|| {
        let shown: String = kind.chars().take(40).collect();
        let (label, origin) = graph.site(at);
        Diagnostic::new("AHBM-U201", format!("steps of type {shown:?} are not supported")).site(label, origin)
    })?;
    let slot = |space: &str, chunk: &str| {
        let text = word(graph, at, space)?;
        let space = [Space::Input, Space::Output, Space::Scratch].into_iter().find(|s| Some(s.name()) == text);
        let space = space.ok_or_else(|| wrong(graph, at, "srcbuf or dstbuf", "is not i, o or s"))?;
        Ok(Slot { space, chunk: small(graph, at, chunk)? })
    };
    let wait = match number(graph, at, "depid")? {
        None => None,
        Some(_) => Some(Dep { block: small(graph, at, "depid")?, step: small(graph, at, "deps")? }),
    };
    Ok(Step {
        action,
        src: slot("srcbuf", "srcoff")?,
        dst: slot("dstbuf", "dstoff")?,
        count: small(graph, at, "msg_chunk_cnt")?,
        wait,
        posts: flag(graph, at, "hasdep")?,
        line,
    })
}

/// Steps by position, without gaps.
fn dense<T>(graph: &Graph, steps: BTreeMap<u32, (u32, T)>) -> Result<Vec<T>, Diagnostic> {
    (0..)
        .zip(steps)
        .map(|(expected, (position, (at, step)))| {
            if position == expected {
                return Ok(step);
            }
            Err(wrong(graph, at, "local_time_step", &format!("is {position}, but there is no step {expected}")))
        })
        .collect()
}

fn needed(graph: &Graph, at: u32, name: &str) -> Result<u64, Diagnostic> {
    number(graph, at, name)?.ok_or_else(|| wrong(graph, at, name, "is missing"))
}

fn small(graph: &Graph, at: u32, name: &str) -> Result<u32, Diagnostic> {
    let n = needed(graph, at, name)?;
    u32::try_from(n).map_err(|_| wrong(graph, at, name, &format!("is {n}")))
}

fn unusable(graph: &Graph, name: &str, how: &str) -> Diagnostic {
    Diagnostic::new("AHBM-F136", format!("attribute {name} {how}")).site("metadata", &*graph.file)
}

/// The identity of a node in a plan: thread block (none for copies outside), step, kind, and which copies.
type Key = (Option<i128>, Option<i128>, NodeKind, bool);

fn key(node: &Node) -> Key {
    let after = node.text("type") == Some("postcopy");
    (node.integer("tb_id"), node.integer("local_time_step"), node.kind, after)
}

fn follows(graph: &Graph, expected: &Graph) -> Result<(), Diagnostic> {
    for wanted in &expected.metadata.attributes {
        let found = graph.metadata.attributes.iter().find(|a| a.name == wanted.name);
        // The schema's name is the producer's, and ranks may spell a collective as they like.
        let free = matches!(&*wanted.name, "schema" | "collective");
        if !free && !found.is_some_and(|found| same_value(&wanted.value, &found.value)) {
            return Err(unusable(graph, &wanted.name, "is not what rank 0 says"));
        }
    }
    let nodes: FxHashMap<Key, u32> = expected.nodes.iter().enumerate().map(|(at, n)| (key(n), at as u32)).collect();
    if graph.nodes.len() != expected.nodes.len() {
        let (has, wants) = (graph.nodes.len(), expected.nodes.len());
        let message = format!("rank {} has {has} nodes, its steps make {wants}", graph.rank);
        return Err(Diagnostic::new("AHBM-F130", message).site("trace", &*graph.file));
    }
    let order = |at: u32, message: String| {
        let (label, origin) = graph.site(at);
        Err(Diagnostic::new("AHBM-F130", message).site(label, origin))
    };
    let mut seen = vec![false; expected.nodes.len()];
    for at in 0..graph.nodes.len() as u32 {
        let node = &graph.nodes[at as usize];
        let there = match nodes.get(&key(node)) {
            Some(&there) if !std::mem::replace(&mut seen[there as usize], true) => there,
            _ => return order(at, "no step makes this node, or it is there twice".into()),
        };
        let wanted = &expected.nodes[there as usize];
        for attribute in &wanted.attributes {
            let found = node.attributes.iter().find(|a| a.name == attribute.name).map(|a| &a.value);
            if !found.is_some_and(|found| same_value(&attribute.value, found)) {
                let found = found.map_or("is missing".into(), |found| format!("is {}", shown(found)));
                return Err(wrong(
                    graph,
                    at,
                    &attribute.name,
                    &format!("{found}; its step says {}", shown(&attribute.value)),
                ));
            }
        }
        let waits: Vec<u32> =
            graph.deps(at).iter().filter_map(|&dep| nodes.get(&key(&graph.nodes[dep as usize])).copied()).collect();
        if let Some(&lost) = expected.deps(there).iter().find(|dep| !waits.contains(dep)) {
            return order(at, format!("it does not wait for {}, as its step does", expected.nodes[lost as usize].name));
        }
        let is_peer =
            |node: &Node| node.kind == NodeKind::Send && node.integer("comm_dst") == wanted.integer("comm_dst");
        let added = |dep: &&u32| !expected.deps(there).contains(dep);
        if let Some(&more) =
            waits.iter().find(|dep| added(dep) && !(is_peer(wanted) && is_peer(&expected.nodes[**dep as usize])))
        {
            return order(at, format!("it waits for {}, but its step does not", expected.nodes[more as usize].name));
        }
    }
    Ok(())
}

fn shown(value: &Value) -> String {
    match value {
        Value::Integer(_, n) => n.to_string(),
        Value::Text(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        _ => "of another type".into(),
    }
}
