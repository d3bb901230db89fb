//! Who goes next: runs a program's synchronisation in one order, without time and without data.

use super::support;
use ahbm_machine::Diagnostic;
use ahbm_program::{AgentId, ChannelId, OpKind, Program};
use std::collections::BinaryHeap;

/// Told of every effect, in the order in which effects happen.
pub(super) trait Watch {
    /// Operation `op` of `agent` took effect. Barriers are told by [`Watch::released`] alone.
    fn done(&mut self, agent: AgentId, op: usize) -> Result<(), Diagnostic>;
    /// The participants of a barrier met.
    fn released(&mut self, participants: &[AgentId]);
}

struct Nobody;

impl Watch for Nobody {
    fn done(&mut self, _: AgentId, _: usize) -> Result<(), Diagnostic> {
        Ok(())
    }
    fn released(&mut self, _: &[AgentId]) {}
}

/// What a stopped agent waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    Slot(ChannelId),
    Message(ChannelId),
    Counter(u32),
    Barrier(u32),
    Finished,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Complete,
    Stuck,
}

/// How the next agent is picked among those that can go on.
pub(super) enum Order {
    /// The one with the highest rank in a fixed order of all agents.
    Fixed { rank: Vec<u32>, ready: BinaryHeap<(u32, u32)> },
    /// Any, after every operation anew.
    Random { state: u64, ready: Vec<u32> },
}

impl Order {
    /// Order `number` under `seed`: every other one is random; the rest are the agents' own order, its reverse, and shuffles.
    pub(super) fn of(number: u32, agents: usize, seed: u64) -> Self {
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
pub(super) struct Schedule<'p> {
    pub(super) program: &'p Program,
    slots: Option<u32>,
    order: Order,
    pub(super) next: Vec<u32>,
    pub(super) waits: Vec<Wait>,
    /// Messages sent and received, by channel.
    pub(super) sent: Vec<u64>,
    pub(super) taken: Vec<u64>,
    pub(super) counters: Vec<u64>,
    at_counter: Vec<Vec<AgentId>>,
    pub(super) at_barrier: Vec<Vec<AgentId>>,
    /// Most messages that any queue held.
    fullest: u64,
}

impl<'p> Schedule<'p> {
    pub(super) fn new(program: &'p Program, slots: Option<u32>, order: Order) -> Self {
        Self {
            program,
            slots,
            order,
            next: vec![0; program.agents.len()],
            waits: vec![Wait::Nothing; program.agents.len()],
            sent: vec![0; program.channels.len()],
            taken: vec![0; program.channels.len()],
            counters: vec![0; program.counters as usize],
            at_counter: vec![Vec::new(); program.counters as usize],
            at_barrier: vec![Vec::new(); program.barriers.len()],
            fullest: 0,
        }
    }

    /// Runs until everybody has finished or waits.
    pub(super) fn run(&mut self, watch: &mut impl Watch) -> Result<Ended, Diagnostic> {
        for agent in 0..self.program.agents.len() as u32 {
            self.order.push(AgentId(agent));
        }
        while let Some(agent) = self.order.pop() {
            self.advance(agent, watch)?;
        }
        let finished = self.waits.iter().all(|w| *w == Wait::Finished);
        Ok(if finished { Ended::Complete } else { Ended::Stuck })
    }

    /// Messages a queue holds; `u64::MAX` when unbounded.
    pub(super) fn depth(&self, channel: ChannelId) -> u64 {
        depth(self.program, self.slots, channel)
    }

    fn advance(&mut self, agent: AgentId, watch: &mut impl Watch) -> Result<(), Diagnostic> {
        let body = self.program.body(agent);
        let a = agent.0 as usize;
        self.waits[a] = Wait::Nothing;
        loop {
            let op = self.next[a] as usize;
            let Some(what) = body.ops.get(op) else {
                self.waits[a] = Wait::Finished;
                return Ok(());
            };
            if let OpKind::Barrier { id } = what.kind {
                if !self.arrive(agent, id, watch) {
                    return Ok(());
                }
            } else {
                if let Some(wait) = self.effect(agent, what.kind) {
                    self.waits[a] = wait;
                    if let Wait::Counter(counter) = wait {
                        self.at_counter[counter as usize].push(agent);
                    }
                    return Ok(());
                }
                watch.done(agent, op)?;
                self.next[a] += 1;
            }
            if self.order.preempts(agent) {
                self.order.push(agent);
                return Ok(());
            }
        }
    }

    fn effect(&mut self, agent: AgentId, kind: OpKind) -> Option<Wait> {
        match kind {
            OpKind::Send { dir, .. } => {
                let channel = self.program.tx(agent, dir);
                let c = channel.0 as usize;
                if self.sent[c] - self.taken[c] >= self.depth(channel) {
                    return Some(Wait::Slot(channel));
                }
                self.sent[c] += 1;
                self.fullest = self.fullest.max(self.sent[c] - self.taken[c]);
                self.wake(self.program.channels[c].receiver, Wait::Message(channel));
            }
            OpKind::AwaitSlot { dir } => {
                let channel = self.program.tx(agent, dir);
                let c = channel.0 as usize;
                if self.sent[c] - self.taken[c] >= self.depth(channel) {
                    return Some(Wait::Slot(channel));
                }
            }
            OpKind::Recv { dir, .. } => {
                let channel = self.program.rx(agent, dir);
                let c = channel.0 as usize;
                if self.taken[c] == self.sent[c] {
                    return Some(Wait::Message(channel));
                }
                self.taken[c] += 1;
                self.wake(self.program.channels[c].sender, Wait::Slot(channel));
            }
            OpKind::Signal { counter, add } => {
                let value = &mut self.counters[counter as usize];
                *value = value.saturating_add(add.into());
                for waiter in std::mem::take(&mut self.at_counter[counter as usize]) {
                    self.order.push(waiter);
                }
            }
            OpKind::WaitCounter { counter, at_least } if self.counters[counter as usize] < at_least.into() => {
                return Some(Wait::Counter(counter));
            }
            OpKind::Acquire { counter, amount } => match self.counters[counter as usize].checked_sub(amount.into()) {
                Some(rest) => self.counters[counter as usize] = rest,
                None => return Some(Wait::Counter(counter)),
            },
            _ => {}
        }
        None
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
        if (waiting.len() as u64) < u64::from(self.program.barriers[id as usize]) {
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

    /// Messages left in queues after a complete run.
    pub(super) fn unreceived(&self) -> Option<Diagnostic> {
        let mut left = (0..self.sent.len()).filter(|&c| self.sent[c] > self.taken[c]);
        let first = left.next()?;
        let messages: u64 = (0..self.sent.len()).map(|c| self.sent[c] - self.taken[c]).sum();
        let channel = &self.program.channels[first];
        let body = self.program.body(channel.sender);
        let last = body.ops.iter().rposition(|op| {
            matches!(op.kind, OpKind::Send { dir, .. } if self.program.tx(channel.sender, dir).0 as usize == first)
        });
        let finding = Diagnostic::new(
            "AHBM-V405",
            format!(
                "{messages} messages are never received, the first from {} to {}",
                support::name(self.program, channel.sender),
                support::name(self.program, channel.receiver)
            ),
        );
        Some(support::site(self.program, finding, channel.sender, last.unwrap_or(0)))
    }
}

/// Messages a queue of `program` holds under an override; `u64::MAX` when unbounded.
pub(super) fn depth(program: &Program, slots: Option<u32>, channel: ChannelId) -> u64 {
    match slots.unwrap_or(program.channels[channel.0 as usize].slots) {
        u32::MAX => u64::MAX,
        n => n.into(),
    }
}

/// The least depth at which the program completes; `None` without channels, or when none does.
///
/// A deeper queue never stops a run that a shallower one lets complete, so the search is binary. No queue needs
/// more than it held in an unbounded run.
pub(super) fn min_slots(program: &Program) -> Option<u32> {
    if program.channels.is_empty() {
        return None;
    }
    let run = |slots: u32| {
        let mut schedule = Schedule::new(program, Some(slots), Order::of(0, program.agents.len(), 0));
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
