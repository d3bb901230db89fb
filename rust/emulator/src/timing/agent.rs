//! An agent: interprets its body against its own clock.
//!
//! The process, [`super::process`], alternates between [`Agent::advance`], which executes operations until one must
//! wait, and the wait itself. An operation that waits is entered again afterwards; `phase` says how far it had come.

use super::recorder::Recorder;
use super::transfer::Arrival;
use super::wiring::{AgentWiring, OneSided, Wiring};
use super::{EngineOf, Sim};
use crate::Span;
use crate::detail::{Kind, PieceId};
use ahbm_engine::{FifoId, Time};
use ahbm_machine::{Costs, Node};
use ahbm_program::{AgentId, Body, ChannelId, Comm, Control, Math, Move, Op, OpKind, Program, ValueId};

/// The event an agent waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Wait {
    #[default]
    Nothing,
    Credit(ChannelId),
    Message(ChannelId),
    AnyMessage,
    Transfer,
    Counter(u32),
    Barrier(u32),
    Finished,
}

/// An agent's state between two polls.
#[derive(Default)]
pub(super) struct Agent {
    /// The operation it is at.
    pub(super) pc: u32,
    /// When the operation before it ended.
    pub(super) clock: Time,
    /// The event it waits for; read by diagnoses.
    pub(super) wait: Wait,
    pub(super) hash: u64,
    /// How far the operation at `pc` has come, and the time it was heading for.
    pub(super) phase: u8,
    /// The operation at `pc` costs nothing.
    pub(super) free: bool,
    pub(super) at: Time,
    /// Next direction of `recv(dir=None)`.
    pub(super) turn: u32,
    /// Only for agents that record or use posted receives.
    pub(super) extra: Option<Box<Extra>>,
}

#[derive(Default)]
pub(super) struct Extra {
    pub(super) spans: Vec<Span>,
    pub(super) choices: Vec<ChannelId>,
    /// Value, background process and position of receives that were posted and not awaited yet.
    pub(super) posted: Vec<(ValueId, u32, u32)>,
}

/// What an agent asks for at every operation, in one place: a run of many agents waits for memory.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Seat<'a> {
    pub(super) ops: &'a [Op],
    /// Bytes of its body's tiles.
    pub(super) tiles: &'a [u64],
    /// Its part of [`ahbm_program::Program::channel_table`], per direction the channel that it sends on and the one that it
    /// receives on.
    pub(super) channels: &'a [ChannelId],
    pub(super) wiring: AgentWiring,
}

impl<'a> Seat<'a> {
    pub(super) fn of(program: &'a Program, wiring: &'a Wiring) -> Vec<Self> {
        let seat = |(agent, own): (&ahbm_program::Agent, &AgentWiring)| {
            let body = &program.bodies[agent.body as usize];
            let (first, count) = (agent.channels as usize, 2 * body.directions.len());
            Self {
                ops: &body.ops,
                tiles: &wiring.tile_bytes[agent.body as usize],
                channels: &program.channel_table[first..first + count],
                wiring: *own,
            }
        };
        program.agents.iter().zip(&wiring.agents).map(seat).collect()
    }
}

/// Why [`Agent::advance`] returned.
pub(super) enum Pause {
    /// The agent has entered a waiter.
    Park,
    /// The next step needs the engine to have reached this time.
    Until(Time),
    Finished,
}

/// Folds one operation's times into a hash.
#[inline]
pub(super) fn mix(hash: u64, start: u64, end: u64) -> u64 {
    (hash.rotate_left(5) ^ start.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ end).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// Waits for the counter that lets an agent start.
pub(super) async fn open(sim: &Sim<'_, impl Recorder>, me: AgentId, start: u32) {
    let state = &sim.agents[me.0 as usize];
    let counter = &sim.counters[start as usize];
    let waits = counter.value.get() == 0;
    while counter.value.get() == 0 {
        counter.waiters.borrow_mut().push((me, 1));
        sim.parked[me.0 as usize].enter(&sim.engine);
        state.borrow_mut().wait = Wait::Counter(start);
        sim.engine.park().await;
    }
    let clock = state.borrow().clock + sim.engine.now();
    state.borrow_mut().clock = clock;
    // Agents that need not wait start in their own order, whatever let them start.
    if let Some(ties) = sim.ties.filter(|_| waits) {
        ties.starts(me.0, start, clock);
    }
    sim.recorder.opened(me, start);
}

/// Adds one to the counter that an agent's end belongs to.
pub(super) async fn close(sim: &Sim<'_, impl Recorder>, me: AgentId, end: u32) {
    let clock = sim.agents[me.0 as usize].borrow().clock;
    // A receive from any direction may have left a wake-up behind that ends the sleep too early.
    while sim.engine.now() < clock {
        sim.engine.sleep_until(clock).await;
    }
    sim.recorder.signal(end, sim.recorder.last(me));
    sim.signal(end, 1);
}

impl Agent {
    pub(super) fn recording(operations: usize) -> Self {
        let extra = Extra { spans: Vec::with_capacity(operations), ..Extra::default() };
        Self { extra: Some(Box::new(extra)), ..Self::default() }
    }

    /// Executes operations until one must wait.
    pub(super) fn advance(&mut self, sim: &Sim<'_, impl Recorder>, me: AgentId) -> Pause {
        let Seat { ops, tiles, wiring, .. } = sim.seats[me.0 as usize];
        let dispatch = wiring.paced(sim.costs.dispatch_ps);
        // Few operations ask for more of a body.
        let body = || -> &Body { sim.program.body(me) };
        while let Some(op) = ops.get(self.pc as usize) {
            self.free = sim.free.as_ref().is_some_and(|free| free.has(sim.program.agents[me.0 as usize].body, self.pc));
            let start = if self.free { self.clock } else { self.clock + dispatch * Time::from(op.calls) };
            let end = match op.kind {
                OpKind::Comm(Comm::Send { dir, tile, .. }) => self.send(sim, me, dir, tiles[tile as usize], start),
                OpKind::Comm(Comm::AwaitSlot { dir }) => self.await_slot(sim, me, dir, start),
                OpKind::Comm(Comm::Recv { dir, tile, .. }) => self.receive(sim, me, dir, tiles[tile as usize], start),
                OpKind::Comm(Comm::RecvAny { tile, .. }) => self.receive_any(sim, me, tiles[tile as usize], start),
                OpKind::Comm(Comm::PostRecv { dir, dst, tile }) => {
                    let background = sim.wiring.channels[sim.rx(me, dir).0 as usize].background;
                    let issued = self.issue(sim, me, start);
                    let position = sim.backgrounds[background as usize].post(
                        sim,
                        start,
                        (tiles[tile as usize], self.free),
                        issued,
                    );
                    self.extra.get_or_insert_default().posted.push((dst, background, position));
                    Ok(start)
                }
                OpKind::Comm(Comm::Await { value }) => self.await_posted(sim, me, value, start),
                OpKind::Move(Move::Load { mem, tile, .. }) => {
                    let flow = || sim.wiring.between(wiring.moves, body().mems.buffer(mem), true);
                    self.transfer(sim, me, flow, tiles[tile as usize], false, start)
                }
                OpKind::Move(Move::Store { mem, tile, posted, .. }) => {
                    let flow = || sim.wiring.between(wiring.moves, body().mems.buffer(mem), false);
                    self.transfer(sim, me, flow, tiles[tile as usize], posted, start)
                }
                OpKind::Move(Move::Copy { src, dst, tile, posted }) => {
                    let ahbm_program::Agent { place: pe, costs, .. } = sim.program.agents[me.0 as usize];
                    let flow = || sim.wiring.one_sided(costs, pe, sim.node(me, body(), src), sim.node(me, body(), dst));
                    self.transfer(sim, me, flow, tiles[tile as usize], posted, start)
                }
                OpKind::Move(Move::ReducingLoad { group, tile, .. }) => {
                    let flow = || sim.wiring.grouped(me, group, true);
                    self.transfer(sim, me, flow, tiles[tile as usize], false, start)
                }
                OpKind::Move(Move::Multicast { group, tile, .. }) => {
                    let flow = || sim.wiring.grouped(me, group, false);
                    self.transfer(sim, me, flow, tiles[tile as usize], true, start)
                }
                OpKind::Control(Control::Signal { counter, add, posted: true }) => {
                    let issued = self.issue(sim, me, start);
                    sim.post_signal(me, (counter, add), start, issued);
                    Ok(start)
                }
                OpKind::Control(Control::Fence) => self.fence(sim, me, start),
                OpKind::Control(Control::Signal { counter, add, posted: false }) => {
                    self.at_engine_time(sim, start, |agent| {
                        sim.recorder.signal(counter, agent.issue(sim, me, start));
                        sim.signal(counter, add);
                        start
                    })
                }
                OpKind::Control(Control::WaitCounter { counter, at_least }) => {
                    self.wait_counter(sim, me, (counter, at_least), false, start)
                }
                OpKind::Control(Control::Acquire { counter, amount }) => {
                    self.wait_counter(sim, me, (counter, amount), true, start)
                }
                OpKind::Control(Control::Barrier { id }) => self.barrier(sim, me, id, start),
                OpKind::Control(Control::Delay { .. }) | OpKind::Math(_) if self.free => Ok(start),
                OpKind::Control(Control::Delay { ps }) => {
                    let issued = self.issue(sim, me, start);
                    sim.recorder.end(me, sim.recorder.plain(Kind::Delay, issued, ps));
                    Ok(start + ps)
                }
                OpKind::Math(math) => {
                    let duration = wiring.paced(math_ps(sim.costs_of(me), body(), tiles, math));
                    let record = |agent: &Self| {
                        let issued = agent.issue(sim, me, start);
                        sim.recorder.end(me, sim.recorder.math(wiring.engines, wiring.shares, issued, duration));
                    };
                    if wiring.shares {
                        let math = &sim.math[wiring.engines as usize];
                        self.at_engine_time(sim, start, |agent| {
                            record(agent);
                            if let Some(ties) = sim.ties {
                                ties.engine(&sim.engine, EngineOf::Math(wiring.engines), me.0, duration);
                            }
                            math.reserve(start, duration) + duration
                        })
                    } else {
                        record(self);
                        Ok(start + duration)
                    }
                }
            };
            match end {
                Ok(end) => {
                    self.hash = mix(self.hash, start, end);
                    if sim.record {
                        self.extra.get_or_insert_default().spans.push(Span { start, end });
                    }
                    self.clock = end;
                    self.phase = 0;
                    self.pc += 1;
                }
                Err(pause) => return pause,
            }
        }
        self.wait = Wait::Finished;
        Pause::Finished
    }

    /// Records that the operation at `pc` is issued at `start`; once per operation, when nothing can make it wait
    /// before its first effect.
    #[inline]
    pub(super) fn issue(&self, sim: &Sim<'_, impl Recorder>, me: AgentId, start: Time) -> PieceId {
        sim.recorder.issue(me, self.pc, start - self.clock)
    }

    /// Runs `action` once the engine has reached `time`.
    #[inline]
    fn at_engine_time(
        &mut self,
        sim: &Sim<'_, impl Recorder>,
        time: Time,
        action: impl FnOnce(&mut Self) -> Time,
    ) -> Result<Time, Pause> {
        if time > sim.engine.now() { Err(Pause::Until(time)) } else { Ok(action(self)) }
    }

    #[inline]
    pub(super) fn park<T>(&mut self, wait: Wait) -> Result<T, Pause> {
        self.wait = wait;
        Err(Pause::Park)
    }

    #[inline]
    fn send(
        &mut self,
        sim: &Sim<'_, impl Recorder>,
        me: AgentId,
        dir: u16,
        bytes: u64,
        start: Time,
    ) -> Result<Time, Pause> {
        let channel = sim.tx(me, dir);
        let fifo = FifoId(channel.0);
        if self.phase == 0 {
            let Some(credit) = sim.fifos.try_claim(fifo) else {
                sim.fifos.sender(fifo).enter(&sim.engine);
                return self.park(Wait::Credit(channel));
            };
            let control = if self.free { 0 } else { sim.costs.ipcq_send_ps };
            self.at = (start + control).max(credit);
            self.phase = 1;
        }
        if sim.seats[me.0 as usize].wiring.shares && self.at > sim.engine.now() {
            return Err(Pause::Until(self.at));
        }
        let wiring = &sim.wiring.channels[channel.0 as usize];
        sim.bytes.set(sim.bytes.get() + bytes);
        if let Some(free) = &sim.free
            && free.send(channel, self.free.then_some(self.at))
        {
            sim.publish(channel, self.at);
            return Ok(self.at);
        } else if self.free {
            return Ok(self.at);
        }
        let issued = self.issue(sim, me, start);
        let ready = sim.recorder.plain(Kind::Control, issued, sim.costs.ipcq_send_ps);
        let claimed = sim.claim(ready, channel, 1);
        sim.recorder.end(me, claimed);
        let flow = OneSided { flow: wiring.flow, request: 0 };
        sim.dma(me, flow, wiring.wire.bytes(bytes), self.at, Arrival::Message(channel, self.pc), claimed);
        Ok(self.at)
    }

    fn await_slot(&mut self, sim: &Sim<'_, impl Recorder>, me: AgentId, dir: u16, start: Time) -> Result<Time, Pause> {
        let channel = sim.tx(me, dir);
        let fifo = FifoId(channel.0);
        match sim.fifos.free(fifo) {
            Some(credit) => {
                let issued = self.issue(sim, me, start);
                sim.recorder.end(me, sim.claim(issued, channel, 0));
                Ok(start.max(credit))
            }
            None => {
                sim.fifos.sender(fifo).enter(&sim.engine);
                self.park(Wait::Credit(channel))
            }
        }
    }

    /// A one-sided transfer; ends when its last byte has arrived or, `posted`, has left.
    fn transfer(
        &mut self,
        sim: &Sim<'_, impl Recorder>,
        me: AgentId,
        flow: impl FnOnce() -> OneSided,
        bytes: u64,
        posted: bool,
        start: Time,
    ) -> Result<Time, Pause> {
        if self.free {
            return Ok(start);
        }
        let done = &sim.done[me.0 as usize];
        if self.phase == 0 {
            if sim.seats[me.0 as usize].wiring.shares && start > sim.engine.now() {
                return Err(Pause::Until(start));
            }
            let (flow, issued) = (flow(), self.issue(sim, me, start));
            if posted {
                let (left, piece) = sim.dma(me, flow, bytes, start, sim.post(me), issued);
                sim.recorder.end(me, piece);
                return Ok(left);
            }
            done.set(Time::MAX);
            self.phase = 1;
            sim.dma(me, flow, bytes, start, Arrival::Transfer(me, self.pc), issued);
        }
        if done.get() == Time::MAX {
            sim.parked[me.0 as usize].enter(&sim.engine);
            return self.park(Wait::Transfer);
        }
        sim.recorder.end(me, sim.recorder.done(me));
        Ok(done.get())
    }

    fn fence(&mut self, sim: &Sim<'_, impl Recorder>, me: AgentId, start: Time) -> Result<Time, Pause> {
        let Some((latest, piece)) = sim.fence(me) else {
            sim.parked[me.0 as usize].enter(&sim.engine);
            return self.park(Wait::Transfer);
        };
        let issued = self.issue(sim, me, start);
        sim.recorder.end(me, sim.recorder.join(Kind::Fence, issued, piece));
        Ok(start.max(latest))
    }

    fn wait_counter(
        &mut self,
        sim: &Sim<'_, impl Recorder>,
        me: AgentId,
        (counter, at_least): (u32, u32),
        take: bool,
        start: Time,
    ) -> Result<Time, Pause> {
        if start > sim.engine.now() {
            return Err(Pause::Until(start));
        }
        let state = &sim.counters[counter as usize];
        if state.value.get() < u64::from(at_least) {
            state.waiters.borrow_mut().push((me, at_least));
            sim.parked[me.0 as usize].enter(&sim.engine);
            return self.park(Wait::Counter(counter));
        }
        if take {
            state.value.set(state.value.get() - u64::from(at_least));
        }
        let issued = self.issue(sim, me, start);
        sim.recorder.end(me, sim.recorder.await_signal(counter, issued));
        Ok(sim.engine.now())
    }

    fn barrier(&mut self, sim: &Sim<'_, impl Recorder>, me: AgentId, id: u32, start: Time) -> Result<Time, Pause> {
        let (state, done) = (&sim.barriers[id as usize], &sim.done[me.0 as usize]);
        if self.phase == 1 {
            // Two messages at one instant wake a receive from any direction twice, the second time in here.
            if done.get() == Time::MAX {
                sim.parked[me.0 as usize].enter(&sim.engine);
                return self.park(Wait::Barrier(id));
            }
            sim.recorder.end(me, sim.recorder.join(Kind::Barrier(id), sim.recorder.last(me), sim.recorder.done(me)));
            return Ok(done.get());
        }
        let issued = self.issue(sim, me, start);
        let latest = sim.recorder.arrive(id, state.arrived.get() == 0, issued);
        state.latest.set(state.latest.get().max(start));
        state.arrived.set(state.arrived.get() + 1);
        if state.arrived.get() < sim.program.barriers[id as usize] {
            state.waiters.borrow_mut().push(me);
            sim.parked[me.0 as usize].enter(&sim.engine);
            done.set(Time::MAX);
            self.phase = 1;
            return self.park(Wait::Barrier(id));
        }
        state.arrived.set(0);
        let release = state.latest.replace(0);
        for waiter in state.waiters.borrow_mut().drain(..) {
            sim.complete(waiter, release, latest);
        }
        sim.recorder.end(me, sim.recorder.join(Kind::Barrier(id), issued, latest));
        Ok(release)
    }
}

/// Time of an operation on the math or matrix engine in picoseconds, whole nanoseconds. `tiles` has the bytes of the
/// body's tiles.
pub fn math_ps(costs: &Costs, body: &Body, tiles: &[u64], math: Math) -> Time {
    let ns = |work: u64, per_ns: u64| if per_ns == u64::MAX { 0 } else { work.div_ceil(per_ns) * 1000 };
    let pass = || ns(tiles[math.tile() as usize], costs.math_bytes_per_ns);
    match math {
        // Maximum, exponential of the difference, sum, division: four passes over the tile.
        Math::Softmax { .. } => 4 * pass(),
        Math::Dot { tile, .. } => ns(body.tiles[tile as usize].elements(), costs.gemm_macs_per_ns),
        _ => pass(),
    }
}

impl<R: Recorder> Sim<'_, R> {
    fn node(&self, agent: AgentId, body: &Body, mem: u32) -> Node {
        let buffer = self.program.buffer(agent, body.mems.buffer(mem));
        self.program.buffers[buffer.0 as usize].node
    }

    /// The channel an agent sends on in a direction of its body.
    #[inline]
    pub(super) fn tx(&self, agent: AgentId, dir: u16) -> ChannelId {
        self.seats[agent.0 as usize].channels[2 * usize::from(dir)]
    }

    /// The channel an agent receives on in a direction of its body.
    #[inline]
    pub(super) fn rx(&self, agent: AgentId, dir: u16) -> ChannelId {
        self.seats[agent.0 as usize].channels[2 * usize::from(dir) + 1]
    }

    /// Records the wait for the credit of the message claimed last (`claimed` 1) or to be claimed next (0).
    #[inline]
    fn claim(&self, own: PieceId, channel: ChannelId, claimed: u32) -> PieceId {
        let index = self.fifos.progress(FifoId(channel.0)).0.wrapping_sub(claimed);
        self.recorder.claim(own, channel, index, self.program.channels[channel.0 as usize].slots)
    }

    /// The DMA channel of a pool that is free first, of several the first.
    #[inline]
    fn channel(&self, pool: u32) -> u32 {
        let size = self.wiring.pool_size;
        if size == 1 {
            return pool;
        }
        let channels = pool * size..(pool + 1) * size;
        channels.min_by_key(|&channel| self.dma[channel as usize].free_at()).unwrap_or(pool * size)
    }

    /// Hands a transfer to a DMA channel of the PE at `ready`, the end of `own`; data leave the source `request` later.
    /// Returns when the last byte has left, and the piece that ends then.
    #[inline]
    fn dma(
        &self,
        agent: AgentId,
        OneSided { flow, request }: OneSided,
        bytes: u64,
        ready: Time,
        arrival: Arrival,
        own: PieceId,
    ) -> (Time, PieceId) {
        let way = &self.wiring.flows[flow as usize];
        let (setup, entry) = (self.costs.dma_setup_ps, way.entry.ps(bytes));
        let link = self.wiring.hops.get(way.first as usize).filter(|_| way.first < way.last).map(|hop| hop.link);
        if let Some(ties) = self.ties {
            ties.engine(&self.engine, EngineOf::Dma(way.pool), agent.0, setup + entry);
        }
        let channel = self.channel(way.pool);
        let first = self.dma[channel as usize].reserve(ready, setup + entry) + setup + request;
        let (granted, handed) = self.recorder.dma(channel, link, own, (setup, entry));
        let [granted, handed] = [granted, handed].map(|piece| self.recorder.plain(Kind::Wire, piece, request));
        self.network.inject(self, flow, bytes, first, arrival, granted);
        (first + entry, handed)
    }

    pub(super) fn signal(&self, counter: u32, add: u32) {
        let state = &self.counters[counter as usize];
        state.value.set(state.value.get() + u64::from(add));
        let value = state.value.get();
        state.waiters.borrow_mut().retain(|&(agent, at_least)| {
            let reached = value >= u64::from(at_least);
            if reached {
                self.parked[agent.0 as usize].notify(&self.engine);
            }
            !reached
        });
        self.told(counter, value);
    }
}
