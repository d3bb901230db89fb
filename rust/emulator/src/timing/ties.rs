//! Events at one moment whose order could matter.
//!
//! The order of events at one moment is that in which they were posted. A run in which one rank stands for many cannot
//! know in which order the whole run posts events of different ranks, so it watches for moments at which two users ask
//! for one link or one engine, or two things happen to a host. Their order is the same at every rank, and no tie, where
//! times say so: something posted the one event earlier ([`Engine::ordered`]); and where one rank alone decides: one
//! agent starts because the other has ended, one event has started both, or both are alarms of one host.

use super::wiring::{Cover, Wiring};
use ahbm_engine::{Engine, Time};
use ahbm_program::{AgentId, Program};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};

/// A use of a resource.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Use {
    duration: Time,
    /// The hop of a flow, or the agent.
    user: u32,
    /// The event at which it was asked for.
    event: u32,
    /// What let the agent start.
    start: Start,
    /// It waited for its turn.
    waited: bool,
}

impl Use {
    /// Whether this one clashes with whatever another one clashes with.
    fn covers(&self, other: &Self) -> bool {
        self.duration >= other.duration && Self { duration: other.duration, ..*self } == *other
    }
}

/// Why an agent starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// The number of times that the driver was told something, this one included; 0 before.
    told: u32,
    /// The counter that the driver was told of; none where it was told of an alarm.
    counter: Option<u32>,
    at: Time,
    /// The agent has waited for nothing yet.
    fresh: bool,
}

const NOTHING: Start = Start { told: 0, counter: None, at: 0, fresh: false };

/// The uses of a resource that were asked for at one moment, the last one.
#[derive(Default)]
struct Uses {
    at: Time,
    list: Vec<Use>,
    /// They are of several users.
    mixed: bool,
}

impl Uses {
    /// Adds a use; whether it clashes with another one whose order is not that of `ordered`.
    fn add(&mut self, at: Time, now: Use, ordered: impl Fn(&Use) -> bool) -> bool {
        if self.at != at {
            self.list.clear();
            self.at = at;
            self.mixed = false;
        }
        // One that asks again and again at one event counts once.
        if self.list.last().is_some_and(|last| last.covers(&now)) {
            return false;
        }
        // Who occupies nothing keeps nobody waiting.
        let clash = |before: &Use| before.user != now.user && before.duration.max(now.duration) > 0 && !ordered(before);
        // An agent that runs ahead asks many times at one moment.
        self.mixed |= self.list.last().is_some_and(|last| last.user != now.user);
        let found = self.mixed && self.list.iter().any(clash);
        self.list.push(now);
        found
    }
}

/// What a run has seen.
pub(super) struct Ties {
    links: Vec<RefCell<Uses>>,
    /// Per link, whether its hops are numbered in one order wherever it stands for another.
    ordered: Vec<bool>,
    /// Per pool of DMA channels.
    dma: Vec<RefCell<Uses>>,
    /// Per PE in use.
    math: Vec<RefCell<Uses>>,
    /// Per host, when something last happened to it, at which event, and whether that was an alarm.
    hosts: RefCell<FxHashMap<u32, (Time, u32, bool)>>,
    /// Per counter, why the driver last added to it.
    added: RefCell<Vec<Start>>,
    /// Per agent.
    starts: Vec<Cell<Start>>,
    /// Per agent, the counter that its end adds to.
    ends: Vec<Option<u32>>,
    told: Cell<u32>,
    found: Cell<Option<&'static str>>,
}

/// What agents of a PE share.
#[derive(Clone, Copy)]
pub(super) enum EngineOf {
    /// A pool of DMA channels.
    Dma(u32),
    /// The math engine of a PE in use.
    Math(u32),
}

impl Ties {
    pub(super) fn new(wiring: &Wiring, program: &Program, cover: Cover<'_>) -> Self {
        let ends: Vec<_> =
            (0..program.agents.len() as u32).map(|agent| program.gate(AgentId(agent)).map(|gate| gate.end)).collect();
        Self {
            links: super::default_vec(wiring.links.len()),
            ordered: wiring.links.iter().map(|link| cover.links[link].ordered).collect(),
            dma: super::default_vec(wiring.dma.len() / wiring.pool_size as usize),
            math: super::default_vec(wiring.engines.len()),
            hosts: RefCell::default(),
            added: RefCell::new(vec![NOTHING; program.counters as usize]),
            starts: vec![Cell::new(NOTHING); ends.len()],
            ends,
            told: Cell::new(0),
            found: Cell::new(None),
        }
    }

    /// The driver is told of a counter, or of something else; what it lets start starts because of that.
    pub(super) fn told(&self, counter: Option<u32>, at: Time) -> Start {
        self.told.set(self.told.get() + 1);
        Start { told: self.told.get(), counter, at, fresh: true }
    }

    /// The driver adds to a counter.
    pub(super) fn adds(&self, counter: u32, because: Start) {
        self.added.borrow_mut()[counter as usize] = because;
    }

    /// An agent starts at a time, by the launch after the counter that it waited for is no longer zero.
    pub(super) fn starts(&self, agent: u32, counter: u32, at: Time) {
        let start = self.added.borrow()[counter as usize];
        self.starts[agent as usize].set(Start { at, ..start });
    }

    /// An agent waits: until a time, or for something. Its launch is no wait: those that start with it have one, too.
    pub(super) fn waits(&self, agent: u32, until: Option<Time>) {
        let start = &self.starts[agent as usize];
        let fresh = start.get().fresh && until == Some(start.get().at);
        start.set(Start { fresh, ..start.get() });
    }

    /// A host is told that something has ended, of an alarm or of something else.
    pub(super) fn happens(&self, engine: &Engine, host: u32, alarm: bool) {
        let now = (engine.now(), engine.event(), alarm);
        if let Some((at, event, also)) = self.hosts.borrow_mut().insert(host, now)
            && at == now.0
            && !(alarm && also)
            && !engine.ordered(event, now.1)
        {
            self.found.set(Some("two things happen to a rank at one moment"));
        }
    }

    /// A hop of a flow is about to occupy its link. Of two that wait for it, the lower hop takes its turn first.
    pub(super) fn link(&self, engine: &Engine, link: u32, hop: u32, duration: Time, waited: bool) {
        let now = Use { duration, user: hop, event: engine.event(), start: NOTHING, waited };
        let ordered = self.ordered[link as usize];
        if self.links[link as usize].borrow_mut().add(engine.now(), now, |before| ordered && waited && before.waited) {
            self.found.set(Some("two messages ask for a link at one moment"));
        }
    }

    /// Messages of equal ranks that share a trunk do not cross it side by side: the last of them waits.
    pub(super) fn crowded(&self) {
        self.found.set(Some("messages of ranks that seem alike wait for each other between nodes"));
    }

    /// An agent is about to occupy an engine of its PE.
    pub(super) fn engine(&self, engine: &Engine, of: EngineOf, agent: u32, duration: Time) {
        let (at, start) = (engine.now(), self.starts[agent as usize].get());
        let now = Use { duration, user: agent, event: engine.event(), start, waited: false };
        let ordered = |before: &Use| {
            let because = start.counter.is_some() && start.counter == self.ends[before.user as usize];
            let both = before.start.told == start.told && before.start.fresh && start.fresh;
            start.at == at && (because || both) || engine.ordered(before.event, now.event)
        };
        let uses = match of {
            EngineOf::Dma(pool) => &self.dma[pool as usize],
            EngineOf::Math(engine) => &self.math[engine as usize],
        };
        if uses.borrow_mut().add(at, now, ordered) {
            self.found.set(Some("two agents ask for an engine at one moment"));
        }
    }

    /// What two users asked for at such a moment.
    pub(super) fn found(&self) -> Option<&'static str> {
        self.found.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(user: u32, event: u32, duration: Time) -> Use {
        Use { duration, user, event, start: NOTHING, waited: false }
    }

    #[test]
    fn who_asks_again_at_one_event_counts_once() {
        let mut uses = Uses::default();
        for duration in [0, 5, 5, 0] {
            assert!(!uses.add(1, asks(0, 7, duration), |_| false));
        }
        assert_eq!(uses.list.iter().map(|each| each.duration).collect::<Vec<_>>(), [0, 5]);
        assert!(uses.add(1, asks(1, 8, 0), |_| false), "another user, who occupies nothing but waits");
        assert!(uses.add(1, asks(0, 9, 1), |_| false), "at another event");
        assert!(!uses.add(2, asks(1, 8, 0), |_| false), "at another moment");
        assert_eq!(uses.list.len(), 1);
    }
}
