//! Transfers over links, under the three network models.

use super::Sim;
use super::recorder::Recorder;
use super::transfer::{Arrival, Transfer, arrive};
use super::wiring::{NO_TREE, Wiring};
use crate::detail::{Kind, PieceId};
use ahbm_engine::{Resource, Time};
use ahbm_machine::{Costs, NetworkModel, Rate};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(super) struct Network<'a> {
    wiring: &'a Wiring,
    pub(super) model: NetworkModel,
    pub(super) flit: u64,
    links: Vec<Resource>,
    waiting: RefCell<Arena>,
    /// Per link, who waits: those whose heads arrive at one instant take their turns in order of their flows, however
    /// far ahead each was sent. Empty where no link is shared.
    turns: Vec<RefCell<BinaryHeap<Reverse<Turn>>>>,
}

/// Arrival of the head, hop, place in the arena.
type Turn = (Time, u32, u32);

/// Transfers that wait for their turn at a shared link.
#[derive(Default)]
struct Arena {
    entries: Vec<Transfer>,
    free: Vec<u32>,
}

impl<'a> Network<'a> {
    pub(super) fn new(wiring: &'a Wiring, costs: &Costs) -> Self {
        let shares = wiring.hops.iter().any(|&hop| !wiring.kind(hop).exclusive);
        Self {
            wiring,
            model: costs.network,
            flit: costs.flit_bytes,
            links: super::default_vec(wiring.links.len()),
            waiting: RefCell::default(),
            turns: super::default_vec(if shares { wiring.links.len() } else { 0 }),
        }
    }

    /// Sends `bytes` whose first byte leaves the source at `at >= now`, the end of `own`.
    pub(super) fn inject(
        &self,
        sim: &Sim<'_, impl Recorder>,
        flow: u32,
        bytes: u64,
        at: Time,
        arrival: Arrival,
        own: PieceId,
    ) {
        let route = &self.wiring.flows[flow as usize];
        if route.tree != NO_TREE {
            return sim.meet(route.tree, bytes, at, arrival, own);
        }
        if self.model == NetworkModel::Analytic {
            let hops =
                || self.wiring.hops[route.first as usize..route.last as usize].iter().map(|&hop| self.wiring.kind(hop));
            let latency = route.head + hops().map(|h| h.after).sum::<Time>();
            let slowest = hops().fold(Rate::UNLIMITED, |rate, h| rate.slower(h.rate));
            let wire = sim.recorder.plain(Kind::Wire, own, latency);
            let piece = sim.recorder.plain(Kind::Serial, wire, slowest.ps(bytes));
            return arrive(sim, arrival, bytes, at + latency + slowest.ps(bytes), piece);
        }
        self.start(sim, flow, bytes, at, arrival, own);
    }

    /// The same for a flow that has a way of its own, over links that are contended for.
    pub(super) fn start(
        &self,
        sim: &Sim<'_, impl Recorder>,
        flow: u32,
        bytes: u64,
        at: Time,
        arrival: Arrival,
        own: PieceId,
    ) {
        let route = &self.wiring.flows[flow as usize];
        let head = at + route.head;
        let piece = sim.recorder.plain(Kind::Wire, own, route.head);
        let transfer = Transfer {
            arrival,
            first: route.first,
            hop: route.first,
            last: route.last,
            bytes,
            head,
            tail: head,
            rest: 0,
            total: bytes,
            head_piece: piece,
            tail_piece: piece,
        };
        match self.model {
            NetworkModel::Flit => {
                let flit = bytes.min(self.flit);
                self.flits(sim, Transfer { bytes: flit, rest: bytes - flit, ..transfer }, false);
            }
            _ => self.cut_through(sim, transfer, false),
        }
    }

    /// A turn at a shared link has come.
    pub(super) fn resume(&self, sim: &Sim<'_, impl Recorder>, link: u32) {
        let next = self.turns[link as usize].borrow_mut().pop();
        let Reverse((_, _, index)) = next.expect("a turn is signalled once");
        let transfer = {
            let mut arena = self.waiting.borrow_mut();
            arena.free.push(index);
            arena.entries[index as usize]
        };
        match self.model {
            NetworkModel::Flit => self.flits(sim, transfer, true),
            _ => self.cut_through(sim, transfer, true),
        }
    }

    fn wait(&self, sim: &Sim<'_, impl Recorder>, transfer: Transfer) {
        let mut arena = self.waiting.borrow_mut();
        let index = match arena.free.pop() {
            Some(index) => {
                arena.entries[index as usize] = transfer;
                index
            }
            None => {
                arena.entries.push(transfer);
                arena.entries.len() as u32 - 1
            }
        };
        let link = self.wiring.hops[transfer.hop as usize].link;
        self.turns[link as usize].borrow_mut().push(Reverse((transfer.head, transfer.hop, index)));
        sim.engine.signal_at(transfer.head, link);
    }

    /// One reservation per message and link. The head moves on after its first flit; the tail leaves a
    /// link no earlier than its own last flit could have crossed it. A link is held until then, but for a trunk, which
    /// carries other messages meanwhile: what these delay is the whole message. `waited`: its turn at the first link has
    /// come.
    #[inline]
    pub(super) fn cut_through(&self, sim: &Sim<'_, impl Recorder>, mut transfer: Transfer, mut waited: bool) {
        let bytes = transfer.bytes;
        let first = bytes.min(self.flit);
        let last = if bytes.is_multiple_of(self.flit) { first } else { bytes % self.flit };
        while transfer.hop < transfer.last {
            let at = self.wiring.hops[transfer.hop as usize];
            let (link, hop) = (at.link, self.wiring.kind(at));
            if !hop.exclusive && transfer.head > sim.engine.now() {
                return self.wait(sim, transfer);
            }
            let resource = &self.links[link as usize];
            let duration = hop.rate.ps(bytes);
            if let Some(ties) = sim.ties.filter(|_| !hop.exclusive) {
                let holds = if hop.open { 0 } else { duration };
                ties.link(&sim.engine, link, transfer.hop, holds, waited);
            }
            waited = false;
            // Those of equal ranks follow at once; what holds for the last of them holds for each.
            let all = duration * u64::from(hop.times);
            let reserved = resource.reserve(transfer.head, all);
            // Nobody waits at a trunk that its ways cannot fill.
            let (start, all) = if hop.open { (transfer.head, duration) } else { (reserved, all) };
            let (own, crossed) = (transfer.head_piece, transfer.tail + hop.rate.ps(last));
            let fed = transfer.tail > transfer.head && crossed > start + all;
            // Bytes that come slower than a trunk carries them leave room for those of others.
            let beside = hop.trunk && transfer.tail > transfer.head && crossed > transfer.head + duration;
            let end = if fed { crossed } else { start + duration };
            if let Some(ties) = sim.ties.filter(|_| hop.times > 1 && !hop.open && !(fed && beside)) {
                ties.crowded();
            }
            let leaves = if beside { transfer.head + (end - crossed) } else { start };
            let onward = transfer.hop + 1 < transfer.last;
            if onward || matches!(transfer.arrival, Arrival::Leg(..)) {
                transfer.head_piece = if beside {
                    let piece = sim.recorder.plain(Kind::Head(link), own, end - crossed + hop.rate.ps(first));
                    sim.recorder.plain(Kind::Wire, piece, hop.after)
                } else {
                    sim.recorder.head(link, own, hop.rate.ps(first), hop.after)
                };
            }
            let mut left = sim.recorder.occupy(link, own, duration);
            if fed {
                // The tail of a branch is at its first link when its piece ends.
                let onto = transfer.hop > transfer.first;
                let before = if onto { self.wiring.kind(self.wiring.hops[transfer.hop as usize - 1]).after } else { 0 };
                if beside {
                    left = sim.recorder.trail(transfer.tail_piece, before, hop.rate.ps(last));
                } else {
                    resource.hold_until(end);
                    left = sim.recorder.tail(link, transfer.tail_piece, before, hop.rate.ps(last));
                }
            }
            transfer.tail_piece = if onward { left } else { sim.recorder.plain(Kind::Wire, left, hop.after) };
            transfer.head = leaves + hop.rate.ps(first) + hop.after;
            transfer.tail = end + hop.after;
            transfer.hop += 1;
        }
        match transfer.arrival {
            Arrival::Leg(meeting, leg) => sim.at_switch(meeting, leg, &transfer),
            arrival => arrive(sim, arrival, bytes, transfer.tail, transfer.tail_piece),
        }
    }

    /// One reservation per flit and link. The source offers a flit once the one before it has left. `waited`: as of
    /// [`Self::cut_through`].
    pub(super) fn flits(&self, sim: &Sim<'_, impl Recorder>, transfer: Transfer, mut waited: bool) {
        let mut pending = Some(transfer);
        while let Some(mut flit) = pending.take() {
            while flit.hop < flit.last {
                let at = self.wiring.hops[flit.hop as usize];
                let (link, hop) = (at.link, self.wiring.kind(at));
                if !hop.exclusive && flit.head > sim.engine.now() {
                    self.wait(sim, flit);
                    break;
                }
                let duration = hop.rate.ps(flit.bytes);
                if let Some(ties) = sim.ties.filter(|_| hop.times > 1) {
                    ties.crowded();
                }
                if let Some(ties) = sim.ties.filter(|_| !hop.exclusive) {
                    ties.link(&sim.engine, link, flit.hop, duration, waited);
                }
                waited = false;
                let left = self.links[link as usize].reserve(flit.head, duration) + duration;
                let piece = sim.recorder.occupy(link, flit.head_piece, duration);
                if flit.rest > 0 && pending.is_none() {
                    let bytes = flit.rest.min(self.flit);
                    let rest = flit.rest - bytes;
                    pending = Some(Transfer { bytes, head: left, tail: left, rest, head_piece: piece, ..flit });
                    flit.rest = 0;
                    flit.total = 0;
                }
                flit.head = left + hop.after;
                flit.head_piece = sim.recorder.plain(Kind::Wire, piece, hop.after);
                flit.hop += 1;
            }
            if flit.hop < flit.last {
                continue;
            }
            match flit.arrival {
                Arrival::Leg(meeting, leg) => {
                    let here = Transfer { tail: flit.head, tail_piece: flit.head_piece, ..flit };
                    sim.at_switch(meeting, leg, &here);
                    // A leg without links brings them all at once.
                    let mut rest = flit.rest;
                    while rest > 0 {
                        let bytes = rest.min(self.flit);
                        sim.at_switch(meeting, leg, &Transfer { bytes, ..here });
                        rest -= bytes;
                    }
                }
                arrival if flit.total > 0 => arrive(sim, arrival, flit.total, flit.head, flit.head_piece),
                _ => {}
            }
        }
    }
}
