//! Ranks whose files differ in the groups and peers that they name: compared with the file of a rank that was read,
//! without reading them again.

use ahbm_wire::chakra::{Attribute, Names, Node, NodeKind, Value};
use ahbm_wire::protobuf::{Malformed, Payload, Reader};
use ahbm_workload::{Gather, Graph, Work};
use std::sync::Arc;

/// Most files that others are compared with, and most bytes that they may have together.
const MOST: usize = 16;
const MOST_BYTES: usize = 128 << 20;
/// So many files in a row that repeat none end the comparing: their ranks differ in more than groups and peers.
const PATIENCE: u32 = 32;
/// Field of a node's attributes.
const ATTRIBUTE: u32 = 10;

/// The slots of a node: of its group, and of its peer.
#[derive(Debug, Clone, Copy, Default)]
struct Slots {
    group: Option<u32>,
    peer: Option<u32>,
    /// It sends: the attribute `comm_dst` names the peer. It receives: `comm_src` does.
    sends: bool,
}

/// The file of a rank.
#[derive(Debug)]
struct Pattern {
    bytes: Vec<u8>,
    graph: u32,
    /// Per message of the file; metadata has none.
    slots: Vec<Slots>,
    /// What its slots stand for.
    groups: Vec<Box<str>>,
    peers: Vec<u32>,
    nodes: u64,
    deps: u64,
}

/// The files that others may repeat, the one that was repeated last at the end.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    known: Vec<Pattern>,
    /// Files in a row that repeated none.
    misses: u32,
}

/// What the slots of a rank stand for.
struct Binding<'a> {
    groups: Vec<Option<&'a str>>,
    peers: Vec<Option<u32>>,
}

impl Patterns {
    /// Adds a rank whose file repeats a known one, and says how many nodes and dependencies it has. Nothing where it has
    /// to be read.
    pub(super) fn repeat(
        &mut self,
        gather: &mut Gather,
        rank: u32,
        file: &Arc<str>,
        bytes: &[u8],
    ) -> Option<(u64, u64)> {
        if self.misses == PATIENCE {
            return None;
        }
        self.misses += 1;
        let mut compared = |pattern: &Pattern| pattern.binding(bytes).ok().flatten()?.settled(gather, rank, file);
        let (at, (groups, peers)) =
            (0..self.known.len()).rev().find_map(|at| compared(&self.known[at]).map(|bound| (at, bound)))?;
        let pattern = self.known.remove(at);
        gather.bind(pattern.graph, groups, peers, Arc::clone(file));
        let size = (pattern.nodes, pattern.deps);
        self.known.push(pattern);
        self.misses = 0;
        Some(size)
    }

    /// Keeps the file of the rank that was added last, unless it holds what binds it to its rank.
    pub(super) fn keep(&mut self, gather: &Gather, bytes: &[u8], nodes: &[Facts]) {
        let held: usize = self.known.iter().map(|pattern| pattern.bytes.len()).sum();
        if self.misses == PATIENCE
            || self.known.len() == MOST
            || held + bytes.len() > MOST_BYTES
            || nodes.iter().any(|node| node.bound)
        {
            return;
        }
        let Some((rank, graph)) = gather.last() else { return };
        let slots = nodes.iter().map(|node| Slots::of(graph, node.id)).collect::<Option<Vec<_>>>();
        let Some(mut slots) = slots else { return };
        // Metadata, where the file has it, is the first message.
        if let Ok(messages) = count(bytes) {
            let metadata = messages - slots.len().min(messages);
            slots.splice(0..0, std::iter::repeat_n(Slots::default(), metadata));
        }
        let group = |&group: &u32| gather.group_name(group).into();
        self.known.push(Pattern {
            bytes: bytes.to_vec(),
            graph: rank.graph,
            slots,
            groups: rank.groups.iter().map(group).collect(),
            peers: rank.peers.to_vec(),
            nodes: nodes.len() as u64,
            deps: nodes.iter().map(|node| node.deps).sum(),
        });
    }
}

/// What a file says of a node, as far as it decides whether other files may repeat it.
pub(super) struct Facts {
    id: u64,
    deps: u64,
    /// Group or peer are not stated in the plain attributes.
    bound: bool,
}

impl Facts {
    pub(super) fn of(node: &Node) -> Self {
        let peer = match node.kind {
            NodeKind::Send => node.integer("comm_dst"),
            NodeKind::Recv => node.integer("comm_src"),
            _ => Some(0),
        };
        let bound = peer.is_none() || node.integer("pg_name").is_some() || node.integers("ranks").is_some();
        Self { id: node.id, deps: (node.ctrl_deps.len() + node.data_deps.len()) as u64, bound }
    }
}

impl Slots {
    fn of(graph: &Graph, id: u64) -> Option<Self> {
        let at = graph.nodes().binary_search_by_key(&id, |node| node.id).ok()?;
        Some(match &graph.nodes()[at].work {
            Work::Call(_) => Self { group: graph.spec(at as u32).map(|spec| spec.group), ..Self::default() },
            Work::Send(message) => Self { group: message.group, peer: Some(message.peer), sends: true },
            Work::Recv(message) => Self { group: message.group, peer: Some(message.peer), sends: false },
            _ => Self::default(),
        })
    }
}

fn count(bytes: &[u8]) -> Result<usize, Malformed> {
    let (mut reader, mut messages) = (Reader::new(bytes), 0);
    while !reader.is_empty() {
        reader.message()?;
        messages += 1;
    }
    Ok(messages)
}

impl Pattern {
    /// What another file's slots stand for; nothing where it differs in anything else.
    fn binding<'a>(&'a self, bytes: &'a [u8]) -> Result<Option<Binding<'a>>, Malformed> {
        let mut binding = Binding { groups: vec![None; self.groups.len()], peers: vec![None; self.peers.len()] };
        let (mut own, mut other) = (Reader::new(&self.bytes), Reader::new(bytes));
        for slots in &self.slots {
            if own.is_empty() || other.is_empty() {
                return Ok(None);
            }
            let (own, other) = (own.message()?, other.message()?);
            let (mut group, mut peer) = (None, None);
            if own.rest() != other.rest() && !differ(own, other, slots, &mut group, &mut peer)? {
                return Ok(None);
            }
            if let Some(slot) = slots.group {
                let name = group.unwrap_or(&self.groups[slot as usize]);
                if *binding.groups[slot as usize].get_or_insert(name) != name {
                    return Ok(None);
                }
            }
            if let Some(slot) = slots.peer {
                let rank = peer.unwrap_or(self.peers[slot as usize]);
                if *binding.peers[slot as usize].get_or_insert(rank) != rank {
                    return Ok(None);
                }
            }
        }
        Ok((own.is_empty() && other.is_empty()).then_some(binding))
    }
}

/// Whether two nodes differ in their group and peer alone; finds those of the other one.
fn differ<'a>(
    mut own: Reader<'a>,
    mut other: Reader<'a>,
    slots: &Slots,
    group: &mut Option<&'a str>,
    peer: &mut Option<u32>,
) -> Result<bool, Malformed> {
    loop {
        let (Some((field, a)), Some((number, b))) = (own.field()?, other.field()?) else {
            return Ok(own.is_empty() && other.is_empty());
        };
        let same = match (&a, &b) {
            (Payload::Varint(a), Payload::Varint(b)) | (Payload::Fixed64(a), Payload::Fixed64(b)) => a == b,
            (Payload::Fixed32(a), Payload::Fixed32(b)) => a == b,
            (Payload::Message(a), Payload::Message(b)) => a.rest() == b.rest(),
            _ => false,
        };
        if field != number {
            return Ok(false);
        }
        if same {
            continue;
        }
        let (ATTRIBUTE, Payload::Message(a), Payload::Message(b)) = (field, a, b) else { return Ok(false) };
        let mut names = Names::default();
        let (a, b) = (Attribute::read(a, &mut names)?, b);
        let text = text_of(b.clone())?;
        let b = Attribute::read(b, &mut names)?;
        if a.name != b.name || a.doc != b.doc {
            return Ok(false);
        }
        match (&*a.name, &a.value, &b.value) {
            ("pg_name", Value::Text(_), Value::Text(_)) if slots.group.is_some() && text.is_some() => *group = text,
            ("comm_dst" | "comm_src", Value::Integer(own, _), Value::Integer(arm, rank)) if own == arm => {
                let names_peer = (&*a.name == "comm_dst") == slots.sends;
                if slots.peer.is_some() && names_peer {
                    match u32::try_from(*rank) {
                        Ok(rank) => *peer = Some(rank),
                        Err(_) => return Ok(false),
                    }
                }
            }
            _ => return Ok(false),
        }
    }
}

/// The text of an attribute.
fn text_of(mut attribute: Reader<'_>) -> Result<Option<&str>, Malformed> {
    let mut text = None;
    while let Some((field, payload)) = attribute.field()? {
        if let (29, Payload::Message(value)) = (field, payload) {
            text = Some(value.text()?);
        }
    }
    Ok(text)
}

impl Binding<'_> {
    /// Groups and peers, where a rank that is read would have as many, in this order.
    fn settled(self, gather: &mut Gather, rank: u32, file: &Arc<str>) -> Option<(Vec<u32>, Vec<u32>)> {
        let peers = self.peers.into_iter().collect::<Option<Vec<u32>>>()?;
        let names = self.groups.into_iter().collect::<Option<Vec<&str>>>()?;
        let distinct = |list: &mut Vec<u32>| {
            list.sort_unstable();
            list.windows(2).all(|pair| pair[0] != pair[1])
        };
        let fits = |&peer: &u32| peer < gather.size() && peer != rank;
        if !peers.iter().all(fits) || !distinct(&mut peers.clone()) {
            return None;
        }
        let group = |name: &&str| gather.group(rank, name, None, || file.to_string()).ok();
        let groups = names.iter().map(group).collect::<Option<Vec<u32>>>()?;
        distinct(&mut groups.clone()).then_some((groups, peers))
    }
}
