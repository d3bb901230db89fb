//! The posts of agents: transfers that they do not wait for, and the signals that travel behind them.

use super::Sim;
use super::recorder::Recorder;
use super::transfer::Arrival;
use crate::detail::{Kind, PieceId};
use ahbm_engine::Time;
use ahbm_program::AgentId;
use std::collections::VecDeque;

/// A time and the piece that ends then.
type Event = (Time, PieceId);

/// The posts of one agent.
#[derive(Default)]
pub(super) struct Posted {
    /// Arrivals of the transfers from the first on that has not arrived.
    arrivals: VecDeque<Option<Event>>,
    /// Number of the first of them, and the latest arrival of those before it.
    first: u32,
    latest: Event,
    /// Arrivals of all transfers before the first, when they are recorded.
    pub(super) times: Vec<Time>,
    /// Signals that wait: the number of transfers before each, when it was issued, the counter and what is added.
    behind: VecDeque<(u32, Event, u32, u32)>,
    /// Signals on their way, in order of time.
    due: VecDeque<(PieceId, u32, u32)>,
    /// The agent waits at a fence.
    fenced: bool,
}

impl<R: Recorder> Sim<'_, R> {
    /// Posts a transfer.
    pub(super) fn post(&self, agent: AgentId) -> Arrival {
        let mut posted = self.posted[self.poster(agent)].borrow_mut();
        posted.arrivals.push_back(None);
        Arrival::Posted(agent, posted.first + posted.arrivals.len() as u32 - 1)
    }

    /// Posts a signal at `at`, the end of `own`.
    pub(super) fn post_signal(&self, agent: AgentId, (counter, add): (u32, u32), at: Time, own: PieceId) {
        let index = self.poster(agent);
        let mut posted = self.posted[index].borrow_mut();
        let number = posted.first + posted.arrivals.len() as u32;
        posted.behind.push_back((number, (at, own), counter, add));
        self.depart(index, &mut posted);
    }

    /// Transfer `number` of an agent has arrived.
    pub(super) fn arrived(&self, agent: AgentId, number: u32, event: Event) {
        let index = self.poster(agent);
        let mut posted = self.posted[index].borrow_mut();
        let place = (number - posted.first) as usize;
        posted.arrivals[place] = Some(event);
        while let Some(&Some(event)) = posted.arrivals.front() {
            posted.arrivals.pop_front();
            posted.first += 1;
            if self.record {
                posted.times.push(event.0);
            }
            if event.0 > posted.latest.0 {
                posted.latest = event;
            }
            self.depart(index, &mut posted);
        }
        if posted.arrivals.is_empty() && std::mem::take(&mut posted.fenced) {
            self.parked[agent.0 as usize].notify(&self.engine);
        }
    }

    /// When everything that an agent has posted had arrived; `None` when it has not, and the agent is told once it has.
    pub(super) fn fence(&self, agent: AgentId) -> Option<Event> {
        let mut posted = self.posted[self.poster(agent)].borrow_mut();
        posted.fenced = !posted.arrivals.is_empty();
        (!posted.fenced).then_some(posted.latest)
    }

    /// Sends the signals off that have nothing before them.
    fn depart(&self, index: usize, posted: &mut Posted) {
        while let Some(&(number, (at, own), counter, add)) = posted.behind.front()
            && number == posted.first
        {
            posted.behind.pop_front();
            let (latest, before) = posted.latest;
            posted.due.push_back((self.recorder.join(Kind::Fence, own, before), counter, add));
            self.engine.signal_at(at.max(latest), (self.wiring.links.len() + index) as u32);
        }
    }

    /// The next signal of a poster is there.
    pub(super) fn land(&self, index: u32) {
        let next = self.posted[index as usize].borrow_mut().due.pop_front();
        if let Some((piece, counter, add)) = next {
            self.recorder.signal(counter, piece);
            self.signal(counter, add);
        }
    }

    fn poster(&self, agent: AgentId) -> usize {
        self.wiring.posters.get_index_of(&agent).expect("the wiring has seen what the agent posts")
    }
}
