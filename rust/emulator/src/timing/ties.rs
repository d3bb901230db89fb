//! Events at one moment whose order could matter.
//!
//! The order of events at one moment is that of their numbers. A run in which one rank stands for many cannot know the
//! numbers of the whole run, so it watches for moments at which two users ask for one link or one engine. Two agents of
//! a rank have the same order at every rank where one starts because the other has ended, and where one event has
//! started both.

use super::wiring::Wiring;
use ahbm_engine::Time;
use ahbm_program::{AgentId, Program};
use std::cell::{Cell, RefCell};

/// The last use of a resource: when it was asked for, by whom, and for how long.
type Use = Cell<(Time, u32, Time)>;

const NOBODY: (Time, u32, Time) = (Time::MAX, 0, 0);

/// Why an agent starts.
#[derive(Clone, Copy, Default)]
pub(super) struct Start {
    /// The event at which the driver let it start, from 1 on; 0 before.
    event: u32,
    /// The counter that the driver was told of; none where it was told of an alarm.
    counter: Option<u32>,
    at: Time,
    /// It has waited for nothing yet.
    fresh: bool,
}

/// What a run has seen.
pub(super) struct Ties {
    links: Vec<Use>,
    /// Per PE in use its DMA channels and its math engine.
    engines: Vec<[Use; 3]>,
    /// Per counter, why it was last added to by the driver.
    added: RefCell<Vec<Start>>,
    /// Per agent.
    starts: Vec<Cell<Start>>,
    /// Per agent, the counter that its end adds to.
    ends: Vec<Option<u32>>,
    events: Cell<u32>,
    found: Cell<Option<&'static str>>,
}

/// An engine of a PE.
#[derive(Clone, Copy)]
pub(super) enum EngineOf {
    Read = 0,
    Write = 1,
    Math = 2,
}

impl Ties {
    pub(super) fn new(wiring: &Wiring, program: &Program) -> Self {
        let unused = || Cell::new(NOBODY);
        let ends: Vec<_> =
            (0..program.agents.len() as u32).map(|agent| program.gate(AgentId(agent)).map(|gate| gate.end)).collect();
        Self {
            links: wiring.links.iter().map(|_| unused()).collect(),
            engines: wiring.engines.iter().map(|_| [unused(), unused(), unused()]).collect(),
            added: RefCell::new(vec![Start::default(); program.counters as usize]),
            starts: super::default_vec(ends.len()),
            ends,
            events: Cell::new(0),
            found: Cell::new(None),
        }
    }

    /// The driver is told of a counter, or of something else; what it lets start starts because of that.
    pub(super) fn told(&self, counter: Option<u32>, at: Time) -> Start {
        self.events.set(self.events.get() + 1);
        Start { event: self.events.get(), counter, at, fresh: true }
    }

    /// The driver adds to a counter.
    pub(super) fn adds(&self, counter: u32, because: Start) {
        self.added.borrow_mut()[counter as usize] = because;
    }

    /// An agent starts as the counter that it waited for is no longer zero.
    pub(super) fn starts(&self, agent: u32, counter: u32) {
        self.starts[agent as usize].set(self.added.borrow()[counter as usize]);
    }

    /// An agent waits.
    pub(super) fn waits(&self, agent: u32) {
        let start = &self.starts[agent as usize];
        start.set(Start { fresh: false, ..start.get() });
    }

    /// A hop of a flow is about to occupy its link.
    pub(super) fn link(&self, link: u32, hop: u32, at: Time, duration: Time) {
        if clash(&self.links[link as usize], (at, hop, duration), |_| false) {
            self.found.set(Some("two messages ask for a link at one moment"));
        }
    }

    /// An agent is about to occupy an engine of its PE.
    pub(super) fn engine(&self, pe: u32, engine: EngineOf, agent: u32, at: Time, duration: Time) {
        let ordered = |before: u32| {
            let [one, other] = [before, agent].map(|agent| self.starts[agent as usize].get());
            let because = other.counter.is_some() && other.counter == self.ends[before as usize];
            let both = one.event == other.event && one.fresh && other.fresh;
            other.at == at && (because || both)
        };
        if clash(&self.engines[pe as usize][engine as usize], (at, agent, duration), ordered) {
            self.found.set(Some("two agents ask for an engine at one moment"));
        }
    }

    /// What two users asked for at such a moment.
    pub(super) fn found(&self) -> Option<&'static str> {
        self.found.get()
    }
}

/// Whether another user asked for a resource at the same moment.
fn clash(last: &Use, now: (Time, u32, Time), ordered: impl FnOnce(u32) -> bool) -> bool {
    let before = last.replace(now);
    // Who occupies nothing keeps nobody waiting.
    before.0 == now.0 && before.1 != now.1 && before.2.max(now.2) > 0 && !ordered(before.1)
}
