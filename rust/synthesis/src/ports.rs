//! The bound that the engines and ports of PEs set to a collective, by the PEs that a program has at each rank.
//!
//! The data of a rank are at the PEs of its SIP, or those of a tile at one PE. What has to leave such a *party*, leaves
//! through the DMA channels and ports of its PEs, whatever the algorithm.
//!
//! An all-reduce takes more than what each party has to send: every element needs 2 (n - 1) messages among n parties
//! (gossip one way: F. Harary and A. J. Schwenk, "The communication problem on graphs and digraphs", 1974). For take the
//! messages that hold something of an element in the order of their arrival. The first party that depends on all n
//! contributions does so after n - 1 of them, since each brings together no more than two sets of parties that knew of
//! each other. No other party depends on all of them yet, so each of the n - 1 others takes one more. Over all elements of
//! S bytes, 2 (n - 1) S bytes leave the n parties. They all have the same engines at their best, so the busiest of them
//! takes 1 / n of that or more.
//!
//! A message occupies the DMA write channel of its sender for its bytes over the first link on its way. So does a store
//! for its bytes over the memory's write port. Every element of a result that was not there is stored, by its own PE where
//! no other touches that memory. A channel does one thing at a time, so the two times add up.

use ahbm_machine::{Coord, DmaChannels, Machine, NetworkModel, Node, PeId, Ps, Rate};
use ahbm_plan::Collective;
use ahbm_program::{BufferId, Move, OpKind, Program};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// What has to be moved, in bytes: at the root, at every other party, and among all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loads {
    root: Load,
    others: Load,
    total: u128,
}

/// What a party has to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Load {
    leaves: u128,
    enters: u128,
    /// Results that were not there before.
    stored: u128,
    /// Of its own data.
    read: u128,
}

impl Loads {
    /// Those of a collective of shares of `bytes` among `n` parties.
    fn of(collective: Collective, n: u32, bytes: u64) -> Self {
        let (n, s) = (u128::from(n), u128::from(bytes));
        let others = n.saturating_sub(1) * s;
        let load = |leaves, enters, stored, read| Load { leaves, enters, stored, read };
        let alike = |load, total| Self { root: load, others: load, total };
        use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
        match collective {
            _ if n < 2 => alike(Load::default(), 0),
            AllGather => alike(load(s, others, others, s), n * others),
            ReduceScatter => alike(load(others, s, s, n * s), n * others),
            AllReduce => alike(load(s, s, s, s), 2 * others),
            AllToAll => alike(load(others, others, others, others), n * others),
            Broadcast => Self { root: load(s, 0, 0, s), others: load(0, s, s, 0), total: others },
            Reduce => Self { root: load(0, s, s, s), others: load(s, 0, 0, s), total: others },
            Scatter => Self { root: load(others, 0, 0, others), others: load(0, s, s, 0), total: others },
            Gather => Self { root: load(0, others, others, 0), others: load(s, 0, 0, s), total: others },
        }
    }
}

/// The least time that engines and ports allow, and which of them it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Least {
    /// The time.
    pub ps: Ps,
    /// The resource in words.
    pub by: String,
}

/// The PEs of a party.
#[derive(Debug, Clone, Default)]
struct Party {
    pes: Vec<PeId>,
    /// The cubes that they are on, each once.
    cubes: Vec<PeId>,
}

/// The engines and ports of the PEs that a program has at each party.
#[derive(Debug)]
pub struct Engines<'a> {
    machine: &'a Machine,
    /// In order of SIPs and cubes.
    parties: BTreeMap<(u32, u32), Party>,
    /// PEs of all parties.
    pes: usize,
    /// A party is the PE of a cube, rather than those of a SIP.
    by_tile: bool,
    /// The quickest rate at which a channel hands bytes over to another party.
    out: Rate,
    /// The memories of all operands are the HBM slices of the PEs that touch them.
    owned: bool,
}

impl<'a> Engines<'a> {
    /// Those of a program, of which each SIP is a party or, `by_tile`, each cube. None where that bounds nothing: data
    /// travel without messages, or a cube that is a party has several PEs.
    pub fn of(program: &Program, machine: &'a Machine, by_tile: bool) -> Option<Self> {
        // Bodies of one class of agents share their operations.
        let ops: FxHashSet<_> = program.bodies.iter().map(|body| &body.ops).collect();
        if ops.into_iter().any(|ops| ops.iter().any(|op| is_copied_by_others(&op.kind))) {
            return None;
        }
        let party = |at: Coord| (at.sip, if by_tile { at.cube } else { 0 });
        let mut parties: BTreeMap<(u32, u32), BTreeMap<PeId, Coord>> = BTreeMap::new();
        let mut owned = true;
        for agent in &program.agents {
            let (pe, at) = (agent.place, machine.coord(agent.place));
            parties.entry(party(at)).or_default().insert(pe, at);
            for buffer in program.bodies[agent.body as usize].mems.named() {
                let BufferId(buffer) = program.buffer_table[agent.buffers as usize + usize::from(buffer)];
                let holder = match program.buffers[buffer as usize].node {
                    Node::Hbm(holder) | Node::Pe(holder) | Node::Sram(holder) => holder,
                    Node::Io(_) => return None,
                };
                owned &= program.buffers[buffer as usize].node == Node::Hbm(pe);
                if party(machine.coord(holder)) != party(at) || by_tile && holder != pe {
                    return None;
                }
            }
        }
        if by_tile && parties.values().any(|pes| pes.len() > 1) {
            return None;
        }
        let parties = parties.into_iter().map(|(key, pes)| {
            let mut cubes: Vec<PeId> = Vec::new();
            let mut last = None;
            for (&pe, at) in &pes {
                if last.replace(at.cube) != Some(at.cube) {
                    cubes.push(pe);
                }
            }
            (key, Party { pes: pes.into_keys().collect(), cubes })
        });
        let parties: BTreeMap<(u32, u32), Party> = parties.collect();
        let pes = parties.values().map(|party| party.pes.len()).sum();
        let out = Self::quickest_out(program, machine, by_tile);
        Some(Self { machine, parties, pes, by_tile, out, owned })
    }

    /// The quickest first link of all messages between parties.
    fn quickest_out(program: &Program, machine: &Machine, by_tile: bool) -> Rate {
        let mut known: FxHashMap<PeId, Rate> = FxHashMap::default();
        let mut quickest: Option<Rate> = None;
        for channel in &program.channels {
            let [from, to] = [channel.sender, channel.receiver].map(|agent| program.agents[agent.0 as usize].place);
            let [a, b] = [from, to].map(|pe| machine.coord(pe));
            if a.sip == b.sip && (!by_tile || a.cube == b.cube) {
                continue;
            }
            // All ways out of a PE begin at its port, where that limits.
            let port = *known.entry(from).or_insert_with(|| machine.ports(from).out);
            let rate = if port.is_unlimited() {
                let way = machine.route(Node::Pe(from), Node::Pe(to)).ok();
                way.and_then(|way| way.hops.first().copied()).map_or(port, |hop| machine.link_rate(hop.link))
            } else {
                port
            };
            quickest = Some(quickest.map_or(rate, |known| known.quicker(rate)));
        }
        quickest.unwrap_or(Rate::UNLIMITED)
    }

    /// The least time of a collective of shares of `bytes` among `sips`, `root` being one of them. None where nothing of
    /// them limits.
    pub fn least(&self, collective: Collective, sips: &[u32], bytes: u64, root: u32) -> Option<Least> {
        let members: BTreeSet<u32> = sips.iter().copied().collect();
        let here: BTreeSet<u32> = self.parties.keys().map(|&(sip, _)| sip).collect();
        let own = || self.parties.iter().filter(|((sip, _), _)| members.contains(sip));
        let tiles = if self.by_tile { own().count() } else { members.len() };
        let count = u32::try_from(tiles).ok()?;
        let loads = Loads::of(collective, count, bytes);
        let load = |sip: u32| if sip == root { &loads.root } else { &loads.others };
        let mut found: Vec<Least> = own().filter_map(|(&(sip, _), party)| self.of_party(load(sip), party)).collect();
        // Who relays could add and copy as well.
        if here == members {
            let mut all = Party::default();
            for party in self.parties.values() {
                all.pes.extend(&party.pes);
                all.cubes.extend(&party.cubes);
            }
            let stored = self.parties.keys().map(|&(sip, _)| load(sip).stored).sum();
            let together = Load { leaves: loads.total, enters: loads.total, stored, read: 0 };
            found.extend(self.of_party(&together, &all));
        }
        found.into_iter().reduce(|a, b| if b.ps > a.ps { b } else { a })
    }

    /// What one SIP has to send another.
    pub fn least_between(&self, bytes: u64, from: u32, to: u32) -> Option<Least> {
        let [from, to] = [from, to].map(|sip| self.parties.get(&(sip, 0)));
        let s = u128::from(bytes);
        let sends = from.and_then(|party| self.of_party(&Load { leaves: s, read: s, ..Load::default() }, party));
        let takes = to.and_then(|party| self.of_party(&Load { enters: s, stored: s, ..Load::default() }, party));
        sends.into_iter().chain(takes).reduce(|a, b| if b.ps > a.ps { b } else { a })
    }

    /// The tightest of what some PEs have to do together.
    fn of_party(&self, load: &Load, party: &Party) -> Option<Least> {
        let (costs, pes) = (self.machine.costs(), party.pes.len() as f64);
        let ports: Vec<_> = party.pes.iter().map(|&pe| self.machine.ports(pe)).collect();
        let mut best: Option<Least> = None;
        let mut add = |ps: f64, by: String| {
            // Rounded down: every transfer rounds up.
            let ps = ps as Ps;
            if ps > best.as_ref().map_or(0, |best| best.ps) {
                best = Some(Least { ps, by });
            }
        };
        let (stored, read) = if self.owned { (load.stored, load.read) } else { (0, 0) };
        let of = if self.by_tile { "PE" } else { "rank" };
        if let DmaChannels::Any(channels) = costs.dma_channels {
            let memory = ports.iter().map(|port| port.write).reduce(Rate::quicker).unwrap_or(Rate::UNLIMITED);
            let share = f64::from(channels) * pes;
            // Per rank on average, where all work together.
            let parties = if self.by_tile { pes } else { (pes * self.parties.len() as f64 / self.pes as f64).max(1.0) };
            let each = (share / parties).round() as u64;
            let name = |what: &str| match each {
                1 => format!("one DMA {what} channel per {of}"),
                _ => format!("{each} DMA {what} channels per {of}"),
            };
            let mut text = format!("{}, {} GB/s{}", name("write"), Gbs(self.out), if each == 1 { "" } else { " each" });
            if stored > 0 && !memory.is_unlimited() {
                text += &format!(" to the others and {} GB/s to its memory", Gbs(memory));
            }
            add((time(load.leaves, self.out.gbs()) + time(stored, memory.gbs())) / share, text);
            let from = ports.iter().fold(0.0f64, |rate, port| rate.max(port.read.gbs()));
            add(time(read, from) / share, format!("{}, {from} GB/s from its memory", name("read")));
        }
        if costs.network == NetworkModel::Analytic {
            return best;
        }
        let mut port = |bytes: u128, gbs: f64, what: &str| {
            add(time(bytes, gbs), format!("{what}, {gbs} GB/s together"));
        };
        let sum = |rate: fn(&ahbm_machine::Ports) -> Rate| ports.iter().map(|port| rate(port).gbs()).sum::<f64>();
        let pes = if self.by_tile { "the PE's" } else { "the PEs'" };
        port(load.leaves, sum(|port| port.out), &format!("{pes} ports out to the network on chip"));
        port(load.enters, sum(|port| port.into), &format!("{pes} ports in from the network on chip"));
        port(stored, sum(|port| port.write), &format!("{pes} write ports to memory"));
        port(read, sum(|port| port.read), &format!("{pes} read ports from memory"));
        if !self.by_tile {
            let io = |out: bool| party.cubes.iter().map(|&pe| self.machine.io_port(pe, out).gbs()).sum::<f64>();
            port(load.leaves, io(true), "the cubes' ports out to the I/O chiplet");
            port(load.enters, io(false), "the cubes' ports in from the I/O chiplet");
        }
        best
    }
}

/// A bandwidth for people.
struct Gbs(Rate);

impl std::fmt::Display for Gbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Rates are kept as times per byte, rounded.
        let gbs = (self.0.gbs() * 1e3).round() / 1e3;
        write!(f, "{gbs}")
    }
}

/// Picoseconds for bytes.
fn time(bytes: u128, gbs: f64) -> f64 {
    if gbs > 0.0 { bytes as f64 * 1000.0 / gbs } else { 0.0 }
}

/// Whether an operation moves data without its PE's channel: from or to a group, or from memory to memory.
fn is_copied_by_others(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Move(Move::Copy { .. } | Move::ReducingLoad { .. } | Move::Multicast { .. }))
}

/// The links by which a SIP's cubes reach the others, all of them together: whatever runs there, what leaves it leaves
/// over them.
pub fn least_by_io(machine: &Machine, collective: Collective, sips: &[u32], bytes: u64, root: u32) -> Option<Least> {
    if machine.costs().network == NetworkModel::Analytic {
        return None;
    }
    let loads = Loads::of(collective, sips.len() as u32, bytes);
    let of = |&sip: &u32| {
        let load = if sip == root { &loads.root } else { &loads.others };
        let gbs = |out: bool| {
            let cubes = (0..machine.sfr().cubes()).filter_map(|cube| machine.pe(Coord { sip, cube, pe: 0 }));
            cubes.map(|pe| machine.io_port(pe, out).gbs()).sum::<f64>()
        };
        let (out, into) = (gbs(true), gbs(false));
        let one = |bytes: u128, gbs: f64, way: &str| Least {
            ps: time(bytes, gbs) as Ps,
            by: format!("sip{sip}'s ports {way} the I/O chiplet, {gbs} GB/s together"),
        };
        [one(load.leaves, out, "out to"), one(load.enters, into, "in from")]
    };
    sips.iter().flat_map(of).filter(|least| least.ps > 0).reduce(|a, b| if b.ps > a.ps { b } else { a })
}
