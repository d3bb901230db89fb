//! Messages between two ranks.

use super::ring::settings;
use ahbm_machine::{Coord, Direction, Machine};
use ahbm_program::{BodyBuilder, Comm, Dtype, Locus, Math, OpKind, Origin, Program, ProgramBuilder, Scalar, Tile};

/// `messages` of `bytes` from `src` to `dst`.
pub(crate) fn transfer(machine: &Machine, src: u32, dst: u32, messages: u32, bytes: u32) -> Program {
    let mut builder = ProgramBuilder::new("transfer");
    let origin = builder.origins.intern(Origin { file: format!("{src} to {dst}").into(), locus: Locus::Whole });
    let add = |builder: &mut ProgramBuilder, rank: u32, peer: u32| {
        let mut body = BodyBuilder::new();
        let tile = body.tile(Tile::new(Dtype::U8, &[bytes.into()]));
        let dir = body.direction(Direction::Tag { rank: peer, channel: 0 });
        let value = body.value();
        if rank == src {
            let scalar = body.scalar(Scalar::Int(1));
            body.push(Math::Fill { dst: value, scalar, tile }, 1, origin);
        }
        for _ in 0..messages {
            let send = OpKind::Comm(Comm::Send { dir, src: value, tile });
            body.push(if rank == src { send } else { OpKind::Comm(Comm::Recv { dir, dst: value, tile }) }, 1, origin);
        }
        let body = builder.body(body.finish());
        let coord = Coord { sip: rank, cube: 0, pe: 0 };
        builder.thread_block(rank, coord, machine.pe(coord).expect("a PE"), body, &[])
    };
    let (from, to) = (add(&mut builder, src, dst), add(&mut builder, dst, src));
    let tag = |rank| Direction::Tag { rank, channel: 0 };
    builder.connect((from, tag(dst)), (to, tag(src)));
    builder.finish(settings(4)).expect("sound")
}
