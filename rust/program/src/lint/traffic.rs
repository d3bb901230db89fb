//! `AHBM-L104`, `L105`, `L107`: what is sent on a queue is what is received from it.

use super::{Findings, label};
use crate::{AgentId, Body, Channel, ChannelId, Comm, OpKind, Program};
use ahbm_findings::Diagnostic;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::sync::Arc;

/// The message operations of a body: operation indices in issue order.
struct Traffic {
    sends: Vec<Vec<u32>>,
    receives: Vec<Vec<u32>>,
    /// `recv(dir=None)`.
    any: Vec<u32>,
    /// Per direction, the largest message sent and the operation that sends it.
    largest: Vec<(u64, u32)>,
}

impl Traffic {
    fn of(body: &Body) -> Self {
        let n = body.directions.len();
        let mut traffic = Self {
            sends: vec![Vec::new(); n],
            receives: vec![Vec::new(); n],
            any: Vec::new(),
            largest: vec![(0, 0); n],
        };
        for (index, op) in body.ops.iter().enumerate() {
            let index = index as u32;
            match op.kind {
                OpKind::Comm(Comm::Send { dir, tile, .. }) => {
                    traffic.sends[dir as usize].push(index);
                    let (bytes, at) = &mut traffic.largest[dir as usize];
                    let sent = body.tiles[tile as usize].bytes();
                    if sent > *bytes {
                        (*bytes, *at) = (sent, index);
                    }
                }
                OpKind::Comm(Comm::Recv { dir, .. } | Comm::PostRecv { dir, .. }) => {
                    traffic.receives[dir as usize].push(index)
                }
                OpKind::Comm(Comm::RecvAny { .. }) => traffic.any.push(index),
                _ => {}
            }
        }
        traffic
    }
}

/// The direction by which one end of a channel names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Unused,
    One(u16),
    /// Several directions of the body lead to the same queue.
    Several,
}

impl Name {
    fn add(&mut self, dir: u16) {
        *self = if *self == Self::Unused { Self::One(dir) } else { Self::Several };
    }
}

/// How the two ends of a channel compare.
#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Agree,
    /// Different numbers of messages.
    Counts(usize, usize),
    /// The k-th message differs: operation indices of both ends.
    Differ(usize, u32, u32),
}

struct Check<'a> {
    program: &'a Program,
    /// Per body, the first one whose operations are the same.
    alike: &'a [u32],
    /// Of the first ones.
    traffic: Vec<Option<Traffic>>,
    tx: Vec<Name>,
    rx: Vec<Name>,
}

pub(super) fn check(program: &Program, alike: &[u32], findings: &mut Findings) {
    let of = |(body, index): (&Arc<Body>, u32)| (alike[index as usize] == index).then(|| Traffic::of(body));
    let traffic: Vec<Option<Traffic>> = program.bodies.iter().zip(0..).map(of).collect();
    let mut tx = vec![Name::Unused; program.channels.len()];
    let mut rx = vec![Name::Unused; program.channels.len()];
    for (index, agent) in program.agents.iter().enumerate() {
        let id = AgentId(index as u32);
        let t = traffic[alike[agent.body as usize] as usize].as_ref().expect("the first of those that are alike");
        for dir in 0..t.sends.len() {
            if !t.sends[dir].is_empty() {
                tx[program.tx(id, dir as u16).0 as usize].add(dir as u16);
            }
            if !t.receives[dir].is_empty() {
                rx[program.rx(id, dir as u16).0 as usize].add(dir as u16);
            }
        }
    }
    let check = Check { program, alike, traffic, tx, rx };
    check.slots(findings);
    check.pairs(findings);
    check.pools(findings);
}

impl Check<'_> {
    /// The operations of an agent, as the number of the first body that has them.
    fn first(&self, agent: AgentId) -> u32 {
        self.alike[self.program.agents[agent.0 as usize].body as usize]
    }

    fn traffic(&self, agent: AgentId) -> &Traffic {
        self.traffic[self.first(agent) as usize].as_ref().expect("the first of those that are alike")
    }

    fn sends(&self, channel: ChannelId) -> Cow<'_, [u32]> {
        let agent = self.program.channels[channel.0 as usize].sender;
        let t = self.traffic(agent);
        self.ops(self.tx[channel.0 as usize], &t.sends, |dir| self.program.tx(agent, dir) == channel)
    }

    fn receives(&self, channel: ChannelId) -> Cow<'_, [u32]> {
        let agent = self.program.channels[channel.0 as usize].receiver;
        let t = self.traffic(agent);
        self.ops(self.rx[channel.0 as usize], &t.receives, |dir| self.program.rx(agent, dir) == channel)
    }

    fn ops<'a>(&self, name: Name, lists: &'a [Vec<u32>], is: impl Fn(u16) -> bool) -> Cow<'a, [u32]> {
        match name {
            Name::Unused => Cow::Borrowed(&[]),
            Name::One(dir) => Cow::Borrowed(&lists[dir as usize]),
            Name::Several => {
                let mut all: Vec<u32> =
                    (0..lists.len()).filter(|&d| is(d as u16)).flat_map(|d| lists[d].iter().copied()).collect();
                all.sort_unstable();
                Cow::Owned(all)
            }
        }
    }

    /// `AHBM-L105`.
    fn slots(&self, findings: &mut Findings) {
        let program = self.program;
        for index in 0..program.agents.len() {
            let id = AgentId(index as u32);
            for (dir, &(bytes, op)) in self.traffic(id).largest.iter().enumerate() {
                if bytes == 0 {
                    continue;
                }
                let channel = &program.channels[program.tx(id, dir as u16).0 as usize];
                if bytes > channel.slot_bytes {
                    findings.add("AHBM-L105", |code| {
                        let slot = channel.slot_bytes;
                        Diagnostic::new(code, format!("a message of {bytes} bytes does not fit a slot of {slot} bytes"))
                            .site(label(program, id, op as usize), program.origin_text(id, op as usize))
                            .site(receiver(program, channel), "")
                            .hint(format!("raise slot_size to at least {bytes} or set it to `auto`"))
                    });
                }
            }
        }
    }

    /// `AHBM-L104` and `AHBM-L107`, queue by queue.
    fn pairs(&self, findings: &mut Findings) {
        let program = self.program;
        // Queues whose ends run the same operations under the same names compare alike.
        let mut known: FxHashMap<(u32, Name, u32, Name), Verdict> = FxHashMap::default();
        for (index, channel) in program.channels.iter().enumerate() {
            let id = ChannelId(index as u32);
            let key = (self.first(channel.sender), self.tx[index], self.first(channel.receiver), self.rx[index]);
            let verdict = if key.1 == Name::Several || key.3 == Name::Several {
                self.compare(id)
            } else {
                *known.entry(key).or_insert_with(|| self.compare(id))
            };
            match verdict {
                Verdict::Agree => {}
                Verdict::Counts(sent, received) => {
                    findings.add("AHBM-L104", |code| self.counts(id, sent, received, code));
                }
                Verdict::Differ(k, send, receive) => {
                    findings.add("AHBM-L107", |code| {
                        let (s, r) = (send as usize, receive as usize);
                        Diagnostic::new(code, format!("message {k} of a queue is sent and received as different tiles"))
                            .site(label(program, channel.sender, s), program.origin_text(channel.sender, s))
                            .site(label(program, channel.receiver, r), program.origin_text(channel.receiver, r))
                            .hint("a queue is first in, first out: give the k-th send and the k-th recv one shape and dtype")
                    });
                }
            }
        }
    }

    fn compare(&self, id: ChannelId) -> Verdict {
        let channel = &self.program.channels[id.0 as usize];
        let (sends, receives) = (self.sends(id), self.receives(id));
        let pooled = !self.traffic(channel.receiver).any.is_empty();
        if receives.len() > sends.len() || (sends.len() > receives.len() && !pooled) {
            return Verdict::Counts(sends.len(), receives.len());
        }
        if pooled {
            return Verdict::Agree;
        }
        let (from, to) = (self.program.body(channel.sender), self.program.body(channel.receiver));
        let tile = |body: &Body, op: u32| {
            let tile = &body.tiles[body.ops[op as usize].kind.operands().tile.unwrap_or(0) as usize];
            (tile.bytes(), tile.dtype)
        };
        for (k, (&s, &r)) in sends.iter().zip(receives.iter()).enumerate() {
            if tile(from, s) != tile(to, r) {
                return Verdict::Differ(k, s, r);
            }
        }
        Verdict::Agree
    }

    fn counts(&self, id: ChannelId, sent: usize, received: usize, code: &'static str) -> Diagnostic {
        let program = self.program;
        let channel = &program.channels[id.0 as usize];
        let (s, r) =
            (program.agents[channel.sender.0 as usize].coord, program.agents[channel.receiver.0 as usize].coord);
        let message = format!(
            "{s} sends {sent} {} in direction {} to {r}, which receives {received} from direction {}",
            if sent == 1 { "message" } else { "messages" },
            channel.sender_direction,
            channel.receiver_direction
        );
        let (sends, receives) = (self.sends(id), self.receives(id));
        let common = sent.min(received);
        let side = |agent: AgentId, ops: &[u32], what: &str| match (ops.get(common), ops.last()) {
            (Some(&op), _) => (
                format!("{}, without a partner", label(program, agent, op as usize)),
                program.origin_text(agent, op as usize),
            ),
            (None, Some(&op)) => (
                format!("{}, the last {what}", label(program, agent, op as usize)),
                program.origin_text(agent, op as usize),
            ),
            (None, None) => (format!("{}: no {what}", program.agents[agent.0 as usize].coord), String::new()),
        };
        let (from, to) = (side(channel.sender, &sends, "send"), side(channel.receiver, &receives, "recv"));
        Diagnostic::new(code, message).site(from.0, from.1).site(to.0, to.1).hint(if sent > received {
            "receive every message that is sent; guard the send by the same condition as its recv"
        } else {
            "the receiver would wait for ever; send what is received, under the same condition"
        })
    }

    /// `AHBM-L104` for receivers with `recv(dir=None)`: their queues count as one pool.
    fn pools(&self, findings: &mut Findings) {
        let program = self.program;
        if self.traffic.iter().flatten().all(|t| t.any.is_empty()) {
            return;
        }
        let mut sent = vec![0usize; program.agents.len()];
        for (index, channel) in program.channels.iter().enumerate() {
            sent[channel.receiver.0 as usize] += self.sends(ChannelId(index as u32)).len();
        }
        for (index, &sent) in sent.iter().enumerate() {
            let id = AgentId(index as u32);
            let t = self.traffic(id);
            let Some(&last) = t.any.last() else { continue };
            let named: usize = t.receives.iter().map(Vec::len).sum();
            if sent != named + t.any.len() {
                findings.add("AHBM-L104", |code| {
                    let at = program.agents[index].coord;
                    let all = named + t.any.len();
                    let message = format!("{sent} messages are sent to {at} over all its queues, which receives {all}");
                    let found = Diagnostic::new(code, message)
                        .site(label(program, id, last as usize), program.origin_text(id, last as usize))
                        .hint(
                            "recv(dir=None) takes from any direction; sends and receives must add up over all of them",
                        );
                    self.pool_senders(id, found)
                });
            }
        }
    }

    /// Adds the last send of every queue of a pool, at most eight.
    fn pool_senders(&self, receiver: AgentId, mut found: Diagnostic) -> Diagnostic {
        let program = self.program;
        let inbound = program.channels.iter().enumerate().filter(|(_, c)| c.receiver == receiver);
        for (index, channel) in inbound.take(8) {
            let sends = self.sends(ChannelId(index as u32));
            if let Some(&op) = sends.last() {
                let (id, op) = (channel.sender, op as usize);
                let text = format!("{}, the last of {}", label(program, id, op), sends.len());
                found = found.site(text, program.origin_text(id, op));
            }
        }
        found
    }
}

fn receiver(program: &Program, channel: &Channel) -> String {
    let at = program.agents[channel.receiver.0 as usize].coord;
    format!("{at}: queue of direction {}, {} slots", channel.receiver_direction, channel.slots)
}
