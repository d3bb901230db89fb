//! Reasons of times: every picosecond is accounted for, whatever the program, the machine and the model.

use crate::support::ring;

use ahbm_emulator::{Category, Detail, Kind, Options, PieceId, Timeline, simulate, simulate_free};
use ahbm_machine::{Coord, Direction, Machine, Node};
use ahbm_program::{
    AgentId, BinaryFn, BodyBuilder, Comm, Control, Dtype, Locus, Math, Mem, Move, OpKind, Origin, Program,
    ProgramBuilder, Scalar, Tile, ValueId,
};
use proptest::prelude::*;

const DETAIL: Options =
    Options { record: true, detail: 1 << 24, max_events: 10_000_000, max_hops: 1 << 20, fold: false };

/// Something that happens to two agents in a global order, so that some order of the whole program exists.
#[derive(Debug, Clone, Copy)]
enum Event {
    Message { bytes: u32, how: u8 },
    Transfer { bytes: u32, how: u8 },
    Math { bytes: u32 },
    Delay { ps: u64 },
    Signal { posted: bool },
    Fence,
    Permit { posted: bool },
    Barrier,
}

fn event() -> impl Strategy<Value = (Event, usize, usize)> {
    let bytes = || prop_oneof![1u32..600, 1u32..20_000];
    let what = prop_oneof![
        5 => (bytes(), 0u8..4).prop_map(|(bytes, how)| Event::Message { bytes, how }),
        3 => (bytes(), 0u8..8).prop_map(|(bytes, how)| Event::Transfer { bytes, how }),
        1 => bytes().prop_map(|bytes| Event::Math { bytes }),
        1 => (0u64..300_000).prop_map(|ps| Event::Delay { ps }),
        2 => any::<bool>().prop_map(|posted| Event::Signal { posted }),
        1 => Just(Event::Fence),
        1 => any::<bool>().prop_map(|posted| Event::Permit { posted }),
        1 => Just(Event::Barrier),
    ];
    (what, 0usize..6, 1usize..6)
}

/// The machine, and where its six agents are: two of them on one PE.
fn machine(model: &str, blocks: bool, jitter_ns: u32) -> (Machine, [Coord; 6]) {
    let text = "system: {sips: {count: 2, topology: switch, switch: {reduces: true, reduce_gbs: 100}}}\nsip: {cube_mesh: {w: 2, h: 2}}";
    let (blocks, jitter) = (blocks.to_string(), jitter_ns.to_string());
    let overrides = [
        ("system.network_model", model),
        ("ipcq.credit.blocks_receiver", &blocks),
        ("faults.jitter.latency_ns", &jitter),
        ("faults.jitter.skew_ns", &jitter),
    ];
    let overrides = overrides.map(|(k, v)| (k.to_string(), v.to_string()));
    let at = |sip, cube, pe| Coord { sip, cube, pe };
    (
        Machine::from_yaml(text, "mesh", &overrides).unwrap(),
        [at(0, 0, 0), at(0, 0, 0), at(0, 1, 0), at(0, 3, 1), at(1, 0, 0), at(1, 3, 7)],
    )
}

fn program(machine: &Machine, places: &[Coord; 6], events: &[(Event, usize, usize)], slots: u32) -> Program {
    let mut builder = ProgramBuilder::new("random");
    let group = builder.group(machine.sfr().clone());
    let (counter, permits) = (builder.counter(), builder.counter());
    let barrier = builder.barrier(6);
    let origin = builder.origins.intern(Origin { file: "random".into(), locus: Locus::Whole });
    let pes = places.map(|p| machine.pe(p).unwrap());
    let buffers: Vec<_> = pes.iter().map(|&pe| builder.buffer(Node::Hbm(pe), 1 << 20)).collect();
    let mut bodies: Vec<BodyBuilder> = (0..6).map(|_| BodyBuilder::new()).collect();
    let values: Vec<ValueId> = bodies.iter_mut().map(|b| b.value()).collect();
    // Agents 0 and 1 share a place, which a direction cannot tell apart: messages go to and from agents 1 to 5.
    let mut posted: Vec<Vec<ValueId>> = vec![Vec::new(); 6];
    let mut signals = 0;
    for &(event, a, other) in events {
        let b = (a + other) % 6;
        let scalar = |body: &mut BodyBuilder| body.scalar(Scalar::Int(1));
        match event {
            Event::Message { bytes, how } => {
                let (a, b) = (a.max(1), if b.max(1) == a.max(1) { a.max(1) % 5 + 1 } else { b.max(1) });
                let peer = |p: Coord| Direction::Peer { sip: Some(p.sip), cube: Some(p.cube), pe: Some(p.pe) };
                let (to, from) = (bodies[a].direction(peer(places[b])), bodies[b].direction(peer(places[a])));
                let tile = bodies[a].tile(Tile::new(Dtype::U8, &[bytes.into()]));
                let scalar = scalar(&mut bodies[a]);
                bodies[a].push(Math::Fill { dst: values[a], scalar, tile }, 0, origin);
                bodies[a].push(Comm::AwaitSlot { dir: to }, 1, origin);
                bodies[a].push(Comm::Send { dir: to, src: values[a], tile }, 1, origin);
                let (tile, dst) = (bodies[b].tile(Tile::new(Dtype::U8, &[bytes.into()])), bodies[b].value());
                let kind = match how {
                    0 => OpKind::Comm(Comm::PostRecv { dir: from, dst, tile }),
                    _ => OpKind::Comm(Comm::Recv { dir: from, dst, tile }),
                };
                bodies[b].push(kind, 2, origin);
                if how == 0 {
                    posted[b].push(dst);
                }
                if how == 1
                    && let Some(value) = posted[b].pop()
                {
                    bodies[b].push(Comm::Await { value }, 1, origin);
                }
            }
            Event::Transfer { bytes, how } => {
                let body = &mut bodies[a];
                let tile = body.tile(Tile::new(Dtype::U8, &[bytes.into()]));
                let mine = body.mem(Mem { buffer: 0, offset: 0 });
                let theirs = body.mem(Mem { buffer: 1 + (b as u16) % 6, offset: 4096 });
                if how == 7 {
                    let scalar = scalar(body);
                    body.push(Math::Fill { dst: values[a], scalar, tile }, 0, origin);
                }
                let group = body.group(&[mine, theirs]);
                let kind = match how {
                    6 => OpKind::Move(Move::ReducingLoad { f: BinaryFn::Add, dst: values[a], group, tile }),
                    7 => OpKind::Move(Move::Multicast { src: values[a], group, tile }),
                    0 => OpKind::Move(Move::Load { dst: values[a], mem: mine, tile }),
                    1 => OpKind::Move(Move::Load { dst: values[a], mem: theirs, tile }),
                    2 | 3 => OpKind::Move(Move::Copy { src: mine, dst: theirs, tile, posted: how == 3 }),
                    _ => OpKind::Move(Move::Copy { src: theirs, dst: mine, tile, posted: how == 5 }),
                };
                body.push(kind, 1, origin);
            }
            Event::Math { bytes } => {
                let tile = bodies[a].tile(Tile::new(Dtype::U8, &[bytes.into()]));
                let (scalar, dst) = (scalar(&mut bodies[a]), values[a]);
                bodies[a].push(Math::Fill { dst, scalar, tile }, 0, origin);
                bodies[a].push(Math::Binary { f: BinaryFn::Add, dst, a: dst, b: dst, tile }, 1, origin);
            }
            Event::Delay { ps } => bodies[a].push(Control::Delay { ps }, 0, origin),
            Event::Fence => bodies[a].push(Control::Fence, 1, origin),
            Event::Signal { posted } => {
                signals += 1;
                bodies[a].push(Control::Signal { counter, add: 1, posted }, 1, origin);
                bodies[b].push(Control::WaitCounter { counter, at_least: signals }, 1, origin);
            }
            Event::Permit { posted } => {
                bodies[a].push(Control::Signal { counter: permits, add: 1, posted }, 1, origin);
                bodies[b].push(Control::Acquire { counter: permits, amount: 1 }, 1, origin);
            }
            Event::Barrier => bodies.iter_mut().for_each(|b| b.push(Control::Barrier { id: barrier }, 1, origin)),
        }
    }
    for (agent, mut body) in bodies.into_iter().enumerate() {
        for value in posted[agent].drain(..) {
            body.push(Comm::Await { value }, 1, origin);
        }
        let body = builder.body(body.finish());
        let mut memories = vec![buffers[agent]];
        memories.extend(&buffers);
        // Agent 0 takes no part in messages; its coordinate as seen by others is another PE's.
        let coord = if agent == 0 { Coord { sip: 1, cube: 1, pe: 1 } } else { places[agent] };
        builder.agent(group, coord, pes[agent], body, &memories).unwrap();
    }
    builder.finish(ring::settings(slots)).unwrap_or_else(|e| panic!("{e:?}"))
}

/// Every law at once.
fn accounted(program: &Program, machine: &Machine, timeline: &Timeline) {
    let plain = simulate(program, machine, &Options { detail: 0, ..DETAIL }).unwrap();
    assert_eq!(Timeline { detail: None, ..timeline.clone() }, plain, "recording changes nothing");
    let detail: &Detail = timeline.detail.as_ref().unwrap();
    for (index, piece) in detail.pieces.iter().enumerate().skip(1) {
        assert!(piece.own.0 < index as u32 && piece.other.0 < index as u32, "causes come first");
        assert!(detail.start(piece) <= piece.end);
    }
    // Along `own`: each operation from its end to the end of the one before it.
    for (agent, &last) in detail.last.iter().enumerate() {
        let mut id = last;
        assert_eq!(detail.piece(id).end, timeline.ends[agent]);
        for (op, span) in timeline.spans[agent].iter().enumerate().rev() {
            assert_eq!(detail.piece(id).end, span.end, "agent {agent}, operation {op}");
            let mut issue = id;
            while detail.piece(issue).kind != Kind::Dispatch {
                assert_eq!((detail.piece(issue).agent.0 as usize, detail.piece(issue).op as usize), (agent, op));
                issue = detail.piece(issue).own;
            }
            assert_eq!(detail.piece(issue).end, span.start, "agent {agent}, operation {op}");
            id = detail.piece(issue).own;
        }
        // What is left is a late start.
        assert_eq!(detail.piece(id).own, PieceId::LAUNCH);
    }
    for (agent, time) in (0..).map(AgentId).zip(detail.agent_time()) {
        let mut at = 0;
        for interval in detail.intervals(agent) {
            assert!(interval.start == at && interval.end > at, "{interval:?} of agent {agent:?}");
            at = interval.end;
        }
        assert_eq!(at, timeline.latency);
        assert_eq!(time.iter().sum::<u64>(), at);
        assert_eq!(time[Category::Ended as usize], at - timeline.ends[agent.0 as usize]);
        assert_eq!(time[Category::LinkContention as usize], 0, "agents wait for links");
    }
    let links = detail.links.len();
    let hands_over = |&(id, link): &(PieceId, u32)| {
        matches!(detail.piece(id).kind, Kind::Handover(_)) && detail.link(id) == Some(link) && (link as usize) < links
    };
    assert!(detail.handed.iter().all(hands_over));
    // The critical path covers the latency and nothing else.
    let path = detail.critical_path();
    let mut at = 0;
    for segment in &path {
        assert_eq!(segment.start, at);
        assert!(segment.end > at);
        assert!(segment.category < Category::Message, "no wait: {segment:?}");
        at = segment.end;
    }
    assert_eq!(at, timeline.latency);
    // What nobody waits for may be on its way after the last agent has ended.
    let end = timeline.arrivals.iter().flatten().copied().max().unwrap_or(0).max(timeline.latency);
    assert!(detail.link_use().iter().all(|l| l.busy <= end));
    // What is on its way after the end is in no frame.
    for frames in [1, 7, 64] {
        let load = detail.link_load(frames);
        for (index, link) in detail.links.iter().enumerate() {
            let used = detail.link_use().iter().find(|l| l.link == *link).map_or(0, |l| l.busy);
            let sum = load[index].iter().sum::<u64>();
            assert!(sum <= used && (sum == used || end > timeline.latency), "{sum} of {used} in {frames}");
            let most = timeline.latency.div_ceil(frames.into());
            assert!(load[index].iter().all(|&busy| busy <= most), "{:?} in frames of {most}", load[index]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_picosecond_is_accounted_for(
        events in prop::collection::vec(event(), 1..60), slots in 1u32..4, model in 0usize..3, blocks in any::<bool>(),
        jitter in 0u32..2,
    ) {
        let (machine, places) = machine(["cut_through", "flit", "analytic"][model], blocks, 100 * jitter);
        let program = program(&machine, &places, &events, slots);
        match simulate(&program, &machine, &DETAIL) {
            Ok(timeline) => {
                accounted(&program, &machine, &timeline);
                let free = |free| program.bodies.iter().map(|body| vec![free; body.ops.len()]).collect::<Vec<_>>();
                let costly = simulate_free(&program, &machine, &DETAIL, &free(false)).unwrap();
                prop_assert_eq!(costly, Timeline { detail: None, ..timeline });
                if jitter == 0 {
                    // Another agent may be first at a permit, which can end in a deadlock.
                    let took = simulate_free(&program, &machine, &DETAIL, &free(true)).map_or_else(
                        |error| if error.code == "AHBM-D101" { 0 } else { 1 },
                        |timeline| timeline.latency,
                    );
                    prop_assert_eq!(took, 0);
                }
            }
            Err(error) => prop_assert_eq!(error.code, "AHBM-D101"),
        }
    }
}

/// A chain of hops behind a long transfer: the queued message's path goes through the holder.
#[test]
fn a_wait_for_a_link_is_contention_by_its_holder() {
    let machine = ring::npu_network("ring_1d", 8, 500.0, 50.0, "cut_through");
    let mut builder = ProgramBuilder::new("two");
    let group = builder.group(machine.sfr().clone());
    let origin = builder.origins.intern(Origin { file: "two".into(), locus: Locus::Whole });
    // Rank 1 sends first; rank 0's message reaches the link 1 -> 2 half a microsecond later.
    for rank in 0..3u32 {
        let mut body = BodyBuilder::new();
        let tile = body.tile(Tile::new(Dtype::U8, &[100_000]));
        let value = body.value();
        if rank < 2 {
            let scalar = body.scalar(Scalar::Int(0));
            body.push(Math::Fill { dst: value, scalar, tile }, 0, origin);
            let dir = body.direction(Direction::parse("sip2").unwrap());
            body.push(Comm::Send { dir, src: value, tile }, 0, origin);
        } else {
            let dir = body.direction(Direction::parse("sip0").unwrap());
            body.push(Comm::Recv { dir, dst: value, tile }, 0, origin);
            let dir = body.direction(Direction::parse("sip1").unwrap());
            body.push(Comm::Recv { dir, dst: value, tile }, 0, origin);
        }
        let body = builder.body(body.finish());
        let coord = Coord { sip: rank, cube: 0, pe: 0 };
        builder.agent(group, coord, machine.pe(coord).unwrap(), body, &[]).unwrap();
    }
    let program = builder.finish(ring::settings(2)).unwrap();
    let timeline = simulate(&program, &machine, &DETAIL).unwrap();
    accounted(&program, &machine, &timeline);
    let detail = timeline.detail.unwrap();
    let path: Vec<_> = detail.critical_path().iter().map(|s| (s.agent.0, s.category, s.end - s.start)).collect();
    // One flit of 256 B and 500 ns after the start, the second message wants the link.
    let (message, wanted) = (100_000 * 20, 256 * 20 + 500_000);
    assert_eq!(
        path,
        [
            (1, Category::LinkSerialisation, wanted),
            (1, Category::LinkContention, message - wanted),
            (0, Category::LinkSerialisation, message),
            (0, Category::WireLatency, 500_000),
        ]
    );
    let links = detail.link_use();
    assert_eq!(machine.link_name(links[0].link), "sip1->sip2");
    assert_eq!(
        (links[0].busy, links[0].crossed, links[0].waits, links[0].waited),
        (2 * message, 2, 1, message - wanted)
    );
}

/// Two agents; `first` and `second` are their operations.
fn pair(
    slots: u32,
    first: impl Fn(&mut BodyBuilder) -> Vec<OpKind>,
    second: impl Fn(&mut BodyBuilder) -> Vec<OpKind>,
) -> (Program, Machine) {
    let machine = ring::npu_network_of("ring_1d", 2, 50.0, 50.0, "cut_through", "1");
    let mut builder = ProgramBuilder::new("told");
    let group = builder.group(machine.sfr().clone());
    assert_eq!((builder.counter(), builder.barrier(2)), (0, 0));
    let origin = builder.origins.intern(Origin { file: "told".into(), locus: Locus::Whole });
    let places = [0, 1].map(|sip| machine.pe(Coord { sip, cube: 0, pe: 0 }).unwrap());
    let memories = places.map(|pe| builder.buffer(Node::Hbm(pe), 1 << 20));
    for (sip, &pe) in (0..).zip(&places) {
        let mut body = BodyBuilder::new();
        let operations = if sip == 0 { first(&mut body) } else { second(&mut body) };
        operations.into_iter().for_each(|kind| body.push(kind, 0, origin));
        let body = builder.body(body.finish());
        builder.agent(group, Coord { sip, cube: 0, pe: 0 }, pe, body, &memories).unwrap();
    }
    (builder.finish(ring::settings(slots)).unwrap(), machine)
}

/// The intervals of both agents, in ns.
fn told(
    slots: u32,
    first: impl Fn(&mut BodyBuilder) -> Vec<OpKind>,
    second: impl Fn(&mut BodyBuilder) -> Vec<OpKind>,
) -> [Vec<(&'static str, u64)>; 2] {
    let (program, machine) = pair(slots, first, second);
    let timeline = simulate(&program, &machine, &DETAIL).unwrap();
    accounted(&program, &machine, &timeline);
    let detail = timeline.detail.unwrap();
    [0, 1].map(|agent| {
        let intervals = detail.intervals(AgentId(agent)).into_iter();
        intervals.map(|i| (i.category.name(), (i.end - i.start) / 1000)).collect()
    })
}

/// Two messages of 20 ns on the link and 50 ns of latency, received after 30 ns and 1 ns of work.
#[test]
fn operations_at_no_cost() {
    let (program, machine) = pair(
        4,
        |body| messages(body, "sip1", 2),
        |body| {
            [
                vec![OpKind::Control(Control::Delay { ps: 30_000 })],
                receives(body, "sip0", 2),
                vec![OpKind::Control(Control::Delay { ps: 1000 })],
            ]
            .concat()
        },
    );
    let ns = |free: &[(usize, usize)]| {
        let mut ops = [vec![false; 3], vec![false; 4]];
        free.iter().for_each(|&(body, op)| ops[body][op] = true);
        simulate_free(&program, &machine, &DETAIL, &ops).unwrap().latency / 1000
    };
    assert_eq!(ns(&[]), 91);
    assert_eq!(ns(&[(1, 3)]), 90, "the work behind");
    assert_eq!(ns(&[(1, 0)]), 91, "the work beside");
    assert_eq!(ns(&[(0, 1)]), 71, "the second message has the link at once");
    assert_eq!(ns(&[(0, 2)]), 71, "the second message comes behind the first");
    assert_eq!(ns(&[(0, 1), (0, 2)]), 31);
    assert_eq!(ns(&[(0, 1), (0, 2), (1, 0)]), 1);
}

const DELAY: OpKind = OpKind::Control(Control::Delay { ps: 1_000_000 });

fn messages(body: &mut BodyBuilder, to: &str, count: usize) -> Vec<OpKind> {
    let (tile, src) = (body.tile(Tile::new(Dtype::U8, &[1000])), body.value());
    let (scalar, dir) = (body.scalar(Scalar::Int(0)), body.direction(Direction::parse(to).unwrap()));
    let mut found = vec![OpKind::Math(Math::Fill { dst: src, scalar, tile })];
    found.extend([OpKind::Comm(Comm::Send { dir, src, tile })].repeat(count));
    found
}

fn receives(body: &mut BodyBuilder, from: &str, count: usize) -> Vec<OpKind> {
    let (tile, dst) = (body.tile(Tile::new(Dtype::U8, &[1000])), body.value());
    let dir = body.direction(Direction::parse(from).unwrap());
    [OpKind::Comm(Comm::Recv { dir, dst, tile })].repeat(count)
}

/// Every wait is told by what is missing: 1000 B take 20 ns on the link and 50 ns of latency.
#[test]
fn waits_are_told_apart() {
    let message = told(4, |b| messages(b, "sip1", 1), |b| receives(b, "sip0", 1));
    assert_eq!(message, [vec![("idle after its end", 70)], vec![("waiting for message", 70)]]);

    // One slot: the second send waits until the receiver has emptied it and the credit has come back.
    let slot = told(1, |b| messages(b, "sip1", 2), |b| [vec![DELAY], receives(b, "sip0", 2)].concat());
    let sender = vec![("waiting for slot", 1050), ("idle after its end", 70)];
    assert_eq!(slot, [sender, vec![("delay", 1000), ("waiting for message", 120)]]);

    let counter = told(
        1,
        |_| vec![DELAY, OpKind::Control(Control::Signal { counter: 0, add: 1, posted: false })],
        |_| vec![OpKind::Control(Control::WaitCounter { counter: 0, at_least: 1 }), DELAY],
    );
    let waiter = vec![("waiting for counter", 1000), ("delay", 1000)];
    assert_eq!(counter, [vec![("delay", 1000), ("idle after its end", 1000)], waiter]);

    let barrier = told(
        1,
        |_| vec![DELAY, OpKind::Control(Control::Barrier { id: 0 })],
        |_| vec![OpKind::Control(Control::Barrier { id: 0 })],
    );
    assert_eq!(barrier, [vec![("delay", 1000)], vec![("waiting for barrier", 1000)]]);

    // A message has the link for 20 ns; then comes a put of the same size.
    let put = |posted| {
        move |b: &mut BodyBuilder| {
            let mut found = messages(b, "sip1", 1);
            let tile = b.tile(Tile::new(Dtype::U8, &[1000]));
            let (src, dst) = (b.mem(Mem { buffer: 0, offset: 0 }), b.mem(Mem { buffer: 1, offset: 0 }));
            found.push(OpKind::Move(Move::Copy { src, dst, tile, posted }));
            found.extend(posted.then_some(OpKind::Control(Control::Fence)));
            found
        }
    };
    let [sender, _] = told(1, put(false), |b| receives(b, "sip0", 1));
    assert_eq!(sender[0], ("waiting for link", 20));
    let [sender, _] = told(1, put(true), |b| receives(b, "sip0", 1));
    assert_eq!(sender, [("DMA", 20), ("waiting for transfer", 70)]);

    // A store goes through the DMA channel that hands the message over.
    let store = |b: &mut BodyBuilder| {
        let mut found = messages(b, "sip1", 1);
        let Some(OpKind::Comm(Comm::Send { src, .. })) = found.last().copied() else { return found };
        let (tile, mem) = (b.tile(Tile::new(Dtype::U8, &[1000])), b.mem(Mem { buffer: 0, offset: 0 }));
        found.push(OpKind::Move(Move::Store { src, mem, tile, posted: false }));
        found
    };
    let [sender, _] = told(1, store, |b| receives(b, "sip0", 1));
    assert_eq!(sender[0], ("waiting for engine", 20));
}

/// Two messages of 20 ns, one in each direction, in a run of 70 ns.
#[test]
fn loads_are_told_over_time() {
    let machine = ring::npu_network("ring_1d", 2, 50.0, 50.0, "cut_through");
    let program = ring::ring(&machine, 1, 1000, 1);
    let timeline = simulate(&program, &machine, &DETAIL).unwrap();
    let load = timeline.detail.unwrap().link_load(7);
    assert_eq!(timeline.latency, 70_000);
    assert_eq!(load, vec![vec![10_000, 10_000, 0, 0, 0, 0, 0]; 2]);
}

#[test]
fn a_budget_of_pieces_ends_a_run_with_a_typed_error() {
    for model in ["flit", "cut_through"] {
        let machine = ring::npu_network("ring_1d", 4, 500.0, 50.0, model);
        let program = ring::ring(&machine, 6, 5000, 2);
        let error = simulate(&program, &machine, &Options { detail: 100, ..DETAIL }).unwrap_err();
        assert_eq!(error.code, "AHBM-B121");
        // Nobody is told to use what is in use.
        assert_eq!(error.hint.unwrap().contains("cut_through"), model == "flit");
        accounted(&program, &machine, &simulate(&program, &machine, &DETAIL).unwrap());
    }
}
