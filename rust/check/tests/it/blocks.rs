//! Thread blocks, written operation by operation.

use ahbm_check::{CheckOptions, Verdict, check};
use ahbm_machine::{Coord, Direction, Node, PeId};
use ahbm_plan::Expectation;
use ahbm_program::{
    AgentId, BinaryFn, BodyBuilder, BufferId, ChannelSettings, Comm, Dtype, Locus, Math, Mem, Move, OpKind, Origin,
    Program, ProgramBuilder, Tile,
};

/// Writes one thread block whose elements are `i64`.
pub(crate) struct Block<'b> {
    builder: &'b mut ProgramBuilder,
    body: BodyBuilder,
    rank: u32,
}

impl<'b> Block<'b> {
    pub(crate) fn new(builder: &'b mut ProgramBuilder, rank: u32) -> Self {
        Self { builder, body: BodyBuilder::new(), rank }
    }

    pub(crate) fn op(mut self, make: impl FnOnce(&mut BodyBuilder, u32) -> OpKind) -> Self {
        let line = self.body.len() as u32 + 1;
        let file = format!("rank{}.xml", self.rank).into();
        let origin = self.builder.origins.intern(Origin { file, locus: Locus::Line(line) });
        let tile = self.body.tile(Tile::new(Dtype::I64, &[1]));
        let kind = make(&mut self.body, tile);
        self.body.push(kind, 1, origin);
        self
    }

    pub(crate) fn load(self, dst: u32, buffer: u16, element: u64) -> Self {
        self.op(|body, tile| {
            let mem = body.mem(Mem { buffer, offset: 8 * element });
            OpKind::Move(Move::Load { dst: ahbm_program::ValueId(dst), mem, tile })
        })
    }

    pub(crate) fn store(self, src: u32, buffer: u16, element: u64) -> Self {
        self.op(|body, tile| {
            let mem = body.mem(Mem { buffer, offset: 8 * element });
            OpKind::Move(Move::Store { src: ahbm_program::ValueId(src), mem, tile, posted: false })
        })
    }

    /// Writes without waiting for the end.
    pub(crate) fn post(self, src: u32, buffer: u16, element: u64) -> Self {
        self.op(|body, tile| {
            let mem = body.mem(Mem { buffer, offset: 8 * element });
            OpKind::Move(Move::Store { src: ahbm_program::ValueId(src), mem, tile, posted: true })
        })
    }

    pub(crate) fn add(self, dst: u32, a: u32, b: u32) -> Self {
        self.unite(BinaryFn::Add, dst, a, b)
    }

    pub(crate) fn unite(self, f: BinaryFn, dst: u32, a: u32, b: u32) -> Self {
        let v = ahbm_program::ValueId;
        self.op(|_, tile| OpKind::Math(Math::Binary { f, dst: v(dst), a: v(a), b: v(b), tile }))
    }

    pub(crate) fn send(self, to: u32, src: u32) -> Self {
        self.op(|body, tile| {
            let dir = body.direction(Direction::Tag { rank: to, channel: 0 });
            OpKind::Comm(Comm::Send { dir, src: ahbm_program::ValueId(src), tile })
        })
    }

    pub(crate) fn recv(self, from: u32, dst: u32) -> Self {
        self.op(|body, tile| {
            let dir = body.direction(Direction::Tag { rank: from, channel: 0 });
            OpKind::Comm(Comm::Recv { dir, dst: ahbm_program::ValueId(dst), tile })
        })
    }

    /// Receives from anyone that a direction leads to.
    pub(crate) fn receive(self, dst: u32) -> Self {
        self.op(|_, tile| OpKind::Comm(Comm::RecvAny { dst: ahbm_program::ValueId(dst), tile }))
    }

    /// Has directions to these ranks, used or not.
    pub(crate) fn directed(mut self, ranks: &[u32]) -> Self {
        for &rank in ranks {
            self.body.direction(Direction::Tag { rank, channel: 0 });
        }
        self
    }

    pub(crate) fn plain(self, kind: OpKind) -> Self {
        self.op(|_, _| kind)
    }

    pub(crate) fn stand(mut self, buffers: &[BufferId]) -> ahbm_program::AgentId {
        for _ in 0..4 {
            self.body.value();
        }
        let coord = Coord { sip: self.rank, cube: 0, pe: 0 };
        let body = self.builder.body(self.body.finish());
        self.builder.thread_block(self.rank, coord, PeId(self.rank), body, buffers)
    }
}

pub(crate) fn buffers(builder: &mut ProgramBuilder, ranks: u32, elements: u64) -> Vec<BufferId> {
    (0..ranks).map(|r| builder.buffer(Node::Hbm(PeId(r)), 8 * elements)).collect()
}

pub(crate) fn finish(builder: ProgramBuilder, slots: u32) -> Program {
    builder.finish(ChannelSettings { slots, slot_bytes: None, tier: 0, credit_bytes: 16 }).expect("a sound program")
}

/// Joins one rank's direction to another with that rank's direction to it.
pub(crate) fn tags(builder: &mut ProgramBuilder, agents: &[AgentId], from: usize, to: usize) {
    let tag = |rank: usize| Direction::Tag { rank: rank as u32, channel: 0 };
    builder.connect((agents[from], tag(to)), (agents[to], tag(from)));
}

pub(crate) fn run(program: &Program, expectation: &Expectation) -> Verdict {
    check(program, expectation, &CheckOptions::default())
}
