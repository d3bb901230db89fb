//! Algorithm graphs as programs: dataflow, an agent per chain, a queue per pair of chains and tag.
//!
//! Every node is issued as soon as its dependencies have finished; a send has finished when it is posted.
//! Messages carry zeros: a trace says how many bytes travel, not which. The durations of COMP nodes include all
//! accesses to memory, so messages cost their travel only.

use super::graph::wrong;
use super::pairs::{Pair, Size, pairs, size};
use super::{Graph, Trace, one};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Direction, Machine};
use ahbm_plan::{Budget, Goal, Limit, LowerOptions, Messages, Protocol, Site};
use ahbm_program::{
    AgentId, Body, BodyBuilder, ChannelSettings, Comm, Control, Dtype, Locus, Math, Origin, Program, ProgramBuilder,
    Scalar, Tile,
};
use ahbm_wire::chakra::NodeKind;
use ahbm_workload::{Chains, Link};
use rustc_hash::FxHashMap;

/// Bytes of a message that no machine holds.
const LARGEST: u64 = 1 << 48;

/// The size of a message of the trace in the program.
#[derive(Clone, Copy)]
enum Sizing {
    /// Its own bytes, or its share of the first size where that is not zero. Own bytes are then scaled: they are those
    /// for the second size, where that is not zero.
    Bytes(u64, u64),
    /// One element, for checks.
    Unit,
}

impl Trace {
    /// The algorithm on a machine: the chains of a rank on the PEs of its SIP in turn. `options.bytes` is
    /// the size that symbolic messages are shares of; 0 takes the sizes that the trace states. Where they are
    /// those for `options.stated_bytes`, they are scaled. Of the other options only `slots`, `tier`, `credit_bytes`, `sips` and `budget` apply; a trace knows no bound on queues, so
    /// `slots: u32::MAX` is its own meaning.
    ///
    /// # Errors
    /// `AHBM-U231` not an algorithm, `AHBM-U232` a size that is missing or that the trace cannot take,
    /// `AHBM-U204` more ranks than SIPs, `AHBM-F136` to `F138`, `AHBM-B209`.
    pub fn lower(&self, machine: &Machine, options: &LowerOptions) -> Result<Program, Vec<Diagnostic>> {
        let site = Site::of(machine, options, &self.name, self.graphs.len());
        self.lower_at(
            &site.map_err(|error| vec![error.site("trace", &*self.name)])?,
            Sizing::Bytes(options.bytes, options.stated_bytes),
            options,
        )
    }

    /// The algorithm without a machine, one element per message: what a check of its progress runs.
    ///
    /// # Errors
    /// As [`Trace::lower`], but for machine and sizes.
    pub fn lower_for_check(&self, slots: u32, budget: &Budget) -> Result<Program, Vec<Diagnostic>> {
        let options = LowerOptions { slots, budget: *budget, ..LowerOptions::new(0, Dtype::U8) };
        self.lower_at(&Site::abstract_of(self.graphs.len() as u32), Sizing::Unit, &options)
    }

    fn lower_at(&self, site: &Site, sizing: Sizing, options: &LowerOptions) -> Result<Program, Vec<Diagnostic>> {
        self.refuse_workload()?;
        let nodes: u64 = self.graphs.iter().map(|g| g.nodes.len() as u64).sum();
        options.budget.check(Limit::Ops, nodes).map_err(one)?;
        let symbolic = !matches!(sizing, Sizing::Bytes(0, _));
        let pairs = pairs(self, symbolic)?;
        let covers: Vec<Chains> = self.graphs.iter().map(chains).collect();
        let queues = Queues::new(&pairs, &covers);
        let mut builder = ProgramBuilder::new(&*self.name);
        let mut first_agent = Vec::with_capacity(self.graphs.len());
        let mut agents = 0;
        for (graph, cover) in self.graphs.iter().zip(&covers) {
            first_agent.push(agents);
            let counters = counters(cover, &mut builder);
            let posts = cover.posts();
            for (index, chain) in cover.chains.iter().enumerate() {
                let writer = Writer { graph, cover, counters: &counters, posts: &posts, queues: &queues, sizing };
                let body = writer.body(&mut builder, index as u32, chain)?;
                let body = builder.body(body);
                let (coord, place) = site.place(graph.rank, index as u32);
                builder.thread_block(graph.rank, coord, place, body, &[]);
                agents += 1;
            }
        }
        let agent = |rank: u32, chain: u32| AgentId(first_agent[rank as usize] + chain);
        for queue in &queues.all {
            let [(src, from), (dst, to)] = queue.ends;
            builder.connect(
                (agent(src, from), Direction::Tag { rank: dst, channel: queue.number }),
                (agent(dst, to), Direction::Tag { rank: src, channel: queue.number }),
            );
        }
        builder.finish(ChannelSettings {
            slots: Protocol::Simple.depth(options.slots),
            slot_bytes: None,
            tier: options.tier,
            credit_bytes: options.credit_bytes,
        })
    }

    fn refuse_workload(&self) -> Result<(), Vec<Diagnostic>> {
        let foreign = |n: &&super::Node| !matches!(n.kind, NodeKind::Send | NodeKind::Recv) && !Graph::is_local(n);
        for graph in &self.graphs {
            if let Some(at) = graph.nodes.iter().position(|n| foreign(&n)) {
                let kind = graph.nodes[at].kind.name();
                let (label, origin) = graph.site(at as u32);
                let count = self.graphs.iter().flat_map(|g| &g.nodes).filter(foreign).count();
                let message = format!(
                    "{kind} is an operation of a workload, which can be read but not run; \
                     {count} of {} nodes are of such kinds",
                    self.nodes()
                );
                return Err(vec![
                    Diagnostic::new("AHBM-U231", message)
                        .site(label, origin)
                        .hint("algorithm traces consist of COMM_SEND_NODE, COMM_RECV_NODE, COMP_NODE, and MEM nodes with a duration"),
                ]);
            }
        }
        match self.graphs.iter().find_map(|graph| graph.cycle.as_ref()) {
            Some(cycle) => Err(vec![cycle.clone()]),
            None => Ok(()),
        }
    }
}

impl Messages for Trace {
    fn goal(&self) -> Goal {
        self.goal()
    }

    fn ranks(&self) -> u64 {
        self.graphs.len() as u64
    }

    fn lower(&self, machine: &Machine, options: &LowerOptions) -> Result<Program, Vec<Diagnostic>> {
        self.lower(machine, options)
    }

    fn lower_for_check(&self, slots: u32, budget: &Budget) -> Result<Program, Vec<Diagnostic>> {
        self.lower_for_check(slots, budget)
    }

    fn without_buffers(&self) -> Diagnostic {
        self.without_buffers()
    }
}

/// The chains of a rank.
pub(super) fn chains(graph: &Graph) -> Chains {
    Chains::of(graph.order(), |at| graph.deps(at))
}

/// One counter per chain that others wait for.
fn counters(cover: &Chains, builder: &mut ProgramBuilder) -> Vec<Option<u32>> {
    let awaited = |chain: &Vec<u32>| chain.iter().any(|&at| cover.awaited[at as usize]);
    cover.chains.iter().map(|chain| awaited(chain).then(|| builder.counter())).collect()
}

/// A FIFO from a chain to a chain, each as (rank, chain); `number` is unique between two ranks.
struct Queue {
    ends: [(u32, u32); 2],
    number: u32,
}

/// Every queue, and the one of each send and receive.
struct Queues {
    all: Vec<Queue>,
    of: FxHashMap<(u32, u32), u32>,
}

impl Queues {
    /// Messages share a queue only where sender and receiver take them in one order.
    fn new(pairs: &[Pair], covers: &[Chains]) -> Self {
        let link = |rank: u32, node: u32| covers[rank as usize].links[node as usize];
        let mut ordered: Vec<&Pair> = pairs.iter().collect();
        ordered.sort_by_key(|p| (p.send.rank, link(p.send.rank, p.send.node), p.recv.rank));
        let mut queues = Self { all: Vec::new(), of: FxHashMap::default() };
        // Per pair of chains and tag: queues with the place of the last receive.
        let mut open: FxHashMap<_, Vec<(u32, Link)>> = FxHashMap::default();
        let mut numbers: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for pair in ordered {
            let (from, to) = (link(pair.send.rank, pair.send.node), link(pair.recv.rank, pair.recv.node));
            let ends = [(pair.send.rank, from.chain), (pair.recv.rank, to.chain)];
            let candidates = open.entry((ends, pair.tag)).or_default();
            let queue = match candidates.iter_mut().find(|(_, last)| *last < to) {
                Some((queue, last)) => {
                    *last = to;
                    *queue
                }
                None => {
                    let number = numbers.entry((pair.send.rank, pair.recv.rank)).or_default();
                    queues.all.push(Queue { ends, number: *number });
                    *number += 1;
                    candidates.push((queues.all.len() as u32 - 1, to));
                    queues.all.len() as u32 - 1
                }
            };
            queues.of.insert((pair.send.rank, pair.send.node), queue);
            queues.of.insert((pair.recv.rank, pair.recv.node), queue);
        }
        queues
    }
}

struct Writer<'a> {
    graph: &'a Graph,
    cover: &'a Chains,
    counters: &'a [Option<u32>],
    posts: &'a [u32],
    queues: &'a Queues,
    sizing: Sizing,
}

impl Writer<'_> {
    fn body(&self, builder: &mut ProgramBuilder, index: u32, chain: &[u32]) -> Result<Body, Vec<Diagnostic>> {
        let mut body = BodyBuilder::new();
        let mut messages = FxHashMap::default();
        let whole = builder.origins.intern(Origin { file: self.graph.file.clone(), locus: Locus::Whole });
        for &at in chain.iter().filter(|&&at| self.graph.nodes[at as usize].kind == NodeKind::Send) {
            let tile = self.tile(at)?;
            let tile = body.tile(tile);
            messages.entry(tile).or_insert_with(|| {
                let (dst, scalar) = (body.value(), body.scalar(Scalar::Int(0)));
                body.push(Math::Fill { dst, scalar, tile }, 0, whole);
                dst
            });
        }
        for &at in chain {
            let node = &self.graph.nodes[at as usize];
            let locus = Locus::Node(node.id);
            let origin = builder.origins.intern(Origin { file: self.graph.file.clone(), locus });
            for &link in &self.cover.waits[at as usize] {
                if let Some(counter) = self.counters[link.chain as usize] {
                    let at_least = self.posts[self.cover.node(link) as usize];
                    body.push(Control::WaitCounter { counter, at_least }, 0, origin);
                }
            }
            match node.kind {
                _ if Graph::is_local(node) => {
                    body.push(Control::Delay { ps: self.graph.duration_ps(at).map_err(one)? }, 0, origin);
                }
                kind => {
                    let tile = self.tile(at)?;
                    let tile = body.tile(tile);
                    let sends = kind == NodeKind::Send;
                    let queue = &self.queues.all[self.queues.of[&(self.graph.rank, at)] as usize];
                    let peer = queue.ends[usize::from(sends)].0;
                    let dir = body.direction(Direction::Tag { rank: peer, channel: queue.number });
                    if sends {
                        body.push(Comm::Send { dir, src: messages[&tile], tile }, 0, origin);
                    } else {
                        let dst = body.value();
                        body.push(Comm::Recv { dir, dst, tile }, 0, origin);
                        body.release(dst);
                    }
                }
            }
            if self.cover.awaited[at as usize]
                && let Some(counter) = self.counters[index as usize]
            {
                body.push(Control::Signal { counter, add: 1, posted: false }, 0, origin);
            }
        }
        Ok(body.finish())
    }

    fn tile(&self, at: u32) -> Result<Tile, Vec<Diagnostic>> {
        let size_of = |symbolic| size(self.graph, at, symbolic);
        let refuse = |message: String, hint: &str| {
            let (label, origin) = self.graph.site(at);
            vec![Diagnostic::new("AHBM-U232", message).site(label, origin).hint(hint)]
        };
        let bytes = match self.sizing {
            Sizing::Unit => 1,
            Sizing::Bytes(0, _) => match size_of(false).map_err(one)? {
                Size::Bytes(0) => return Err(vec![wrong(self.graph, at, "comm_size", "is 0")]),
                Size::Bytes(bytes) => bytes,
                Size::Share(..) => {
                    return Err(refuse("messages are shares of a size that is not given".into(), "give --size"));
                }
            },
            Sizing::Bytes(total, stated) => match size_of(true).map_err(one)? {
                Size::Bytes(_) if stated == 0 => {
                    return Err(refuse(
                        "messages have fixed sizes, for an array of a size that is not known: they cannot be scaled"
                            .into(),
                        "leave out --size; for calls of a job, `stated_bytes` of its entry in ccl.yaml is the array's size",
                    ));
                }
                Size::Bytes(bytes) => {
                    let scaled = u128::from(bytes) * u128::from(total);
                    if !scaled.is_multiple_of(stated.into()) {
                        let what = format!("{bytes} of {stated} bytes are no whole number of {total} bytes");
                        return Err(refuse(what, &format!("take a multiple of {stated} bytes")));
                    }
                    u64::try_from(scaled / u128::from(stated)).unwrap_or(u64::MAX)
                }
                Size::Share(count, of) => {
                    if !total.is_multiple_of(of) {
                        let near = total.div_ceil(of).saturating_mul(of);
                        return Err(refuse(
                            format!("{total} bytes do not split into {of} chunks"),
                            &format!("take {near} bytes"),
                        ));
                    }
                    (total / of).saturating_mul(count)
                }
            },
        };
        if bytes > LARGEST {
            return Err(vec![wrong(self.graph, at, "comm_size", &format!("is {bytes}, above 256 TiB"))]);
        }
        Ok(Tile::new(Dtype::U8, &[bytes]))
    }
}
