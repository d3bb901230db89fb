//! The lints against a real machine.

use ahbm_machine::{Coord, Direction, Heading, Machine, Node, PeId};
use ahbm_program::{
    BodyBuilder, ChannelSettings, Comm, Dtype, Locus, Mem, Move, OpKind, Origin, Program, ProgramBuilder, Tile, lint,
};

fn machine() -> Machine {
    Machine::from_yaml("system: {sips: {count: 8, topology: ring_1d}}", "ring.yaml", &[]).unwrap()
}

/// Every SIP sends `elements` f16 of its buffer eastward and stores what comes from the west.
fn exchange(machine: &Machine, elements: u32, buffer_bytes: u64, slot_bytes: Option<u64>) -> Program {
    let mut builder = ProgramBuilder::new("exchange");
    let group = builder.group(machine.sfr().clone());
    let origin = builder.origins.intern(Origin { file: "k.py".into(), locus: Locus::Line(3) });
    let mut k = BodyBuilder::new();
    let (x, tile, mem) =
        (k.value(), k.tile(Tile::new(Dtype::F16, &[elements.into()])), k.mem(Mem { buffer: 0, offset: 0 }));
    let (east, west) = (k.direction(Direction::Global(Heading::E)), k.direction(Direction::Global(Heading::W)));
    for kind in [
        OpKind::Move(Move::Load { dst: x, mem, tile }),
        OpKind::Comm(Comm::Send { dir: east, src: x, tile }),
        OpKind::Comm(Comm::Recv { dir: west, dst: x, tile }),
        OpKind::Move(Move::Store { src: x, mem, tile, posted: false }),
    ] {
        k.push(kind, 1, origin);
    }
    let body = builder.body(k.finish());
    for sip in 0..machine.sfr().sips {
        let coord = Coord { sip, cube: 0, pe: 0 };
        let place = machine.pe(coord).unwrap();
        let buffer = builder.buffer(Node::Hbm(place), buffer_bytes);
        builder.agent(group, coord, place, body, &[buffer]).unwrap();
    }
    builder.finish(ChannelSettings { slots: 4, slot_bytes, tier: 0, credit_bytes: 16 }).unwrap()
}

fn codes(program: &Program, machine: &Machine) -> Vec<&'static str> {
    let mut codes: Vec<_> = lint(program, machine).iter().map(|d| d.code).collect();
    codes.dedup();
    codes
}

#[test]
fn a_clean_exchange_has_no_findings() {
    let machine = machine();
    assert_eq!(codes(&exchange(&machine, 2048, 4096, None), &machine), [""; 0]);
}

#[test]
fn several_faults_are_found_at_once() {
    let machine = machine();
    let capacity = machine.memory_bytes(Node::Hbm(PeId(0)));
    assert_eq!(codes(&exchange(&machine, 2048, 4095, Some(4095)), &machine), ["AHBM-L103", "AHBM-L105"]);
    assert_eq!(codes(&exchange(&machine, 2048, capacity + 1, None), &machine), ["AHBM-L108"]);
    assert_eq!(codes(&exchange(&machine, 8, u64::MAX, None), &machine), ["AHBM-L108"]);
}

#[test]
fn a_program_for_a_larger_machine_is_refused() {
    let machine = machine();
    let mut program = exchange(&machine, 8, 16, None);
    program.agents[0].place = PeId(1 << 20);
    assert_eq!(codes(&program, &machine), ["AHBM-L110"]);
}
