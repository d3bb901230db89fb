//! Hand-built programs for the data pass: no machine, no timing.
#![allow(dead_code, unreachable_pub)]

use ahbm_emulator::{Memory, Span, Timeline};
use ahbm_machine::{Coord, Direction, Heading, Node, PeId};
use ahbm_program::{
    Agent, AgentId, Body, BodyBuilder, Buffer, BufferId, Channel, ChannelId, Comm, Locus, Mem, Move, OpKind, Origin,
    OriginId, Program, Tile, ValueId,
};
use std::sync::Arc;

pub const E: Direction = Direction::Cube(Heading::E);
pub const W: Direction = Direction::Cube(Heading::W);

/// A body under construction; every operation gets the origin `k.py:<n>`, n counting from 1.
#[derive(Default)]
pub struct Kernel {
    pub body: BodyBuilder,
}

impl Kernel {
    pub fn op(&mut self, kind: OpKind) -> &mut Self {
        let line = OriginId(self.body.len() as u32);
        self.body.push(kind, 1, line);
        self
    }

    pub fn load(&mut self, buffer: u16, offset: u64, tile: &Tile) -> ValueId {
        let (dst, mem, tile) = (self.body.value(), self.body.mem(Mem { buffer, offset }), self.body.tile(tile.clone()));
        self.op(OpKind::Move(Move::Load { dst, mem, tile }));
        dst
    }

    pub fn store(&mut self, src: ValueId, buffer: u16, offset: u64, tile: &Tile) {
        let (mem, tile) = (self.body.mem(Mem { buffer, offset }), self.body.tile(tile.clone()));
        self.op(OpKind::Move(Move::Store { src, mem, tile, posted: false }));
    }

    pub fn send(&mut self, direction: Direction, src: ValueId, tile: &Tile) {
        let (dir, tile) = (self.body.direction(direction), self.body.tile(tile.clone()));
        self.op(OpKind::Comm(Comm::Send { dir, src, tile }));
    }

    pub fn recv(&mut self, direction: Direction, tile: &Tile) -> ValueId {
        let (dir, dst, tile) = (self.body.direction(direction), self.body.value(), self.body.tile(tile.clone()));
        self.op(OpKind::Comm(Comm::Recv { dir, dst, tile }));
        dst
    }

    pub fn post(&mut self, direction: Direction, tile: &Tile) -> ValueId {
        let (dir, dst, tile) = (self.body.direction(direction), self.body.value(), self.body.tile(tile.clone()));
        self.op(OpKind::Comm(Comm::PostRecv { dir, dst, tile }));
        dst
    }

    pub fn finish(&mut self) -> Body {
        std::mem::take(&mut self.body).finish()
    }
}

/// A ring of agents: `E` leads to the next, `W` to the previous. Agent i owns buffer i of `bytes` bytes.
pub fn ring(bodies: Vec<Body>, bytes: u64) -> Program {
    let n = bodies.len() as u32;
    let mut program = Program { name: "test".into(), ..Program::default() };
    for line in 1..200 {
        program.origins.intern(Origin { file: "k.py".into(), locus: Locus::Line(line) });
    }
    // Channel 2i: i sends E to i + 1; channel 2i + 1: i sends W to i - 1.
    for i in 0..n {
        for (to, way, back) in [((i + 1) % n, E, W), ((i + n - 1) % n, W, E)] {
            program.channels.push(Channel {
                sender: AgentId(i),
                receiver: AgentId(to),
                sender_direction: way,
                receiver_direction: back,
                slots: 4,
                slot_bytes: 1 << 20,
                tier: 0,
                credit_bytes: 16,
                wire: ahbm_program::WireFactor::ONE,
            });
        }
    }
    for (i, body) in bodies.into_iter().enumerate() {
        let i = i as u32;
        let channels = program.channel_table.len() as u32;
        for &direction in body.directions.iter() {
            let (tx, rx) =
                if direction == E { (2 * i, 2 * ((i + 1) % n) + 1) } else { (2 * i + 1, 2 * ((i + n - 1) % n)) };
            program.channel_table.extend([ChannelId(tx), ChannelId(rx)]);
        }
        program.buffers.push(Buffer { node: Node::Hbm(PeId(i)), bytes });
        program.buffer_table.push(BufferId(i));
        program.agents.push(Agent {
            coord: Coord { sip: i, cube: 0, pe: 0 },
            place: PeId(i),
            body: i,
            channels,
            buffers: i,
            rank: i,
            costs: 0,
        });
        program.bodies.push(Arc::new(body));
    }
    program
}

/// Lets every agent use every buffer, by its index.
pub fn share_buffers(program: &mut Program) {
    program.buffer_table = (0..program.buffers.len() as u32).map(BufferId).collect();
    program.agents.iter_mut().for_each(|a| a.buffers = 0);
}

/// A timeline with the given end times per agent.
pub fn timeline(ends: &[&[u64]]) -> Timeline {
    let spans = ends.iter().map(|e| e.iter().map(|&end| Span { start: end, end }).collect()).collect();
    Timeline { spans, ..Timeline::default() }
}

pub fn put<T: bytemuck::Pod>(memory: &mut Memory, buffer: u32, offset: usize, data: &[T]) {
    let bytes: &[u8] = bytemuck::cast_slice(data);
    memory.bytes_mut(BufferId(buffer))[offset..offset + bytes.len()].copy_from_slice(bytes);
}

pub fn get<T: bytemuck::Pod>(memory: &Memory, buffer: u32, offset: usize, n: usize) -> Vec<T> {
    let bytes = &memory.bytes(BufferId(buffer))[offset..offset + n * size_of::<T>()];
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}
