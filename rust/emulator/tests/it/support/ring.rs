//! Programs and machines that several tests and benchmarks share.

use ahbm_machine::{Coord, Direction, Machine, Sfr};
use ahbm_program::{BinaryFn, BodyBuilder, ChannelSettings, Comm, Dtype, Math, Program, ProgramBuilder, Tile};

/// `slots` slots of the first tier, sized to the largest message.
pub(crate) fn settings(slots: u32) -> ChannelSettings {
    ChannelSettings { slots, slot_bytes: None, tier: 0, credit_bytes: 16 }
}

/// One PE per SIP and nothing between it and its SIP links: a plain network of `sips` NPUs.
pub(crate) fn npu_network(topology: &str, sips: u32, latency_ns: f64, bandwidth_gbs: f64, model: &str) -> Machine {
    npu_network_of(topology, sips, latency_ns, bandwidth_gbs, model, "per_link")
}

/// The same with so many DMA channels.
pub(crate) fn npu_network_of(
    topology: &str,
    sips: u32,
    latency_ns: f64,
    bandwidth_gbs: f64,
    model: &str,
    channels: &str,
) -> Machine {
    let overrides = [
        ("pe.dma.channels", channels.to_string()),
        ("system.network_model", model.to_string()),
        ("system.sips.count", sips.to_string()),
        ("system.sips.topology", topology.to_string()),
        ("system.sips.link.latency_ns", latency_ns.to_string()),
        ("system.sips.link.bandwidth_gbs", bandwidth_gbs.to_string()),
    ];
    let overrides = overrides.map(|(k, v)| (k.to_string(), v));
    let text = include_str!("../../../../../python/ahbm/data/topologies/npu_ring_8.yaml");
    Machine::from_yaml(text, "npu_ring_8.yaml", &overrides).expect("a valid machine")
}

/// Every rank sends `rounds` messages of `bytes` to rank + 1, each after receiving and adding the one
/// before: the communication of a ring all-reduce with 2(n-1) rounds. All agents share one body.
pub(crate) fn ring(machine: &Machine, rounds: u32, bytes: u32, slots: u32) -> Program {
    let sips: Vec<u32> = (0..machine.sfr().sips).collect();
    ring_of(machine, machine.sfr().clone(), &sips, rounds, bytes, slots)
}

/// The same between the SIPs `sips`, whose network is `shape`.
pub(crate) fn ring_of(machine: &Machine, shape: Sfr, sips: &[u32], rounds: u32, bytes: u32, slots: u32) -> Program {
    let mut builder = ProgramBuilder::new("ring");
    let group = builder.group(shape);
    let origin =
        builder.origins.intern(ahbm_program::Origin { file: "ring.rs".into(), locus: ahbm_program::Locus::Whole });
    let mut body = BodyBuilder::new();
    let tile = body.tile(Tile::new(Dtype::U8, &[bytes.into()]));
    let scalar = body.scalar(ahbm_program::Scalar::Int(1));
    let east = body.direction(Direction::parse("global_E").expect("a direction"));
    let west = body.direction(Direction::parse("global_W").expect("a direction"));
    let (mine, theirs) = (body.value(), body.value());
    body.push(Math::Fill { dst: mine, scalar, tile }, 0, origin);
    for _ in 0..rounds {
        body.push(Comm::Send { dir: east, src: mine, tile }, 1, origin);
        body.push(Comm::Recv { dir: west, dst: theirs, tile }, 1, origin);
        body.push(Math::Binary { f: BinaryFn::Add, dst: mine, a: mine, b: theirs, tile }, 1, origin);
    }
    let body = builder.body(body.finish());
    for (rank, &sip) in (0..).zip(sips) {
        let place = machine.pe(Coord { sip, cube: 0, pe: 0 }).expect("in range");
        builder.agent(group, Coord { sip: rank, cube: 0, pe: 0 }, place, body, &[]).expect("one agent per SIP");
    }
    builder.finish(settings(slots)).expect("every direction has a neighbour")
}
