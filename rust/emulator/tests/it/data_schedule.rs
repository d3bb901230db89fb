//! The data pass: order of effects, messages, tickets, counters, barriers, planted errors.

use crate::support::data::*;
use ahbm_emulator::{Memory, Timeline, replay};
use ahbm_program::{BinaryFn, ChannelId, Comm, Control, Dtype, Math, Mem, Move, OpKind, Program, Tile};

fn run(program: &Program, timeline: &Timeline, memory: &mut Memory) {
    replay(program, timeline, memory).unwrap_or_else(|e| panic!("{e}"));
}

/// `acc = load; for _ in 1..n { send E; got = recv W; acc = acc + got; pass got on }; store`.
fn all_reduce(n: u32, tile: &Tile) -> Program {
    let body = || {
        let mut k = Kernel::default();
        let mut acc = k.load(0, 0, tile);
        let mut pass = acc;
        for _ in 1..n {
            k.send(E, pass, tile);
            let got = k.recv(W, tile);
            let (dst, t) = (k.body.value(), k.body.tile(tile.clone()));
            k.op(OpKind::Math(Math::Binary { f: BinaryFn::Add, dst, a: acc, b: got, tile: t }));
            (acc, pass) = (dst, got);
        }
        k.store(acc, 0, 0, tile);
        k.finish()
    };
    ring((0..n).map(|_| body()).collect(), tile.bytes())
}

#[test]
fn rings_add_up() {
    let tile = Tile::new(Dtype::I32, &[5]);
    for n in [2u32, 4, 7] {
        let program = all_reduce(n, &tile);
        let mut memory = Memory::new(&program);
        for i in 0..n {
            put(&mut memory, i, 0, &[i as i32, 10, -3, i32::MAX, 1 << i]);
        }
        run(&program, &Timeline::default(), &mut memory);
        let n = n as i32;
        let want = [n * (n - 1) / 2, 10 * n, -3 * n, (0..n).fold(0i32, |s, _| s.wrapping_add(i32::MAX)), (1 << n) - 1];
        for i in 0..n as u32 {
            assert_eq!(get::<i32>(&memory, i, 0, 5), want);
        }
    }
}

#[test]
fn rounding_follows_the_order_of_the_ring() {
    let tile = Tile::new(Dtype::F16, &[1]);
    let program = all_reduce(4, &tile);
    let mut memory = Memory::new(&program);
    let h = half::f16::from_f32;
    let inputs = [h(2048.0), h(1.0), h(1.0), h(1.0)];
    inputs.iter().enumerate().for_each(|(i, &x)| put(&mut memory, i as u32, 0, &[x]));
    run(&program, &Timeline::default(), &mut memory);
    for i in 0..4usize {
        let want = (1..4).fold(inputs[i], |acc, step| acc + inputs[(i + 4 - step) % 4]);
        assert_eq!(get::<half::f16>(&memory, i as u32, 0, 1), [want]);
    }
    // The order is visible: 2048 + 1 is lost in f16, 1 + 1 + 1 is not.
    assert_ne!(get::<u16>(&memory, 0, 0, 1), get::<u16>(&memory, 3, 0, 1));
}

#[test]
fn a_message_carries_what_it_was_sent_with() {
    let t = Tile::new(Dtype::I32, &[1]);
    let mut a = Kernel::default();
    let x = a.load(0, 0, &t);
    a.send(E, x, &t);
    let tile = a.body.tile(t.clone());
    let one = a.body.scalar(ahbm_program::Scalar::Int(1));
    a.op(OpKind::Math(Math::BinaryScalar { f: BinaryFn::Add, swapped: false, dst: x, a: x, scalar: one, tile }));
    a.store(x, 0, 0, &t);
    let mut b = Kernel::default();
    let y = b.recv(W, &t);
    b.store(y, 0, 0, &t);
    let program = ring(vec![a.finish(), b.finish()], 4);
    let mut memory = Memory::new(&program);
    put(&mut memory, 0, 0, &[41i32]);
    run(&program, &Timeline::default(), &mut memory);
    assert_eq!((get::<i32>(&memory, 0, 0, 1)[0], get::<i32>(&memory, 1, 0, 1)[0]), (42, 41));
}

#[test]
fn tickets_are_positions_even_out_of_order() {
    let t = Tile::new(Dtype::U8, &[1]);
    let mut a = Kernel::default();
    for i in 0..4 {
        let x = a.load(0, i, &t);
        a.send(E, x, &t);
    }
    let mut b = Kernel::default();
    let (first, second) = (b.post(W, &t), b.post(W, &t));
    let third = b.recv(W, &t);
    let fourth = b.post(W, &t);
    for value in [fourth, second, first, first] {
        b.op(OpKind::Comm(Comm::Await { value }));
    }
    for (i, value) in [first, second, third, fourth].into_iter().enumerate() {
        b.store(value, 0, i as u64, &t);
    }
    let (a, b) = (a.finish(), b.finish());
    // Whoever comes first in the list runs first; the result is the same.
    for swap in [false, true] {
        let program = ring(if swap { vec![b.clone(), a.clone()] } else { vec![a.clone(), b.clone()] }, 4);
        let (from, to) = if swap { (1, 0) } else { (0, 1) };
        let mut memory = Memory::new(&program);
        put(&mut memory, from, 0, &[1u8, 2, 3, 4]);
        run(&program, &Timeline::default(), &mut memory);
        assert_eq!(get::<u8>(&memory, to, 0, 4), [1, 2, 3, 4]);
    }
}

#[test]
fn shared_memory_follows_end_times_then_agents() {
    let t = Tile::new(Dtype::U8, &[1]);
    // Agent 0 writes 7 into buffer 1; agent 1 copies buffer 1 into buffer 0.
    let mut a = Kernel::default();
    let x = a.load(0, 0, &t);
    a.store(x, 1, 0, &t);
    let mut b = Kernel::default();
    let (src, dst) = (b.body.mem(Mem { buffer: 1, offset: 0 }), b.body.mem(Mem { buffer: 0, offset: 1 }));
    let tile = b.body.tile(t.clone());
    b.op(OpKind::Move(Move::Copy { src, dst, tile, posted: false }));
    let mut p = ring(vec![a.finish(), b.finish()], 2);
    share_buffers(&mut p);
    for (end, want) in [(5, 0), (11, 7), (10, 7)] {
        let mut memory = Memory::new(&p);
        put(&mut memory, 0, 0, &[7u8]);
        run(&p, &timeline(&[&[1, 10], &[end]]), &mut memory);
        assert_eq!(get::<u8>(&memory, 0, 1, 1), [want], "copy ends at {end}");
    }
    let error = replay(&p, &Timeline::default(), &mut Memory::new(&p)).unwrap_err();
    assert_eq!(error.code, "AHBM-D191");
}

#[test]
fn what_is_posted_is_read_when_it_leaves_and_written_when_it_arrives() {
    let t = Tile::new(Dtype::U8, &[1]);
    // Agent 0 posts the 7 of buffer 0 to buffer 1 and clears it; agent 1 copies buffer 1 back.
    let mut a = Kernel::default();
    let [src, dst] = [0, 1].map(|buffer| a.body.mem(Mem { buffer, offset: 0 }));
    let (tile, zero) = (a.body.tile(t.clone()), a.body.mem(Mem { buffer: 1, offset: 1 }));
    a.op(OpKind::Move(Move::Copy { src, dst, tile, posted: true }));
    a.op(OpKind::Move(Move::Copy { src: zero, dst: src, tile, posted: false }));
    a.op(OpKind::Control(Control::Fence));
    let mut b = Kernel::default();
    let (src, dst) = (b.body.mem(Mem { buffer: 1, offset: 0 }), b.body.mem(Mem { buffer: 0, offset: 1 }));
    let tile = b.body.tile(t.clone());
    b.op(OpKind::Move(Move::Copy { src, dst, tile, posted: false }));
    let mut p = ring(vec![a.finish(), b.finish()], 2);
    share_buffers(&mut p);
    for (end, want) in [(19, 0), (20, 7), (21, 7)] {
        let mut memory = Memory::new(&p);
        put(&mut memory, 0, 0, &[7u8]);
        let known = Timeline { arrivals: vec![vec![20], vec![]], ..timeline(&[&[5, 6, 20], &[end]]) };
        run(&p, &known, &mut memory);
        assert_eq!(get::<u8>(&memory, 0, 0, 2), [0, want], "copy ends at {end}");
        assert_eq!(get::<u8>(&memory, 1, 0, 1), [7]);
    }
    let error = replay(&p, &timeline(&[&[5, 6, 20], &[25]]), &mut Memory::new(&p)).unwrap_err();
    assert_eq!(error.code, "AHBM-D191");
}

#[test]
fn counters_and_barriers_order_equal_times() {
    let t = Tile::new(Dtype::U8, &[1]);
    // Agent 0 reads what agent 1 signalled; all at time 0, so agent 0 comes first and must park.
    let mut a = Kernel::default();
    a.op(OpKind::Control(Control::WaitCounter { counter: 0, at_least: 2 }));
    let x = a.load(1, 0, &t);
    a.store(x, 0, 0, &t);
    a.op(OpKind::Control(Control::Barrier { id: 0 }));
    let mut b = Kernel::default();
    let y = b.load(1, 1, &t);
    b.store(y, 1, 0, &t);
    b.op(OpKind::Control(Control::Signal { counter: 0, add: 1, posted: false }));
    b.op(OpKind::Control(Control::Signal { counter: 0, add: 1, posted: false }));
    b.op(OpKind::Control(Control::Barrier { id: 0 }));
    let z = b.load(0, 0, &t);
    b.store(z, 1, 1, &t);
    let mut p = ring(vec![a.finish(), b.finish()], 2);
    share_buffers(&mut p);
    (p.counters, p.barriers) = (1, vec![2]);
    let mut memory = Memory::new(&p);
    put(&mut memory, 1, 0, &[0u8, 9]);
    run(&p, &timeline(&[&[0; 4], &[0; 7]]), &mut memory);
    assert_eq!((memory.bytes(ahbm_program::BufferId(0))[0], get::<u8>(&memory, 1, 0, 2)), (9, vec![9, 9]));
}

#[test]
fn receives_from_any_direction_follow_the_timeline() {
    let t = Tile::new(Dtype::U8, &[1]);
    let bodies = (0..3).map(|i| {
        let mut k = Kernel::default();
        if i == 1 {
            for at in 1..3 {
                let (dst, tile) = (k.body.value(), k.body.tile(t.clone()));
                k.op(OpKind::Comm(Comm::RecvAny { dst, tile }));
                k.store(dst, 0, at, &t);
            }
        } else {
            let x = k.load(0, 0, &t);
            k.send(if i == 0 { E } else { W }, x, &t);
        }
        k.finish()
    });
    let p = ring(bodies.collect(), 3);
    for (choices, want) in [([0, 5], [10, 30]), ([5, 0], [30, 10])] {
        let mut memory = Memory::new(&p);
        put(&mut memory, 0, 0, &[10u8]);
        put(&mut memory, 2, 0, &[30u8]);
        let choices = vec![vec![], choices.map(ChannelId).to_vec(), vec![]];
        run(&p, &Timeline { choices, ..Timeline::default() }, &mut memory);
        assert_eq!(get::<u8>(&memory, 1, 1, 2), want);
    }
    for choices in [
        vec![],
        vec![vec![], vec![ChannelId(0)], vec![]],
        vec![vec![], vec![ChannelId(99)], vec![]],
        vec![vec![], vec![ChannelId(1)]],
    ] {
        let error = replay(&p, &Timeline { choices, ..Timeline::default() }, &mut Memory::new(&p)).unwrap_err();
        assert_eq!(error.code, "AHBM-D191", "{error}");
    }
}

#[test]
fn standing_still_is_an_error_that_lists_the_waiters() {
    let t = Tile::new(Dtype::U8, &[1]);
    let bodies = (0..2).map(|_| {
        let mut k = Kernel::default();
        let x = k.recv(W, &t);
        k.send(E, x, &t);
        k.finish()
    });
    let p = ring(bodies.collect(), 1);
    let error = replay(&p, &Timeline::default(), &mut Memory::new(&p)).unwrap_err();
    assert_eq!((error.code, error.sites.len()), ("AHBM-D190", 2));
    assert_eq!(error.sites[1].label, "sip 1 cube 0 pe 0: recv(dir=\"W\") u8[1]");
    assert_eq!(error.sites[1].origin, "k.py:1");
}

#[test]
fn a_message_that_does_not_fit_names_both_sides() {
    let (four, two) = (Tile::new(Dtype::F16, &[4]), Tile::new(Dtype::F16, &[2]));
    for tile in [two, Tile::new(Dtype::I16, &[4])] {
        let mut a = Kernel::default();
        let x = a.load(0, 0, &four);
        a.send(E, x, &four);
        let mut b = Kernel::default();
        let y = b.post(W, &tile);
        b.op(OpKind::Control(Control::Delay { ps: 1 }));
        b.op(OpKind::Comm(Comm::Await { value: y }));
        let p = ring(vec![a.finish(), b.finish()], 8);
        let error = replay(&p, &Timeline::default(), &mut Memory::new(&p)).unwrap_err();
        assert_eq!(error.code, "AHBM-V304");
        let sites: Vec<_> = error.sites.iter().map(|s| (s.label.as_str(), s.origin.as_str())).collect();
        assert_eq!(sites[0], ("sip 0 cube 0 pe 0: send(dir=\"E\") f16[4]", "k.py:2"));
        assert_eq!(sites[1].1, "k.py:1");
        assert!(error.hint.is_some());
    }
}

#[test]
fn planted_faults_are_typed() {
    let (f, i) = (Tile::new(Dtype::F32, &[4]), Tile::new(Dtype::I32, &[4]));
    let code = |build: &dyn Fn(&mut Kernel)| {
        let mut k = Kernel::default();
        build(&mut k);
        let p = ring(vec![k.finish(), Kernel::default().finish()], 16);
        let error = replay(&p, &Timeline::default(), &mut Memory::new(&p)).unwrap_err();
        assert!(!error.sites.is_empty() || error.code == "AHBM-B301", "{error}");
        error.code
    };
    let unary = |k: &mut Kernel, f, a, t: &Tile| {
        let (dst, tile) = (k.body.value(), k.body.tile(t.clone()));
        k.op(OpKind::Math(Math::Unary { f, dst, a, tile }));
    };
    use ahbm_program::{UnaryFn, ValueId};
    // Reads of undefined values and accesses outside buffers are found before anything runs.
    assert_eq!(
        code(&|k| {
            k.body.value();
            k.store(ValueId(0), 0, 0, &f)
        }),
        "AHBM-L109"
    );
    assert_eq!(
        code(&|k| {
            k.load(0, 4, &f);
        }),
        "AHBM-L103"
    );
    assert_eq!(
        code(&|k| {
            k.load(0, u64::MAX, &f);
        }),
        "AHBM-L103"
    );
    assert_eq!(code(&|k| k.store(ValueId(9), 0, 0, &f)), "AHBM-L110");
    assert_eq!(
        code(&|k| {
            let x = k.load(0, 0, &f);
            unary(k, UnaryFn::Neg, x, &i)
        }),
        "AHBM-V303"
    );
    assert_eq!(
        code(&|k| {
            let x = k.load(0, 0, &f);
            k.store(x, 0, 0, &i)
        }),
        "AHBM-V303"
    );
    assert_eq!(
        code(&|k| {
            let x = k.load(0, 0, &i);
            unary(k, UnaryFn::Exp, x, &i)
        }),
        "AHBM-V311"
    );
    assert_eq!(
        code(&|k| {
            let x = k.load(0, 0, &f);
            unary(k, UnaryFn::Neg, x, &Tile::new(Dtype::F32, &[2, 3]))
        }),
        "AHBM-V305"
    );
    let div = |k: &mut Kernel, a, b| {
        let (dst, tile) = (k.body.value(), k.body.tile(i.clone()));
        k.op(OpKind::Math(Math::Binary { f: BinaryFn::Div, dst, a, b, tile }));
    };
    assert_eq!(
        code(&|k| {
            let x = k.load(0, 0, &i);
            div(k, x, x)
        }),
        "AHBM-V310"
    );
    let huge = Tile::new(Dtype::F64, &[u32::MAX.into(), u32::MAX.into(), 8]);
    assert_eq!(
        code(&|k| {
            let (dst, tile, scalar) =
                (k.body.value(), k.body.tile(huge.clone()), k.body.scalar(ahbm_program::Scalar::Int(1)));
            k.op(OpKind::Math(Math::Fill { dst, scalar, tile }));
        }),
        "AHBM-B301"
    );
}

#[test]
fn memory_of_another_program_is_refused() {
    let p = ring(vec![Kernel::default().finish()], 16);
    let other = ring(vec![Kernel::default().finish()], 17);
    assert_eq!(replay(&p, &Timeline::default(), &mut Memory::new(&other)).unwrap_err().code, "AHBM-D191");
}

/// Agents that know nothing of each other, with a tile each that is doubled or, by `bad`, divided by zero.
fn apart(n: u32, elements: u64, bad: &[u32]) -> Program {
    let tile = Tile::new(Dtype::I32, &[elements]);
    let body = |agent| {
        let mut k = Kernel::default();
        let a = k.load(0, 0, &tile);
        let (dst, t) = (k.body.value(), k.body.tile(tile.clone()));
        let zero = k.body.value();
        k.op(OpKind::Math(Math::Binary { f: BinaryFn::Sub, dst: zero, a, b: a, tile: t }));
        let f = if bad.contains(&agent) { BinaryFn::Div } else { BinaryFn::Add };
        let b = if bad.contains(&agent) { zero } else { a };
        k.op(OpKind::Math(Math::Binary { f, dst, a, b, tile: t }));
        k.store(dst, 0, 0, &tile);
        k.finish()
    };
    let mut program = ring((0..n).map(body).collect(), tile.bytes());
    program.channels.clear();
    program
}

/// Enough elements for several threads; every part finds its own memory, on the second call too.
#[test]
fn parts_on_threads_keep_their_memory() {
    let (n, elements) = (5u32, 1u64 << 18);
    let program = apart(n, elements, &[]);
    let mut memory = Memory::new(&program);
    for i in 0..n {
        put(&mut memory, i, 0, &vec![i as i32 + 1; elements as usize]);
    }
    for call in 1..=2 {
        run(&program, &Timeline::default(), &mut memory);
        for i in 0..n {
            let want = (i as i32 + 1) << call;
            assert!(get::<i32>(&memory, i, 0, elements as usize).iter().all(|&x| x == want), "call {call}, agent {i}");
        }
    }
}

/// Of several parts with an error, the first tells, whichever thread is done first.
#[test]
fn the_first_part_with_an_error_tells() {
    let program = apart(6, 1 << 18, &[2, 3, 5]);
    let error = replay(&program, &Timeline::default(), &mut Memory::new(&program)).unwrap_err();
    assert_eq!(error.code, "AHBM-V310");
    let of_two = apart(6, 1 << 18, &[2]);
    assert_eq!(error, replay(&of_two, &Timeline::default(), &mut Memory::new(&of_two)).unwrap_err());
}

/// A sender that never waits holds no more messages than the machine has slots, however many it sends.
#[test]
fn messages_are_held_as_in_the_slots() {
    let tile = Tile::new(Dtype::I32, &[1 << 15]);
    let kept = |messages: u32, posted: bool| {
        let (mut sender, mut receiver) = (Kernel::default(), Kernel::default());
        for _ in 0..messages {
            let x = sender.load(0, 0, &tile);
            sender.send(E, x, &tile);
        }
        for _ in 0..messages {
            let got = if posted { receiver.post(W, &tile) } else { receiver.recv(W, &tile) };
            if posted {
                receiver.op(OpKind::Comm(Comm::Await { value: got }));
            }
            receiver.store(got, 0, 0, &tile);
        }
        let program = ring(vec![sender.finish(), receiver.finish()], tile.bytes());
        let mut memory = Memory::new(&program);
        put(&mut memory, 0, 0, &vec![7i32; 1 << 15]);
        run(&program, &Timeline::default(), &mut memory);
        assert_eq!(get::<i32>(&memory, 1, 0, 1 << 15), vec![7; 1 << 15]);
        memory.kept()
    };
    for posted in [false, true] {
        assert!(kept(100, posted) <= kept(8, posted), "posted: {posted}");
        assert!(kept(8, posted) <= 8 * tile.bytes());
    }
}
