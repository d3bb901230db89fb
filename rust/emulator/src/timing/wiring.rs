//! The facts a run needs about its program and machine, resolved once.

use super::asks::{Asks, tile_bytes};
use crate::detail::DmaChannel;
use ahbm_findings::Diagnostic;
use ahbm_machine::{DmaChannels, FULL_PACE, LinkId, Machine, Node, PeId, Rate, Route, Tier};
use ahbm_program::{AgentId, Body, ChannelId, Comm, Control, Move, OpKind, Program, WireFactor};
use indexmap::{IndexMap, IndexSet};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::ops::Range;
use std::sync::Arc;

type Map<K, V> = IndexMap<K, V, FxBuildHasher>;

/// How a run of few agents stands for one of many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cover<'a> {
    /// Per channel, where its messages go.
    pub(crate) towards: &'a [PeId],
    /// The link that stands for each link in use.
    pub(crate) links: &'a FxHashMap<LinkId, Stand>,
}

/// A link that stands for others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stand {
    pub(crate) link: LinkId,
    /// As of [`Hop`], in the run of many.
    pub(crate) exclusive: bool,
    /// So many flows of equal ranks cross it where one crosses the link that stands for it.
    pub(crate) times: u32,
    /// All that crosses it is sent by one rank, and its hops are numbered in one order in every rank of a class.
    pub(crate) ordered: bool,
}

/// One contended link of a flow, and the number of its kind: kinds are few, and a run of many flows waits for memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    pub(super) link: u32,
    pub(super) kind: u32,
}

/// What hops have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct HopKind {
    /// Only one DMA stream ever crosses the link, always after the same links: its reservations come in
    /// order of time however far an agent runs ahead.
    pub(super) exclusive: bool,
    /// As of [`Machine::is_trunk`].
    pub(super) trunk: bool,
    /// A trunk that carries what all ways of its node carry together: nobody waits for others there.
    pub(super) open: bool,
    /// As of [`Stand`]; 1 where nothing stands for others.
    pub(super) times: u32,
    pub(super) rate: Rate,
    pub(super) after: u64,
}

/// A route in use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) first: u32,
    pub(super) last: u32,
    /// Latency before the first link.
    pub(super) head: u64,
    /// The first link's rate, at which the DMA engine hands its bytes over.
    pub(super) entry: Rate,
    /// The tree that it stands for instead of a way of its own, [`NO_TREE`] for none.
    pub(super) tree: u32,
    /// The pool whose DMA channels carry it.
    pub(super) pool: u32,
}

pub(super) const NO_TREE: u32 = u32::MAX;

/// Ways that meet in the switch: several lead there and one from there, or the reverse.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) legs: Range<u32>,
    pub(super) branches: Range<u32>,
}

/// Per channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChannelWiring {
    pub(super) flow: u32,
    /// The receiver's background process on this channel, `u32::MAX` when it has none.
    pub(super) background: u32,
    pub(super) tier: u32,
    pub(super) wire: WireFactor,
    pub(super) credit: u64,
}

/// Per agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgentWiring {
    /// Its PE's engines.
    pub(super) engines: u32,
    /// Another agent runs on the same PE.
    pub(super) shares: bool,
    /// Thousandths of the declared time that its dispatch and math take.
    pub(super) pace: u32,
    /// Its first entry in [`Wiring::moves`].
    pub(super) moves: u32,
}

impl AgentWiring {
    /// The time that work of `ps` takes at the agent's pace.
    #[inline]
    pub(super) fn paced(&self, ps: u64) -> u64 {
        if self.pace == FULL_PACE { ps } else { ps * u64::from(self.pace) / u64::from(FULL_PACE) }
    }
}

/// A receiver that works through posted receives of one channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct BackgroundWiring {
    pub(super) channel: ChannelId,
    /// Receives the agent will post.
    pub(super) posts: u32,
}

/// A load, store or copy, or the same with a group of memories.
#[derive(Debug, Clone, Copy)]
pub(super) struct OneSided {
    pub(super) flow: u32,
    /// Latency of the request that precedes a remote read.
    pub(super) request: u64,
}

/// What an agent never does.
const NO_MOVE: OneSided = OneSided { flow: u32::MAX, request: 0 };

fn too_many_moves() -> Diagnostic {
    Diagnostic::new("AHBM-B125", "the agents name more than 2^32 buffers").hint("fewer ranks")
}

/// Which way DMA channels move data, as seen from their PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    Read,
    Write,
}

/// What tells DMA channels apart: their PE, which way they move data, and the link that they are for, if for one.
type Stream = (PeId, Way, Option<LinkId>);

#[derive(Debug)]
pub(super) struct Wiring {
    pub(super) flows: Vec<Flow>,
    pub(super) hops: Vec<Hop>,
    pub(super) kinds: Vec<HopKind>,
    /// The machine's link behind each index of a hop.
    pub(super) links: Vec<LinkId>,
    pub(super) channels: Vec<ChannelWiring>,
    pub(super) agents: Vec<AgentWiring>,
    /// The PEs in use.
    pub(super) engines: Vec<PeId>,
    /// DMA channels, pool by pool: those of a pool carry the same transfers.
    pub(super) dma: Vec<DmaChannel>,
    /// DMA channels of a pool.
    pub(super) pool_size: u32,
    pub(super) backgrounds: Vec<BackgroundWiring>,
    /// Slot tiers by index.
    pub(super) tiers: Vec<Tier>,
    /// Per body: bytes of every tile. Bodies of one class share them.
    pub(super) tile_bytes: Vec<Arc<[u64]>>,
    /// Per agent and buffer that it loads from or stores to: the load, and the store.
    moves: Vec<[OneSided; 2]>,
    /// Every one-sided transfer, by the costs and the PE that issue it and its ends.
    transfers: Map<(u16, PeId, Node, Node), OneSided>,
    pub(super) trees: Vec<Tree>,
    /// Every transfer from or to a group, by the agent, the group of its body, and whether it reads.
    grouped: Map<(AgentId, u32, bool), OneSided>,
    /// The machine with each of the program's costs.
    calls: Vec<Machine>,
    /// Agents that post transfers or signals.
    pub(super) posters: IndexSet<AgentId, FxBuildHasher>,
    /// Inbound channels of agents that receive from any direction, in order of direction.
    pub(super) inbound: Map<AgentId, Vec<ChannelId>>,
}

impl Wiring {
    /// With a `cover`, the program has one agent for many.
    ///
    /// # Errors
    /// `AHBM-B125` when the routes have more than `max_hops` links, and as [`Machine::route`].
    pub(super) fn new(
        program: &Program,
        machine: &Machine,
        cover: Option<Cover<'_>>,
        max_hops: u64,
    ) -> Result<Self, Diagnostic> {
        let mut routes = Routes {
            stands: cover.map(|cover| cover.links),
            list: Vec::with_capacity(program.channels.len()),
            hops: Vec::with_capacity(program.channels.len()),
            kinds: Map::default(),
            links: Map::with_capacity_and_hasher(program.channels.len(), FxBuildHasher),
            trees: Map::default(),
            pools: Map::default(),
            max_hops: max_hops.min(u32::MAX.into()),
        };
        let mut pes: Map<PeId, u32> = Map::with_capacity_and_hasher(program.agents.len(), FxBuildHasher);
        for agent in &program.agents {
            *pes.entry(agent.place).or_default() += 1;
        }
        let agents = program
            .agents
            .iter()
            .map(|a| {
                let (engines, _, &count) = pes.get_full(&a.place).expect("every place was entered above");
                AgentWiring { engines: engines as u32, shares: count > 1, pace: machine.pace(a.place), moves: 0 }
            })
            .collect();
        let mut wiring = Self {
            flows: Vec::new(),
            hops: Vec::new(),
            kinds: Vec::new(),
            links: Vec::new(),
            channels: Vec::with_capacity(program.channels.len()),
            tiers: machine.costs().tiers.values().copied().collect(),
            agents,
            engines: Vec::new(),
            dma: Vec::new(),
            pool_size: match machine.costs().dma_channels {
                DmaChannels::Any(count) => count,
                DmaChannels::PerLink => 1,
            },
            backgrounds: Vec::new(),
            tile_bytes: tile_bytes(program),
            moves: Vec::new(),
            transfers: Map::default(),
            trees: Vec::new(),
            grouped: Map::default(),
            calls: Vec::new(),
            posters: IndexSet::default(),
            inbound: Map::default(),
        };
        let calls = program.costs.iter().map(|call| machine.with_costs(call)).collect::<Result<Vec<_>, _>>()?;
        let costs = machine.costs();
        for (index, channel) in program.channels.iter().enumerate() {
            let from = program.agents[channel.sender.0 as usize].place;
            let to = cover.map_or(program.agents[channel.receiver.0 as usize].place, |cover| cover.towards[index]);
            let machine = of_call(machine, &calls, program.agents[channel.sender.0 as usize].costs)?;
            let back = machine.route(Node::Pe(to), Node::Pe(from))?;
            let slowest = back.hops.iter().fold(Rate::UNLIMITED, |r, h| r.slower(machine.link_rate(h.link)));
            if channel.tier as usize >= wiring.tiers.len() {
                return Err(Diagnostic::new("AHBM-L112", format!("slot tier {} does not exist", channel.tier)));
            }
            wiring.channels.push(ChannelWiring {
                flow: routes.open(machine, (from, Way::Write), Node::Pe(from), Node::Pe(to))?,
                background: u32::MAX,
                credit: costs.credit_overhead_ps + back.latency_ps() + slowest.ps(channel.credit_bytes),
                tier: channel.tier,
                wire: channel.wire,
            });
        }
        wiring.scan(program, (machine, &calls), &mut routes)?;
        wiring.calls = calls;
        let of_pool = |&(pe, way, link): &Stream| {
            let engine = pes.get_index_of(&pe).expect("every place was entered above") as u32;
            (0..wiring.pool_size).map(move |number| DmaChannel { engine, reads: way == Way::Read, number, link })
        };
        wiring.dma = routes.pools.keys().flat_map(of_pool).collect();
        wiring.engines = pes.into_keys().collect();
        wiring.flows = routes.list;
        // Kinds twice: of links that several streams cross, and of those that one does.
        let (shared, kinds) = (routes.kinds.len() as u32, routes.kinds.into_values());
        let own = kinds.clone().map(|kind| HopKind { exclusive: true, ..kind });
        wiring.kinds = kinds.chain(own).collect();
        wiring.hops = routes.hops;
        for hop in &mut wiring.hops {
            hop.kind += if routes.links[hop.link as usize].exclusive { shared } else { 0 };
        }
        wiring.links = routes.links.into_keys().collect();
        Ok(wiring)
    }

    /// Collects what only some operations need: one-sided transfers, posted receives, inbound lists.
    fn scan(
        &mut self,
        program: &Program,
        (machine, calls): (&Machine, &[Machine]),
        routes: &mut Routes<'_>,
    ) -> Result<(), Diagnostic> {
        let mut known: FxHashMap<_, Asks> = FxHashMap::default();
        for (index, agent) in program.agents.iter().enumerate() {
            let id = AgentId(index as u32);
            let body = &program.bodies[agent.body as usize];
            let node = |mem: u32| program.buffers[program.buffer(id, body.mems.buffer(mem)).0 as usize].node;
            let members = |group: u32| body.groups[group as usize].iter().map(|&mem| node(mem)).collect();
            let (pe, costs) = (agent.place, agent.costs);
            let machine = of_call(machine, calls, costs)?;
            let asks = known.entry((&body.ops, body.mems.by_buffer())).or_insert_with(|| Asks::of(body));
            self.agents[index].moves = u32::try_from(self.moves.len()).map_err(|_| too_many_moves())?;
            self.moves.resize(self.moves.len() + asks.buffers, [NO_MOVE; 2]);
            for &op in &asks.ops {
                match body.ops[op as usize].kind {
                    OpKind::Move(Move::Load { mem, .. }) => {
                        let found = self.transfer(routes, machine, (costs, pe), node(mem), Node::Pe(pe))?;
                        *self.moved(id, body.mems.buffer(mem), true) = found;
                    }
                    OpKind::Move(Move::Store { mem, posted, .. }) => {
                        let found = self.transfer(routes, machine, (costs, pe), Node::Pe(pe), node(mem))?;
                        *self.moved(id, body.mems.buffer(mem), false) = found;
                        self.note_poster(id, posted);
                    }
                    OpKind::Move(Move::Copy { src, dst, posted, .. }) => {
                        let _ = self.transfer(routes, machine, (costs, pe), node(src), node(dst))?;
                        self.note_poster(id, posted);
                    }
                    OpKind::Move(Move::ReducingLoad { group, .. }) => {
                        self.group(routes, (machine, costs), (id, pe, group), true, || members(group))?
                    }
                    OpKind::Move(Move::Multicast { group, .. }) => {
                        self.group(routes, (machine, costs), (id, pe, group), false, || members(group))?;
                        self.note_poster(id, true);
                    }
                    OpKind::Control(Control::Signal { posted, .. }) => self.note_poster(id, posted),
                    // A fence asks what was posted, even where that is nothing.
                    OpKind::Control(Control::Fence) => self.note_poster(id, true),
                    OpKind::Comm(Comm::PostRecv { dir, .. }) => self.note_background(program.rx(id, dir), body, dir),
                    OpKind::Comm(Comm::RecvAny { .. }) => {
                        self.inbound.entry(id).or_default();
                    }
                    // Channels are wired already, and everything else stays inside its PE.
                    OpKind::Comm(
                        Comm::Send { .. } | Comm::AwaitSlot { .. } | Comm::Recv { .. } | Comm::Await { .. },
                    )
                    | OpKind::Control(
                        Control::WaitCounter { .. }
                        | Control::Acquire { .. }
                        | Control::Barrier { .. }
                        | Control::Delay { .. },
                    )
                    | OpKind::Math(_) => {}
                }
            }
        }
        self.list_inbound(program);
        Ok(())
    }

    fn note_poster(&mut self, agent: AgentId, posts: bool) {
        if posts {
            self.posters.insert(agent);
        }
    }

    /// The receiver's background process works through all receives of a channel that has a posted one.
    fn note_background(&mut self, channel: ChannelId, body: &Body, dir: u16) {
        let index = &mut self.channels[channel.0 as usize].background;
        if *index == u32::MAX {
            *index = self.backgrounds.len() as u32;
            let posts = body.ops.iter().filter(
                |o| matches!(o.kind, OpKind::Comm(Comm::PostRecv { dir: d, .. } | Comm::Recv { dir: d, .. }) if d == dir),
            );
            self.backgrounds.push(BackgroundWiring { channel, posts: posts.count() as u32 });
        }
    }

    /// The channels that lead to agents which receive from any direction.
    fn list_inbound(&mut self, program: &Program) {
        if self.inbound.is_empty() {
            return;
        }
        for (index, channel) in program.channels.iter().enumerate() {
            if let Some(list) = self.inbound.get_mut(&channel.receiver) {
                list.push(ChannelId(index as u32));
            }
        }
        for list in self.inbound.values_mut() {
            list.sort_by_key(|c| program.channels[c.0 as usize].receiver_direction);
        }
    }

    fn transfer(
        &mut self,
        routes: &mut Routes<'_>,
        machine: &Machine,
        (costs, pe): (u16, PeId),
        from: Node,
        to: Node,
    ) -> Result<OneSided, Diagnostic> {
        let key = (costs, pe, from, to);
        if let Some(&known) = self.transfers.get(&key) {
            return Ok(known);
        }
        let way = if from == Node::Pe(pe) { Way::Write } else { Way::Read };
        // The host pushes what it writes to memory; everything else that is not local is asked for first.
        let pushed = matches!(from, Node::Io(_)) && to != Node::Pe(pe) || from == Node::Pe(pe) || from == Node::Hbm(pe);
        let request = if pushed { 0 } else { machine.route(Node::Pe(pe), from)?.latency_ps() };
        let flow = routes.open(machine, (pe, way), from, to)?;
        let found = OneSided { flow, request };
        self.transfers.insert(key, found);
        Ok(found)
    }

    fn moved(&mut self, agent: AgentId, buffer: u16, load: bool) -> &mut OneSided {
        let at = self.agents[agent.0 as usize].moves as usize + usize::from(buffer);
        &mut self.moves[at][usize::from(!load)]
    }

    /// A transfer of an agent from or to a group of its body.
    fn group(
        &mut self,
        routes: &mut Routes<'_>,
        (machine, costs): (&Machine, u16),
        (agent, pe, group): (AgentId, PeId, u32),
        read: bool,
        members: impl FnOnce() -> Box<[Node]>,
    ) -> Result<(), Diagnostic> {
        if self.grouped.contains_key(&(agent, group, read)) {
            return Ok(());
        }
        // Groups that differ only in their offsets are one tree.
        let key = (costs, pe, read, members());
        let tree = match routes.trees.get(&key) {
            Some(&known) => known,
            None => {
                let tree = self.tree(routes, machine, (pe, read), &key.3)?;
                routes.trees.insert(key, tree);
                tree
            }
        };
        self.grouped.insert((agent, group, read), tree);
        Ok(())
    }

    /// A new tree: the bytes of a reducing load meet in the switch, behind a request to every member; those of a
    /// multicast part there.
    fn tree(
        &mut self,
        routes: &mut Routes<'_>,
        machine: &Machine,
        (pe, read): (PeId, bool),
        members: &[Node],
    ) -> Result<OneSided, Diagnostic> {
        let way = if read { Way::Read } else { Way::Write };
        let first = routes.list.len() as u32;
        let sip = |node: &Node| match *node {
            Node::Pe(pe) | Node::Hbm(pe) | Node::Sram(pe) => machine.coord(pe).sip,
            Node::Io(sip) => sip,
        };
        let switch = machine.reducing_switch(members.iter().map(sip).chain([machine.coord(pe).sip]))?;
        let here = machine.route_to_switch(Node::Pe(pe), switch)?;
        let mut request = 0;
        if read {
            for &member in members {
                request =
                    request.max(here.latency_ps() + machine.route_from_switch(member, switch, false)?.latency_ps());
                routes.add(machine, &machine.route_to_switch(member, switch)?, (pe, way), true)?;
            }
        } else {
            routes.add(machine, &here, (pe, way), true)?;
        }
        let middle = routes.list.len() as u32;
        let own = if read {
            let way_in = machine.route_from_switch(Node::Pe(pe), switch, true)?;
            routes.add(machine, &way_in, (pe, way), true)?;
            machine.dma_link(way_in.links())
        } else {
            for &member in members {
                routes.add(machine, &machine.route_from_switch(member, switch, false)?, (pe, way), true)?;
            }
            machine.dma_link(here.links())
        };
        let flow = routes.list.len() as u32;
        let legs = &routes.list[first as usize..middle as usize];
        let entry = legs.iter().fold(Rate::UNLIMITED, |rate, leg| rate.slower(leg.entry));
        let pool = routes.pool((pe, way, own));
        routes.list.push(Flow { first: 0, last: 0, head: 0, entry, tree: self.trees.len() as u32, pool });
        self.trees.push(Tree { legs: first..middle, branches: middle..flow });
        Ok(OneSided { flow, request })
    }

    /// What a hop has in common with others.
    #[inline]
    pub(super) fn kind(&self, hop: Hop) -> &HopKind {
        &self.kinds[hop.kind as usize]
    }

    /// A transfer from or to a group that [`Wiring::new`] has seen.
    pub(super) fn grouped(&self, agent: AgentId, group: u32, read: bool) -> OneSided {
        self.grouped[&(agent, group, read)]
    }

    /// The machine as an agent of these costs finds it, where they are not its own.
    #[inline]
    pub(super) fn call(&self, costs: u16) -> Option<&Machine> {
        self.calls.get(usize::from(costs).wrapping_sub(1))
    }

    /// A load from a buffer, or a store to one, that [`Wiring::new`] has seen, by the `moves` of the agent.
    #[inline]
    pub(super) fn between(&self, moves: u32, buffer: u16, load: bool) -> OneSided {
        let at = moves as usize + usize::from(buffer);
        self.moves[at][usize::from(!load)]
    }

    /// A one-sided transfer that [`Wiring::new`] has seen.
    pub(super) fn one_sided(&self, costs: u16, pe: PeId, from: Node, to: Node) -> OneSided {
        self.transfers[&(costs, pe, from, to)]
    }
}

/// The machine as an agent of these costs finds it.
fn of_call<'a>(machine: &'a Machine, calls: &'a [Machine], costs: u16) -> Result<&'a Machine, Diagnostic> {
    let Some(at) = costs.checked_sub(1) else { return Ok(machine) };
    calls
        .get(usize::from(at))
        .ok_or_else(|| Diagnostic::new("AHBM-V125", format!("an agent has costs {costs} of {}", calls.len())))
}

/// The facts about a link in use.
#[derive(Debug)]
struct LinkUse {
    stream: Stream,
    /// The links crossed before it, as a hash.
    prefix: u64,
    exclusive: bool,
}

/// A kind of hops: whether it is a trunk, and open; its times, its rate in units of [`Rate`], and what comes after it.
type KindKey = (bool, bool, u32, u64, u64);

/// The costs and the PE that reads or writes, which of the two, and the members.
type TreeKey = (u16, PeId, bool, Box<[Node]>);

struct Routes<'a> {
    /// The link that stands for a link, under a cover.
    stands: Option<&'a FxHashMap<LinkId, Stand>>,
    list: Vec<Flow>,
    hops: Vec<Hop>,
    kinds: Map<KindKey, HopKind>,
    links: Map<LinkId, LinkUse>,
    trees: Map<TreeKey, OneSided>,
    pools: Map<Stream, ()>,
    /// Most links of all routes together.
    max_hops: u64,
}

/// The part by which the ways of a node differ from their trunk where machines round what a way gains by striping.
const ROUNDED: f64 = 1e-5;

/// The bandwidth of the slowest way of a route to or from the trunks between nodes, in GB/s.
fn ways_gbs(machine: &Machine, route: &Route) -> f64 {
    let ways = route.hops.iter().filter(|hop| !machine.is_trunk(hop.link));
    ways.map(|hop| machine.link_rate(hop.link).gbs()).fold(f64::INFINITY, f64::min)
}

impl Routes<'_> {
    /// Adds a PE's flow between two nodes.
    fn open(&mut self, machine: &Machine, by: (PeId, Way), from: Node, to: Node) -> Result<u32, Diagnostic> {
        self.add(machine, &machine.route(from, to)?, by, false)
    }

    /// The pool of DMA channels of a stream.
    fn pool(&mut self, stream: Stream) -> u32 {
        self.pools.insert_full(stream, ()).0 as u32
    }

    /// Adds a flow; transfers that meet others on their way are `ordered` by events.
    fn add(&mut self, machine: &Machine, route: &Route, by: (PeId, Way), ordered: bool) -> Result<u32, Diagnostic> {
        if (self.hops.len() + route.hops.len()) as u64 > self.max_hops {
            return Err(Diagnostic::new("AHBM-B125", format!("the routes cross more than {} links", self.max_hops))
                .hint("fewer ranks, or an algorithm or a network in which partners are nearer"));
        }
        let stream = (by.0, by.1, machine.dma_link(route.links()));
        let first = self.hops.len() as u32;
        let mut prefix = 0u64;
        let (way, fabric) = (ways_gbs(machine, route), machine.has_fabric());
        for hop in &route.hops {
            let rate = machine.link_rate(hop.link);
            let stand = self.stands.map(|stands| stands[&hop.link]);
            let entry = self.links.entry(stand.map_or(hop.link, |stand| stand.link));
            let link = entry.index() as u32;
            let seen = entry.or_insert(LinkUse { stream, prefix, exclusive: true });
            // Under a cover, one stream here is many.
            let alone = seen.stream == stream && seen.prefix == prefix && !ordered;
            seen.exclusive &= stand.map_or(alone, |stand| stand.exclusive);
            prefix = (prefix ^ (u64::from(hop.link.0) + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let trunk = machine.is_trunk(hop.link);
            let times = stand.map_or(1, |stand| stand.times);
            let open = trunk && !fabric && rate.gbs() * (1.0 + ROUNDED) >= way * f64::from(machine.node_size());
            // A rate in its own units: 2^32 bytes at it.
            let kind = self.kinds.entry((trunk, open, times, rate.ps(1 << 32), hop.after_ps));
            let number = kind.index() as u32;
            kind.or_insert(HopKind { exclusive: false, trunk, open, times, rate, after: hop.after_ps });
            self.hops.push(Hop { link, kind: number });
        }
        let entry = route.hops.first().map_or(Rate::UNLIMITED, |h| machine.link_rate(h.link));
        let (flow, last, head) = (self.list.len() as u32, self.hops.len() as u32, route.head_ps);
        // Only a tree that they belong to has channels of its own.
        let pool = if ordered { u32::MAX } else { self.pool(stream) };
        self.list.push(Flow { first, last, head, entry, tree: NO_TREE, pool });
        Ok(flow)
    }
}
