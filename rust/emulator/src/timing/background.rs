//! Posted receives: the IPCQ controller works through them while the kernel goes on.

use super::Sim;
use ahbm_engine::{FifoId, Time, Waiter};
use std::cell::{Cell, RefCell};

/// The posted receives of one channel.
#[derive(Default)]
pub(super) struct State {
    posts: RefCell<Vec<(Time, u64)>>,
    completed: RefCell<Vec<Time>>,
    /// Where the background process waits for a post.
    worker: Waiter,
    /// Where the agent waits for a completion.
    pub(super) agent: Waiter,
    next: Cell<u32>,
}

impl State {
    /// Posts a receive of `bytes` at `at`; returns its position in the channel.
    pub(super) fn post(&self, sim: &Sim<'_>, at: Time, bytes: u64) -> u32 {
        self.posts.borrow_mut().push((at, bytes));
        self.worker.notify(&sim.engine);
        self.posts.borrow().len() as u32 - 1
    }

    /// When the receive at `index` was complete.
    pub(super) fn completion(&self, index: u32) -> Option<Time> {
        self.completed.borrow().get(index as usize).copied()
    }
}

pub(super) async fn run(sim: &Sim<'_>, index: u32) {
    let plan = sim.plan.backgrounds[index as usize];
    let state = &sim.backgrounds[index as usize];
    let fifo = FifoId(plan.channel.0);
    let mut clock: Time = 0;
    while state.next.get() < plan.posts {
        let k = state.next.get();
        let (posted, bytes) = loop {
            let post = state.posts.borrow().get(k as usize).copied();
            if let Some(post) = post {
                break post;
            }
            state.worker.enter(&sim.engine);
            sim.engine.park().await;
        };
        let arrival = loop {
            if let Some(arrival) = sim.fifos.try_take(fifo) {
                break arrival;
            }
            sim.fifos.receiver(fifo).enter(&sim.engine);
            sim.engine.park().await;
        };
        clock = sim.consume(plan.channel, bytes, clock.max(posted), arrival);
        state.completed.borrow_mut().push(clock);
        state.next.set(k + 1);
        state.agent.notify(&sim.engine);
    }
}
