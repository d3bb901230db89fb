//! How directions become channels.

use ahbm_machine::{Coord, Direction, Heading, PeId, Sfr};
use ahbm_program::{
    AgentId, BodyBuilder, ChannelId, ChannelSettings, Comm, Dtype, Math, OpKind, OriginId, Program, ProgramBuilder,
    Tile,
};

const E: Direction = Direction::Global(Heading::E);
const W: Direction = Direction::Global(Heading::W);
const SETTINGS: ChannelSettings = ChannelSettings { slots: 4, slot_bytes: None, tier: 2, credit_bytes: 16 };

/// `true` sends, `false` receives; the number is the element count.
type Message = (bool, Direction, u32);

fn build(sips: u32, agents: &[&[Message]]) -> Result<Program, Vec<ahbm_findings::Diagnostic>> {
    let mut builder = ProgramBuilder::new("test");
    let group = builder.group(Sfr::ring(sips));
    for (sip, messages) in agents.iter().enumerate() {
        let mut k = BodyBuilder::new();
        let value = k.value();
        for &(send, direction, n) in *messages {
            let (dir, tile) = (k.direction(direction), k.tile(Tile::new(Dtype::U8, &[n.into()])));
            let kind = if send {
                OpKind::Comm(Comm::Send { dir, src: value, tile })
            } else {
                OpKind::Comm(Comm::Recv { dir, dst: value, tile })
            };
            k.push(kind, 1, OriginId(0));
        }
        let body = builder.body(k.finish());
        let sip = sip as u32;
        builder.agent(group, Coord { sip, cube: 0, pe: 0 }, PeId(sip), body, &[]).unwrap();
    }
    builder.finish(SETTINGS)
}

#[test]
fn east_and_west_of_a_ring_of_two_are_two_queues() {
    let both: &[Message] = &[(true, E, 1), (true, W, 1), (false, E, 1), (false, W, 1)];
    let p = build(2, &[both, both]).unwrap();
    assert_eq!(p.channels.len(), 4);
    for (me, other) in [(AgentId(0), AgentId(1)), (AgentId(1), AgentId(0))] {
        assert_ne!(p.tx(me, 0), p.tx(me, 1));
        // What leaves eastward arrives from the west.
        assert_eq!(p.tx(me, 0), p.rx(other, 1));
        assert_eq!(p.tx(me, 1), p.rx(other, 0));
        let east = p.channels[p.tx(me, 0).0 as usize];
        assert_eq!((east.sender, east.receiver), (me, other));
        assert_eq!((east.sender_direction, east.receiver_direction), (E, W));
    }
}

#[test]
fn unused_ways_have_no_channel_and_bodies_are_shared() {
    let forward: &[Message] = &[(true, E, 3), (false, W, 3)];
    let p = build(5, &[forward; 5]).unwrap();
    assert_eq!((p.channels.len(), p.bodies.len()), (5, 1));
    assert_eq!((p.rx(AgentId(2), 0), p.tx(AgentId(2), 1)), (ChannelId::NONE, ChannelId::NONE));
    assert_eq!(p.tx(AgentId(4), 0), p.rx(AgentId(0), 1));
    assert!(ahbm_program::structure(&p).iter().all(|d| d.code != "AHBM-L110"));
}

#[test]
fn automatic_slots_hold_the_largest_message_of_either_side() {
    let p = build(2, &[&[(true, E, 3), (true, E, 70)], &[(false, W, 3), (false, W, 90)]]).unwrap();
    assert_eq!((p.channels.len(), p.channels[0].slot_bytes, p.channels[0].tier), (1, 90, 2));
}

#[test]
fn directions_that_lead_nowhere_are_found_together() {
    let north = Direction::Cube(Heading::N);
    let found = build(4, &[&[(true, north, 1)], &[(true, E, 1), (false, E, 1)], &[], &[(true, W, 1)]]);
    assert_eq!(found.unwrap_err().iter().map(|d| d.code).collect::<Vec<_>>(), ["AHBM-L101"]);
    let found = build(4, &[&[(true, W, 1)], &[(true, north, 1)]]).unwrap_err();
    assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), ["AHBM-L102", "AHBM-L101"]);
    assert!(found.iter().all(|d| d.hint.is_some() && !d.sites.is_empty()));
}

#[test]
fn two_agents_cannot_stand_at_one_place() {
    let mut builder = ProgramBuilder::new("test");
    let group = builder.group(Sfr::ring(2));
    let other = builder.group(Sfr::ring(2));
    let body = builder.body(BodyBuilder::new().finish());
    let at = Coord { sip: 0, cube: 0, pe: 0 };
    builder.agent(group, at, PeId(0), body, &[]).unwrap();
    assert_eq!(builder.agent(group, at, PeId(0), body, &[]).unwrap_err().code, "AHBM-L106");
    assert!(builder.agent(other, at, PeId(0), body, &[]).is_ok());
}

/// A queue that is sized to its messages never has more slots than messages: what could not be used would
/// still have to fit the memory.
#[test]
fn automatic_slots_are_as_many_as_messages_at_most() {
    use ahbm_machine::{Coord, Direction, PeId, Sfr};
    use ahbm_program::{BodyBuilder, ChannelSettings, Dtype, Locus, OpKind, Origin, ProgramBuilder, Scalar, Tile};
    let build = |slots, slot_bytes, messages| {
        let mut builder = ProgramBuilder::new("pipe");
        let group = builder.group(Sfr::ring(2));
        let origin = builder.origins.intern(Origin { file: "pipe".into(), locus: Locus::Whole });
        for sip in 0..2 {
            let mut body = BodyBuilder::new();
            let tile = body.tile(Tile::new(Dtype::U8, &[8]));
            let (value, scalar) = (body.value(), body.scalar(Scalar::Int(0)));
            let dir = body.direction(Direction::parse(["global_E", "global_W"][sip as usize]).unwrap());
            body.push(Math::Fill { dst: value, scalar, tile }, 1, origin);
            for _ in 0..messages {
                let kind = match sip {
                    0 => OpKind::Comm(Comm::Send { dir, src: value, tile }),
                    _ => OpKind::Comm(Comm::Recv { dir, dst: value, tile }),
                };
                body.push(kind, 1, origin);
            }
            let body = builder.body(body.finish());
            builder.agent(group, Coord { sip, cube: 0, pe: 0 }, PeId(sip), body, &[]).unwrap();
        }
        let settings = ChannelSettings { slots, slot_bytes, tier: 0, credit_bytes: 16 };
        builder.finish(settings).unwrap().channels[0].slots
    };
    assert_eq!(build(4, None, 2), 2);
    assert_eq!(build(4, None, 9), 4);
    assert_eq!(build(4, Some(64), 2), 4);
    assert_eq!(build(u32::MAX, Some(64), 9), 9);
    assert_eq!(build(0, None, 9), 0);
}
