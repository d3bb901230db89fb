//! The state of a run at a time: who does what, who waits for whom, and what stands in the queues.

use super::flow::{messages, unrecorded};
use crate::{NEVER, Span, Timeline};
use ahbm_engine::interrupt::spend;
use ahbm_findings::Diagnostic;
use ahbm_machine::Ps;
use ahbm_program::{AgentId, Body, Comm, Control, Move, OpKind, Program, ValueId};

/// Agents that are named as those who must act.
const NAMED: usize = 8;

/// What an agent is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It executes its operation, or what it waited for is on its way.
    Works,
    /// It waits for a message that was not sent yet.
    Message,
    /// It waits for a free slot of a queue.
    Slot,
    /// It waits for a counter that stands at this value.
    Counter(u64),
    /// It waits at a barrier at which so many have arrived.
    Barrier(u32),
    /// All its operations are over.
    Ended,
}

/// An agent at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doing {
    /// Its operation; its last one when it has ended.
    pub op: u32,
    /// When that operation began and ended; [`NEVER`] in a deadlock.
    pub span: Span,
    /// What it is about.
    pub phase: Phase,
    /// The agents that it waits for, the first few of them, with the operations that they must have done. Empty where
    /// nobody's operation would help: a message that no operation sends.
    pub by: Vec<(AgentId, u32)>,
}

/// A message that was sent and not taken yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The operation that sent it.
    pub op: u32,
    /// When that was over.
    pub since: Ps,
    /// Its payload.
    pub bytes: u64,
    /// The posted receive that it belongs to: it has left its slot, or will at once.
    pub claimed: Option<u32>,
}

/// A queue at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// The messages in it, the next to be received first.
    pub held: Vec<Held>,
    /// Slots that no message occupies.
    pub free: u32,
    /// Messages sent, and messages received, until then.
    pub sent: u64,
    /// As [`Self::sent`].
    pub received: u64,
}

/// A run at a time. Effects at that very time have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Per agent; `None` for one without operations.
    pub agents: Vec<Option<Doing>>,
    /// Per channel.
    pub queues: Vec<Queue>,
    /// Per counter.
    pub counters: Vec<u64>,
}

impl State {
    /// The state at `at`. The end of an operation is its effect; a posted signal counts once everything that its agent
    /// posted before has arrived.
    ///
    /// # Errors
    /// `AHBM-D191` for a timeline that was not recorded.
    pub fn at(program: &Program, timeline: &Timeline, at: Ps) -> Result<Self, Diagnostic> {
        if timeline.spans.len() != program.agents.len() {
            return Err(unrecorded());
        }
        let seen = Seen { program, timeline, at, messages: messages(program, timeline) };
        let counters = seen.counters();
        let queues: Vec<Queue> = (0..program.channels.len()).map(|channel| seen.queue(channel)).collect();
        let doing: Vec<Option<(u32, Span)>> = (0..program.agents.len()).map(|agent| seen.current(agent)).collect();
        let agents = doing.iter().enumerate().map(|(agent, now)| {
            let (op, span) = (*now)?;
            let (phase, by) = seen.phase(AgentId(agent as u32), op, span, &counters, &queues);
            Some(Doing { op, span, phase, by })
        });
        Ok(Self { agents: agents.collect(), queues, counters })
    }
}

struct Seen<'a> {
    program: &'a Program,
    timeline: &'a Timeline,
    at: Ps,
    /// Per channel, what sends and what receives.
    messages: (Vec<Vec<u32>>, Vec<Vec<u32>>),
}

impl Seen<'_> {
    fn span(&self, agent: AgentId, op: u32) -> Span {
        self.timeline.spans[agent.0 as usize][op as usize]
    }

    /// The first operation that is not over; the last one when all are.
    fn current(&self, agent: usize) -> Option<(u32, Span)> {
        let spans = &self.timeline.spans[agent];
        let first = spans.partition_point(|span| span.end <= self.at).min(spans.len().checked_sub(1)?);
        Some((first as u32, spans[first]))
    }

    /// When the effect of each signal of an agent is there: operation, counter, amount.
    fn signals(&self, agent: usize) -> impl Iterator<Item = (u32, u32, u32, Ps)> + '_ {
        let body = self.program.body(AgentId(agent as u32));
        let mut arrivals = self.timeline.arrivals.get(agent).map_or(&[][..], Vec::as_slice).iter();
        let mut arrived = 0;
        spend(body.ops.len() as u64);
        body.ops.iter().enumerate().filter_map(move |(op, kind)| {
            let end = self.timeline.spans[agent][op].end;
            match kind.kind {
                OpKind::Move(
                    Move::Store { posted: true, .. } | Move::Copy { posted: true, .. } | Move::Multicast { .. },
                ) => {
                    arrived = arrivals.next().copied().unwrap_or(0).max(arrived);
                    None
                }
                OpKind::Control(Control::Signal { counter, add, posted }) => {
                    Some((op as u32, counter, add, if posted { end.max(arrived) } else { end }))
                }
                _ => None,
            }
        })
    }

    fn counters(&self) -> Vec<u64> {
        let mut counters = vec![0u64; self.program.counters as usize];
        if counters.is_empty() {
            return counters;
        }
        let mut taken = counters.clone();
        for agent in 0..self.program.agents.len() {
            for (_, counter, add, _) in self.signals(agent).filter(|signal| signal.3 <= self.at) {
                counters[counter as usize] = counters[counter as usize].saturating_add(add.into());
            }
            let body = self.program.body(AgentId(agent as u32));
            for (op, span) in body.ops.iter().zip(&self.timeline.spans[agent]) {
                if let OpKind::Control(Control::Acquire { counter, amount }) = op.kind
                    && span.end <= self.at
                {
                    taken[counter as usize] = taken[counter as usize].saturating_add(amount.into());
                }
            }
        }
        counters.iter().zip(taken).map(|(value, taken)| value.saturating_sub(taken)).collect()
    }

    fn queue(&self, channel: usize) -> Queue {
        let about = &self.program.channels[channel];
        let (sends, receives) = (&self.messages.0[channel], &self.messages.1[channel]);
        let sent = sends.partition_point(|&op| self.span(about.sender, op).end <= self.at);
        let body = self.program.body(about.receiver);
        let mut received = 0;
        let mut held = Vec::new();
        spend(sent as u64 * 4);
        for (number, &op) in sends[..sent].iter().enumerate() {
            let taker = receives.get(number).copied();
            if taker.is_some_and(|taker| self.taken(about.receiver, body, taker)) {
                received += 1;
                continue;
            }
            let posts = |&taker: &u32| {
                let kind = body.ops[taker as usize].kind;
                matches!(kind, OpKind::Comm(Comm::PostRecv { .. })) && self.span(about.receiver, taker).end <= self.at
            };
            let sender = self.program.body(about.sender);
            let tile = sender.ops[op as usize].kind.operands().tile;
            let bytes = tile.map_or(0, |tile| sender.tiles[tile as usize].bytes());
            let since = self.span(about.sender, op).end;
            held.push(Held { op, since, bytes, claimed: taker.filter(posts) });
        }
        let occupied = held.iter().filter(|message| message.claimed.is_none()).count() as u32;
        Queue { held, free: about.slots.saturating_sub(occupied), sent: sent as u64, received }
    }

    /// Whether a receive has its message.
    fn taken(&self, agent: AgentId, body: &Body, op: u32) -> bool {
        let last = match body.ops[op as usize].kind {
            OpKind::Comm(Comm::PostRecv { dst, .. }) => awaiting(body, op, dst),
            _ => Some(op),
        };
        last.is_some_and(|op| self.span(agent, op).end <= self.at)
    }

    fn phase(
        &self,
        agent: AgentId,
        op: u32,
        span: Span,
        counters: &[u64],
        queues: &[Queue],
    ) -> (Phase, Vec<(AgentId, u32)>) {
        let works = (Phase::Works, Vec::new());
        if span.end <= self.at {
            return (Phase::Ended, Vec::new());
        }
        if span.start > self.at {
            return works;
        }
        let body = self.program.body(agent);
        match body.ops[op as usize].kind {
            // Of a deadlock: no message came, so that it is not known whose it would have taken.
            OpKind::Comm(Comm::RecvAny { .. }) if span.end == NEVER => (Phase::Message, Vec::new()),
            OpKind::Comm(Comm::Recv { .. } | Comm::RecvAny { .. }) => self.unsent(agent, op).unwrap_or(works),
            OpKind::Comm(Comm::Await { value }) => {
                let posted = (0..op).rev().find(|&earlier| body.ops[earlier as usize].defines() == Some(value));
                posted.and_then(|posted| self.unsent(agent, posted)).unwrap_or(works)
            }
            OpKind::Comm(Comm::Send { dir, .. } | Comm::AwaitSlot { dir }) => {
                let channel = self.program.tx(agent, dir);
                let (queue, receiver) =
                    (&queues[channel.0 as usize], self.program.channels[channel.0 as usize].receiver);
                let next = self.messages.1[channel.0 as usize].get(queue.received as usize);
                if queue.free > 0 {
                    return works;
                }
                (Phase::Slot, next.map(|&op| (receiver, op)).into_iter().collect())
            }
            OpKind::Control(
                Control::WaitCounter { counter, at_least: needed } | Control::Acquire { counter, amount: needed },
            ) => {
                let value = counters[counter as usize];
                if value >= needed.into() {
                    return works;
                }
                let others = 0..self.program.agents.len();
                let next = |other: usize| self.signals(other).find(|s| s.1 == counter && s.3 > self.at);
                let due = others.filter_map(|other| Some((AgentId(other as u32), next(other)?.0)));
                (Phase::Counter(value), due.take(NAMED).collect())
            }
            OpKind::Control(Control::Barrier { id }) => {
                let visit = visits(body).filter(|&(at, b)| b == id && at < op).count();
                let theirs = |other: AgentId| {
                    let theirs = visits(self.program.body(other)).filter(|&(_, b)| b == id).nth(visit)?;
                    Some((other, theirs.0))
                };
                let all = (0..self.program.agents.len() as u32).map(AgentId).filter_map(theirs);
                let (there, missing): (Vec<_>, Vec<_>) =
                    all.partition(|&(other, at)| self.span(other, at).start <= self.at);
                if missing.is_empty() && there.len() as u32 >= self.program.barriers[id as usize] {
                    return works;
                }
                (Phase::Barrier(there.len() as u32), missing.into_iter().take(NAMED).collect())
            }
            _ => works,
        }
    }

    /// The wait for the message of a receive, while it is not sent.
    fn unsent(&self, agent: AgentId, op: u32) -> Option<(Phase, Vec<(AgentId, u32)>)> {
        let (sends, receives) = &self.messages;
        let here = |channel: &usize| {
            self.program.channels[*channel].receiver == agent && receives[*channel].binary_search(&op).is_ok()
        };
        let channel = match self.program.body(agent).ops[op as usize].kind {
            OpKind::Comm(Comm::Recv { dir, .. } | Comm::PostRecv { dir, .. }) => self.program.rx(agent, dir).0 as usize,
            _ => (0..receives.len()).find(here)?,
        };
        let number = receives[channel].binary_search(&op).ok()?;
        let sender = self.program.channels[channel].sender;
        let Some(&sent) = sends[channel].get(number) else { return Some((Phase::Message, Vec::new())) };
        (self.span(sender, sent).end > self.at).then(|| (Phase::Message, vec![(sender, sent)]))
    }
}

/// The operation that waits for a posted receive.
fn awaiting(body: &Body, posted: u32, dst: ValueId) -> Option<u32> {
    (posted + 1..body.ops.len() as u32)
        .find(|&op| body.ops[op as usize].kind == OpKind::Comm(Comm::Await { value: dst }))
}

/// The operations at which an agent comes to barriers, and these.
fn visits(body: &Body) -> impl Iterator<Item = (u32, u32)> + '_ {
    body.ops.iter().enumerate().filter_map(|(op, kind)| match kind.kind {
        OpKind::Control(Control::Barrier { id }) => Some((op as u32, id)),
        _ => None,
    })
}
