//! Who goes next: runs a program's synchronisation in one order, without time and without data.

use crate::counters::Counters;
use crate::support::{Step, Subject};
use ahbm_engine::interrupt::spend;
use ahbm_findings::{Diagnostic, codes};
use ahbm_program::{AgentId, ChannelId, Comm, Control, OpKind, Program, ValueId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BinaryHeap};

/// Elementary steps of an operation ([`spend`]).
const STEPS: u64 = 32;

/// Told of every effect, in the order in which effects happen.
pub(crate) trait Watch {
    /// An operation took effect. Barriers are told by [`Watch::released`] alone.
    fn done(&mut self, step: &Step) -> Result<(), Diagnostic>;
    /// The participants of a barrier met.
    fn released(&mut self, participants: &[AgentId]);
    /// All agents that a fence holds together ended a call.
    fn ended(&mut self, _participants: &[AgentId], _call: u32) {}
}

/// Watches nothing.
pub(crate) struct Nobody;

impl Watch for Nobody {
    fn done(&mut self, _: &Step) -> Result<(), Diagnostic> {
        Ok(())
    }
    fn released(&mut self, _: &[AgentId]) {}
}

/// The event a stopped agent waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Nothing,
    Slot(ChannelId),
    Message(ChannelId),
    AnyMessage,
    Counter(u32),
    Barrier(u32),
    /// The other thread blocks of its rank, before the next call.
    Launch,
    Finished,
}

/// Who ends a call before anybody of them starts the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// The thread blocks of a rank: calls follow each other on every device, and devices drift apart.
    Rank,
    /// Everybody: there is nothing to reuse too early.
    World,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Complete,
    Stuck,
}

/// How the next agent is picked among those that can go on.
pub(crate) enum Order {
    /// The one with the highest rank in a fixed order of all agents.
    Fixed { rank: Vec<u32>, ready: BinaryHeap<(u32, u32)> },
    /// Any, after every operation anew.
    Random { state: u64, ready: Vec<u32> },
}

impl Order {
    /// Order `number` under `seed`: every other one is random; the rest are the agents' own order, its reverse, and
    /// shuffles.
    pub(crate) fn of(number: u32, agents: usize, seed: u64) -> Self {
        let key = u64::from(number).wrapping_mul(0xD134_2543_DE82_EF95) ^ seed.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mut state = (0x9E37_79B9_7F4A_7C15 ^ key).max(1);
        if number % 2 == 1 {
            return Self::Random { state, ready: Vec::new() };
        }
        let mut rank: Vec<u32> = (0..agents as u32).rev().collect();
        if number == 2 {
            rank.reverse();
        } else if number > 2 {
            for i in (1..agents).rev() {
                rank.swap(i, (next(&mut state) % (i as u64 + 1)) as usize);
            }
        }
        Self::Fixed { rank, ready: BinaryHeap::new() }
    }

    fn push(&mut self, agent: AgentId) {
        match self {
            Self::Fixed { rank, ready } => ready.push((rank[agent.0 as usize], agent.0)),
            Self::Random { ready, .. } => ready.push(agent.0),
        }
    }

    fn pop(&mut self) -> Option<AgentId> {
        match self {
            Self::Fixed { ready, .. } => ready.pop().map(|(_, agent)| AgentId(agent)),
            Self::Random { state, ready } if !ready.is_empty() => {
                let at = (next(state) % ready.len() as u64) as usize;
                Some(AgentId(ready.swap_remove(at)))
            }
            Self::Random { .. } => None,
        }
    }

    /// True when another agent goes before `agent`, which can go on.
    fn preempts(&self, agent: AgentId) -> bool {
        match self {
            Self::Fixed { rank, ready } => ready.peek().is_some_and(|&(first, _)| first > rank[agent.0 as usize]),
            Self::Random { ready, .. } => !ready.is_empty(),
        }
    }
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// One run of a structurally sound program.
pub(crate) struct Schedule<'p> {
    pub(crate) subject: Subject<'p>,
    slots: Option<u32>,
    order: Order,
    fence: Fence,
    pub(crate) next: Vec<u32>,
    /// The launch each agent is in.
    pub(crate) call: Vec<u32>,
    pub(crate) waits: Vec<Wait>,
    /// Messages sent, and receives issued or posted, by channel.
    pub(crate) sent: Vec<u64>,
    received: Vec<u64>,
    counters: Counters,
    at_counter: Vec<Vec<AgentId>>,
    pub(crate) at_barrier: Vec<Vec<AgentId>>,
    /// By group of a fence: who is in it, and who has arrived.
    launches: BTreeMap<u32, (u32, Vec<AgentId>)>,
    /// Channels of agents that receive from any direction, and whose turn it is.
    inbound: FxHashMap<AgentId, (Vec<ChannelId>, usize)>,
    /// Receives that were posted and not awaited, by agent and value.
    posted: FxHashMap<(AgentId, ValueId), (ChannelId, u64)>,
    /// Most messages that any queue held.
    fullest: u64,
}

impl<'p> Schedule<'p> {
    pub(crate) fn new(subject: Subject<'p>, slots: Option<u32>, order: Order, fence: Fence) -> Self {
        let program = subject.program;
        let counters = Counters::new(subject);
        let mut launches: BTreeMap<u32, (u32, Vec<AgentId>)> = BTreeMap::new();
        let mut inbound: FxHashMap<AgentId, (Vec<ChannelId>, usize)> = FxHashMap::default();
        for (index, agent) in program.agents.iter().enumerate() {
            launches.entry(fence.group(agent.rank)).or_default().0 += 1;
            if program.bodies[agent.body as usize]
                .ops
                .iter()
                .any(|op| matches!(op.kind, OpKind::Comm(Comm::RecvAny { .. })))
            {
                inbound.insert(AgentId(index as u32), (Vec::new(), 0));
            }
        }
        for (index, channel) in program.channels.iter().enumerate() {
            if let Some((list, _)) = inbound.get_mut(&channel.receiver) {
                list.push(ChannelId(index as u32));
            }
        }
        for (list, _) in inbound.values_mut() {
            list.sort_by_key(|c| program.channels[c.0 as usize].receiver_direction);
        }
        Self {
            subject,
            slots,
            order,
            fence,
            next: vec![0; program.agents.len()],
            call: vec![0; program.agents.len()],
            waits: vec![Wait::Nothing; program.agents.len()],
            sent: vec![0; program.channels.len()],
            received: vec![0; program.channels.len()],
            at_counter: vec![Vec::new(); counters.len()],
            counters,
            at_barrier: vec![Vec::new(); program.barriers.len()],
            launches,
            inbound,
            posted: FxHashMap::default(),
            fullest: 0,
        }
    }

    /// Messages taken out of a queue.
    pub(crate) fn taken(&self, channel: ChannelId) -> u64 {
        self.received[channel.0 as usize].min(self.sent[channel.0 as usize])
    }

    /// The value of a counter, as an agent's present call sees it.
    pub(crate) fn counter(&self, agent: AgentId, counter: u32) -> u64 {
        self.counters.values[self.counters.index(counter, self.call[agent.0 as usize])]
    }

    /// The channels on which an agent receives from any direction.
    pub(crate) fn inbound(&self, agent: AgentId) -> &[ChannelId] {
        self.inbound.get(&agent).map_or(&[], |(list, _)| list)
    }

    /// The operation an agent is at.
    pub(crate) fn at(&self, agent: AgentId) -> Step {
        let a = agent.0 as usize;
        Step { agent, op: self.next[a], call: self.call[a], message: None }
    }

    /// Runs until everybody has finished or waits.
    pub(crate) fn run(&mut self, watch: &mut impl Watch) -> Result<Ended, Diagnostic> {
        for agent in 0..self.next.len() as u32 {
            self.order.push(AgentId(agent));
        }
        while let Some(agent) = self.order.pop() {
            self.advance(agent, watch)?;
        }
        let finished = self.waits.iter().all(|w| *w == Wait::Finished);
        Ok(if finished { Ended::Complete } else { Ended::Stuck })
    }

    /// Messages a queue holds; `u64::MAX` when unbounded.
    pub(crate) fn depth(&self, channel: ChannelId) -> u64 {
        depth(self.subject.program, self.slots, channel)
    }

    fn advance(&mut self, agent: AgentId, watch: &mut impl Watch) -> Result<(), Diagnostic> {
        let a = agent.0 as usize;
        self.waits[a] = Wait::Nothing;
        loop {
            spend(STEPS);
            let body = self.subject.body(agent, self.call[a]);
            let Some(what) = body.ops.get(self.next[a] as usize) else {
                if !self.end_of_call(agent, watch) {
                    return Ok(());
                }
                continue;
            };
            if let OpKind::Control(Control::Barrier { id }) = what.kind {
                if !self.arrive(agent, id, watch) {
                    return Ok(());
                }
            } else {
                match self.effect(agent, what.kind) {
                    Err(wait) => {
                        self.waits[a] = wait;
                        if let Wait::Counter(counter) = wait {
                            let counter = self.counters.index(counter, self.call[a]);
                            self.at_counter[counter].push(agent);
                        }
                        return Ok(());
                    }
                    Ok(message) => watch.done(&Step { message, ..self.at(agent) })?,
                }
                self.next[a] += 1;
            }
            if self.order.preempts(agent) {
                self.order.push(agent);
                return Ok(());
            }
        }
    }

    /// The effect of an operation on queues and counters; the message it moves.
    fn effect(&mut self, agent: AgentId, kind: OpKind) -> Result<Option<(ChannelId, u64)>, Wait> {
        let program = self.subject.program;
        match kind {
            OpKind::Comm(Comm::Send { dir, .. } | Comm::AwaitSlot { dir }) => {
                let channel = program.tx(agent, dir);
                let c = channel.0 as usize;
                if self.sent[c] - self.taken(channel) >= self.depth(channel) {
                    return Err(Wait::Slot(channel));
                }
                if matches!(kind, OpKind::Comm(Comm::AwaitSlot { .. })) {
                    return Ok(None);
                }
                self.sent[c] += 1;
                self.fullest = self.fullest.max(self.sent[c] - self.taken(channel));
                let receiver = program.channels[c].receiver;
                self.wake(receiver, Wait::Message(channel));
                self.wake(receiver, Wait::AnyMessage);
                return Ok(Some((channel, self.sent[c] - 1)));
            }
            OpKind::Comm(Comm::Recv { dir, .. }) => return self.receive(program.rx(agent, dir)),
            OpKind::Comm(Comm::RecvAny { .. }) => {
                let (list, turn) = self.inbound.get(&agent).map_or((&[][..], 0), |(list, turn)| (list, *turn));
                let there = |i: &usize| self.sent[list[*i].0 as usize] > self.received[list[*i].0 as usize];
                let Some(i) = (0..list.len()).map(|i| (turn + i) % list.len()).find(there) else {
                    return Err(Wait::AnyMessage);
                };
                let (channel, turn) = (list[i], (i + 1) % list.len());
                if let Some(entry) = self.inbound.get_mut(&agent) {
                    entry.1 = turn;
                }
                return self.receive(channel);
            }
            OpKind::Comm(Comm::PostRecv { dir, dst, .. }) => {
                let channel = program.rx(agent, dir);
                let number = self.issue(channel);
                self.posted.insert((agent, dst), (channel, number));
                return Ok(Some((channel, number)));
            }
            OpKind::Comm(Comm::Await { value }) => {
                let Some(&(channel, number)) = self.posted.get(&(agent, value)) else { return Ok(None) };
                if self.sent[channel.0 as usize] <= number {
                    return Err(Wait::Message(channel));
                }
                self.posted.remove(&(agent, value));
                return Ok(Some((channel, number)));
            }
            OpKind::Control(Control::Signal { counter, add, .. }) => {
                let counter = self.counters.index(counter, self.call[agent.0 as usize]);
                let value = &mut self.counters.values[counter];
                *value = value.saturating_add(add.into());
                for waiter in std::mem::take(&mut self.at_counter[counter]) {
                    self.order.push(waiter);
                }
            }
            OpKind::Control(Control::WaitCounter { counter, at_least })
                if self.counter(agent, counter) < at_least.into() =>
            {
                return Err(Wait::Counter(counter));
            }
            OpKind::Control(Control::Acquire { counter, amount }) => {
                let index = self.counters.index(counter, self.call[agent.0 as usize]);
                match self.counters.values[index].checked_sub(amount.into()) {
                    Some(rest) => self.counters.values[index] = rest,
                    None => return Err(Wait::Counter(counter)),
                }
            }
            // The posts of an agent take effect at once here: a fence finds nothing under way.
            OpKind::Control(Control::WaitCounter { .. } | Control::Fence | Control::Delay { .. }) => {}
            // `Schedule::advance` lets the agents of a barrier meet.
            OpKind::Control(Control::Barrier { .. }) => {}
            // Only data and clocks are changed.
            OpKind::Move(_) | OpKind::Math(_) => {}
        }
        Ok(None)
    }

    fn receive(&mut self, channel: ChannelId) -> Result<Option<(ChannelId, u64)>, Wait> {
        if self.received[channel.0 as usize] >= self.sent[channel.0 as usize] {
            return Err(Wait::Message(channel));
        }
        Ok(Some((channel, self.issue(channel))))
    }

    /// Counts a receive, which frees a slot if its message is there.
    fn issue(&mut self, channel: ChannelId) -> u64 {
        let c = channel.0 as usize;
        self.received[c] += 1;
        self.wake(self.subject.program.channels[c].sender, Wait::Slot(channel));
        self.received[c] - 1
    }

    fn wake(&mut self, agent: AgentId, wait: Wait) {
        if self.waits[agent.0 as usize] == wait {
            self.waits[agent.0 as usize] = Wait::Nothing;
            self.order.push(agent);
        }
    }

    /// Arrives at a barrier; true when everybody is there.
    fn arrive(&mut self, agent: AgentId, id: u32, watch: &mut impl Watch) -> bool {
        let waiting = &mut self.at_barrier[id as usize];
        waiting.push(agent);
        if (waiting.len() as u64) < u64::from(self.subject.program.barriers[id as usize]) {
            self.waits[agent.0 as usize] = Wait::Barrier(id);
            return false;
        }
        let participants = std::mem::take(waiting);
        watch.released(&participants);
        for &participant in &participants {
            self.next[participant.0 as usize] += 1;
            if participant != agent {
                self.order.push(participant);
            }
        }
        true
    }

    /// Ends a call; true when the next may begin.
    fn end_of_call(&mut self, agent: AgentId, watch: &mut impl Watch) -> bool {
        let group = self.fence.group(self.subject.program.agents[agent.0 as usize].rank);
        let call = self.call[agent.0 as usize];
        let last = call + 1 == self.subject.calls;
        let Some((members, waiting)) = self.launches.get_mut(&group) else { return false };
        waiting.push(agent);
        let complete = (waiting.len() as u64) == u64::from(*members);
        if last || !complete {
            self.waits[agent.0 as usize] = if last { Wait::Finished } else { Wait::Launch };
        }
        if !complete {
            return false;
        }
        let participants = std::mem::take(waiting);
        watch.ended(&participants, call);
        if last {
            return false;
        }
        for &participant in &participants {
            self.next[participant.0 as usize] = 0;
            self.call[participant.0 as usize] += 1;
            if participant != agent {
                self.order.push(participant);
            }
        }
        true
    }

    /// Whether two agents end a call together.
    pub(crate) fn same_launch(&self, one: AgentId, other: AgentId) -> bool {
        let group = |agent: AgentId| self.fence.group(self.subject.program.agents[agent.0 as usize].rank);
        group(one) == group(other)
    }

    /// Messages left in queues after a complete run.
    pub(crate) fn unreceived(&self) -> Option<Diagnostic> {
        let program = self.subject.program;
        let left = |c: &usize| self.sent[*c] > self.received[*c];
        let first = (0..self.sent.len()).find(left)?;
        let all: u64 = (0..self.sent.len()).filter(left).map(|c| self.sent[c] - self.received[c]).sum();
        let messages = all.div_ceil(self.subject.calls.into());
        let channel = &program.channels[first];
        let call = self.subject.calls - 1;
        let body = self.subject.body(channel.sender, call);
        let last = body.ops.iter().rposition(
            |op| matches!(op.kind, OpKind::Comm(Comm::Send { dir, .. }) if program.tx(channel.sender, dir).0 as usize == first),
        );
        let finding = Diagnostic::new(
            "AHBM-V405",
            format!(
                "{messages} messages are never received, the first from {} to {}",
                self.subject.name(channel.sender),
                self.subject.name(channel.receiver)
            ),
        );
        let op = last.unwrap_or(0) as u32;
        Some(self.subject.site(finding, &Step { agent: channel.sender, op, call, message: None }))
    }

    /// Signals that nobody has waited for after a complete run: more than its takers took, or of a counter that nobody
    /// looks at.
    pub(crate) fn untaken(&self) -> Option<Diagnostic> {
        let call = self.subject.calls - 1;
        let ops = |call: u32| {
            let agents = (0..self.next.len() as u32).map(AgentId);
            agents.flat_map(move |agent| {
                (0u32..).zip(&self.subject.body(agent, call).ops).map(move |(op, what)| (agent, op, what.kind))
            })
        };
        let mut watched = self.counters.semaphore.clone();
        for (_, _, kind) in ops(call) {
            if let OpKind::Control(Control::WaitCounter { counter, .. }) = kind {
                watched[counter as usize] = true;
            }
        }
        let left = |c: usize| match (self.counters.semaphore[c], watched[c]) {
            (true, _) => self.counters.values[c].saturating_sub(self.counters.initial[c]),
            (false, true) => 0,
            (false, false) if self.subject.program.flags.contains(&(c as u32)) => 0,
            (false, false) => self.counters.total(c),
        };
        let all: u64 = (0..watched.len()).map(left).sum();
        let first = (0..watched.len()).find(|&c| left(c) > 0)?;
        let signals = |kind: OpKind| matches!(kind, OpKind::Control(Control::Signal { counter, .. }) if counter as usize == first);
        let takes = |kind: OpKind| matches!(kind, OpKind::Control(Control::Acquire { counter, .. }) if counter as usize == first);
        let step = |(agent, op, _)| Step { agent, op, call, message: None };
        let signal = step(ops(call).filter(|&(.., kind)| signals(kind)).last()?);
        let taken = ops(call).filter(|&(.., kind)| takes(kind)).count();
        let name = self.subject.name(signal.agent);
        let count = all.div_ceil(self.subject.calls.into());
        let what = match taken {
            0 => format!("{count} signals are never waited for: nobody waits at all where {name} signals"),
            1 => format!("{count} signals are never waited for: there is 1 wait for the signals of {name}"),
            n => format!("{count} signals are never waited for: there are {n} waits for the signals of {name}"),
        };
        let finding = self.subject.site(Diagnostic::new(codes::UNAWAITED, what), &signal);
        let last = ops(call).filter(|&(.., kind)| takes(kind)).last();
        let finding = last.into_iter().fold(finding, |finding, taker| self.subject.site(finding, &step(taker)));
        Some(finding.hint(
            "what such a signal announces is not waited for; in the next call, a wait passes too early. Add the wait, or \
             leave the signal out",
        ))
    }
}

impl Fence {
    fn group(self, rank: u32) -> u32 {
        match self {
            Self::Rank => rank,
            Self::World => 0,
        }
    }
}

/// Messages a queue of `program` holds under an override; `u64::MAX` when unbounded.
pub(crate) fn depth(program: &Program, slots: Option<u32>, channel: ChannelId) -> u64 {
    match slots.unwrap_or(program.channels[channel.0 as usize].slots) {
        u32::MAX => u64::MAX,
        n => n.into(),
    }
}

/// The least depth at which the program completes; `None` without channels, or when none does.
///
/// A deeper queue never stops a run that a shallower one lets complete, so the search is binary. No queue needs
/// more than it held in an unbounded run.
pub(crate) fn min_slots(subject: Subject<'_>) -> Option<u32> {
    let program = subject.program;
    if program.channels.is_empty() {
        return None;
    }
    let run = |slots: u32| {
        let mut schedule = Schedule::new(subject, Some(slots), Order::of(0, program.agents.len(), 0), Fence::Rank);
        let ended = schedule.run(&mut Nobody);
        (ended == Ok(Ended::Complete)).then_some(schedule.fullest)
    };
    let (mut enough, mut short) = (run(u32::MAX)?.clamp(1, u64::from(u32::MAX - 1)) as u32, 0);
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        match run(middle) {
            Some(_) => enough = middle,
            None => short = middle,
        }
    }
    Some(enough)
}
