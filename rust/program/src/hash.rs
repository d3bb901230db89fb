//! A structural hash of programs, stable across runs, platforms and compilers.

use crate::{
    BinaryFn, Body, Comm, Control, Dtype, Duty, Math, Move, OpKind, Program, ReduceFn, Scalar, UnaryFn, ValueId,
    WireFactor,
};
use ahbm_machine::{Coord, Direction, Heading, Node};

/// Folded multiplication over 64-bit words with fixed constants; not cryptographic.
struct Hasher(u64);

impl Hasher {
    fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    fn word(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * 0xd6e8_feb8_6659_fd93;
        // The addend keeps a zero product from erasing what came before.
        self.0 = ((wide >> 64) as u64 ^ wide as u64).wrapping_add(word.rotate_left(23) ^ 0xa076_1d64_78bd_642f);
    }

    fn words<const N: usize>(&mut self, words: [u64; N]) {
        words.into_iter().for_each(|w| self.word(w));
    }

    /// A list's length goes first, so that neighbouring lists cannot trade elements.
    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.word(items.len() as u64);
        items.iter().for_each(|item| each(self, item));
    }
}

impl Program {
    /// A hash of everything that influences a run: agents, bodies, channels, buffers, counters and
    /// barriers. The program's name and its origins are left out, so editing comments in a source or
    /// moving it does not change the hash.
    ///
    /// Equal on every platform and in every run; may change between releases.
    pub fn hash(&self) -> u64 {
        let mut h = Hasher::new();
        h.list(&self.bodies, |h, b| body(h, b));
        h.list(&self.agents, |h, a| {
            coord(h, a.coord);
            h.words([a.place.0, a.body, a.channels, a.buffers, a.rank].map(u64::from));
            if a.costs > 0 {
                h.word(a.costs.into());
            }
        });
        h.list(&self.channels, |h, c| {
            h.words([c.sender.0, c.receiver.0].map(u64::from));
            direction(h, c.sender_direction);
            direction(h, c.receiver_direction);
            h.words([c.slots.into(), c.slot_bytes, c.tier.into(), c.credit_bytes]);
            if c.wire != WireFactor::ONE {
                let (num, den) = c.wire.parts();
                h.words([num, den].map(u64::from));
            }
        });
        h.list(&self.channel_table, |h, c| h.word(c.0.into()));
        h.list(&self.buffers, |h, b| {
            node(h, b.node);
            h.word(b.bytes);
        });
        h.list(&self.buffer_table, |h, b| h.word(b.0.into()));
        h.word(self.counters.into());
        h.list(&self.barriers, |h, &n| h.word(n.into()));
        for duty in &self.duties {
            h.words(match *duty {
                Duty::Host(sip) => [u64::MAX, sip.into()],
                Duty::Starter => [u64::MAX; 2],
                Duty::Launched(gate) => [gate.start, gate.end].map(u64::from),
            });
        }
        h.0
    }

    /// A hash of who does what with whom: ranks, kinds of operations, channels, counters and barriers. Sizes, element
    /// types, memory and physical places are left out, so an algorithm that takes the same steps at another size has the
    /// same hash.
    ///
    /// Equal on every platform and in every run; may change between releases.
    pub fn shape(&self) -> u64 {
        let mut h = Hasher::new();
        h.list(&self.bodies, |h, body| {
            h.list(&body.ops, |h, o| h.words([op(&o.kind)[0], o.kind.direction().map_or(0, |dir| u64::from(dir) + 1)]));
        });
        h.list(&self.agents, |h, a| h.words([a.rank, a.body, a.channels].map(u64::from)));
        h.list(&self.channels, |h, c| h.words([c.sender.0, c.receiver.0].map(u64::from)));
        h.list(&self.channel_table, |h, c| h.word(c.0.into()));
        h.word(self.counters.into());
        h.list(&self.barriers, |h, &n| h.word(n.into()));
        h.0
    }
}

fn body(h: &mut Hasher, body: &Body) {
    h.list(&body.ops, |h, o| {
        h.words(op(&o.kind));
        h.word(o.calls.into());
    });
    h.list(&body.tiles, |h, t| {
        h.word(dtype(t.dtype));
        h.list(&t.shape, |h, &d| h.word(d));
    });
    h.word(body.mems.len() as u64);
    body.mems.iter().for_each(|m| h.words([m.buffer.into(), m.offset]));
    // Programs without groups have the hashes that they had before there were any.
    if !body.groups.is_empty() {
        h.list(&body.groups, |h, group| h.list(group, |h, &mem| h.word(mem.into())));
    }
    h.list(&body.directions, |h, &d| direction(h, d));
    h.list(&body.scalars, |h, s| match *s {
        Scalar::Float(bits) => h.words([0, bits]),
        Scalar::Int(n) => h.words([1, n as u64, (n >> 64) as u64]),
    });
    h.word(body.values.into());
}

/// The numbers below are part of the hash: append, never renumber.
fn op(kind: &OpKind) -> [u64; 7] {
    let v = |v: ValueId| u64::from(v.0);
    let t = u64::from;
    match *kind {
        OpKind::Move(Move::Load { dst, mem, tile }) => [0, v(dst), t(mem), t(tile), 0, 0, 0],
        OpKind::Move(Move::Store { src, mem, tile, posted }) => [1, v(src), t(mem), t(tile), posted.into(), 0, 0],
        OpKind::Move(Move::Copy { src, dst, tile, posted }) => [2, t(src), t(dst), t(tile), posted.into(), 0, 0],
        OpKind::Math(Math::Fill { dst, scalar, tile }) => [3, v(dst), t(scalar), t(tile), 0, 0, 0],
        OpKind::Math(Math::Arange { dst, start, tile }) => [4, v(dst), t(start), t(tile), 0, 0, 0],
        OpKind::Math(Math::Unary { f, dst, a, tile }) => [5, unary(f), v(dst), v(a), t(tile), 0, 0],
        OpKind::Math(Math::Binary { f, dst, a, b, tile }) => [6, binary(f), v(dst), v(a), v(b), t(tile), 0],
        OpKind::Math(Math::BinaryScalar { f, swapped, dst, a, scalar, tile }) => {
            [7, binary(f), swapped.into(), v(dst), v(a), t(scalar), t(tile)]
        }
        OpKind::Math(Math::Fma { dst, a, b, c, tile }) => [8, v(dst), v(a), v(b), v(c), t(tile), 0],
        OpKind::Math(Math::Clamp { dst, a, lo, hi, tile }) => [9, v(dst), v(a), t(lo), t(hi), t(tile), 0],
        OpKind::Math(Math::Where { dst, cond, a, b, tile }) => [10, v(dst), v(cond), v(a), v(b), t(tile), 0],
        OpKind::Math(Math::Reduce { f, axis, dst, a, tile }) => [11, reduce(f), axis as u64, v(dst), v(a), t(tile), 0],
        OpKind::Math(Math::Softmax { axis, dst, a, tile }) => [12, axis as u64, v(dst), v(a), t(tile), 0, 0],
        OpKind::Math(Math::Dot { dst, a, b, tile }) => [13, v(dst), v(a), v(b), t(tile), 0, 0],
        OpKind::Math(Math::Transpose { dst, a, tile }) => [14, v(dst), v(a), t(tile), 0, 0, 0],
        OpKind::Math(Math::Cast { dst, a, tile }) => [15, v(dst), v(a), t(tile), 0, 0, 0],
        OpKind::Comm(Comm::Send { dir, src, tile }) => [16, dir.into(), v(src), t(tile), 0, 0, 0],
        OpKind::Comm(Comm::Recv { dir, dst, tile }) => [17, dir.into(), v(dst), t(tile), 0, 0, 0],
        OpKind::Comm(Comm::RecvAny { dst, tile }) => [18, v(dst), t(tile), 0, 0, 0, 0],
        OpKind::Comm(Comm::PostRecv { dir, dst, tile }) => [19, dir.into(), v(dst), t(tile), 0, 0, 0],
        OpKind::Comm(Comm::Await { value }) => [20, v(value), 0, 0, 0, 0, 0],
        OpKind::Control(Control::Signal { counter, add, posted }) => [21, t(counter), t(add), posted.into(), 0, 0, 0],
        OpKind::Control(Control::WaitCounter { counter, at_least }) => [22, t(counter), t(at_least), 0, 0, 0, 0],
        OpKind::Control(Control::Acquire { counter, amount }) => [25, t(counter), t(amount), 0, 0, 0, 0],
        OpKind::Comm(Comm::AwaitSlot { dir }) => [26, dir.into(), 0, 0, 0, 0, 0],
        OpKind::Control(Control::Barrier { id }) => [23, t(id), 0, 0, 0, 0, 0],
        OpKind::Control(Control::Fence) => [27, 0, 0, 0, 0, 0, 0],
        OpKind::Move(Move::ReducingLoad { f, dst, group, tile }) => [28, binary(f), v(dst), t(group), t(tile), 0, 0],
        OpKind::Move(Move::Multicast { src, group, tile }) => [29, v(src), t(group), t(tile), 0, 0, 0],
        OpKind::Control(Control::Delay { ps }) => [24, ps, 0, 0, 0, 0, 0],
    }
}

fn unary(f: UnaryFn) -> u64 {
    match f {
        UnaryFn::Neg => 0,
        UnaryFn::Exp => 1,
        UnaryFn::Log => 2,
        UnaryFn::Sqrt => 3,
    }
}

fn binary(f: BinaryFn) -> u64 {
    match f {
        BinaryFn::Add => 0,
        BinaryFn::Sub => 1,
        BinaryFn::Mul => 2,
        BinaryFn::Div => 3,
        BinaryFn::Max => 4,
        BinaryFn::Min => 5,
        BinaryFn::Lt => 6,
        BinaryFn::Le => 7,
        BinaryFn::Gt => 8,
        BinaryFn::Ge => 9,
        BinaryFn::Eq => 10,
        BinaryFn::Ne => 11,
        BinaryFn::And => 12,
        BinaryFn::Or => 13,
        BinaryFn::Xor => 14,
    }
}

fn reduce(f: ReduceFn) -> u64 {
    match f {
        ReduceFn::Sum => 0,
        ReduceFn::Max => 1,
        ReduceFn::Min => 2,
    }
}

fn dtype(d: Dtype) -> u64 {
    match d {
        Dtype::F16 => 0,
        Dtype::BF16 => 1,
        Dtype::F32 => 2,
        Dtype::F64 => 3,
        Dtype::I8 => 4,
        Dtype::I16 => 5,
        Dtype::I32 => 6,
        Dtype::I64 => 7,
        Dtype::U8 => 8,
        Dtype::U16 => 9,
        Dtype::U32 => 10,
        Dtype::U64 => 11,
        Dtype::F8E4M3 => 12,
        Dtype::F8E5M2 => 13,
    }
}

fn coord(h: &mut Hasher, at: Coord) {
    h.words([at.sip, at.cube, at.pe].map(u64::from));
}

fn node(h: &mut Hasher, node: Node) {
    h.words(match node {
        Node::Pe(pe) => [0, pe.0.into()],
        Node::Hbm(pe) => [1, pe.0.into()],
        Node::Sram(pe) => [2, pe.0.into()],
        Node::Io(sip) => [3, sip.into()],
    });
}

fn direction(h: &mut Hasher, direction: Direction) {
    let heading = |h: Heading| match h {
        Heading::N => 0,
        Heading::S => 1,
        Heading::E => 2,
        Heading::W => 3,
        Heading::U => 4,
        Heading::D => 5,
    };
    // Zero stands for an omitted part of an address.
    let part = |p: Option<u32>| p.map_or(0, |p| u64::from(p) + 1);
    h.words(match direction {
        Direction::Cube(x) => [0, heading(x), 0, 0],
        Direction::Global(x) => [1, heading(x), 0, 0],
        Direction::Dim(k) => [2, k.into(), 0, 0],
        Direction::Tag { rank, channel } => [4, rank.into(), channel.into(), 0],
        Direction::Peer { sip, cube, pe } => [3, part(sip), part(cube), part(pe)],
    });
}
