//! Transfers that meet in the switch: what a group sends is reduced there, what goes to a group is copied.
//!
//! A meeting has legs, which lead to the switch, and branches, which lead from it; one of the two is a single one. A
//! flit leaves the switch on all branches once it has come over all legs; so does a message under cut-through, whose
//! head and tail leave with the last head and the last tail.

use super::Sim;
use super::recorder::Recorder;
use super::transfer::{Arrival, Transfer, arrive};
use super::wiring::Wiring;
use crate::detail::{Kind, PieceId};
use ahbm_engine::Time;
use ahbm_machine::{NetworkModel, Rate};
use std::collections::VecDeque;

/// A transfer from or to a group, on its way.
struct Meeting {
    tree: u32,
    arrival: Arrival,
    bytes: u64,
    /// Flits that each leg has brought; one stands for the message under cut-through.
    brought: Vec<u32>,
    /// Flits that have left the switch, and those behind them that have come over some legs.
    left: u32,
    waiting: VecDeque<Flit>,
    /// Branches that have not arrived, and the latest arrival of the others.
    branches: u32,
    latest: (Time, PieceId),
}

/// A flit in the switch: legs that it has not come over, and the latest head and tail of the others.
#[derive(Clone, Copy)]
struct Flit {
    missing: u32,
    head: (Time, PieceId),
    tail: (Time, PieceId),
}

/// The meetings under way.
#[derive(Default)]
pub(super) struct Meetings {
    list: Vec<Option<Meeting>>,
    free: Vec<u32>,
}

impl Meetings {
    fn add(&mut self, meeting: Meeting) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.list[index as usize] = Some(meeting);
                index
            }
            None => {
                self.list.push(Some(meeting));
                self.list.len() as u32 - 1
            }
        }
    }

    fn at(&mut self, index: u32) -> &mut Meeting {
        self.list[index as usize].as_mut().expect("a meeting ends with its last branch")
    }
}

impl<R: Recorder> Sim<'_, R> {
    /// Sends `bytes` over a tree; the first byte leaves every source at `at >= now`, the end of `own`.
    pub(super) fn meet(&self, tree: u32, bytes: u64, at: Time, arrival: Arrival, own: PieceId) {
        let (legs, branches) = (&self.wiring.trees[tree as usize].legs, &self.wiring.trees[tree as usize].branches);
        if self.network.model == NetworkModel::Analytic {
            let pairs = legs.clone().flat_map(|leg| branches.clone().map(move |branch| [leg, branch]));
            // The first of the slowest.
            let ways = pairs.map(|pair| way(self.wiring, pair, bytes)).rev();
            let (latency, serial) = ways.max_by_key(|(latency, serial)| latency + serial).unwrap_or_default();
            let wire = self.recorder.plain(Kind::Wire, own, latency);
            let piece = self.recorder.plain(Kind::Serial, wire, serial);
            return arrive(self, arrival, bytes, at + latency + serial, piece);
        }
        let meeting = self.meetings.borrow_mut().add(Meeting {
            tree,
            arrival,
            bytes,
            brought: vec![0; legs.len()],
            left: 0,
            waiting: VecDeque::new(),
            branches: branches.len() as u32,
            latest: (0, own),
        });
        for (leg, flow) in (0..).zip(legs.clone()) {
            self.network.start(self, flow, bytes, at, Arrival::Leg(meeting, leg), own);
        }
    }

    /// A message, or one flit of it, has come over a leg.
    pub(super) fn at_switch(&self, meeting: u32, leg: u32, here: &Transfer) {
        let (tree, bytes, last) = {
            let mut meetings = self.meetings.borrow_mut();
            let state = meetings.at(meeting);
            let legs = state.brought.len() as u32;
            let brought = &mut state.brought[leg as usize];
            let place = (*brought - state.left) as usize;
            *brought += 1;
            let (head, tail) = ((here.head, here.head_piece), (here.tail, here.tail_piece));
            if place == state.waiting.len() {
                state.waiting.push_back(Flit { missing: legs, head, tail });
            }
            let flit = &mut state.waiting[place];
            flit.missing -= 1;
            flit.head = later(flit.head, head);
            flit.tail = later(flit.tail, tail);
            // Flits of a leg come in order, so the first to be complete is the first that waits.
            if flit.missing > 0 {
                return;
            }
            state.left += 1;
            let whole = self.network.model != NetworkModel::Flit;
            let last = whole || u64::from(state.left) * self.network.flit >= state.bytes;
            (state.tree, state.bytes, last)
        };
        let flit = self.meetings.borrow_mut().at(meeting).waiting.pop_front().expect("it is complete");
        for flow in self.wiring.trees[tree as usize].branches.clone() {
            let route = &self.wiring.flows[flow as usize];
            let onward = |(at, piece)| (at + route.head, self.recorder.plain(Kind::Wire, piece, route.head));
            let ((head, head_piece), (tail, tail_piece)) = (onward(flit.head), onward(flit.tail));
            let transfer = Transfer {
                arrival: Arrival::Branch(meeting),
                first: route.first,
                hop: route.first,
                last: route.last,
                bytes: here.bytes,
                head,
                tail,
                rest: 0,
                total: if last { bytes } else { 0 },
                head_piece,
                tail_piece,
            };
            match self.network.model {
                NetworkModel::Flit => self.network.flits(self, transfer, false),
                _ => self.network.cut_through(self, transfer, false),
            }
        }
    }

    /// The last byte has arrived over a branch.
    pub(super) fn at_branch(&self, meeting: u32, event: (Time, PieceId)) {
        let ended = {
            let mut meetings = self.meetings.borrow_mut();
            let state = meetings.at(meeting);
            state.latest = later(state.latest, event);
            state.branches -= 1;
            if state.branches > 0 {
                return;
            }
            meetings.free.push(meeting);
            meetings.list[meeting as usize].take()
        };
        if let Some(Meeting { arrival, bytes, latest: (at, piece), .. }) = ended {
            arrive(self, arrival, bytes, at, piece);
        }
    }
}

/// Latency of the ways behind each other, and the time that `bytes` take over the slowest link.
fn way(wiring: &Wiring, flows: [u32; 2], bytes: u64) -> (Time, Time) {
    let flows = flows.map(|flow| &wiring.flows[flow as usize]);
    let hops = flows
        .iter()
        .flat_map(|flow| &wiring.hops[flow.first as usize..flow.last as usize])
        .map(|&hop| wiring.kind(hop));
    let (latency, slowest) = hops.fold((0, Rate::UNLIMITED), |(t, rate), h| (t + h.after, rate.slower(h.rate)));
    (flows.iter().map(|flow| flow.head).sum::<Time>() + latency, slowest.ps(bytes))
}

/// The later of two events, the first of equals.
fn later(a: (Time, PieceId), b: (Time, PieceId)) -> (Time, PieceId) {
    if b.0 > a.0 { b } else { a }
}
