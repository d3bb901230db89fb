//! The timing pass, the data pass and the check agree on who waits for whom: on random programs all three complete, or
//! all three stop at the same operations.
//!
//! The rules are those of [`ahbm_program::op`]. The test has been seen to fail, with these differences planted:
//! a `Send` of the check that needs no slot for the last message (`sent - taken > depth`), a `WaitCounter` of the data
//! pass that waits for one more (`<=`), an `Acquire` of the timing pass that takes nothing, an `Await` of the check that
//! never waits, and a `Barrier` of the data pass that lets its last agent alone go on.

use crate::schedule::{Ended, Fence, Order, Schedule, Wait, Watch};
use crate::support::{Step, Subject};
use ahbm_emulator::{Memory, Options, Timeline, replay, simulate};
use ahbm_findings::Diagnostic;
use ahbm_machine::{Coord, Direction, Machine, Node, Sfr};
use ahbm_program::{
    AgentId, BinaryFn, BodyBuilder, ChannelSettings, Comm, Control, Dtype, Locus, Math, Mem, Move, OpKind, Origin,
    Program, ProgramBuilder, Scalar, Tile,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Agents of the largest program; few enough for every report to list all that wait.
const AGENTS: u32 = 5;
/// Counters that agents wait on and never take from; behind them every agent has a semaphore of its own.
const COUNTERS: u32 = 2;
const BARRIERS: u32 = 2;
/// More slots than any program here has messages in a queue.
const UNBOUNDED: u32 = 1000;

/// Something that happens between agents, or to one of them.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A message eastward or westward; the receiver takes it at once, or posts a receive that it awaits later.
    Message {
        east: bool,
        posts: bool,
    },
    /// A wait-only counter grows, and another agent waits for what it may have reached.
    Signal {
        counter: u32,
        add: u32,
        posted: bool,
    },
    /// The next agent's semaphore is given to, and taken from.
    Give {
        amount: u32,
        taken: u32,
        posted: bool,
    },
    Barrier {
        id: u32,
    },
    AwaitSlot {
        east: bool,
    },
    Write,
    /// A multicast, or a load that reduces.
    Group {
        reads: bool,
    },
    Fence,
    Delay {
        ps: u64,
    },
}

fn events() -> impl Strategy<Value = Event> {
    use Event::{AwaitSlot, Barrier, Delay, Fence, Give, Group, Message, Signal, Write};
    prop_oneof![
        6 => any::<(bool, bool)>().prop_map(|(east, posts)| Message { east, posts }),
        2 => (0..COUNTERS, 1..4u32, any::<bool>()).prop_map(|(counter, add, posted)| Signal { counter, add, posted }),
        2 => (1..4u32, 1..4u32, any::<bool>()).prop_map(|(amount, taken, posted)| Give { amount, taken, posted }),
        1 => (0..BARRIERS).prop_map(|id| Barrier { id }),
        1 => any::<bool>().prop_map(|east| AwaitSlot { east }),
        1 => Just(Write),
        1 => any::<bool>().prop_map(|reads| Group { reads }),
        1 => Just(Fence),
        1 => (0..2_000_000u64).prop_map(|ps| Delay { ps }),
    ]
}

/// One agent's part of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Send(bool),
    AwaitSlot(bool),
    Receive(bool),
    /// A posted receive, by number.
    Post(bool, u32),
    Await(u32),
    Signal {
        counter: u32,
        add: u32,
        posted: bool,
    },
    WaitCounter {
        counter: u32,
        at_least: u32,
    },
    Acquire {
        counter: u32,
        amount: u32,
    },
    Barrier(u32),
    Write,
    Group(bool),
    Fence,
    Delay(u64),
}

/// Acts of every agent in an order in which they complete.
fn acts(n: u32, events: &[(u32, Event)]) -> Vec<Vec<Act>> {
    let mut acts = vec![Vec::new(); n as usize];
    let (mut posts, mut reached) = (0, [0; COUNTERS as usize]);
    for &(who, event) in events {
        let (me, next) = ((who % n) as usize, ((who + 1) % n) as usize);
        match event {
            Event::Message { east, posts: posted } => {
                let peer = if east { next } else { ((who + n - 1) % n) as usize };
                acts[me].push(Act::Send(east));
                // The receiver's west is where it comes from when it goes east.
                acts[peer].push(if posted { Act::Post(!east, posts) } else { Act::Receive(!east) });
                posts += u32::from(posted);
            }
            Event::Signal { counter, add, posted } => {
                acts[me].push(Act::Signal { counter, add, posted });
                reached[counter as usize] += add;
                acts[next].push(Act::WaitCounter { counter, at_least: reached[counter as usize] });
            }
            Event::Give { amount, taken, posted } => {
                let counter = COUNTERS + next as u32;
                acts[me].push(Act::Signal { counter, add: amount, posted });
                acts[next].push(Act::Acquire { counter, amount: taken.min(amount) });
            }
            Event::Barrier { id } => acts.iter_mut().for_each(|acts| acts.push(Act::Barrier(id))),
            Event::AwaitSlot { east } => acts[me].push(Act::AwaitSlot(east)),
            Event::Write => acts[me].push(Act::Write),
            Event::Group { reads } => acts[me].push(Act::Group(reads)),
            Event::Fence => acts[me].push(Act::Fence),
            Event::Delay { ps } => acts[me].push(Act::Delay(ps)),
        }
    }
    acts
}

/// Changes that may make a program stop: acts change places or are left out.
fn change(acts: &mut [Vec<Act>], changes: &[(u32, usize, usize)]) {
    for &(who, at, by) in changes {
        let list = &mut acts[who as usize % acts.len()];
        if list.is_empty() {
            continue;
        }
        let at = at % list.len();
        if by == 0 {
            list.remove(at);
        } else {
            let to = (at + by) % list.len();
            list.swap(at, to);
        }
    }
}

/// Every posted receive is awaited, some soon and some at the end, and slots only where messages go.
fn complete(list: &[Act], soon: bool) -> Vec<Act> {
    let sends = |east: bool| list.contains(&Act::Send(east));
    let mut done = Vec::new();
    let mut open = Vec::new();
    for &act in list {
        if matches!(act, Act::AwaitSlot(east) if !sends(east)) {
            continue;
        }
        done.push(act);
        if let Act::Post(_, number) = act {
            open.push(number);
        }
        // One later than its post at least.
        if soon && open.len() > 1 {
            done.push(Act::Await(open.remove(0)));
        }
    }
    done.extend(open.iter().map(|&number| Act::Await(number)));
    // A complete post may be awaited again.
    done.extend(open.first().map(|&number| Act::Await(number)));
    done
}

/// Writes the program; agents in `any` receive from any direction.
fn program(machine: &Machine, acts: &[Vec<Act>], any: &[bool], slots: u32) -> Program {
    let mut builder = ProgramBuilder::new("random");
    let group = builder.group(Sfr::ring(acts.len() as u32));
    let counters: Vec<u32> = (0..COUNTERS + acts.len() as u32).map(|_| builder.counter()).collect();
    let barriers: Vec<u32> = (0..BARRIERS).map(|_| builder.barrier(acts.len() as u32)).collect();
    for (agent, list) in acts.iter().enumerate() {
        let mut body = BodyBuilder::new();
        let tile = body.tile(Tile::new(Dtype::U8, &[16]));
        let (own, one, mem) = (body.value(), body.scalar(Scalar::Int(1)), body.mem(Mem { buffer: 0, offset: 0 }));
        let mems = [mem, body.mem(Mem { buffer: 1, offset: 0 })];
        let (group_of, sum) = (body.group(&mems), body.value());
        let mut posted = BTreeMap::new();
        let dir = |body: &mut BodyBuilder, east: bool| {
            let name = if east { "global_E" } else { "global_W" };
            body.direction(Direction::parse(name).expect("a direction"))
        };
        let fill = OpKind::Math(Math::Fill { dst: own, scalar: one, tile });
        let kinds: Vec<OpKind> = list
            .iter()
            .filter_map(|&act| {
                Some(match act {
                    Act::Send(east) => OpKind::Comm(Comm::Send { dir: dir(&mut body, east), src: own, tile }),
                    Act::AwaitSlot(east) => OpKind::Comm(Comm::AwaitSlot { dir: dir(&mut body, east) }),
                    Act::Receive(_) | Act::Post(..) if any[agent] => {
                        OpKind::Comm(Comm::RecvAny { dst: body.value(), tile })
                    }
                    Act::Receive(east) => {
                        OpKind::Comm(Comm::Recv { dir: dir(&mut body, east), dst: body.value(), tile })
                    }
                    Act::Post(east, number) => {
                        let dst = *posted.entry(number).or_insert_with(|| body.value());
                        OpKind::Comm(Comm::PostRecv { dir: dir(&mut body, east), dst, tile })
                    }
                    Act::Await(number) => OpKind::Comm(Comm::Await { value: *posted.get(&number)? }),
                    Act::Signal { counter, add, posted } => {
                        OpKind::Control(Control::Signal { counter: counters[counter as usize], add, posted })
                    }
                    Act::WaitCounter { counter, at_least } => {
                        OpKind::Control(Control::WaitCounter { counter: counters[counter as usize], at_least })
                    }
                    Act::Acquire { counter, amount } => {
                        OpKind::Control(Control::Acquire { counter: counters[counter as usize], amount })
                    }
                    Act::Barrier(id) => OpKind::Control(Control::Barrier { id: barriers[id as usize] }),
                    Act::Write => OpKind::Move(Move::Store { src: own, mem, tile, posted: true }),
                    Act::Group(true) => {
                        OpKind::Move(Move::ReducingLoad { f: BinaryFn::Add, dst: sum, group: group_of, tile })
                    }
                    Act::Group(false) => OpKind::Move(Move::Multicast { src: own, group: group_of, tile }),
                    Act::Fence => OpKind::Control(Control::Fence),
                    Act::Delay(ps) => OpKind::Control(Control::Delay { ps }),
                })
            })
            .collect();
        for (line, kind) in (0..).zip([fill].into_iter().chain(kinds)) {
            // Reports name operations by their origins.
            let origin = Origin { file: agent.to_string().into(), locus: Locus::Line(line) };
            let origin = builder.origins.intern(origin);
            body.push(kind, 1, origin);
        }
        let at = |sip: usize| Coord { sip: sip as u32, cube: 0, pe: 0 };
        let place = |sip| machine.pe(at(sip)).expect("a place");
        // Nobody else touches an agent's buffers, so the data pass needs no times.
        let far = [1, 2].map(|by| builder.buffer(Node::Hbm(place((agent + by) % acts.len())), 16));
        let body = builder.body(body.finish());
        builder.agent(group, at(agent), place(agent), body, &far).expect("one agent per place");
    }
    let settings = ChannelSettings { slots, slot_bytes: Some(64), tier: 0, credit_bytes: 16 };
    builder.finish(settings).expect("everybody has neighbours")
}

/// The operations at which agents stop, by agent; empty where all complete.
type Stops = BTreeMap<u32, u32>;

/// The operations at which agents stop, by a report.
fn reported(finding: &Diagnostic, code: &str) -> Stops {
    assert_eq!(finding.code, code, "{finding}");
    let stopped = finding.sites.iter().filter(|site| !site.label.contains("has finished;"));
    stopped
        .map(|site| {
            let (agent, op) = site.origin.split_once(':').expect("agent:operation");
            (agent.parse().expect("an agent"), op.parse().expect("an operation"))
        })
        .collect()
}

fn timed(program: &Program, machine: &Machine) -> (Stops, Option<Timeline>) {
    match simulate(program, machine, &Options::default()) {
        Ok(timeline) => (Stops::new(), Some(timeline)),
        Err(finding) => (reported(&finding, "AHBM-D101"), None),
    }
}

fn untimed(program: &Program, order: u32) -> Stops {
    struct Nobody;
    impl Watch for Nobody {
        fn done(&mut self, _: &Step) -> Result<(), Diagnostic> {
            Ok(())
        }
        fn released(&mut self, _: &[AgentId]) {}
    }
    let order = Order::of(order, program.agents.len(), 7);
    let mut schedule = Schedule::new(Subject::once(program), None, order, Fence::World);
    let ended = schedule.run(&mut Nobody).expect("nobody objects");
    let waits = (0..).zip(&schedule.waits).filter(|(_, wait)| **wait != Wait::Finished);
    let stops: Stops = waits.map(|(agent, _)| (agent, schedule.next[agent as usize])).collect();
    assert_eq!(ended == Ended::Complete, stops.is_empty());
    stops
}

fn data(program: &Program, timeline: &Timeline) -> Stops {
    match replay(program, timeline, &mut Memory::new(program)) {
        Ok(()) => Stops::new(),
        Err(finding) => reported(&finding, "AHBM-D190"),
    }
}

#[test]
fn three_interpreters_complete_or_stop_at_the_same_operations() {
    let machine = |n: u32| {
        let sips = format!("{{count: {n}, topology: switch, switch: {{reduces: true}}}}");
        let text = format!("system: {{sips: {sips}}}\nsip: {{cube_mesh: {{w: 1, h: 1}}}}");
        Machine::from_yaml(&text, "switch", &[]).expect("a machine")
    };
    let machines: Vec<Machine> = (2..=AGENTS).map(machine).collect();
    let sizes = (2..=AGENTS, prop::collection::vec(any::<bool>(), AGENTS as usize), any::<bool>());
    let story = prop::collection::vec((0..60u32, events()), 1..40);
    let changes = prop::collection::vec((0..60u32, any::<usize>(), 0..4usize), 0..5);
    let (complete_runs, stopped_runs) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(256) });
    let outcome = runner.run(&(sizes, story, changes), |((n, any, soon), story, changes)| {
        let machine = &machines[n as usize - 2];
        let mut acts = acts(n, &story);
        change(&mut acts, &changes);
        let acts: Vec<Vec<Act>> = acts.iter().map(|list| complete(list, soon)).collect();
        // Whose message a receive from any direction takes depends on time. How many there are does not, as long as
        // nobody waits for a slot: only there are stops the same in every order.
        for (slots, any) in [(1, None), (2, None), (UNBOUNDED, None), (UNBOUNDED, Some(any))] {
            let everywhere = any.unwrap_or_else(|| vec![false; n as usize]);
            let program = program(machine, &acts, &everywhere, slots);
            let (stops, timeline) = timed(&program, machine);
            for order in 0..4 {
                prop_assert_eq!(&untimed(&program, order), &stops, "{} slots, order {}", slots, order);
            }
            // The data pass has no slots, and follows the choices of a timing pass that ended.
            match timeline {
                Some(timeline) => prop_assert_eq!(&data(&program, &timeline), &stops),
                None if slots == UNBOUNDED && !everywhere.contains(&true) => {
                    prop_assert_eq!(&data(&program, &Timeline::default()), &stops);
                }
                None => {}
            }
            let runs = if stops.is_empty() { &complete_runs } else { &stopped_runs };
            runs.set(runs.get() + 1);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let (complete, stopped) = (complete_runs.get(), stopped_runs.get());
    assert!(complete > 100 && stopped > 100, "{complete} complete, {stopped} stop: one of them is hardly tested");
}
