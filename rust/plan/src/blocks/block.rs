//! The operations of one thread block.

use super::layout::{Layout, Pass};
use super::posts::Posts;
use super::{Action, Block, Slot, Step};
use crate::RankBuffers;
use ahbm_machine::Direction;
use ahbm_program::{BodyBuilder, Comm, Control, Math, Mem, Move, OpKind, OriginId, Tile, ValueId};

/// Reductions into one place that a runtime does in one pass over it, at most.
const MAX_FUSED: usize = 16;

/// Writes the body of one thread block.
pub(super) struct Writer<'a> {
    pub(super) body: BodyBuilder,
    layout: &'a Layout,
    instance: u32,
    buffers: &'a RankBuffers,
    posts: &'a Posts,
    /// Dispatches to be charged to the next operation: one per step.
    calls: u16,
}

impl<'a> Writer<'a> {
    pub(super) fn new(layout: &'a Layout, instance: u32, buffers: &'a RankBuffers, posts: &'a Posts) -> Self {
        Self { body: BodyBuilder::new(), layout, instance, buffers, posts, calls: 0 }
    }

    /// All steps, once per slice. `own` is the counter that the block's posting steps signal.
    pub(super) fn block(&mut self, block: &Block, channel: u32, own: u32, mut origin: impl FnMut(u32) -> OriginId) {
        let origins: Vec<OriginId> = block.steps.iter().map(|s| origin(s.line)).collect();
        let direction = |body: &mut BodyBuilder, peer: Option<u32>| {
            peer.map_or(0, |rank| body.direction(Direction::Tag { rank, channel }))
        };
        let way = Way { send: direction(&mut self.body, block.send), recv: direction(&mut self.body, block.recv) };
        for (slice, pass) in self.layout.passes(self.instance).enumerate() {
            let mut index = 0;
            while let Some(step) = block.steps.get(index) {
                let at = origins[index];
                if let Some(dep) = step.wait {
                    let (counter, at_least) = self.posts.goal(dep, slice as u32);
                    self.body.push(Control::WaitCounter { counter, at_least }, 0, at);
                }
                let fused = fused(&block.steps[index..]);
                self.calls = u16::from(step.action != Action::Nop);
                for (k, chunks) in self.layout.groups(step.count) {
                    let moves = Moves { pass, k, chunks, way, at };
                    self.step(&block.steps[index..index + fused], &moves);
                }
                index += fused;
                if block.steps[index - 1].posts {
                    self.body.push(Control::Signal { counter: own, add: 1, posted: false }, 0, origins[index - 1]);
                }
            }
        }
    }

    /// One message's worth of a step, or of reductions that run as one.
    fn step(&mut self, steps: &[Step], m: &Moves) {
        let step = &steps[0];
        let tile = self.body.tile(Tile::new(self.layout.dtype, &[m.pass.elements * u64::from(m.chunks)]));
        let src = self.mem(step.src, m, step.action.reads());
        let dst = self.mem(step.dst, m, step.action.writes());
        match step.action {
            Action::Nop => {}
            Action::Copy => self.push(Move::Copy { src, dst, tile, posted: false }, m),
            Action::Send => {
                let value = self.load(src, tile, m);
                self.send(value, tile, m);
                self.body.release(value);
            }
            Action::Recv | Action::RecvCopySend => {
                self.await_slot(step, m);
                let value = self.recv(tile, m);
                self.push(Move::Store { src: value, mem: dst, tile, posted: false }, m);
                if step.action.sends() {
                    self.send(value, tile, m);
                }
                self.body.release(value);
            }
            Action::RecvReduceCopy | Action::RecvReduceSend | Action::RecvReduceCopySend => {
                self.await_slot(step, m);
                let incoming = self.recv(tile, m);
                let mine = self.load(src, tile, m);
                self.combine(mine, mine, incoming, tile, m);
                self.body.release(incoming);
                if step.action.writes() {
                    self.push(Move::Store { src: mine, mem: dst, tile, posted: false }, m);
                }
                if step.action.sends() {
                    self.send(mine, tile, m);
                }
                self.body.release(mine);
            }
            Action::Reduce => {
                let sum = self.load(dst, tile, m);
                for other in steps {
                    let src = self.mem(other.src, m, true);
                    let value = self.load(src, tile, m);
                    self.combine(sum, sum, value, tile, m);
                    self.body.release(value);
                }
                self.push(Move::Store { src: sum, mem: dst, tile, posted: false }, m);
                self.body.release(sum);
            }
        }
    }

    fn mem(&mut self, slot: Slot, m: &Moves, used: bool) -> u32 {
        if !used {
            return 0;
        }
        let (buffer, region) = self.buffers.region(slot.space);
        let element = (u64::from(slot.chunk) + u64::from(m.k)) * self.layout.chunk + m.pass.from;
        self.body.mem(Mem { buffer, offset: region.offset + element * self.layout.dtype.bytes() })
    }

    fn push(&mut self, kind: impl Into<OpKind>, m: &Moves) {
        self.body.push(kind, std::mem::take(&mut self.calls), m.at);
    }

    /// A step that passes a message on moves it from slot to slot: it holds the one until it has the other.
    fn await_slot(&mut self, step: &Step, m: &Moves) {
        if step.action.sends() {
            self.push(Comm::AwaitSlot { dir: m.way.send }, m);
        }
    }

    fn load(&mut self, mem: u32, tile: u32, m: &Moves) -> ValueId {
        let dst = self.body.value();
        self.push(Move::Load { dst, mem, tile }, m);
        dst
    }

    fn recv(&mut self, tile: u32, m: &Moves) -> ValueId {
        let dst = self.body.value();
        self.push(Comm::Recv { dir: m.way.recv, dst, tile }, m);
        dst
    }

    fn send(&mut self, src: ValueId, tile: u32, m: &Moves) {
        self.push(Comm::Send { dir: m.way.send, src, tile }, m);
    }

    fn combine(&mut self, dst: ValueId, a: ValueId, b: ValueId, tile: u32, m: &Moves) {
        self.push(Math::Binary { f: self.layout.reduce, dst, a, b, tile }, m);
    }
}

/// Directions of a thread block by index into its body.
#[derive(Clone, Copy)]
struct Way {
    send: u16,
    recv: u16,
}

/// One message's worth of a step: `chunks` chunks from the step's `k`-th on.
struct Moves {
    pass: Pass,
    k: u32,
    chunks: u32,
    way: Way,
    at: OriginId,
}

/// How many steps from the first on run as one: reductions into one place from one buffer, with nothing that
/// waits or posts between them.
fn fused(steps: &[Step]) -> usize {
    let first = &steps[0];
    let joins = |pair: &[Step]| {
        let next = &pair[1];
        next.action == Action::Reduce
            && !pair[0].posts
            && next.wait.is_none()
            && (next.dst, next.src.space, next.count) == (first.dst, first.src.space, first.count)
    };
    if first.action != Action::Reduce {
        return 1;
    }
    1 + steps.windows(2).take(MAX_FUSED - 1).take_while(|pair| joins(pair)).count()
}
