//! The timing pass against closed forms, bounds and laws.

use crate::support::ring::{npu_network, ring, settings};
use ahbm_emulator::{Options, Timeline, simulate};
use ahbm_machine::{Coord, Direction, Machine, Node};
use ahbm_program::{
    AgentId, BodyBuilder, Comm, Control, Dtype, Math, Mem, Move, OpKind, Origin, Program, ProgramBuilder, Scalar, Tile,
    ValueId,
};
use proptest::prelude::*;

const MODELS: [&str; 3] = ["cut_through", "flit", "analytic"];

fn run(program: &Program, machine: &Machine) -> Timeline {
    simulate(program, machine, &Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// A step of a hand-written agent.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Send(&'static str, u32),
    Recv(&'static str, u32),
    RecvAny(u32),
    Post(&'static str, u32),
    Await(usize),
    Delay(u64),
    Signal(u32),
    Wait(u32, u32),
    Barrier,
    /// Posts so many bytes to the memory of a SIP.
    Put(u16, u32),
    PostSignal(u32),
    Fence,
}
use Step::*;

/// One agent per SIP (cube 0, PE 0), each with its own steps; line numbers count steps from 1.
pub(crate) fn program(machine: &Machine, agents: &[&[Step]], slots: u32) -> Program {
    let mut builder = ProgramBuilder::new("steps");
    let group = builder.group(machine.sfr().clone());
    builder.counter();
    builder.barrier(agents.len() as u32);
    let places = (0..agents.len() as u32).map(|sip| Coord { sip, cube: 0, pe: 0 });
    let homes = places.map(|coord| builder.buffer(Node::Hbm(machine.pe(coord).unwrap()), 1 << 20));
    let memories: Vec<_> = homes.collect();
    for (sip, steps) in agents.iter().enumerate() {
        let mut body = BodyBuilder::new();
        let mut posts: Vec<ValueId> = Vec::new();
        for (line, step) in steps.iter().enumerate() {
            let locus = ahbm_program::Locus::Line(line as u32 + 1);
            let origin = builder.origins.intern(Origin { file: format!("rank{sip}.py").into(), locus });
            let mut tile = |n| body.tile(Tile::new(Dtype::U8, &[n]));
            let kind = match *step {
                Send(dir, n) => {
                    let tile = tile(n.into());
                    let (src, scalar) = (body.value(), body.scalar(Scalar::Int(0)));
                    body.push(Math::Fill { dst: src, scalar, tile }, 0, origin);
                    OpKind::Comm(Comm::Send { dir: body.direction(Direction::parse(dir).unwrap()), src, tile })
                }
                Recv(dir, n) => {
                    let tile = tile(n.into());
                    OpKind::Comm(Comm::Recv {
                        dir: body.direction(Direction::parse(dir).unwrap()),
                        dst: body.value(),
                        tile,
                    })
                }
                RecvAny(n) => {
                    let tile = tile(n.into());
                    OpKind::Comm(Comm::RecvAny { dst: body.value(), tile })
                }
                Post(dir, n) => {
                    let tile = tile(n.into());
                    let dst = body.value();
                    posts.push(dst);
                    OpKind::Comm(Comm::PostRecv { dir: body.direction(Direction::parse(dir).unwrap()), dst, tile })
                }
                Await(k) => OpKind::Comm(Comm::Await { value: posts[k] }),
                Delay(ps) => OpKind::Control(Control::Delay { ps }),
                Signal(add) => OpKind::Control(Control::Signal { counter: 0, add, posted: false }),
                Wait(counter, at_least) => OpKind::Control(Control::WaitCounter { counter, at_least }),
                Barrier => OpKind::Control(Control::Barrier { id: 0 }),
                Put(to, n) => {
                    let tile = tile(n.into());
                    let mut at = |buffer| body.mem(Mem { buffer, offset: 0 });
                    OpKind::Move(Move::Copy { src: at(sip as u16), dst: at(to), tile, posted: true })
                }
                PostSignal(add) => OpKind::Control(Control::Signal { counter: 0, add, posted: true }),
                Fence => OpKind::Control(Control::Fence),
            };
            body.push(kind, 1, origin);
        }
        let body = builder.body(body.finish());
        let coord = Coord { sip: sip as u32, cube: 0, pe: 0 };
        builder.agent(group, coord, machine.pe(coord).unwrap(), body, &memories).unwrap();
    }
    builder.finish(settings(slots)).unwrap_or_else(|e| panic!("{e:?}"))
}

#[test]
fn a_ring_takes_alpha_plus_beta_per_round_under_every_model() {
    for model in MODELS {
        for (n, bytes) in [(2, 4096u32), (5, 1 << 20), (8, 100)] {
            let machine = npu_network("ring_1d", n, 500.0, 50.0, model);
            let rounds = 2 * (n - 1);
            let timeline = run(&ring(&machine, rounds, bytes, 4), &machine);
            let beta = u64::from(bytes) * 20;
            assert_eq!(timeline.latency, u64::from(rounds) * (500_000 + beta), "{model} n={n} bytes={bytes}");
            assert_eq!(timeline.messages, u64::from(n * rounds));
            assert_eq!(timeline.bytes, u64::from(n * rounds) * u64::from(bytes));
        }
    }
}

#[test]
fn a_long_message_pipelines_over_hops() {
    // Three hops of 500 ns; every hop after the first adds one flit of 256 B at 20 ps/B.
    for (model, extra) in [("cut_through", 2 * 256 * 20), ("flit", 2 * 256 * 20), ("analytic", 0)] {
        let machine = npu_network("ring_1d", 8, 500.0, 50.0, model);
        let p = program(&machine, &[&[Send("sip3", 65536)], &[], &[], &[Recv("sip0", 65536)]], 4);
        assert_eq!(run(&p, &machine).latency, 3 * 500_000 + 65536 * 20 + extra, "{model}");
    }
}

#[test]
fn messages_that_share_a_link_share_its_bandwidth() {
    // Ranks 0 and 1 both send to rank 2 over the link 1 -> 2.
    let steps: [&[Step]; 3] =
        [&[Send("sip2", 1 << 20)], &[Send("sip2", 1 << 20)], &[Recv("sip1", 1 << 20), Recv("sip0", 1 << 20)]];
    for (model, contended) in [("cut_through", true), ("flit", true), ("analytic", false)] {
        let machine = npu_network("ring_1d", 8, 500.0, 50.0, model);
        let latency = run(&program(&machine, &steps, 4), &machine).latency;
        let both = 2 * (1u64 << 20) * 20;
        assert_eq!(latency >= both, contended, "{model}: {latency}");
        assert!(latency < both + 2_000_000, "{model}: {latency}");
    }
}

#[test]
fn a_full_queue_makes_the_sender_wait_for_credits() {
    let machine = npu_network("ring_1d", 2, 500.0, 50.0, "cut_through");
    let sends = [Send("global_E", 1000); 6];
    let mut receives = vec![Delay(1_000_000_000)];
    receives.extend([Recv("global_W", 1000); 6]);
    let finished = |slots| run(&program(&machine, &[&sends, &receives], slots), &machine).ends[0];
    assert!(finished(6) < 1_000_000, "six posted sends need no credit");
    assert!(finished(5) > 1_000_000_000, "the sixth waits for the late receiver");
    assert_eq!(run(&program(&machine, &[&sends, &receives], 1), &machine).messages, 6, "one slot is live");
}

#[test]
fn receiving_before_sending_is_a_deadlock_with_its_cycle() {
    let machine = npu_network("ring_1d", 4, 500.0, 50.0, "cut_through");
    let steps: &[Step] = &[Recv("global_W", 8), Send("global_E", 8)];
    let error = simulate(&program(&machine, &[steps; 4], 4), &machine, &Options::default()).unwrap_err();
    assert_eq!(error.code, "AHBM-D101");
    let text = error.to_string();
    assert!(text.contains("4 of 4 agents wait") && text.contains("cycle:"), "{text}");
    for rank in 0..4 {
        assert!(text.contains(&format!("rank{rank}.py:1")), "{text}");
    }
    assert!(text.contains("recv(dir=\"global_W\")") && text.contains("post the send first"), "{text}");
}

#[test]
fn a_deadlock_on_a_finished_peer_says_so() {
    let machine = npu_network("ring_1d", 2, 500.0, 50.0, "cut_through");
    let p = program(&machine, &[&[Send("global_E", 8)], &[Recv("global_W", 8), Recv("global_W", 8)]], 4);
    let text = simulate(&p, &machine, &Options::default()).unwrap_err().to_string();
    assert!(text.contains("sip 0 cube 0 pe 0 has finished after 1 sends"), "{text}");
}

#[test]
fn sends_into_full_queues_on_both_sides_are_a_deadlock_about_slots() {
    let machine = npu_network("ring_1d", 2, 500.0, 50.0, "cut_through");
    let mut steps = vec![Send("global_E", 8); 3];
    steps.extend([Recv("global_W", 8); 3]);
    let p = |slots| program(&machine, &[&steps, &steps], slots);
    assert_eq!(run(&p(3), &machine).messages, 6);
    let error = simulate(&p(2), &machine, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("raise n_slots"), "{error}");
}

#[test]
fn receive_from_anyone_takes_what_is_there_in_turn() {
    let machine = npu_network("fully_connected", 3, 500.0, 50.0, "cut_through");
    let late: &[Step] = &[Delay(5_000_000), Send("sip2", 10)];
    let early: &[Step] = &[Send("sip2", 10), Send("sip2", 10)];
    let p = program(&machine, &[late, early, &[RecvAny(10), RecvAny(10), RecvAny(10)]], 4);
    let timeline = run(&p, &machine);
    let senders: Vec<u32> = timeline.choices[2].iter().map(|c| p.channels[c.0 as usize].sender.0).collect();
    assert_eq!(senders, [1, 1, 0]);
}

/// Two messages that are sent at one instant wake their receiver twice, the second time when it is at the barrier.
#[test]
fn a_barrier_holds_an_agent_that_two_messages_woke_at_once() {
    for model in MODELS {
        let machine = npu_network("ring_1d", 2, 500.0, 50.0, model);
        let one: &[Step] =
            &[RecvAny(16), Send("global_W", 16), Send("global_E", 16), RecvAny(16), RecvAny(16), Barrier, RecvAny(16)];
        let other: &[Step] = &[
            Send("global_E", 16),
            RecvAny(16),
            RecvAny(16),
            Send("global_W", 16),
            Send("global_W", 16),
            Barrier,
            Send("global_E", 16),
        ];
        let p = program(&machine, &[one, other], 4);
        let timeline = run(&p, &machine);
        let barriers = [0, 1].map(|agent| {
            let ops = &p.body(AgentId(agent)).ops;
            let at = ops.iter().position(|op| matches!(op.kind, OpKind::Control(Control::Barrier { .. }))).unwrap();
            timeline.spans[agent as usize][at].end
        });
        assert_eq!(barriers[0], barriers[1], "{model}");
        assert!(barriers[0] > 1_500_000, "three messages follow each other over a link of 500 ns: {barriers:?}");
    }
}

#[test]
fn posted_receives_return_credits_while_the_kernel_computes() {
    let machine = npu_network("ring_1d", 2, 500.0, 50.0, "cut_through");
    let sends = [Send("global_E", 1000); 3];
    let posted = [
        Post("global_W", 1000),
        Post("global_W", 1000),
        Post("global_W", 1000),
        Delay(1 << 30),
        Await(2),
        Await(0),
        Await(1),
    ];
    let blocking = [Delay(1 << 30), Recv("global_W", 1000), Recv("global_W", 1000), Recv("global_W", 1000)];
    let background = run(&program(&machine, &[&sends, &posted], 1), &machine);
    assert!(background.ends[0] < 1 << 30, "the sender need not wait for the computation");
    assert_eq!(background.latency, 1 << 30);
    assert!(run(&program(&machine, &[&sends, &blocking], 1), &machine).ends[0] > 1 << 30);
}

#[test]
fn counters_and_barriers_order_agents() {
    let machine = npu_network("ring_1d", 3, 500.0, 50.0, "cut_through");
    let p = program(&machine, &[&[Delay(700), Signal(1)], &[Delay(300), Signal(2)], &[Wait(0, 3)]], 4);
    assert_eq!(run(&p, &machine).ends, [700, 300, 700]);
    let p = program(&machine, &[&[Delay(700), Barrier, Delay(1)], &[Barrier], &[Delay(900), Barrier]], 4);
    assert_eq!(run(&p, &machine).ends, [901, 900, 900]);
    let p = program(&machine, &[&[Wait(0, 1)], &[], &[]], 4);
    assert!(simulate(&p, &machine, &Options::default()).unwrap_err().to_string().contains("counter stands at 0"));
}

#[test]
fn a_posted_put_holds_the_agent_for_its_bytes_and_the_signal_until_it_arrives() {
    let (alpha, beta) = (500_000, 65536 * 20);
    for model in MODELS {
        let machine = npu_network("ring_1d", 8, 500.0, 50.0, model);
        let times = |steps: [&[Step]; 4]| run(&program(&machine, &steps, 4), &machine).ends;
        let [sender, receiver]: [&[Step]; 2] = [&[Put(1, 65536), Put(1, 65536), PostSignal(1)], &[Wait(0, 1)]];
        assert_eq!(times([sender, receiver, &[], &[]]), [2 * beta, 2 * beta + alpha, 0, 0], "{model}");
        // Behind all of them, not only the last: two hops take longer than one.
        let far = if model == "analytic" { 2 * alpha + beta } else { 2 * alpha + beta + 256 * 20 };
        let sender: &[Step] = &[Put(2, 65536), Put(1, 256), PostSignal(1), PostSignal(1), Fence, Signal(1)];
        assert_eq!(times([sender, &[Wait(0, 1)], &[Wait(0, 2)], &[Wait(0, 3)]]), [far; 4], "{model}");
        // With nothing on its way a posted signal is like any other.
        assert_eq!(times([&[Delay(7), PostSignal(1), Fence], receiver, &[], &[]]), [7, 7, 0, 0], "{model}");
    }
}

#[test]
fn an_event_budget_ends_a_run_with_a_typed_error() {
    let machine = npu_network("ring_1d", 8, 500.0, 50.0, "cut_through");
    let p = ring(&machine, 100_000, 8, 4);
    let found = simulate(&p, &machine, &Options { max_events: 10, ..Options::default() }).unwrap_err();
    assert_eq!(found.code, "AHBM-B120");
    assert!(found.hint.unwrap().contains("`event_budget` in ccl.yaml"));
}

#[test]
fn routes_with_more_links_than_the_budget_are_a_typed_error() {
    let machine = npu_network("ring_1d", 8, 500.0, 50.0, "cut_through");
    let p = ring(&machine, 7, 8, 4);
    let end = |max_hops| simulate(&p, &machine, &Options { max_hops, ..Options::default() });
    let least = (1..1000).find(|&hops| end(hops).is_ok()).expect("few links");
    assert!(least >= 8, "every rank sends over a link of its own");
    let error = end(least - 1).unwrap_err();
    assert_eq!(error.code, "AHBM-B125");
    assert!(error.message.contains(&format!("more than {} links", least - 1)), "{error}");
    assert_eq!(end(least).unwrap(), simulate(&p, &machine, &Options::default()).unwrap());
}

#[test]
fn the_same_inputs_give_the_same_timeline() {
    for model in MODELS {
        let machine = npu_network("ring_1d", 8, 500.0, 50.0, model);
        let p = ring(&machine, 14, 5000, 2);
        assert_eq!(run(&p, &machine), run(&p, &machine));
        assert_ne!(run(&p, &machine).hash, run(&ring(&machine, 14, 5001, 2), &machine).hash);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A lone message takes the same time whether it is reserved as a whole or flit by flit.
    #[test]
    fn cut_through_is_exact_for_whole_flits(flits in 1u32..200, hops in 1usize..4) {
        let to: &'static str = ["sip1", "sip2", "sip3"][hops - 1];
        let bytes = flits * 256;
        let mut agents: Vec<&[Step]> = vec![&[]; 4];
        let (send, receive) = ([Send(to, bytes)], [Recv("sip0", bytes)]);
        agents[0] = &send;
        agents[hops] = &receive;
        let latency = |model| {
            let machine = npu_network("ring_1d", 8, 120.0, 37.0, model);
            run(&program(&machine, &agents, 4), &machine).latency
        };
        // Each flit is rounded up to whole picoseconds on its own.
        prop_assert!(latency("flit").abs_diff(latency("cut_through")) <= u64::from(flits));
    }

    /// No run beats bytes over bandwidth across the cut around any rank.
    #[test]
    fn never_faster_than_a_cut(bytes in prop::collection::vec(1u32..200_000, 2..7), slots in 1u32..5) {
        for model in ["cut_through", "flit"] {
            let machine = npu_network("ring_1d", 8, 500.0, 50.0, model);
            let sends: Vec<Step> = bytes.iter().map(|&b| Send("sip2", b)).collect();
            let receives: Vec<Step> =
                bytes.iter().flat_map(|&b| [Recv("sip0", b), Recv("sip1", b)]).collect();
            let p = program(&machine, &[&sends, &sends, &receives], slots);
            let total: u64 = 2 * bytes.iter().map(|&b| u64::from(b)).sum::<u64>();
            prop_assert!(run(&p, &machine).latency >= total * 20 + 500_000);
        }
    }
}
