//! Races: vector clocks over what orders agents, checked wherever several of them touch memory.
//!
//! Memory that several agents touch is cut where any access begins or ends, so that an access is a run of whole
//! *spots*. Only agents that touch a *contended* spot (two agents, one of them writing) have a component of their
//! own, so a program whose agents meet in messages alone is free of clocks. An agent's own component grows when it
//! next touches a contended spot after it has let others know its clock.
//!
//! The owner of a rank's operands and results touches them between calls: it takes the result of a call that has ended,
//! and has new operands before the next one starts. That counts as a write of the *launch* of that rank, which has a
//! component, too, where agents of other ranks touch that memory. By the components of all launches a barrier is
//! judged: whoever leaves it must know of every rank that it has started.

use crate::compare::Terms;
use crate::counters::Counters;
use crate::schedule;
use crate::spots::{NONE, Spots};
use crate::support::{Step, Subject, touches};
use crate::ticks::{Clock, Ticks};
use crate::underway::{Counter, Queue, Semaphore};
use ahbm_engine::interrupt::spend;
use ahbm_findings::{Diagnostic, codes};
use ahbm_plan::Expectation;
use ahbm_program::{AgentId, ChannelId, Comm, Control, Move, OpKind, Program};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// Accesses compared with each other in one run before the analysis is given up; a node of a clock costs as much as some.
const WORK: u64 = 1 << 30;
const NODE: u64 = 8;
/// Bytes of clocks worth a look at a place that may hold one.
const HOLDER: usize = 16;
/// Bytes of clocks that may be in use at one time.
const BYTES: usize = 1 << 28;
/// Races, and ranks that a barrier does not hold, listed.
const LISTED: usize = 8;

const ONLY_ORDERS: &str = "the orders that were tried are the only evidence; fewer ranks can be analysed";

/// The place in a body of a launch's access, which is no operation.
const LAUNCH: u32 = u32::MAX;

/// An access to a spot.
#[derive(Debug, Clone, Copy)]
struct Access {
    /// That of a launch stands for the end of a call, by any agent of the rank, and has the operation [`LAUNCH`].
    step: Step,
    /// Whose.
    component: u32,
    /// That component at that time.
    time: u32,
}

impl Access {
    const fn is_launch(&self) -> bool {
        self.step.op == LAUNCH
    }
}

/// The memory of a rank that others touch.
#[derive(Debug, Clone)]
struct Launch {
    component: u32,
    /// An agent of the rank.
    agent: AgentId,
    /// Histories of that memory.
    histories: Vec<(usize, u32)>,
}

#[derive(Debug, Clone, Default)]
struct History {
    write: Option<Access>,
    /// The latest read of each agent since the last write.
    reads: Vec<Access>,
}

pub(crate) struct Clocks<'p> {
    subject: Subject<'p>,
    slots: Option<u32>,
    spots: &'p Spots,
    /// Component of each agent, `NONE` without one.
    component: Vec<u32>,
    /// Component of what each agent has posted, `NONE` without any, and how much that is. Others know of it by posted
    /// signals and behind a fence, and not by what else the agent tells.
    posts: Vec<(u32, u32)>,
    histories: Vec<History>,
    /// By rank.
    launches: BTreeMap<u32, Launch>,
    synchronises: bool,
    /// Pairs of ranks, and the call that the first ended before it knew that the second had started it.
    unheld: Vec<(u32, u32, u32)>,
    ticks: Ticks,
    /// What is known of a call, by its number, once every rank has started it.
    started: Vec<Clock>,
    clocks: Vec<Clock>,
    /// Agents whose clock others know since it last grew.
    told: Vec<bool>,
    /// By channel and number of a message: what its sender knew, and what its receiver knew when it took it.
    messages: Vec<Queue>,
    credits: Vec<Queue>,
    indices: Counters,
    counters: Vec<Counter>,
    /// By counter.
    semaphores: BTreeMap<u32, Semaphore>,
    races: Vec<(u32, Access, Access)>,
    known: FxHashSet<(u32, u32, u32, u32)>,
    /// Accesses compared with.
    work: u64,
    /// The analysis took too much, and was given up.
    is_over: bool,
}

impl<'p> Clocks<'p> {
    /// `None` when nothing can race.
    pub(crate) fn new(subject: Subject<'p>, slots: Option<u32>, spots: &'p Spots, terms: &Terms<'_>) -> Option<Self> {
        let program = subject.program;
        let synchronises = terms.expectation.synchronises();
        if spots.is_empty() && !synchronises {
            return None;
        }
        let mut component = vec![NONE; program.agents.len()];
        let mut components = 0;
        let mut posts = vec![(NONE, 0); program.agents.len()];
        let mut launches: BTreeMap<u32, Launch> = BTreeMap::new();
        for (index, component) in component.iter_mut().enumerate() {
            let agent = AgentId(index as u32);
            let contends = |program: &Program| {
                program.body(agent).ops.iter().any(|op| {
                    touches(program, agent, op.kind)
                        .any(|(buffer, range, _)| spots.of(buffer, &range).any(|s| spots.history[s] != NONE))
                })
            };
            if subject.programs().any(contends) {
                *component = components;
                components += 1;
                if subject.programs().any(|program| program.body(agent).ops.iter().any(|op| posted(op.kind))) {
                    posts[index].0 = components;
                    components += 1;
                }
            }
            let rank = program.agents[index].rank;
            if synchronises || spots.foreign.contains_key(&rank) {
                launches.entry(rank).or_insert_with(|| {
                    let spots_of = spots.foreign.get(&rank).into_iter().flatten();
                    let histories = spots_of.map(|&spot| (spot, spots.history[spot])).collect();
                    components += 1;
                    Launch { component: components - 1, agent, histories }
                });
            }
        }
        let histories = spots.history.iter().filter(|&&h| h != NONE).count();
        let mut ticks = Ticks::new(components);
        let indices = Counters::new(subject);
        let mut counters: Vec<Counter> = (0..indices.len()).map(|_| Counter::default()).collect();
        for call in 0..subject.calls {
            let launch = subject.launch(call);
            for op in launch.agents.iter().flat_map(|agent| &launch.bodies[agent.body as usize].ops) {
                match op.kind {
                    OpKind::Control(Control::WaitCounter { counter, at_least }) => {
                        counters[indices.index(counter, call)].await_value(at_least.into());
                    }
                    OpKind::Control(Control::Signal { counter, .. }) => {
                        counters[indices.index(counter, call)].await_signal();
                    }
                    _ => {}
                }
            }
        }
        let mut clocks = vec![ticks.zero(); program.agents.len()];
        let mut histories = vec![History::default(); histories];
        for launch in launches.values() {
            let step = Step { agent: launch.agent, op: LAUNCH, call: 0, message: None };
            for &(_, history) in &launch.histories {
                histories[history as usize].write = Some(Access { step, component: launch.component, time: 1 });
            }
        }
        for (agent, clock) in program.agents.iter().zip(&mut clocks) {
            if let Some(launch) = launches.get(&agent.rank) {
                *clock = ticks.with(*clock, launch.component, 1);
            }
        }
        let mut started = Vec::new();
        for time in (1..=subject.calls).take_while(|_| synchronises) {
            let zero = ticks.zero();
            started.push(launches.values().fold(zero, |clock, launch| ticks.with(clock, launch.component, time)));
        }
        Some(Self {
            subject,
            slots,
            spots,
            component,
            posts,
            histories,
            launches,
            synchronises,
            unheld: Vec::new(),
            ticks,
            started,
            clocks,
            told: vec![true; program.agents.len()],
            messages: vec![Queue::default(); program.channels.len()],
            credits: vec![Queue::default(); program.channels.len()],
            indices,
            counters,
            semaphores: BTreeMap::new(),
            races: Vec::new(),
            known: FxHashSet::default(),
            work: 0,
            is_over: false,
        })
    }

    /// The effect of an operation on what is ordered.
    pub(crate) fn done(&mut self, step: &Step) {
        if self.settle() {
            return;
        }
        let program = self.subject.launch(step.call);
        let agent = step.agent;
        let kind = program.body(agent).ops[step.op as usize].kind;
        match (kind, step.message) {
            (OpKind::Comm(Comm::AwaitSlot { dir }), _) => {
                let channel = program.tx(agent, dir);
                self.credited(agent, channel, self.messages[channel.0 as usize].total());
            }
            (OpKind::Comm(Comm::Send { .. }), Some((channel, number))) => {
                if let Some(before) = self.credited(agent, channel, number) {
                    self.credits[channel.0 as usize].drop_to(before);
                }
                let clock = self.tell(agent);
                self.messages[channel.0 as usize].push(clock);
            }
            (OpKind::Comm(Comm::Recv { .. } | Comm::RecvAny { .. }), Some((channel, number))) => {
                self.received(agent, channel, number);
                self.credit(agent, channel);
            }
            // The slot is emptied when the message comes, whatever the agent does meanwhile.
            (OpKind::Comm(Comm::PostRecv { .. }), Some((channel, _))) => self.credit(agent, channel),
            (OpKind::Comm(Comm::Await { .. }), Some((channel, number))) => self.received(agent, channel, number),
            (OpKind::Control(Control::Fence), _) => {
                let clock = self.behind_posts(agent);
                self.clocks[agent.0 as usize] = clock;
            }
            (OpKind::Control(Control::Signal { counter, add, posted }), _) => {
                let clock = self.tell(agent);
                let clock = if posted { self.behind_posts(agent) } else { clock };
                let signalled = &mut self.counters[self.indices.index(counter, step.call)];
                let known = signalled.signal(clock, add, &mut self.ticks);
                if self.indices.semaphore[counter as usize] {
                    let value = signalled.value;
                    self.semaphores.entry(counter).or_default().signal(value, known);
                }
            }
            (OpKind::Control(Control::WaitCounter { counter, at_least }), _) => {
                if let Some(clock) = self.counters[self.indices.index(counter, step.call)].waited(at_least.into()) {
                    self.learn(agent, clock);
                }
            }
            (OpKind::Control(Control::Acquire { counter, amount }), _) => {
                if let Some(clock) = self.semaphores.entry(counter).or_default().acquired(amount.into()) {
                    self.learn(agent, clock);
                }
            }
            _ => {
                for (buffer, range, writes) in touches(program, agent, kind) {
                    for spot in self.spots.of(buffer, &range) {
                        self.access(step, spot, writes, writes && posted(kind));
                    }
                }
            }
        }
    }

    /// The participants of a barrier met: everybody knows what everybody knew.
    pub(crate) fn meet(&mut self, participants: &[AgentId]) {
        if self.settle() {
            return;
        }
        let Some((&first, rest)) = participants.split_first() else { return };
        let mut all = self.tell(first);
        for &agent in rest {
            let clock = self.tell(agent);
            all = self.ticks.join(all, clock);
        }
        for &agent in participants {
            self.clocks[agent.0 as usize] = all;
        }
    }

    /// The agents of a rank ended a call: its launch knows what they know, and touches its memory.
    pub(crate) fn ended(&mut self, participants: &[AgentId], call: u32) {
        self.meet(participants);
        let (false, Some(&agent)) = (self.is_over, participants.first()) else { return };
        let rank = self.subject.program.agents[agent.0 as usize].rank;
        let Some(launch) = self.launches.get(&rank) else { return };
        let clock = self.clocks[agent.0 as usize];
        if let Some(&all) = self.started.get(call as usize)
            && self.unheld.len() < 1 << 10
            && self.ticks.join(clock, all) != clock
        {
            spend(8 * self.launches.len() as u64);
            let started = |launch: &Launch| self.ticks.at(clock, launch.component) > call;
            self.unheld
                .extend(self.launches.iter().filter(|(_, one)| !started(one)).map(|(&one, _)| (rank, one, call)));
        }
        let component = launch.component;
        let time = self.ticks.at(clock, component) + 1;
        let clock = self.ticks.with(clock, component, time);
        let step = Step { agent: launch.agent, op: LAUNCH, call: call + 1, message: None };
        let access = Access { step, component, time };
        for &(spot, history) in &launch.histories {
            let history = &mut self.histories[history as usize];
            let before = |other: &Access| self.ticks.at(clock, other.component) >= other.time;
            self.work += history.reads.len() as u64;
            let late = history.write.iter().chain(&history.reads).filter(|other| !before(other)).copied();
            for other in late {
                if self.known.len() < 1 << 16
                    && self.known.insert((other.step.agent.0, other.step.op, launch.agent.0, LAUNCH))
                {
                    self.races.push((spot as u32, other, access));
                }
            }
            history.reads.clear();
            history.write = Some(access);
        }
        for &agent in participants {
            self.clocks[agent.0 as usize] = clock;
        }
    }

    /// Throws away the clocks that nobody asks for any more, now and then. True once the analysis is given up.
    fn settle(&mut self) -> bool {
        if self.is_over || !(self.ticks.is_crowded(HOLDER * self.holders()) || self.work() > WORK) {
            return self.is_over;
        }
        let queues = self.messages.iter().chain(&self.credits).flat_map(Queue::clocks);
        let counters = self.counters.iter().flat_map(Counter::clocks);
        let semaphores = self.semaphores.values().flat_map(Semaphore::clocks);
        let agents = self.clocks.iter().chain(&self.started).copied();
        let used = self.ticks.keep(agents.chain(queues).chain(counters).chain(semaphores));
        if used > BYTES || self.work() > WORK {
            self.is_over = true;
            self.ticks = Ticks::new(0);
        }
        self.is_over
    }

    /// Places that hold clocks.
    fn holders(&self) -> usize {
        self.messages.len() + self.counters.len()
    }

    const fn work(&self) -> u64 {
        self.work + NODE * self.ticks.work
    }

    /// The agent knows that a slot was free for a message; which message freed it.
    fn credited(&mut self, agent: AgentId, channel: ChannelId, number: u64) -> Option<u64> {
        let before = number.checked_sub(schedule::depth(self.subject.program, self.slots, channel))?;
        if let Some(credit) = self.credits[channel.0 as usize].at(before) {
            self.learn(agent, credit);
        }
        Some(before)
    }

    fn credit(&mut self, agent: AgentId, channel: ChannelId) {
        let clock = self.tell(agent);
        if schedule::depth(self.subject.program, self.slots, channel) < u64::MAX {
            self.credits[channel.0 as usize].push(clock);
        }
    }

    fn received(&mut self, agent: AgentId, channel: ChannelId, number: u64) {
        if let Some(clock) = self.messages[channel.0 as usize].take(number) {
            self.learn(agent, clock);
        }
    }

    fn tell(&mut self, agent: AgentId) -> Clock {
        self.told[agent.0 as usize] = true;
        self.clocks[agent.0 as usize]
    }

    /// An agent's clock, and all that it has posted.
    fn behind_posts(&mut self, agent: AgentId) -> Clock {
        let clock = self.clocks[agent.0 as usize];
        let (component, time) = self.posts[agent.0 as usize];
        if component == NONE { clock } else { self.ticks.with(clock, component, time) }
    }

    fn learn(&mut self, agent: AgentId, news: Clock) {
        let clock = &mut self.clocks[agent.0 as usize];
        *clock = self.ticks.join(*clock, news);
    }

    fn access(&mut self, step: &Step, spot: usize, writes: bool, posted: bool) {
        let history = self.spots.history[spot];
        if history == NONE {
            return;
        }
        let a = step.agent.0 as usize;
        let own = self.component[a];
        let mut clock = self.clocks[a];
        if std::mem::take(&mut self.told[a]) {
            clock = self.ticks.with(clock, own, self.ticks.at(clock, own) + 1);
            self.clocks[a] = clock;
        }
        let ticks = &self.ticks;
        let (component, time) = if posted {
            let (component, time) = &mut self.posts[a];
            *time += 1;
            (*component, *time)
        } else {
            (own, ticks.at(clock, own))
        };
        let access = Access { step: *step, component, time };
        let history = &mut self.histories[history as usize];
        self.work += history.reads.len() as u64;
        spend(8 + history.reads.len() as u64);
        // What an agent posts arrives in the order in which it posts.
        let own_post = |other: &Access| other.step.agent == step.agent && !other.is_launch();
        let before = |other: &Access| ticks.at(clock, other.component) >= other.time || own_post(other);
        let mut clash = history.write.filter(|w| !before(w));
        if writes {
            let unordered = |r: &&Access| !before(r);
            clash = clash.or_else(|| history.reads.iter().find(unordered).copied());
            history.reads.clear();
            history.write = Some(access);
        } else {
            history.reads.retain(|r| !before(r));
            history.reads.push(access);
        }
        if let Some(other) = clash
            && self.known.len() < 1 << 16
            && self.known.insert((other.step.agent.0, other.step.op, step.agent.0, step.op))
        {
            self.races.push((spot as u32, other, access));
        }
    }

    /// The races found: one finding per pair of thread blocks, the first few of them.
    pub(crate) fn findings(self, expectation: &Expectation) -> Vec<Diagnostic> {
        let mut pairs: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let mut first: Vec<(u32, Access, Access)> = Vec::new();
        for &(spot, a, b) in &self.races {
            let (one, other) = (a.component, b.component);
            if *pairs.entry((one.min(other), one.max(other))).and_modify(|n| *n += 1).or_insert(1) == 1 {
                first.push((spot, a, b));
            }
        }
        // What the owner of the memory sees of it comes last: an access that nothing orders at all says more.
        first.sort_by_key(|(_, a, b)| a.is_launch() || b.is_launch());
        let mut findings: Vec<Diagnostic> = first.iter().take(LISTED).map(|r| self.report(r, expectation)).collect();
        if let Some(finding) = findings.first_mut() {
            finding.message +=
                &format!(" ({} such accesses in {} pairs of thread blocks)", self.races.len(), pairs.len());
        }
        findings
    }

    /// Says that the analysis took too much: `AHBM-V406`, and `AHBM-U290` where that leaves a barrier undecided.
    pub(crate) fn gave_up(&self) -> Option<Diagnostic> {
        let agents = self.component.iter().filter(|&&component| component != NONE).count();
        let (code, what) = match self.synchronises {
            true => {
                let ranks = self.launches.len();
                ("AHBM-U290", format!("not decided whether each of {ranks} ranks waits for all others"))
            }
            false => (
                codes::ORDER_UNDECIDED,
                format!(
                    "{agents} thread blocks share memory; whether the last of their accesses are ordered was not analysed"
                ),
            ),
        };
        self.is_over.then(|| Diagnostic::new(code, what).hint(ONLY_ORDERS))
    }

    /// The ranks that a barrier does not hold.
    pub(crate) fn gaps(&self) -> Option<Diagnostic> {
        let &(rank, other, call) = self.unheld.first()?;
        let of_rank = self.unheld.iter().filter(|&&(one, _, when)| (one, when) == (rank, call)).count();
        let more = if of_rank > 1 { format!(" and {} more ranks", of_rank - 1) } else { String::new() };
        let ranks: BTreeSet<u32> = self.unheld.iter().map(|&(rank, ..)| rank).collect();
        let all = if ranks.len() > 1 { format!(" ({} ranks are not held)", ranks.len()) } else { String::new() };
        let when = if call > 0 { format!(" of call {}", call + 1) } else { String::new() };
        let what =
            format!("rank {rank} leaves the barrier{when} though rank {other}{more} may not have entered it{all}");
        Some(Diagnostic::new("AHBM-V415", what).hint(
            "every rank must wait for a message or a signal that follows the start of every other rank, directly or \
             through ranks between them",
        ))
    }

    fn report(&self, (spot, a, b): &(u32, Access, Access), expectation: &Expectation) -> Diagnostic {
        let (buffer, range) = self.spots.place(*spot as usize);
        let place = expectation.place(buffer, range);
        let launch = [a, b].into_iter().find(|access| access.is_launch());
        let step = if a.is_launch() { b.step } else { a.step };
        let one = self.subject.name(step.agent);
        if let Some(launch) = launch {
            let owner = format!("rank {}", self.subject.program.agents[launch.step.agent.0 as usize].rank);
            // The launch of call n stands between the calls n - 1 and n.
            let (what, hint) = if step.call < launch.step.call {
                (
                    format!("{owner} ends without waiting for {one}, which accesses {place}"),
                    "let that rank wait, before it ends, for a signal that follows this access",
                )
            } else {
                (
                    format!("{one} accesses {place}, which {owner} may not have started to offer"),
                    "wait for a signal of that rank before the first access to its memory",
                )
            };
            return self.subject.site(Diagnostic::new("AHBM-V414", what), &step).hint(hint);
        }
        let other = self.subject.name(b.step.agent);
        let what = format!("{one} and {other} access {place} in no fixed order, and one writes");
        let finding = self.subject.sites(Diagnostic::new("AHBM-V403", what), &a.step, &b.step);
        finding.hint("make one wait for the other: a dependency, a signal or a barrier")
    }
}

/// Whether an operation writes memory at some time after the agent has gone on.
const fn posted(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Move(Move::Store { posted: true, .. } | Move::Copy { posted: true, .. } | Move::Multicast { .. })
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Ended, Fence, Order, Schedule, Watch};
    use ahbm_plan::blocks::{Action, Slot};
    use ahbm_plan::{Budget, Collective, PlanBuilder, Space, StepSpec};
    use ahbm_program::{Locus, Origin};

    struct Follow<'p>(Clocks<'p>);

    impl Watch for Follow<'_> {
        fn done(&mut self, step: &Step) -> Result<(), Diagnostic> {
            self.0.done(step);
            Ok(())
        }

        fn released(&mut self, participants: &[AgentId]) {
            self.0.meet(participants);
        }
    }

    #[test]
    fn what_takes_too_much_is_said_to_be_undecided() -> Result<(), Diagnostic> {
        let at = Origin { file: "pair.py".into(), locus: Locus::Line(1) };
        let mut plan = PlanBuilder::new("pair", Collective::AllReduce.into(), 2, 1, Budget::default(), at.clone())?;
        let [input, output] = [Space::Input, Space::Output].map(|space| Slot { space, chunk: 0 });
        for _ in 0..2 {
            let block = plan.block(0, None, None, 0, at.clone())?;
            plan.step(block, &StepSpec::new(Action::Copy, input, output), at.clone())?;
        }
        let plan = plan.finish().expect("a plan");
        let lowered = plan.lower_for_check(2, &Budget::default()).expect("a program");
        let expected = plan.goal.expectation(&lowered.ranks, 1, 8, &Budget::default())?;
        let terms = Terms::new(&expected);
        let subject = Subject::once(&lowered.program);
        let spots = Spots::contended(subject, terms.memory());
        for (spent, told) in [(0, None), (WORK + 1, Some(codes::ORDER_UNDECIDED))] {
            let mut follow = Follow(Clocks::new(subject, None, &spots, &terms).expect("shared memory"));
            follow.0.work = spent;
            let mut schedule = Schedule::new(subject, None, Order::of(0, 2, 0), Fence::Rank);
            assert_eq!(schedule.run(&mut follow)?, Ended::Complete);
            assert_eq!(follow.0.gave_up().map(|finding| finding.code), told);
            assert_eq!(follow.0.findings(&expected).len(), usize::from(told.is_none()));
        }
        Ok(())
    }
}
