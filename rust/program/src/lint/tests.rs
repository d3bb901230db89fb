//! A planted fault for every lint, and clean programs without findings.

use super::{Target, lint_for};
use crate::*;
use ahbm_findings::Diagnostic;
use ahbm_machine::{Coord, Direction, Heading, Node, PeId};
use std::sync::Arc;

const E: Direction = Direction::Cube(Heading::E);
const W: Direction = Direction::Cube(Heading::W);

fn target() -> Target<'static> {
    Target {
        pes: 1 << 20,
        sips: 1 << 20,
        capacity: Box::new(|node| if matches!(node, Node::Hbm(_)) { 1 << 30 } else { 1 << 20 }),
        cube: Box::new(|pe| PeId(pe.0 / 8 * 8)),
        tier: Box::new(|tier| ["tcm", "sram", "hbm", "far"].get(tier as usize).copied()),
    }
}

fn findings(program: &Program) -> Vec<Diagnostic> {
    lint_for(program, &target())
}

/// The only finding of a program, which must have this code, a hint and at least `sites` places.
#[track_caller]
fn only(program: &Program, code: &str, sites: usize) -> Diagnostic {
    let mut found = findings(program);
    assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), [code], "{found:?}");
    let found = found.remove(0);
    assert!(found.hint.is_some() && found.sites.len() >= sites, "{found}");
    found
}

fn f16(n: u32) -> Tile {
    Tile::new(Dtype::F16, &[n.into()])
}

/// Operations get the origins `k.py:1`, `k.py:2`, …
#[derive(Default)]
struct Kernel(BodyBuilder);

impl Kernel {
    fn op(&mut self, kind: OpKind) -> &mut Self {
        let line = OriginId(self.0.len() as u32);
        self.0.push(kind, 1, line);
        self
    }

    fn load(&mut self, offset: u64, tile: &Tile) -> ValueId {
        let (dst, mem, tile) = (self.0.value(), self.0.mem(Mem { buffer: 0, offset }), self.0.tile(tile.clone()));
        self.op(OpKind::Move(Move::Load { dst, mem, tile }));
        dst
    }

    fn send(&mut self, direction: Direction, src: ValueId, tile: &Tile) -> &mut Self {
        let (dir, tile) = (self.0.direction(direction), self.0.tile(tile.clone()));
        self.op(OpKind::Comm(Comm::Send { dir, src, tile }))
    }

    fn recv(&mut self, direction: Direction, tile: &Tile) -> ValueId {
        let (dir, dst, tile) = (self.0.direction(direction), self.0.value(), self.0.tile(tile.clone()));
        self.op(OpKind::Comm(Comm::Recv { dir, dst, tile }));
        dst
    }

    fn post(&mut self, direction: Direction, tile: &Tile) -> ValueId {
        let (dir, dst, tile) = (self.0.direction(direction), self.0.value(), self.0.tile(tile.clone()));
        self.op(OpKind::Comm(Comm::PostRecv { dir, dst, tile }));
        dst
    }

    fn recv_any(&mut self, tile: &Tile) -> &mut Self {
        let (dst, tile) = (self.0.value(), self.0.tile(tile.clone()));
        self.op(OpKind::Comm(Comm::RecvAny { dst, tile }))
    }

    fn body(self) -> Arc<Body> {
        Arc::new(self.0.finish())
    }
}

/// A ring of agents with a buffer of 1 KiB each; equal bodies by position in `bodies`.
fn ring(bodies: &[Arc<Body>], who: &[u32]) -> Program {
    let n = who.len() as u32;
    let mut program = Program { name: "ring".into(), bodies: bodies.to_vec(), ..Program::default() };
    for line in 1..100 {
        program.origins.intern(Origin { file: "k.py".into(), locus: Locus::Line(line) });
    }
    for (i, &body) in who.iter().enumerate() {
        let i = i as u32;
        for (to, way, back) in [((i + 1) % n, E, W), ((i + n - 1) % n, W, E)] {
            program.channels.push(Channel {
                sender: AgentId(i),
                receiver: AgentId(to),
                sender_direction: way,
                receiver_direction: back,
                slots: 4,
                slot_bytes: 1024,
                tier: 0,
                credit_bytes: 16,
                wire: crate::WireFactor::ONE,
            });
        }
        let channels = program.channel_table.len() as u32;
        for &d in bodies[body as usize].directions.iter() {
            let (tx, rx) = if d == E { (2 * i, 2 * ((i + 1) % n) + 1) } else { (2 * i + 1, 2 * ((i + n - 1) % n)) };
            program.channel_table.extend([ChannelId(tx), ChannelId(rx)]);
        }
        program.buffers.push(Buffer { node: Node::Hbm(PeId(i)), bytes: 1024 });
        program.buffer_table.push(BufferId(i));
        let coord = Coord { sip: i, cube: 0, pe: 0 };
        program.agents.push(Agent { coord, place: PeId(i), body, channels, buffers: i, rank: i, costs: 0 });
    }
    program
}

/// Load, send E, receive W, add, store; twice.
fn clean() -> Arc<Body> {
    let (mut k, t) = (Kernel::default(), f16(256));
    for offset in [0, 512] {
        let x = k.load(offset, &t);
        k.send(E, x, &t);
        let y = k.recv(W, &t);
        let tile = k.0.tile(t.clone());
        k.op(OpKind::Math(Math::Binary { f: BinaryFn::Add, dst: x, a: x, b: y, tile }));
        let mem = k.0.mem(Mem { buffer: 0, offset });
        k.op(OpKind::Move(Move::Store { src: x, mem, tile, posted: false }));
    }
    k.body()
}

#[test]
fn clean_programs_have_no_findings() {
    assert_eq!(findings(&ring(&[clean()], &[0; 4])), []);
    assert_eq!(findings(&Program::default()), []);
    let (mut k, t) = (Kernel::default(), f16(8));
    let x = k.load(0, &t);
    k.send(E, x, &t).send(W, x, &t).recv_any(&t).recv_any(&t);
    let p = k.post(W, &t);
    k.send(E, x, &t).op(OpKind::Comm(Comm::Await { value: p })).op(OpKind::Comm(Comm::Await { value: p }));
    k.send(E, p, &t).recv(W, &t);
    assert_eq!(findings(&ring(&[k.body()], &[0; 3])), []);
}

#[test]
fn l103_operand_outside_its_buffer() {
    let mut k = Kernel::default();
    k.load(0, &f16(4));
    k.load(1000, &f16(13));
    let found = only(&ring(&[k.body()], &[0]), "AHBM-L103", 1);
    assert_eq!(found.message, "bytes 1000..1026 of a buffer of 1024 bytes");
    assert_eq!(
        (found.sites[0].label.as_str(), found.sites[0].origin.as_str()),
        ("sip 0 cube 0 pe 0: load f16[13]", "k.py:2")
    );
    let mut k = Kernel::default();
    k.load(u64::MAX - 1, &f16(4));
    only(&ring(&[k.body()], &[0]), "AHBM-L103", 1);
}

#[test]
fn l104_more_sends_than_receives_and_the_reverse() {
    let t = f16(8);
    let body = |sends: u32, receives: u32| {
        let mut k = Kernel::default();
        let x = k.load(0, &t);
        for _ in 0..sends {
            k.send(E, x, &t);
        }
        for _ in 0..receives {
            k.recv(W, &t);
        }
        k.body()
    };
    let found = only(&ring(&[body(3, 0), body(0, 2)], &[0, 1]), "AHBM-L104", 2);
    assert_eq!(
        found.message,
        "sip 0 cube 0 pe 0 sends 3 messages in direction E to sip 1 cube 0 pe 0, which receives 2 from direction W"
    );
    assert_eq!((found.sites[0].origin.as_str(), found.sites[1].origin.as_str()), ("k.py:4", "k.py:3"));
    let found = only(&ring(&[body(1, 0), body(0, 2)], &[0, 1]), "AHBM-L104", 2);
    assert!(found.sites[1].label.ends_with("without a partner") && found.sites[1].origin == "k.py:3", "{found}");
    let found = only(&ring(&[body(0, 0), body(0, 1)], &[0, 1]), "AHBM-L104", 2);
    assert_eq!(found.sites[0].label, "sip 0 cube 0 pe 0: no send");
}

#[test]
fn l104_receives_from_any_direction_are_a_pool() {
    let t = f16(8);
    let sender = |n: u32| {
        let mut k = Kernel::default();
        let x = k.load(0, &t);
        for _ in 0..n {
            k.send(E, x, &t).send(W, x, &t);
        }
        k.body()
    };
    let receiver = |any: u32, named: u32| {
        let mut k = Kernel::default();
        for _ in 0..any {
            k.recv_any(&t);
        }
        for _ in 0..named {
            k.recv(W, &t);
        }
        k.body()
    };
    let pair = |n, any, named| ring(&[sender(n), receiver(any, named)], &[0, 1]);
    assert_eq!(findings(&pair(2, 4, 0)), []);
    assert_eq!(findings(&pair(2, 2, 2)), []);
    let found = only(&pair(2, 3, 0), "AHBM-L104", 3);
    assert_eq!(found.message, "4 messages are sent to sip 1 cube 0 pe 0 over all its queues, which receives 3");
    only(&pair(2, 5, 0), "AHBM-L104", 3);
    // One named receive too many, though the sum is right.
    only(&pair(2, 1, 3), "AHBM-L104", 2);
}

#[test]
fn l105_slot_smaller_than_the_message() {
    let mut program = ring(&[clean()], &[0; 3]);
    program.channels.iter_mut().for_each(|c| c.slot_bytes = 511);
    let found = findings(&program);
    assert_eq!(found.len(), 3);
    assert_eq!(found[0].message, "a message of 512 bytes does not fit a slot of 511 bytes");
    assert_eq!(found[0].hint.as_deref(), Some("raise slot_size to at least 512 or set it to `auto`"));
    assert_eq!(found[0].sites[0].origin, "k.py:2");
}

#[test]
fn l107_messages_differ_in_order() {
    let (small, large) = (f16(8), Tile::new(Dtype::I16, &[8]));
    let (mut a, mut b) = (Kernel::default(), Kernel::default());
    let (x, y) = (a.load(0, &small), a.load(0, &large));
    a.send(E, x, &small).send(E, y, &large);
    b.recv(W, &small);
    b.recv(W, &small);
    let found = only(&ring(&[a.body(), b.body()], &[0, 1]), "AHBM-L107", 2);
    assert!(found.message.starts_with("message 1 "), "{found}");
    assert_eq!((found.sites[0].origin.as_str(), found.sites[1].origin.as_str()), ("k.py:4", "k.py:2"));
    // Another shape of the same size is a reshape, not a fault.
    let (mut a, mut b) = (Kernel::default(), Kernel::default());
    let x = a.load(0, &f16(8));
    a.send(E, x, &f16(8));
    b.recv(W, &Tile::new(Dtype::F16, &[2, 4]));
    assert_eq!(findings(&ring(&[a.body(), b.body()], &[0, 1])), []);
}

#[test]
fn l107_two_names_of_one_queue_are_one_order() {
    let peer = Direction::Peer { sip: Some(1), cube: None, pe: None };
    let (small, large) = (f16(8), f16(16));
    let (mut a, mut b) = (Kernel::default(), Kernel::default());
    let (x, y) = (a.load(0, &small), a.load(0, &large));
    a.send(E, x, &small).send(peer, y, &large).send(E, x, &small);
    for t in [&small, &large, &small] {
        b.recv(W, t);
    }
    let mut program = ring(&[a.body(), b.body()], &[0, 1]);
    // `ring` resolves any direction but E to the westward queue; here both names lead east.
    program.channel_table[2] = program.channel_table[0];
    assert_eq!(findings(&program), []);
    let mut b = Kernel::default();
    for t in [&large, &small, &small] {
        b.recv(W, t);
    }
    program.bodies[1] = b.body();
    assert!(only(&program, "AHBM-L107", 2).message.starts_with("message 0 "));
}

#[test]
fn l108_memories_over_capacity() {
    let mut program = ring(&[clean()], &[0; 2]);
    program.buffers[1].bytes = (1 << 30) + 1;
    let found = only(&program, "AHBM-L108", 2);
    assert!(found.message.starts_with("the HBM slice of PE 1 holds 1073741824 bytes"), "{found}");
    assert_eq!(found.sites[1].origin, "k.py:1");
    program.buffers[1].bytes = u64::MAX;
    only(&program, "AHBM-L108", 2);
    // Slots count where they live: two queues per TCM.
    program.buffers[1].bytes = 1024;
    program.channels.iter_mut().for_each(|c| c.slots = 513);
    assert_eq!(findings(&program).len(), 2);
    program.channels.iter_mut().for_each(|c| c.tier = 3);
    assert_eq!(findings(&program), []);
    // All PEs of a cube share one SRAM.
    program.channels.iter_mut().for_each(|c| c.tier = 1);
    assert!(only(&program, "AHBM-L108", 1).message.contains("SRAM of the cube of PE 0"));
}

#[test]
fn l109_values_before_their_definition() {
    let t = f16(8);
    let mut k = Kernel::default();
    let x = k.0.value();
    k.send(E, x, &t).send(E, x, &t);
    k.recv(W, &t);
    k.recv(W, &t);
    let found = only(&ring(&[k.body()], &[0; 3]), "AHBM-L109", 1);
    assert_eq!(found.sites[0].origin, "k.py:1");
    let mut k = Kernel::default();
    let x = k.load(0, &t);
    k.send(E, x, &t).send(E, x, &t);
    let y = k.post(W, &t);
    k.send(E, y, &t);
    k.post(W, &t);
    k.recv(W, &t);
    let found = only(&ring(&[k.body()], &[0; 3]), "AHBM-L109", 2);
    assert_eq!((found.sites[0].origin.as_str(), found.sites[1].origin.as_str()), ("k.py:5", "k.py:4"));
    let mut k = Kernel::default();
    let x = k.0.value();
    k.op(OpKind::Comm(Comm::Await { value: x }));
    only(&ring(&[k.body()], &[0]), "AHBM-L109", 1);
}

/// Every member of a group is an access, and what a multicast stores must be defined.
#[test]
fn groups_are_looked_at_member_by_member() {
    let mut k = Kernel::default();
    let (value, tile) = (k.0.value(), k.0.tile(f16(8)));
    let mems = [0, 1008, 1016].map(|offset| k.0.mem(Mem { buffer: 0, offset }));
    let group = k.0.group(&mems);
    k.op(OpKind::Move(Move::Multicast { src: value, group, tile }));
    k.op(OpKind::Move(Move::ReducingLoad { f: BinaryFn::Max, dst: value, group, tile }));
    let found = findings(&ring(&[k.body()], &[0]));
    let codes: Vec<_> = found.iter().map(|d| (d.code, d.sites[0].origin.as_str())).collect();
    assert_eq!(codes, [("AHBM-L109", "k.py:1"), ("AHBM-L103", "k.py:1")], "{found:?}");
}

#[test]
fn l110_every_index_out_of_range() {
    let v = ValueId(0);
    let [sound, empty, beyond] = [0, 1, 2];
    let kinds = [
        OpKind::Move(Move::Load { dst: v, mem: 9, tile: 0 }),
        OpKind::Move(Move::Load { dst: v, mem: 0, tile: 9 }),
        OpKind::Move(Move::Load { dst: ValueId(9), mem: 0, tile: 0 }),
        OpKind::Math(Math::Fill { dst: v, scalar: 9, tile: 0 }),
        OpKind::Comm(Comm::Send { dir: 9, src: v, tile: 0 }),
        OpKind::Control(Control::Signal { counter: 9, add: 1, posted: false }),
        OpKind::Control(Control::WaitCounter { counter: 0, at_least: 1 }),
        OpKind::Control(Control::Barrier { id: 0 }),
        OpKind::Comm(Comm::Await { value: ValueId(9) }),
        OpKind::Math(Math::Dot { dst: v, a: v, b: v, tile: 0 }),
        OpKind::Math(Math::Transpose { dst: v, a: v, tile: 0 }),
        OpKind::Math(Math::Reduce { f: ReduceFn::Sum, axis: 1, dst: v, a: v, tile: 0 }),
        OpKind::Math(Math::Softmax { axis: -2, dst: v, a: v, tile: 0 }),
        OpKind::Move(Move::Multicast { src: v, group: 9, tile: 0 }),
        OpKind::Move(Move::Multicast { src: v, group: empty, tile: 0 }),
        OpKind::Move(Move::ReducingLoad { f: BinaryFn::Add, dst: v, group: beyond, tile: 0 }),
        OpKind::Move(Move::ReducingLoad { f: BinaryFn::Sub, dst: v, group: sound, tile: 0 }),
    ];
    for kind in kinds {
        let mut k = Kernel::default();
        k.load(0, &f16(8));
        for mems in [&[0][..], &[], &[0, 9]] {
            k.0.group(mems);
        }
        k.op(kind);
        let program = ring(&[k.body()], &[0]);
        assert_eq!(only(&program, "AHBM-L110", 1).sites[0].origin, "k.py:2", "{kind:?}");
        assert!(!program.text().is_empty());
    }
    type Break = fn(&mut Program);
    let breaks: [Break; 13] = [
        |p| p.agents[1].body = 7,
        |p| p.agents[1].channels = u32::MAX,
        |p| p.agents[1].buffers = 99,
        |p| p.buffer_table[0] = BufferId(99),
        |p| p.channel_table[0] = ChannelId(99),
        |p| p.channel_table[0] = ChannelId::NONE,
        |p| p.channel_table.swap(0, 4),
        |p| p.channel_table.clear(),
        |p| p.channels[1].sender = AgentId(99),
        |p| p.agents[0].place = PeId(u32::MAX),
        |p| p.buffers[0].node = Node::Sram(PeId(u32::MAX)),
        |p| p.buffers[0].node = Node::Io(u32::MAX),
        |p| p.channels[0].tier = 99,
    ];
    for (i, break_it) in breaks.into_iter().enumerate() {
        let mut program = ring(&[clean()], &[0; 3]);
        break_it(&mut program);
        let found = findings(&program);
        assert!(!found.is_empty() && found.iter().all(|d| d.code == "AHBM-L110"), "break {i}: {found:?}");
        assert!(!program.text().is_empty());
        program.hash();
    }
}

#[test]
fn l111_queues_without_slots() {
    let mut program = ring(&[clean()], &[0; 2]);
    program.channels[0].slots = 0;
    only(&program, "AHBM-L111", 2);
}

#[test]
fn one_repeated_fault_does_not_hide_the_others() {
    let mut program = ring(&[clean()], &[0; 100]);
    program.channels.iter_mut().for_each(|c| c.slot_bytes = 1);
    program.buffers[99].bytes = 1023;
    let found = findings(&program);
    assert!(found.len() <= 51);
    assert!(found.iter().any(|d| d.code == "AHBM-L103"));
    let tail = found.last().unwrap();
    assert_eq!((tail.code, tail.message.as_str()), ("AHBM-L100", "findings left out in ring: 88 more AHBM-L105"));
}

#[test]
fn many_agents_are_cheap() {
    // Not timed here: `cargo test --release -p ahbm-program many_agents -- --nocapture` prints the time.
    let mut program = ring(&[clean()], &[0; 16_384]);
    let start = std::time::Instant::now();
    assert_eq!(findings(&program), []);
    let clean = start.elapsed();
    program.channels.iter_mut().for_each(|c| c.slot_bytes = 1);
    let start = std::time::Instant::now();
    assert_eq!(findings(&program).len(), 13);
    println!("lint of 16,384 agents: {clean:?} clean, {:?} with 16,384 findings", start.elapsed());
}
