//! Posted receives: the IPCQ controller works through them while the kernel goes on.

use super::Sim;
use super::recorder::Recorder;
use crate::detail::{Kind, PieceId};
use ahbm_engine::{FifoId, Time, Waiter};
use std::cell::{Cell, RefCell};

/// Bytes, and whether the receive costs nothing.
type Size = (u64, bool);

/// The posted receives of one channel.
#[derive(Default)]
pub(super) struct State {
    posts: RefCell<Vec<(Time, Size, PieceId)>>,
    completed: RefCell<Vec<(Time, PieceId)>>,
    /// The background process waits here for a post.
    worker: Waiter,
    /// The agent waits here for a completion.
    pub(super) agent: Waiter,
    next: Cell<u32>,
}

impl State {
    /// Posts a receive at `at`, the end of `own`; returns its position in the channel.
    pub(super) fn post(&self, sim: &Sim<'_, impl Recorder>, at: Time, size: Size, own: PieceId) -> u32 {
        self.posts.borrow_mut().push((at, size, own));
        self.worker.notify(&sim.engine);
        self.posts.borrow().len() as u32 - 1
    }

    /// When the receive at `index` was complete.
    pub(super) fn completion(&self, index: u32) -> Option<(Time, PieceId)> {
        self.completed.borrow().get(index as usize).copied()
    }
}

pub(super) async fn run(sim: &Sim<'_, impl Recorder>, index: u32) {
    let wiring = sim.wiring.backgrounds[index as usize];
    let state = &sim.backgrounds[index as usize];
    let fifo = FifoId(wiring.channel.0);
    let (mut clock, mut before): (Time, PieceId) = (0, PieceId::LAUNCH);
    while state.next.get() < wiring.posts {
        let k = state.next.get();
        let (posted, size, issued) = loop {
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
        let own = sim.recorder.join(Kind::Queued, issued, before);
        (clock, before) = sim.consume(wiring.channel, size, clock.max(posted), arrival, own);
        state.completed.borrow_mut().push((clock, before));
        state.next.set(k + 1);
        state.agent.notify(&sim.engine);
    }
}
