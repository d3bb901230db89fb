//! The text form and the structural hash.

use ahbm_machine::{Coord, Direction, Heading, Node, PeId, Sfr};
use ahbm_program::{
    BinaryFn, BodyBuilder, ChannelSettings, Comm, Dtype, Locus, Math, Mem, Move, OpKind, Origin, Program,
    ProgramBuilder, Scalar, Tile,
};

fn program(name: &str, file: &str, scalar: f64) -> Program {
    let sfr = Sfr::ring(4);
    let mut builder = ProgramBuilder::new(name);
    let group = builder.group(sfr);
    let mut k = BodyBuilder::new();
    let mut line = 0;
    let mut op = |k: &mut BodyBuilder, kind| {
        line += 1;
        let origin = builder.origins.intern(Origin { file: file.into(), locus: Locus::Line(line) });
        k.push(kind, 1, origin);
    };
    let tile = k.tile(Tile::new(Dtype::F16, &[2, 8]));
    let (x, y, mem, scalar) =
        (k.value(), k.value(), k.mem(Mem { buffer: 0, offset: 32 }), k.scalar(Scalar::float(scalar)));
    let (east, west) = (k.direction(Direction::Global(Heading::E)), k.direction(Direction::Global(Heading::W)));
    op(&mut k, OpKind::Move(Move::Load { dst: x, mem, tile }));
    op(&mut k, OpKind::Comm(Comm::Send { dir: east, src: x, tile }));
    op(&mut k, OpKind::Comm(Comm::PostRecv { dir: west, dst: y, tile }));
    op(&mut k, OpKind::Comm(Comm::Await { value: y }));
    op(&mut k, OpKind::Math(Math::BinaryScalar { f: BinaryFn::Div, swapped: true, dst: y, a: y, scalar, tile }));
    op(&mut k, OpKind::Math(Math::Softmax { axis: 1, dst: y, a: y, tile }));
    op(&mut k, OpKind::Move(Move::Store { src: y, mem, tile, posted: false }));
    let body = builder.body(k.finish());
    for sip in 0..4 {
        let buffer = builder.buffer(Node::Hbm(PeId(sip)), 64);
        builder.agent(group, Coord { sip, cube: 0, pe: 0 }, PeId(sip), body, &[buffer]).unwrap();
    }
    builder.finish(ChannelSettings { slots: 4, slot_bytes: None, tier: 0, credit_bytes: 16 }).unwrap()
}

#[test]
fn text_names_agents_operands_and_origins() {
    let expected = "\
program softmax: 4 agents, 1 bodies, 28 operations, 4 channels, 4 buffers, 0 counters, 0 barriers
4 queues of 1 slots of 32 bytes in tier 0, credits of 16 bytes

body 0, 4 agents: sip 0 cube 0 pe 0, sip 1 cube 0 pe 0, sip 2 cube 0 pe 0, sip 3 cube 0 pe 0
    0  %0 = load f16[2x8] from buffer 0 + 32      k.py:1
    1  send(dir=\"global_E\") f16[2x8] %0           k.py:2
    2  %1 = recv_async(dir=\"global_W\") f16[2x8]   k.py:3
    3  wait %1                                    k.py:4
    4  %1 = div f16[2x8] %1 0.5 swapped           k.py:5
    5  %1 = softmax f16[2x8] %1 axis 1            k.py:6
    6  store f16[2x8] %1 to buffer 0 + 32         k.py:7
";
    let text = program("softmax", "k.py", 0.5).text();
    // Origins are aligned; how far is not the point.
    let squeeze = |s: &str| s.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
    assert_eq!(squeeze(&text), squeeze(expected));
}

#[test]
fn the_hash_sees_what_runs_and_nothing_else() {
    let hash = program("a", "k.py", 0.5).hash();
    assert_eq!(hash, program("b", "moved.py", 0.5).hash());
    assert_ne!(hash, program("a", "k.py", 0.25).hash());
    type Change = fn(&mut Program);
    let changes: [Change; 8] = [
        |p| p.channels[3].slots = 5,
        |p| p.channels.swap(0, 1),
        |p| p.agents[2].rank = 7,
        |p| p.agents[2].place = PeId(9),
        |p| p.buffers[1].bytes += 1,
        |p| p.buffers[1].node = Node::Pe(PeId(1)),
        |p| p.counters = 1,
        |p| p.barriers.push(0),
    ];
    let mut seen = vec![hash];
    for change in changes {
        let mut p = program("a", "k.py", 0.5);
        change(&mut p);
        assert!(!seen.contains(&p.hash()));
        seen.push(p.hash());
    }
}

#[test]
fn the_hash_is_the_same_everywhere() {
    assert_eq!(format!("{:016x}", program("a", "k.py", 0.5).hash()), "9bc75619b2be3dc9");
}
