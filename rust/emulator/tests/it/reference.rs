//! Published end-to-end checks of the reference simulator that no kernel can express.

use ahbm_emulator::{Options, simulate};
use ahbm_machine::{Coord, Machine, Node};
use ahbm_program::{BodyBuilder, ChannelSettings, Dtype, Locus, Mem, Move, Origin, ProgramBuilder, Tile};

/// Host memory to a PE's HBM slice over the 128 GB/s UCIe connection: 545 ns for 64 KiB, 8230 ns for 1 MiB.
#[test]
fn a_host_write_drains_at_the_ucie_rate() {
    let text = include_str!("../../../../python/ahbm/data/topologies/reference_torus.yaml");
    // The host brings its own DMA engine: neither dispatch nor the PE's descriptor set-up is part of it.
    let overrides = ["pe.dispatch_ns", "pe.dma.setup_ns"].map(|key| (key.to_string(), "0".to_string()));
    let machine = Machine::from_yaml(text, "reference_torus.yaml", &overrides).expect("a valid machine");
    for (bytes, published) in [(65_536u32, 545.0), (1 << 20, 8230.0)] {
        let mut builder = ProgramBuilder::new("host write");
        let group = builder.group(machine.sfr().clone());
        let at = Coord { sip: 0, cube: 0, pe: 0 };
        let pe = machine.pe(at).expect("in range");
        let host = builder.buffer(Node::Io(0), u64::from(bytes));
        let hbm = builder.buffer(Node::Hbm(pe), u64::from(bytes));
        let origin = builder.origins.intern(Origin { file: "host".into(), locus: Locus::Whole });
        let mut body = BodyBuilder::new();
        let tile = body.tile(Tile::new(Dtype::U8, &[bytes.into()]));
        let (src, dst) = (body.mem(Mem { buffer: 0, offset: 0 }), body.mem(Mem { buffer: 1, offset: 0 }));
        body.push(Move::Copy { src, dst, tile, posted: false }, 0, origin);
        let body = builder.body(body.finish());
        builder.agent(group, at, pe, body, &[host, hbm]).expect("one agent");
        let settings = ChannelSettings { slots: 1, slot_bytes: None, tier: 0, credit_bytes: 16 };
        let program = builder.finish(settings).expect("no channels");
        let ns = simulate(&program, &machine, &Options::default()).expect("a copy ends").latency as f64 / 1000.0;
        assert!((ns / published - 1.0).abs() < 0.02, "{bytes} B: {ns} ns, published {published} ns");
    }
}
