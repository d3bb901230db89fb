//! Races: vector clocks over what orders agents, checked at every cell that several of them touch.
//!
//! Only agents that touch a *contended* cell (two agents, one of them writing) have a component of their own, so
//! a program whose agents meet in messages alone is free of clocks. An agent's own component grows when it next
//! touches a contended cell after it has let others know its clock.

use super::expectation::Expectation;
use super::schedule;
use super::support::{self, Cells};
use ahbm_machine::Diagnostic;
use ahbm_program::{AgentId, OpKind, Program};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// Clock entries handled in one run before the analysis is given up.
const WORK: u64 = 1 << 27;
/// Races listed.
const LISTED: usize = 8;
const NONE: u32 = u32::MAX;

type Clock = Rc<[u32]>;

/// An access to a cell.
#[derive(Debug, Clone, Copy)]
struct Access {
    agent: AgentId,
    op: u32,
    /// The agent's own component at that time.
    time: u32,
}

#[derive(Debug, Clone, Default)]
struct History {
    write: Option<Access>,
    /// The latest read of each agent since the last write.
    reads: Vec<Access>,
}

/// What waits on a counter see: the clock at the signal that made its value reach what they wait for.
#[derive(Debug, Default)]
struct Counter {
    value: u64,
    /// Everything signalled so far.
    known: Option<Clock>,
    /// By value waited for: waits to come, and the clock once it is reached.
    reached: BTreeMap<u64, (u32, Option<Clock>)>,
}

pub(super) struct Clocks<'p> {
    program: &'p Program,
    cells: &'p Cells,
    slots: Option<u32>,
    /// Component of each agent, `NONE` without one.
    component: Vec<u32>,
    /// Index of each cell's history, `NONE` where nothing can race.
    history_of: Vec<u32>,
    histories: Vec<History>,
    clocks: Vec<Clock>,
    /// Agents whose clock others know since it last grew.
    told: Vec<bool>,
    messages: Vec<VecDeque<Clock>>,
    credits: Vec<VecDeque<Clock>>,
    sent: Vec<u64>,
    counters: Vec<Counter>,
    races: Vec<(usize, Access, Access)>,
    known: FxHashSet<(u32, u32, u32, u32)>,
    work: u64,
}

impl<'p> Clocks<'p> {
    /// `None` when nothing can race.
    ///
    /// # Errors
    /// `AHBM-V406` when clocks would be too many.
    pub(super) fn new(program: &'p Program, cells: &'p Cells, slots: Option<u32>) -> Result<Option<Self>, Diagnostic> {
        let history_of = contended(program, cells);
        let mut component = vec![NONE; program.agents.len()];
        let mut components = 0;
        let mut meetings = 0u64;
        for (index, component) in component.iter_mut().enumerate() {
            let agent = AgentId(index as u32);
            let ops = &program.body(agent).ops;
            if ops
                .iter()
                .any(|op| touches(program, cells, agent, op.kind).any(|(mut r, _)| r.any(|c| history_of[c] != NONE)))
            {
                *component = components;
                components += 1;
            }
            meetings +=
                ops.iter().filter(|op| op.kind.operands().tile.is_none() || op.kind.direction().is_some()).count()
                    as u64;
        }
        if components == 0 {
            return Ok(None);
        }
        let work = (meetings + program.agents.len() as u64).saturating_mul(components.into());
        if work > WORK {
            return Err(Diagnostic::new(
                "AHBM-V406",
                format!("{components} thread blocks share memory; whether their accesses are ordered was not analysed"),
            )
            .hint("the orders that were tried are the only evidence against a race"));
        }
        let histories = history_of.iter().filter(|&&h| h != NONE).count();
        let start: Clock = vec![0; components as usize].into();
        let mut counters: Vec<Counter> = (0..program.counters).map(|_| Counter::default()).collect();
        for agent in &program.agents {
            for op in &program.bodies[agent.body as usize].ops {
                if let OpKind::WaitCounter { counter, at_least } = op.kind {
                    counters[counter as usize].reached.entry(at_least.into()).or_default().0 += 1;
                }
            }
        }
        Ok(Some(Self {
            program,
            cells,
            slots,
            component,
            history_of,
            histories: vec![History::default(); histories],
            clocks: vec![start; program.agents.len()],
            told: vec![true; program.agents.len()],
            messages: vec![VecDeque::new(); program.channels.len()],
            credits: vec![VecDeque::new(); program.channels.len()],
            sent: vec![0; program.channels.len()],
            counters,
            races: Vec::new(),
            known: FxHashSet::default(),
            work,
        }))
    }

    /// The effect of an operation on what is ordered.
    pub(super) fn done(&mut self, agent: AgentId, op: usize) {
        let program = self.program;
        let kind = program.body(agent).ops[op].kind;
        match kind {
            OpKind::AwaitSlot { dir } => {
                let channel = program.tx(agent, dir);
                if self.sent[channel.0 as usize] >= schedule::depth(program, self.slots, channel)
                    && let Some(credit) = self.credits[channel.0 as usize].front().cloned()
                {
                    self.learn(agent, &credit);
                }
            }
            OpKind::Send { dir, .. } => {
                let channel = program.tx(agent, dir);
                let c = channel.0 as usize;
                if self.sent[c] >= schedule::depth(program, self.slots, channel)
                    && let Some(credit) = self.credits[c].pop_front()
                {
                    self.learn(agent, &credit);
                }
                self.sent[c] += 1;
                let clock = self.tell(agent);
                self.messages[c].push_back(clock);
            }
            OpKind::Recv { dir, .. } => {
                let channel = program.rx(agent, dir);
                if let Some(clock) = self.messages[channel.0 as usize].pop_front() {
                    self.learn(agent, &clock);
                }
                if schedule::depth(program, self.slots, channel) != u64::MAX {
                    let clock = self.tell(agent);
                    self.credits[channel.0 as usize].push_back(clock);
                }
            }
            OpKind::Signal { counter, add } => {
                let clock = self.tell(agent);
                self.counters[counter as usize].signal(clock, add);
            }
            OpKind::WaitCounter { counter, at_least } => {
                if let Some(clock) = self.counters[counter as usize].waited(at_least.into()) {
                    self.learn(agent, &clock);
                }
            }
            OpKind::Acquire { counter, .. } => {
                if let Some(clock) = self.counters[counter as usize].known.clone() {
                    self.learn(agent, &clock);
                }
            }
            _ => {
                let cells = self.cells;
                for (range, writes) in touches(program, cells, agent, kind) {
                    for cell in range {
                        self.access(agent, op, cell, writes);
                    }
                }
            }
        }
    }

    /// The participants of a barrier met: everybody knows what everybody knew.
    pub(super) fn meet(&mut self, participants: &[AgentId]) {
        let Some((&first, rest)) = participants.split_first() else { return };
        let mut all = self.tell(first);
        for &agent in rest {
            let clock = self.tell(agent);
            all = join(&all, &clock);
        }
        for &agent in participants {
            self.clocks[agent.0 as usize] = Rc::clone(&all);
        }
    }

    fn tell(&mut self, agent: AgentId) -> Clock {
        self.told[agent.0 as usize] = true;
        Rc::clone(&self.clocks[agent.0 as usize])
    }

    fn learn(&mut self, agent: AgentId, news: &Clock) {
        let clock = &mut self.clocks[agent.0 as usize];
        *clock = join(clock, news);
    }

    fn access(&mut self, agent: AgentId, op: usize, cell: usize, writes: bool) {
        let history = self.history_of[cell];
        if history == NONE || self.work > 2 * WORK {
            return;
        }
        let a = agent.0 as usize;
        let own = self.component[a] as usize;
        if std::mem::take(&mut self.told[a]) {
            let mut grown = self.clocks[a].to_vec();
            grown[own] += 1;
            self.clocks[a] = grown.into();
        }
        let clock = &self.clocks[a];
        let access = Access { agent, op: op as u32, time: clock[own] };
        let history = &mut self.histories[history as usize];
        self.work += history.reads.len() as u64;
        let before = |other: &Access| clock[self.component[other.agent.0 as usize] as usize] >= other.time;
        let mut clash = history.write.filter(|w| !before(w));
        if writes {
            clash = clash.or_else(|| history.reads.iter().find(|r| r.agent != agent && !before(r)).copied());
            history.reads.clear();
            history.write = Some(access);
        } else {
            history.reads.retain(|r| !before(r));
            history.reads.push(access);
        }
        if let Some(other) = clash
            && self.known.len() < 1 << 16
            && self.known.insert((other.agent.0, other.op, agent.0, access.op))
        {
            self.races.push((cell, other, access));
        }
    }

    /// The races found: one finding per pair of thread blocks, the first few of them.
    pub(super) fn findings(self, expectation: &Expectation) -> Vec<Diagnostic> {
        let mut pairs: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let mut first: Vec<(usize, Access, Access)> = Vec::new();
        for &(cell, a, b) in &self.races {
            let pair = (a.agent.0.min(b.agent.0), a.agent.0.max(b.agent.0));
            if *pairs.entry(pair).and_modify(|n| *n += 1).or_insert(1) == 1 {
                first.push((cell, a, b));
            }
        }
        let mut findings: Vec<Diagnostic> = first.iter().take(LISTED).map(|r| self.report(r, expectation)).collect();
        if let Some(finding) = findings.first_mut() {
            finding.message +=
                &format!(" ({} such accesses in {} pairs of thread blocks)", self.races.len(), pairs.len());
        }
        findings
    }

    fn report(&self, &(cell, a, b): &(usize, Access, Access), expectation: &Expectation) -> Diagnostic {
        let (buffer, element) = self.cells.place(cell);
        let (one, other) = (support::name(self.program, a.agent), support::name(self.program, b.agent));
        let buffer = expectation.buffer_name(buffer);
        let what =
            format!("{one} and {other} access element {element} of {buffer} in no fixed order, and one writes it");
        let finding = support::site(self.program, Diagnostic::new("AHBM-V403", what), a.agent, a.op as usize);
        support::site(self.program, finding, b.agent, b.op as usize)
            .hint("make one wait for the other: a dependency, a signal or a barrier")
    }
}

impl Counter {
    fn signal(&mut self, clock: Clock, add: u32) {
        let known = match self.known.take() {
            Some(known) => join(&known, &clock),
            None => clock,
        };
        let before = self.value;
        self.value = self.value.saturating_add(add.into());
        if before < self.value {
            for (_, (_, reached)) in self.reached.range_mut(before + 1..=self.value) {
                *reached = Some(Rc::clone(&known));
            }
        }
        self.known = Some(known);
    }

    fn waited(&mut self, at_least: u64) -> Option<Clock> {
        let (waits, clock) = self.reached.get_mut(&at_least)?;
        *waits -= 1;
        if *waits == 0 { clock.take() } else { clock.clone() }
    }
}

fn join(a: &Clock, b: &Clock) -> Clock {
    if Rc::ptr_eq(a, b) || b.iter().zip(a.iter()).all(|(b, a)| b <= a) {
        Rc::clone(a)
    } else if a.iter().zip(b.iter()).all(|(a, b)| a <= b) {
        Rc::clone(b)
    } else {
        a.iter().zip(b.iter()).map(|(&a, &b)| a.max(b)).collect()
    }
}

/// The cells an operation touches, and whether it writes them.
fn touches<'a>(
    program: &'a Program,
    cells: &'a Cells,
    agent: AgentId,
    kind: OpKind,
) -> impl Iterator<Item = (Range<usize>, bool)> + 'a {
    let operands = kind.operands();
    [(operands.mem_read, false), (operands.mem_written, true)]
        .into_iter()
        .filter_map(move |(mem, writes)| Some((cells.operand(program, agent, mem?, operands.tile?), writes)))
}

/// For each cell that two agents touch and one of them writes, the index of its history.
fn contended(program: &Program, cells: &Cells) -> Vec<u32> {
    const SHARED: u32 = u32::MAX - 1;
    let mut owner = vec![NONE; cells.len()];
    let mut written = vec![false; cells.len()];
    for index in 0..program.agents.len() as u32 {
        for op in &program.body(AgentId(index)).ops {
            for (range, writes) in touches(program, cells, AgentId(index), op.kind) {
                for cell in range {
                    owner[cell] = if owner[cell] == NONE || owner[cell] == index { index } else { SHARED };
                    written[cell] |= writes;
                }
            }
        }
    }
    let mut histories = 0;
    let mut number = |contended: bool| {
        if !contended {
            return NONE;
        }
        histories += 1;
        histories - 1
    };
    owner.iter().zip(written).map(|(&owner, written)| number(owner == SHARED && written)).collect()
}
