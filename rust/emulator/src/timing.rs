//! Pass 1: when everything happens.
//!
//! An agent is a process with a clock of its own. Because queues and private links combine times with
//! `max` only, an agent runs ahead of the engine's clock until it needs something nobody has produced yet;
//! the engine's event queue orders what must be ordered: transfers over links that several streams
//! share, `recv(dir=None)`, and engines of a PE that several agents use.
//!
//! Invariant: information with timestamp `t` is produced at engine time `<= t`, so an agent that runs at
//! engine time `now` has a clock `>= now` and never reserves a shared link in the past.

mod agent;
mod asks;
mod background;
mod diagnose;
pub(crate) mod driven;
mod free;
mod meeting;
mod network;
mod posted;
mod receive;
mod recorder;
mod ties;
mod transfer;
mod wiring;

use crate::detail::PieceId;
use crate::timeline::{NEVER, Span, Timeline};
use agent::Pause;
pub use agent::math_ps;
use ahbm_engine::{Engine, Fifos, Limits, Resource, Stop, Tasks, Time, Waiter};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Costs, Machine};
use ahbm_program::{AgentId, ChannelId, Duty, Program};
use free::Free;
use log::{Level, debug, log_enabled};
use recorder::{Recorder, State};
use std::cell::{Cell, RefCell};
use std::time::Instant;
use ties::{EngineOf, Ties};
use wiring::Wiring;
pub(crate) use wiring::{Cover, Stand};

/// The target the pass logs to.
pub(crate) const LOG: &str = "ahbm::engine";

/// How to run pass 1.
#[derive(Clone, Copy)]
pub struct Options {
    /// Keep the span of every operation (needed by the data pass and by every view).
    pub record: bool,
    /// Keep why every operation took as long as it did ([`Timeline::detail`]), in at most this many pieces; a few
    /// per operation and link, one per flit under the flit model. 0: do not.
    pub detail: u32,
    /// Give up after this many engine events.
    pub max_events: u64,
    /// Most links that the routes in use may have together, 24 bytes each.
    pub max_hops: u64,
    /// Of ranks that do the same simulate one, where that makes no difference and nothing is recorded ([`simulate`]).
    pub fold: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { record: true, detail: 0, max_events: 5_000_000_000, max_hops: 400_000_000, fold: true }
    }
}

/// Runs the timing pass with every agent.
///
/// # Errors
/// As [`crate::simulate`].
pub(crate) fn whole(program: &Program, machine: &Machine, options: &Options) -> Result<Timeline, Diagnostic> {
    ended(until_stuck(program, machine, options)?)
}

/// A deadlock as an error.
fn ended(mut timeline: Timeline) -> Result<Timeline, Diagnostic> {
    timeline.stuck.take().map_or(Ok(timeline), |deadlock| Err(*deadlock))
}

/// As [`simulate`], but a deadlock is no error: the timeline goes as far as the run, and says so ([`Timeline::stuck`]).
///
/// # Errors
/// As [`simulate`], without `AHBM-D101`.
pub fn until_stuck(program: &Program, machine: &Machine, options: &Options) -> Result<Timeline, Diagnostic> {
    // The host's clock goes into the log alone.
    let begin = log_enabled!(target: LOG, Level::Debug).then(Instant::now);
    let outcome = Wiring::new(program, machine, None, options.max_hops)
        .and_then(|wiring| run(program, machine, &wiring, options, Beside::default()));
    if let Some(begin) = begin {
        let (name, agents, ms) = (&program.name, program.agents.len(), begin.elapsed().as_secs_f64() * 1e3);
        match &outcome {
            Ok(Timeline { stuck: Some(finding), .. }) => {
                debug!(target: LOG, "{name}: {agents} agents, {} after {ms:.3} ms", finding.code);
            }
            Ok(Timeline { latency, messages, events, .. }) => debug!(
                target: LOG,
                "{name}: {agents} agents, {latency} ps, {messages} messages, {events} events; simulated in {ms:.3} ms"
            ),
            Err(finding) => debug!(target: LOG, "{name}: {agents} agents, {} after {ms:.3} ms", finding.code),
        }
    }
    outcome
}

/// The same where some operations cost nothing: `free`, per body and operation. Only their waits take time. Without
/// detail.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_free(
    program: &Program,
    machine: &Machine,
    options: &Options,
    free: &[Vec<bool>],
) -> Result<Timeline, Diagnostic> {
    let options = Options { detail: 0, ..*options };
    Wiring::new(program, machine, None, options.max_hops).and_then(|wiring| {
        let free = Some(Free::new(free, program.channels.len()));
        ended(run(program, machine, &wiring, &options, Beside { free, ..Beside::default() })?)
    })
}

/// Runs agents that stand for those of a larger program. `whole` has one entry per agent of that one: which agent stands
/// for it. Says where the order of two events at one moment could have mattered. The timeline is that of the larger
/// program, but for `messages`, `bytes` and `events`.
///
/// # Errors
/// As [`crate::simulate`].
pub(crate) fn covered(
    program: &Program,
    machine: &Machine,
    options: &Options,
    cover: Cover<'_>,
    whole: &[u32],
) -> Result<(Timeline, Option<&'static str>), Diagnostic> {
    let wiring = Wiring::new(program, machine, Some(cover), options.max_hops)?;
    let ties = Ties::new(&wiring, program, cover);
    let beside = Beside { ties: Some(&ties), whole: Some(whole), ..Beside::default() };
    let timeline = ended(run(program, machine, &wiring, options, beside)?)?;
    Ok((timeline, ties.found()))
}

/// What a run may have beside its program.
#[derive(Default)]
struct Beside<'a> {
    driver: Option<driven::Seat<'a>>,
    free: Option<Free<'a>>,
    /// Watches for ties; without a cover nobody needs to.
    ties: Option<&'a Ties>,
    /// Per agent of a larger program, the one that stands for it.
    whole: Option<&'a [u32]>,
}

fn run<'a>(
    program: &'a Program,
    machine: &'a Machine,
    wiring: &'a Wiring,
    options: &Options,
    beside: Beside<'a>,
) -> Result<Timeline, Diagnostic> {
    match options.detail {
        0 => drive(Sim::new(program, machine, wiring, options, beside, recorder::Off), options),
        limit => {
            let recorder = State::new(program, machine, wiring, limit);
            drive(Sim::new(program, machine, wiring, options, beside, recorder), options)
        }
    }
}

fn drive(sim: Sim<'_, impl Recorder>, options: &Options) -> Result<Timeline, Diagnostic> {
    let (program, wiring) = (sim.program, sim.wiring);
    let roles = (0..program.agents.len() as u32)
        .map(|a| Role::Agent(AgentId(a)))
        .chain((0..wiring.backgrounds.len() as u32).map(Role::Background));
    let mut tasks = Tasks::new(roles.map(|role| process(&sim, role)));
    let limits = Limits { max_events: options.max_events, ..Limits::default() };
    let links = wiring.links.len() as u32;
    let alarms = links + wiring.posters.len() as u32;
    sim.begin();
    let outcome = sim.engine.run(&mut tasks, &limits, |signal| match signal {
        link if link < links => sim.network.resume(&sim, link),
        poster if poster < alarms => sim.land(poster - links),
        alarm => sim.alarm(alarm - alarms),
    });
    match outcome {
        Ok(()) | Err(Stop::Deadlock(_)) => {
            drop(tasks);
            if sim.recorder.overflowed() {
                let what =
                    format!("{}: the reasons of its times are more than {} pieces", program.name, options.detail);
                let flit = sim.costs.network == ahbm_machine::NetworkModel::Flit;
                let less = if flit { "use the cut_through model instead of flit, or " } else { "" };
                return Err(Diagnostic::new("AHBM-B121", what)
                    .hint(format!("{less}explain a run of fewer ranks, messages or bytes")));
            }
            let stuck = outcome.is_err().then(|| Box::new(diagnose::deadlock(&sim)));
            Ok(Timeline { stuck, ..sim.finish() })
        }
        Err(Stop::EventLimit | Stop::TimeLimit) => Err(Diagnostic::new(
            "AHBM-B120",
            format!("{}: no end after {} events ({} ps simulated)", program.name, options.max_events, sim.engine.now()),
        )
        .hint("raise `event_budget` in ccl.yaml (max_events of `Program.simulate`) if the program is meant to be this long")),
    }
}

#[derive(Clone, Copy)]
enum Role {
    Agent(AgentId),
    Background(u32),
}

/// One concrete future type for both roles, so that the executor needs no dynamic dispatch. Rare operations are
/// boxed, and the loop stays in this function: every agent would pay for a larger state.
async fn process(sim: &Sim<'_, impl Recorder>, role: Role) {
    let agent = match role {
        Role::Agent(agent) => agent,
        Role::Background(index) => return Box::pin(background::run(sim, index)).await,
    };
    if let Some(gate) = sim.program.gate(agent) {
        Box::pin(agent::open(sim, agent, gate.start)).await;
    }
    loop {
        let pause = sim.agents[agent.0 as usize].borrow_mut().advance(sim, agent);
        if let Some(ties) = sim.ties {
            ties.waits(agent.0, if let Pause::Until(time) = pause { Some(time) } else { None });
        }
        match pause {
            Pause::Park => sim.engine.park().await,
            Pause::Until(time) => sim.engine.sleep_until(time).await,
            Pause::Finished => break,
        }
    }
    if let Some(gate) = sim.program.gate(agent) {
        Box::pin(agent::close(sim, agent, gate.end)).await;
    }
}

#[derive(Default)]
struct Counter {
    value: Cell<u64>,
    waiters: RefCell<Vec<(AgentId, u32)>>,
}

#[derive(Default)]
struct BarrierState {
    arrived: Cell<u32>,
    latest: Cell<Time>,
    waiters: RefCell<Vec<AgentId>>,
}

/// The state of a run.
struct Sim<'a, R> {
    program: &'a Program,
    machine: &'a Machine,
    costs: &'a Costs,
    wiring: &'a Wiring,
    seats: Vec<agent::Seat<'a>>,
    record: bool,
    free: Option<Free<'a>>,
    recorder: R,
    engine: Engine,
    fifos: Fifos,
    network: network::Network<'a>,
    meetings: RefCell<meeting::Meetings>,
    /// Per channel: when the slot memory has finished its last write.
    slot_write: Vec<Resource>,
    /// As in [`Wiring::dma`].
    dma: Vec<Resource>,
    /// Per PE in use: its math engine, which several agents may share.
    math: Vec<Resource>,
    agents: Vec<RefCell<agent::Agent>>,
    /// Per agent: where a transfer or a counter finds it waiting.
    parked: Vec<Waiter>,
    /// Per agent: completion time of the transfer it waits for.
    done: Vec<Cell<Time>>,
    counters: Vec<Counter>,
    barriers: Vec<BarrierState>,
    driver: Option<driven::Seat<'a>>,
    ties: Option<&'a Ties>,
    whole: Option<&'a [u32]>,
    backgrounds: Vec<background::State>,
    /// Per agent that posts; its signals come behind those of the links.
    posted: Vec<RefCell<posted::Posted>>,
    messages: Cell<u64>,
    bytes: Cell<u64>,
}

impl<'a, R: Recorder> Sim<'a, R> {
    /// The costs of an agent's call.
    fn costs_of(&self, agent: AgentId) -> &'a Costs {
        self.wiring.call(self.program.agents[agent.0 as usize].costs).map_or(self.costs, Machine::costs)
    }

    fn new(
        program: &'a Program,
        machine: &'a Machine,
        wiring: &'a Wiring,
        options: &Options,
        beside: Beside<'a>,
        recorder: R,
    ) -> Self {
        let mut fifos = Fifos::with_capacity(program.channels.len());
        for channel in &program.channels {
            fifos.add(channel.slots);
        }
        let count = program.agents.len();
        Self {
            program,
            machine,
            costs: machine.costs(),
            wiring,
            seats: agent::Seat::of(program, wiring),
            record: options.record,
            free: beside.free,
            recorder,
            engine: if beside.ties.is_some() { Engine::remembering() } else { Engine::new() },
            fifos,
            network: network::Network::new(wiring, machine.costs()),
            meetings: RefCell::default(),
            slot_write: default_vec(program.channels.len()),
            dma: default_vec(wiring.dma.len()),
            math: default_vec(wiring.engines.len()),
            agents: agents(program, machine, options.record),
            parked: default_vec(count),
            done: default_vec(count),
            counters: default_vec(program.counters as usize),
            barriers: default_vec(program.barriers.len()),
            driver: beside.driver,
            ties: beside.ties,
            whole: beside.whole,
            backgrounds: default_vec(wiring.backgrounds.len()),
            posted: default_vec(wiring.posters.len()),
            messages: Cell::new(0),
            bytes: Cell::new(0),
        }
    }

    /// A message of `bytes` on the wire has reached the receiver's slot memory at `tail`, the end of `piece`; it
    /// becomes visible once written.
    fn deliver(&self, channel: ChannelId, bytes: u64, tail: Time, piece: PieceId) {
        let index = channel.0 as usize;
        let write = self.wiring.tiers[self.wiring.channels[index].tier as usize].access_ps(bytes);
        let visible = self.slot_write[index].reserve(tail, write) + write;
        self.recorder.deliver(channel, piece, write);
        self.publish(channel, visible);
    }

    /// The transfer an agent waits for has completed.
    fn complete(&self, agent: AgentId, at: Time, piece: PieceId) {
        self.recorder.complete(agent, piece);
        self.done[agent.0 as usize].set(at);
        self.parked[agent.0 as usize].notify(&self.engine);
    }

    fn finish(self) -> Timeline {
        let mut timeline = Timeline {
            messages: self.messages.get(),
            bytes: self.bytes.get(),
            events: self.engine.events(),
            hash: 0xcbf2_9ce4_8422_2325,
            ..Timeline::default()
        };
        timeline.detail = self.recorder.finish(self.wiring).map(Box::new);
        if self.record && !self.posted.is_empty() {
            timeline.arrivals = vec![Vec::new(); self.agents.len()];
            for (agent, posted) in self.wiring.posters.iter().zip(self.posted) {
                timeline.arrivals[agent.0 as usize] = posted.into_inner().times;
            }
        }
        if let Some(whole) = self.whole {
            let agents: Vec<agent::Agent> = self.agents.into_iter().map(RefCell::into_inner).collect();
            for &stand in whole {
                let agent = &agents[stand as usize];
                timeline.ends.push(agent.clock);
                timeline.latency = timeline.latency.max(agent.clock);
                timeline.hash = agent::mix(timeline.hash, agent.hash, agent.clock);
            }
            return timeline;
        }
        for agent in self.agents {
            let agent = agent.into_inner();
            let operations = self.program.body(AgentId(timeline.ends.len() as u32)).ops.len();
            timeline.ends.push(agent.clock);
            timeline.latency = timeline.latency.max(agent.clock);
            timeline.hash = agent::mix(timeline.hash, agent.hash, agent.clock);
            let mut extra = agent.extra.map(|e| *e).unwrap_or_default();
            if self.record {
                // After a deadlock: the agent is in its next operation and has not begun those behind it.
                if extra.spans.len() < operations {
                    extra.spans.push(Span { start: agent.clock, end: NEVER });
                    extra.spans.resize(operations, Span { start: NEVER, end: NEVER });
                }
                timeline.spans.push(extra.spans);
            }
            if !self.wiring.inbound.is_empty() {
                timeline.choices.push(extra.choices);
            }
        }
        timeline
    }
}

fn agents(program: &Program, machine: &Machine, record: bool) -> Vec<RefCell<agent::Agent>> {
    let operations = |a: &ahbm_program::Agent| program.bodies[a.body as usize].ops.len();
    let waiting = |(index, a): (usize, &ahbm_program::Agent)| {
        let mut agent = if record { agent::Agent::recording(operations(a)) } else { agent::Agent::default() };
        agent.clock = start(program, machine, index);
        RefCell::new(agent)
    };
    program.agents.iter().enumerate().map(waiting).collect()
}

/// When an agent starts: after the start of its collective, which every call takes whatever else is in flight, and a random
/// delay; of a job, after its gate has opened. The agents a job adds to its launches run on no PE and are never late.
fn start(program: &Program, machine: &Machine, agent: usize) -> Time {
    let costs = machine.costs();
    let late = costs.jitter.skew(program.agents[agent].place);
    match program.duties.get(agent) {
        Some(Duty::Host(_) | Duty::Starter) => 0,
        None | Some(Duty::Launched(_)) => costs.launch_ps + late,
    }
}

fn default_vec<T: Default>(len: usize) -> Vec<T> {
    std::iter::repeat_with(T::default).take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Running ahead over private links is an optimisation, not a model: without it, every hop of every
        /// message an event, the timeline is the same to the picosecond.
        #[test]
        fn running_ahead_changes_nothing(
            sips in 2u32..9, rounds in 1u32..20, bytes in 1u32..5000, slots in 1u32..5, flit in any::<bool>(),
        ) {
            let model = if flit { "flit" } else { "cut_through" };
            let machine = support::npu_network("ring_1d", sips, 500.0, 50.0, model);
            let program = support::ring(&machine, rounds, bytes, slots);
            let ahead = Wiring::new(&program, &machine, None, u64::MAX).unwrap();
            prop_assert!(ahead.hops.iter().all(|&h| ahead.kind(h).exclusive));
            let mut strict = Wiring::new(&program, &machine, None, u64::MAX).unwrap();
            strict.kinds.iter_mut().for_each(|h| h.exclusive = false);
            let timeline = |wiring| Timeline { events: 0, ..run(&program, &machine, wiring, &Options::default(), Beside::default()).unwrap() };
            prop_assert_eq!(timeline(&ahead), timeline(&strict));
        }
    }

    /// The same on machines where most streams share links: random messages between cubes and packages,
    /// received from anyone. Sizes and delays are few, so that heads often meet at one picosecond.
    #[test]
    fn running_ahead_changes_nothing_under_contention() {
        use ahbm_machine::{Coord, Direction, Machine};
        use ahbm_program::{BodyBuilder, Comm, Control, Dtype, Locus, Math, Origin, ProgramBuilder, Scalar, Tile};
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move |below: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as u32 % below
        };
        let (mut shared, mut completed) = (0, 0);
        for case in 0..60 {
            let text = "system: {sips: {count: 4, topology: torus_2d}}\nsip: {cube_mesh: {w: 2, h: 2}}";
            let model = if case % 2 == 0 { "cut_through" } else { "flit" };
            let overrides = [("system.network_model".to_string(), model.to_string())];
            let machine = Machine::from_yaml(text, "mesh", &overrides).unwrap();
            let places: Vec<Coord> = (0..16).map(|i| Coord { sip: i / 4, cube: i % 4, pe: 0 }).collect();
            let sends: Vec<Vec<(u32, u32)>> = (0..16u32)
                .map(|me| (0..random(5)).map(|_| ((me + 1 + random(15)) % 16, 13 * (2 * random(3) + 1))).collect())
                .collect();
            let mut builder = ProgramBuilder::new("storm");
            let group = builder.group(machine.sfr().clone());
            let origin = builder.origins.intern(Origin { file: "storm".into(), locus: Locus::Whole });
            for (me, &coord) in places.iter().enumerate() {
                let mut body = BodyBuilder::new();
                for &(to, bytes) in &sends[me] {
                    let tile = body.tile(Tile::new(Dtype::U8, &[bytes.into()]));
                    let (src, scalar) = (body.value(), body.scalar(Scalar::Int(1)));
                    let to = places[to as usize];
                    let dir = body.direction(Direction::Peer { sip: Some(to.sip), cube: Some(to.cube), pe: None });
                    body.push(Control::Delay { ps: u64::from(random(3)) * 100_000 }, 0, origin);
                    body.push(Math::Fill { dst: src, scalar, tile }, 1, origin);
                    body.push(Comm::Send { dir, src, tile }, 1, origin);
                }
                for _ in sends.iter().flatten().filter(|s| s.0 == me as u32) {
                    let tile = body.tile(Tile::new(Dtype::U8, &[13]));
                    let dst = body.value();
                    body.push(Comm::RecvAny { dst, tile }, 1, origin);
                }
                let body = builder.body(body.finish());
                builder.agent(group, coord, machine.pe(coord).unwrap(), body, &[]).unwrap();
            }
            let program = builder.finish(support::settings(2)).unwrap();
            let ahead = Wiring::new(&program, &machine, None, u64::MAX).unwrap();
            shared += ahead.hops.iter().filter(|&&h| !ahead.kind(h).exclusive).count();
            let mut strict = Wiring::new(&program, &machine, None, u64::MAX).unwrap();
            strict.kinds.iter_mut().for_each(|h| h.exclusive = false);
            let timeline = |wiring| {
                run(&program, &machine, wiring, &Options::default(), Beside::default())
                    .map(|t| Timeline { events: 0, ..t })
            };
            let expected = timeline(&strict);
            completed += usize::from(expected.is_ok());
            assert_eq!(timeline(&ahead), expected, "case {case}");
        }
        assert!(shared > 100 && completed > 50, "the programs must contend and end: {shared}, {completed}");
    }
}
