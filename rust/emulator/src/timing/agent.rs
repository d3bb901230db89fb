//! An agent: interprets its body against its own clock.

use super::network::Arrival;
use super::{Sim, Wait};
use crate::Span;
use ahbm_engine::{FifoId, Time};
use ahbm_program::{AgentId, Body, ChannelId, OpKind, ValueId};

/// What an agent leaves behind.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) hash: u64,
    pub(super) spans: Vec<Span>,
    pub(super) choices: Vec<ChannelId>,
}

/// Folds one operation's times into a hash.
#[inline]
pub(super) fn mix(hash: u64, start: u64, end: u64) -> u64 {
    (hash.rotate_left(5) ^ start.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ end).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// Parks until `$ready` is some value. The agent's position is written down first: it is what a deadlock
/// report shows.
macro_rules! wait_for {
    ($sim:expr, $me:expr, $pc:expr, $clock:expr, $wait:expr, $waiter:expr, $ready:expr) => {
        loop {
            if let Some(ready) = $ready {
                break ready;
            }
            let progress = &$sim.progress[$me.0 as usize];
            progress.pc.set($pc);
            progress.clock.set($clock);
            progress.wait.set($wait);
            $waiter.enter(&$sim.engine);
            $sim.engine.park().await;
        }
    };
}

pub(super) async fn run(sim: &Sim<'_>, me: AgentId) {
    let agent = &sim.program.agents[me.0 as usize];
    let body: &Body = &sim.program.bodies[agent.body as usize];
    let shares = sim.plan.agents[me.0 as usize].shares;
    let mut trace = Trace::default();
    if sim.record {
        trace.spans.reserve_exact(body.ops.len());
    }
    let mut clock: Time = 0;
    let mut turn = 0u32;
    let mut posted: Vec<(ValueId, u32, u32)> = Vec::new();
    for (pc, op) in body.ops.iter().enumerate() {
        let pc = pc as u32;
        let start = clock + sim.costs.dispatch_ps * Time::from(op.calls);
        clock = match op.kind {
            OpKind::Send { dir, tile, .. } => {
                let channel = sim.program.tx(me, dir);
                let fifo = FifoId(channel.0);
                let ready = start + sim.costs.ipcq_send_ps;
                let credit = wait_for!(
                    sim,
                    me,
                    pc,
                    clock,
                    Wait::Credit(channel),
                    sim.fifos.sender(fifo),
                    sim.fifos.try_claim(fifo)
                );
                let ready = ready.max(credit);
                if shares {
                    sim.engine.sleep_until(ready).await;
                }
                let bytes = bytes(sim, agent.body, tile);
                let flow = sim.plan.channels[channel.0 as usize].flow;
                sim.write(me, flow, bytes, ready, Arrival::Message(channel));
                ready
            }
            OpKind::Recv { dir, tile, .. } => {
                let channel = sim.program.rx(me, dir);
                let plan = &sim.plan.channels[channel.0 as usize];
                if plan.background != u32::MAX {
                    let index =
                        sim.backgrounds[plan.background as usize].post(sim, start, bytes(sim, agent.body, tile));
                    let state = &sim.backgrounds[plan.background as usize];
                    let done =
                        wait_for!(sim, me, pc, clock, Wait::Message(channel), state.agent, state.completion(index));
                    start.max(done)
                } else {
                    let fifo = FifoId(channel.0);
                    let arrival = wait_for!(
                        sim,
                        me,
                        pc,
                        clock,
                        Wait::Message(channel),
                        sim.fifos.receiver(fifo),
                        sim.fifos.try_take(fifo)
                    );
                    sim.consume(channel, bytes(sim, agent.body, tile), start, arrival)
                }
            }
            OpKind::RecvAny { tile, .. } => {
                let inbound = sim.plan.inbound.get(&me).map_or(&[][..], Vec::as_slice);
                let mut at = start;
                let (channel, arrival) = loop {
                    // Everything that arrives up to `at` is known only once the engine has got there.
                    sim.engine.sleep_until(at).await;
                    let count = inbound.len() as u32;
                    let pick = (0..count)
                        .map(|i| (turn + i) % count)
                        .find(|&i| sim.fifos.peek(FifoId(inbound[i as usize].0)).is_some_and(|arrival| arrival <= at));
                    if let Some(i) = pick {
                        turn = (i + 1) % count;
                        let fifo = FifoId(inbound[i as usize].0);
                        break (inbound[i as usize], sim.fifos.try_take(fifo).unwrap_or(at));
                    }
                    let earliest = inbound.iter().filter_map(|c| sim.fifos.peek(FifoId(c.0))).min();
                    if let Some(arrival) = earliest {
                        at = arrival;
                        continue;
                    }
                    let progress = &sim.progress[me.0 as usize];
                    progress.pc.set(pc);
                    progress.clock.set(clock);
                    progress.wait.set(Wait::AnyMessage);
                    for channel in inbound {
                        sim.fifos.receiver(FifoId(channel.0)).enter(&sim.engine);
                    }
                    sim.engine.park().await;
                    for channel in inbound {
                        sim.fifos.receiver(FifoId(channel.0)).leave();
                    }
                };
                trace.choices.push(channel);
                sim.consume(channel, bytes(sim, agent.body, tile), start, arrival)
            }
            OpKind::PostRecv { dir, dst, tile } => {
                let background = sim.plan.channels[sim.program.rx(me, dir).0 as usize].background;
                let index = sim.backgrounds[background as usize].post(sim, start, bytes(sim, agent.body, tile));
                posted.push((dst, background, index));
                start
            }
            OpKind::Await { value } => match posted.iter().position(|p| p.0 == value) {
                Some(at) => {
                    let (_, background, index) = posted.swap_remove(at);
                    let state = &sim.backgrounds[background as usize];
                    let channel = sim.plan.backgrounds[background as usize].channel;
                    let done =
                        wait_for!(sim, me, pc, clock, Wait::Message(channel), state.agent, state.completion(index));
                    start.max(done)
                }
                None => start,
            },
            OpKind::Load { mem, tile, .. } => {
                let from = sim.node(me, body, mem);
                transfer(sim, me, pc, clock, start, shares, (from, ahbm_machine::Node::Pe(agent.place)), tile).await
            }
            OpKind::Store { mem, tile, .. } => {
                let to = sim.node(me, body, mem);
                transfer(sim, me, pc, clock, start, shares, (ahbm_machine::Node::Pe(agent.place), to), tile).await
            }
            OpKind::Copy { src, dst, tile } => {
                let nodes = (sim.node(me, body, src), sim.node(me, body, dst));
                transfer(sim, me, pc, clock, start, shares, nodes, tile).await
            }
            OpKind::Signal { counter, add } => {
                sim.engine.sleep_until(start).await;
                sim.signal(counter, add);
                start
            }
            OpKind::WaitCounter { counter, at_least } => {
                let state = &sim.counters[counter as usize];
                let mut at = start;
                loop {
                    sim.engine.sleep_until(at).await;
                    if state.value.get() >= u64::from(at_least) {
                        break;
                    }
                    let progress = &sim.progress[me.0 as usize];
                    progress.pc.set(pc);
                    progress.clock.set(clock);
                    progress.wait.set(Wait::Counter(counter));
                    state.waiters.borrow_mut().push((me, at_least));
                    sim.parked[me.0 as usize].enter(&sim.engine);
                    sim.engine.park().await;
                    at = at.max(sim.engine.now());
                }
                at
            }
            OpKind::Barrier { id } => {
                let state = &sim.barriers[id as usize];
                state.latest.set(state.latest.get().max(start));
                state.arrived.set(state.arrived.get() + 1);
                if state.arrived.get() == sim.program.barriers[id as usize] {
                    let release = state.latest.replace(0);
                    state.arrived.set(0);
                    for waiter in state.waiters.borrow_mut().drain(..) {
                        sim.complete(waiter, release);
                    }
                    release
                } else {
                    let progress = &sim.progress[me.0 as usize];
                    progress.pc.set(pc);
                    progress.clock.set(clock);
                    progress.wait.set(Wait::Barrier(id));
                    state.waiters.borrow_mut().push(me);
                    sim.parked[me.0 as usize].enter(&sim.engine);
                    sim.engine.park().await;
                    sim.done[me.0 as usize].get()
                }
            }
            OpKind::Delay { ps } => start + ps,
            _ => {
                let duration = math_ps(sim, body, agent.body, &op.kind);
                if shares {
                    sim.engine.sleep_until(start).await;
                    let engines = &sim.engines[sim.plan.agents[me.0 as usize].engines as usize];
                    engines.math.reserve(start, duration) + duration
                } else {
                    start + duration
                }
            }
        };
        trace.hash = mix(trace.hash, start, clock);
        if sim.record {
            trace.spans.push(Span { start, end: clock });
        }
    }
    let progress = &sim.progress[me.0 as usize];
    progress.pc.set(body.ops.len() as u32);
    progress.clock.set(clock);
    progress.wait.set(Wait::Finished);
    *sim.traces[me.0 as usize].borrow_mut() = trace;
}

/// A one-sided transfer; resolves to its completion time.
#[allow(clippy::too_many_arguments)]
async fn transfer(
    sim: &Sim<'_>,
    me: AgentId,
    pc: u32,
    clock: Time,
    start: Time,
    shares: bool,
    (from, to): (ahbm_machine::Node, ahbm_machine::Node),
    tile: u32,
) -> Time {
    let agent = &sim.program.agents[me.0 as usize];
    let bytes = bytes(sim, agent.body, tile);
    let (flow, request, read) = sim.plan.one_sided(agent.place, from, to);
    if shares {
        sim.engine.sleep_until(start).await;
    }
    let done = &sim.done[me.0 as usize];
    done.set(Time::MAX);
    if read {
        sim.read(me, flow, bytes, start, request);
    } else {
        sim.write(me, flow, bytes, start, Arrival::Transfer(me));
    }
    let ready = || Some(done.get()).filter(|&t| t != Time::MAX);
    wait_for!(sim, me, pc, clock, Wait::Transfer, sim.parked[me.0 as usize], ready())
}

#[inline]
fn bytes(sim: &Sim<'_>, body: u32, tile: u32) -> u64 {
    sim.plan.tile_bytes[body as usize][tile as usize]
}

/// Time of an operation on the math or matrix engine, in whole nanoseconds.
fn math_ps(sim: &Sim<'_>, body: &Body, index: u32, kind: &OpKind) -> Time {
    let ns = |work: u64, per_ns: u64| if per_ns == u64::MAX { 0 } else { work.div_ceil(per_ns) * 1000 };
    let rate = sim.costs.math_bytes_per_ns;
    match *kind {
        OpKind::Fill { tile, .. }
        | OpKind::Arange { tile, .. }
        | OpKind::Unary { tile, .. }
        | OpKind::Binary { tile, .. }
        | OpKind::BinaryScalar { tile, .. }
        | OpKind::Fma { tile, .. }
        | OpKind::Clamp { tile, .. }
        | OpKind::Where { tile, .. }
        | OpKind::Reduce { tile, .. }
        | OpKind::Transpose { tile, .. }
        | OpKind::Cast { tile, .. } => ns(bytes(sim, index, tile), rate),
        // Maximum, exponential of the difference, sum, division: four passes over the tile.
        OpKind::Softmax { tile, .. } => 4 * ns(bytes(sim, index, tile), rate),
        OpKind::Dot { tile, .. } => ns(body.tiles[tile as usize].elements(), sim.costs.gemm_macs_per_ns),
        _ => 0,
    }
}

impl Sim<'_> {
    fn node(&self, agent: AgentId, body: &Body, mem: u32) -> ahbm_machine::Node {
        let buffer = self.program.buffer(agent, body.mems[mem as usize].buffer);
        self.program.buffers[buffer.0 as usize].node
    }

    /// Takes a message out of its slot: slot read, credit.
    pub(super) fn consume(&self, channel: ChannelId, bytes: u64, start: Time, arrival: Time) -> Time {
        let plan = &self.plan.channels[channel.0 as usize];
        let read = (start + self.costs.ipcq_recv_ps).max(arrival) + plan.tier.access_ps(bytes);
        let credited = read + plan.credit;
        self.fifos.release(FifoId(channel.0), credited, &self.engine);
        if self.costs.credit_blocks_receiver { credited } else { read }
    }

    /// Hands a transfer to the PE's DMA write channel at `ready`.
    fn write(&self, agent: AgentId, flow: u32, bytes: u64, ready: Time, arrival: Arrival) {
        let engines = &self.engines[self.plan.agents[agent.0 as usize].engines as usize];
        let busy = self.costs.dma_setup_ps + self.plan.flows[flow as usize].entry.ps(bytes);
        let first = engines.dma_write.reserve(ready, busy) + self.costs.dma_setup_ps;
        self.network.inject(self, flow, bytes, first, arrival);
    }

    /// Hands a transfer to the PE's DMA read channel; data leaves the source `request` later.
    fn read(&self, agent: AgentId, flow: u32, bytes: u64, ready: Time, request: Time) {
        let engines = &self.engines[self.plan.agents[agent.0 as usize].engines as usize];
        let busy = self.costs.dma_setup_ps + self.plan.flows[flow as usize].entry.ps(bytes);
        let first = engines.dma_read.reserve(ready, busy) + self.costs.dma_setup_ps + request;
        self.network.inject(self, flow, bytes, first, Arrival::Transfer(agent));
    }

    fn signal(&self, counter: u32, add: u32) {
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
    }
}
