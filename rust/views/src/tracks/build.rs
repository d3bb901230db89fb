//! Pieces of time to slices on tracks.

use super::messages::Messages;
use super::{Counter, Flow, Slice, Stretch, Tracks, Tree, Unit, counters};
use ahbm_emulator::{Category, Detail, Kind, Piece, PieceId, Timeline};
use ahbm_machine::{Coord, Machine, PeId, Ps};
use ahbm_program::{AgentId, Comm, Duty, OpKind, Program};
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet};

const UNNAMED: u32 = u32::MAX;

pub(super) struct Builder<'a> {
    program: &'a Program,
    machine: &'a Machine,
    detail: &'a Detail,
    latency: Ps,
    messages: Messages,
    tree: Tree,
    /// Per body and operation, its name.
    named: Vec<Vec<u32>>,
    /// True for the slot reads that agents waited for themselves.
    inline: Vec<bool>,
}

/// The tracks of resources, by their numbers.
struct Places {
    /// None for hosts that are not shown.
    agents: Vec<Option<u32>>,
    /// Per DMA channel.
    dma: Vec<u32>,
    /// Per engine.
    math: Vec<u32>,
    links: Vec<u32>,
    /// By the track of a link, that of the counter it takes part in.
    counted: BTreeMap<u32, u32>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(program: &'a Program, machine: &'a Machine, timeline: &'a Timeline, detail: &'a Detail) -> Self {
        Self {
            program,
            machine,
            detail,
            latency: timeline.latency,
            messages: Messages::new(program, timeline),
            tree: Tree::default(),
            named: program.bodies.iter().map(|body| vec![UNNAMED; body.ops.len()]).collect(),
            inline: vec![false; detail.pieces.len()],
        }
    }

    pub(super) fn build(mut self, rows: Vec<Stretch>, out: &mut Tracks) {
        out.origins = (0..)
            .map_while(|id| self.program.origins.get(ahbm_program::OriginId(id)))
            .map(ToString::to_string)
            .collect();
        for category in Category::ALL {
            out.names.insert(category.name().to_owned());
        }
        let run = self.tree.track(None, "run");
        let name = out.names.insert_full(self.program.name.clone()).0 as u32;
        let whole = Slice {
            track: run,
            name,
            origin: None,
            depth: 0,
            flow: Flow::None,
            carries: None,
            start: 0,
            end: self.latency,
        };
        out.slices.push(whole);
        let hosts = rows.is_empty();
        out.place(&mut self.tree, rows, self.messages.all.len() as u32);
        let sips = self.sips();
        let counters: Vec<[u32; 2]> = sips.iter().map(|&sip| self.counters(sip)).collect();
        let places = self.places(hosts);
        for (agent, &track) in (0..).map(AgentId).zip(&places.agents) {
            if let Some(track) = track {
                self.agent(agent, track, out);
            }
        }
        self.resources(&places, out);
        let number: BTreeMap<u32, usize> = sips.iter().copied().zip(0..).collect();
        let sip = |channel: u32| {
            let receiver = self.program.channels[channel as usize].receiver;
            number[&self.coord(receiver).sip]
        };
        for ((bytes, slots), tracks) in counters::of_sips(&self.messages.all, sips.len(), sip).into_iter().zip(counters)
        {
            out.counters.push(Counter { track: tracks[0], unit: Unit::Bytes, points: bytes.points() });
            out.counters.push(Counter { track: tracks[1], unit: Unit::Slots, points: slots.points() });
        }
        for (track, busy) in counters::of_links(&out.slices, &places.counted) {
            out.counters.push(Counter { track, unit: Unit::Links, points: busy.points() });
        }
        out.tracks = self.tree.into_tracks();
    }

    fn coord(&self, agent: AgentId) -> Coord {
        self.machine.coord(self.program.agents[agent.0 as usize].place)
    }

    fn sip(&mut self, sip: u32) -> u32 {
        self.tree.track(None, format!("SIP {sip}"))
    }

    fn cube(&mut self, sip: u32, cube: u32) -> u32 {
        let parent = self.sip(sip);
        self.tree.track(Some(parent), format!("cube {cube}"))
    }

    fn pe(&mut self, at: Coord) -> u32 {
        let parent = self.cube(at.sip, at.cube);
        self.tree.track(Some(parent), format!("PE {}", at.pe))
    }

    /// The SIPs in use.
    fn sips(&self) -> Vec<u32> {
        let sips: BTreeSet<u32> = self.program.agents.iter().map(|a| self.machine.coord(a.place).sip).collect();
        sips.into_iter().collect()
    }

    fn counters(&mut self, sip: u32) -> [u32; 2] {
        let parent = self.sip(sip);
        ["bytes on their way", "slots in use"].map(|what| self.tree.track(Some(parent), format!("{what} to SIP {sip}")))
    }

    fn places(&mut self, hosts: bool) -> Places {
        let mut pes: BTreeMap<PeId, Vec<u32>> = self.detail.engines.iter().map(|&pe| (pe, Vec::new())).collect();
        let mut agents = vec![None; self.program.agents.len()];
        for (index, agent) in (0..).zip(&self.program.agents) {
            // Hosts and what starts launches run on no PE.
            let parent = match self.program.duties.get(index as usize) {
                Some(Duty::Host(_)) if !hosts => continue,
                Some(Duty::Host(sip)) => {
                    let parent = self.sip(*sip);
                    self.tree.track(Some(parent), format!("SIP {sip} host"))
                }
                Some(Duty::Starter) => self.tree.track(None, "launches"),
                _ => {
                    pes.entry(agent.place).or_default().push(index);
                    continue;
                }
            };
            agents[index as usize] = Some(self.tree.track(Some(parent), format!("agent {index}")));
        }
        let mut of_pe = BTreeMap::new();
        for (pe, here) in pes {
            let parent = Some(self.pe(self.machine.coord(pe)));
            for agent in here {
                agents[agent as usize] = Some(self.tree.track(parent, format!("agent {agent}")));
            }
            of_pe.insert(pe, ["DMA write", "DMA read", "math"].map(|name| self.tree.track(parent, name)));
        }
        let math = self.detail.engines.iter().map(|pe| of_pe[pe][2]).collect();
        let mut dma = Vec::with_capacity(self.detail.dma.len());
        for channel in &self.detail.dma {
            let pe = self.detail.engines[channel.engine as usize];
            let plain = of_pe[&pe][usize::from(channel.reads)];
            let name = match (channel.link, channel.number) {
                (None, 0) => {
                    dma.push(plain);
                    continue;
                }
                (None, number) => (number + 1).to_string(),
                (Some(link), _) => self.machine.link_name(link),
            };
            let parent = self.pe(self.machine.coord(pe));
            dma.push(
                self.tree.track(Some(parent), format!("DMA {} {name}", if channel.reads { "read" } else { "write" })),
            );
        }
        let mut order: Vec<_> = self.detail.links.iter().enumerate().map(|(index, &link)| (link, index)).collect();
        order.sort_unstable();
        let mut links = vec![0; order.len()];
        // Groups of links by the place they leave and by the track they stand under.
        let mut groups = IndexMap::<(String, Option<u32>), Vec<u32>>::new();
        for (link, index) in order {
            let (from, left) = match self.machine.link_source(link) {
                Some((sip, Some(cube))) => (Some(self.cube(sip, cube)), format!("SIP {sip} cube {cube}")),
                Some((sip, None)) => (Some(self.sip(sip)), format!("SIP {sip}")),
                None => (None, "switches".to_owned()),
            };
            let parent = self.tree.track(from, "links");
            links[index] = self.tree.track(Some(parent), self.machine.link_name(link));
            groups.entry((left, from)).or_default().push(links[index]);
        }
        let mut counted = BTreeMap::new();
        for ((left, from), group) in groups {
            let counter = self.tree.track(from, format!("links busy out of {left}, of {}", group.len()));
            counted.extend(group.into_iter().map(|link| (link, counter)));
        }
        Places { agents, dma, math, links, counted }
    }

    /// Operations of an agent and what they spent their time on, from launch to its end.
    fn agent(&mut self, agent: AgentId, track: u32, out: &mut Tracks) {
        let mut chain = Vec::new();
        let mut id = self.detail.last[agent.0 as usize];
        while id != PieceId::LAUNCH {
            chain.push(id);
            id = self.detail.piece(id).own;
        }
        let mut open: Option<usize> = None;
        for id in chain.into_iter().rev() {
            let piece = self.detail.piece(id);
            let (ready, start) = (self.detail.ready(piece), self.detail.start(piece));
            let origin = self.origin(piece);
            let slice = |name, depth, start, end| {
                let (flow, carries) = (Flow::None, None);
                Slice { track, name, origin, depth, flow, carries, start, end }
            };
            if piece.kind == Kind::Dispatch {
                let name = self.name(piece, out);
                open = Some(out.slices.len());
                let flow = self.sent(piece).filter(|&n| self.messages.all[n as usize].received);
                let flow = flow.map_or(Flow::None, Flow::Out);
                out.slices.push(Slice { flow, ..slice(name, 0, ready, piece.end) });
            }
            // The time before the first operation is the agent's late start.
            let depth = u8::from(open.is_some());
            if start > ready {
                out.slices.push(slice(piece.kind.wait() as u32, depth, ready, start));
            }
            let name = piece.kind.category() as u32;
            if let Kind::SlotRead(_) = piece.kind {
                self.inline[id.0 as usize] = true;
                let flow = self.messages.number(piece.agent, piece.op).map_or(Flow::None, Flow::In);
                out.slices.push(Slice { flow, ..slice(name, depth, start, piece.end) });
            } else if piece.end > start {
                out.slices.push(slice(name, depth, start, piece.end));
            }
            if let Some(open) = open {
                out.slices[open].end = piece.end;
            }
            if let Some(number) = self.sent(piece) {
                self.messages.all[number as usize].claimed = piece.end;
            }
        }
        let (name, start) = (Category::Ended as u32, self.detail.piece(self.detail.last[agent.0 as usize]).end);
        if start < self.latency {
            let (flow, end) = (Flow::None, self.latency);
            out.slices.push(Slice { track, name, origin: None, depth: 0, flow, carries: None, start, end });
        }
    }

    /// Slices of DMA channels, math engines, links and posted receives, and the ends of messages.
    fn resources(&mut self, places: &Places, out: &mut Tracks) {
        // Per link its last slice, which may turn out to be longer.
        let mut on_link: Vec<usize> = vec![usize::MAX; places.links.len()];
        for (index, piece) in self.detail.pieces.iter().enumerate().skip(1) {
            let (start, end) = (self.detail.start(piece), piece.end);
            let mut flow = Flow::None;
            let track = match piece.kind {
                Kind::Setup(channel) | Kind::Handover(channel) => places.dma[channel as usize],
                Kind::Math(engine) => places.math[engine as usize],
                Kind::Link(link) => {
                    if end > start {
                        on_link[link as usize] = out.slices.len();
                    }
                    places.links[link as usize]
                }
                Kind::Tail(link) => {
                    out.slices[on_link[link as usize]].end = end;
                    continue;
                }
                Kind::SlotWrite(_) => {
                    self.messages.get_mut(piece.agent, piece.op).into_iter().for_each(|m| m.written = end);
                    continue;
                }
                Kind::Credit(_) => {
                    self.messages.get_mut(piece.agent, piece.op).into_iter().for_each(|m| m.freed = end);
                    continue;
                }
                Kind::SlotRead(channel) => {
                    // Without a credit message the slot is free at once.
                    self.messages.get_mut(piece.agent, piece.op).into_iter().for_each(|m| m.freed = end);
                    if self.inline[index] {
                        continue;
                    }
                    flow = self.messages.number(piece.agent, piece.op).map_or(Flow::None, Flow::In);
                    let direction = self.program.channels[channel as usize].receiver_direction;
                    let parent = self.pe(self.coord(piece.agent));
                    self.tree.track(Some(parent), format!("agent {} posted receives {direction}", piece.agent.0))
                }
                _ => continue,
            };
            if end > start || flow != Flow::None {
                let (name, origin) = (self.name(piece, out), self.origin(piece));
                let carries = self.messages.number(piece.agent, piece.op);
                out.slices.push(Slice { track, name, origin, depth: 0, flow, carries, start, end });
            }
        }
    }

    /// The message that the operation of a piece sends.
    fn sent(&self, piece: &Piece) -> Option<u32> {
        let kind = self.program.body(piece.agent).ops.get(piece.op as usize).map(|op| op.kind);
        if !matches!(kind, Some(OpKind::Comm(Comm::Send { .. }))) {
            return None;
        }
        self.messages.number(piece.agent, piece.op)
    }

    fn name(&mut self, piece: &Piece, out: &mut Tracks) -> u32 {
        let body = self.program.agents[piece.agent.0 as usize].body as usize;
        let name = &mut self.named[body][piece.op as usize];
        if *name == UNNAMED {
            *name = out.names.insert_full(self.program.describe(piece.agent, piece.op as usize)).0 as u32;
        }
        *name
    }

    fn origin(&self, piece: &Piece) -> Option<u32> {
        self.program.body(piece.agent).origins.get(piece.op as usize).map(|origin| origin.0)
    }
}
