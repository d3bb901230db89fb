//! Fusion: a receive and the send of what it brought become one step.
//!
//! The compiler of the language compares the places of the two by buffer and index alone. A fused step stores at the
//! place that its send names, so [`Faith::Meant`] also asks that this is the place of the receive once slices of scratch
//! have offsets, that the send sends what was received and nothing newer, that a sum is kept unless all of it is
//! overwritten, that the program does not give the two different channels, and that there is a channel for all that
//! is fused.

use super::graph::Adjacency;
use super::record::{NONE, Op, Place, Recording};
use super::replicate::Layout;
use crate::Faith;
use ahbm_plan::blocks::Action;
use rustc_hash::FxHashSet;

/// A fusion that the language's own compiler does and that would change the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The receive.
    pub recv: u32,
    /// The send.
    pub send: u32,
    /// Why they are kept apart.
    pub why: Why,
}

/// Why two operations are kept apart, or fused otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The two places are apart once slices of scratch have offsets.
    Offsets,
    /// The send sends something newer.
    Newer,
    /// The sum is needed afterwards.
    Needed,
    /// The program gives them two channels.
    Channels,
    /// No channel fits all that would be fused.
    Crowded,
}

/// The program after fusion.
pub struct Fused {
    /// The operations; those that were fused into others are `Action::Nop`.
    pub ops: Vec<Op>,
    /// What comes after an operation.
    pub next: Adjacency,
    /// What comes before it.
    pub prev: Adjacency,
    /// What was not fused, or fused otherwise.
    pub kept: Vec<Kept>,
}

/// Fuses the operations of a recording, if `fusion`, but the receives of `crowded`.
pub fn fuse(recording: &Recording, layout: &Layout<'_>, fusion: bool, faith: Faith, crowded: &FxHashSet<u32>) -> Fused {
    let mut ops = recording.ops.clone();
    let edges = &recording.edges;
    let next = Adjacency::new(ops.len(), edges.iter().copied());
    let prev = Adjacency::new(ops.len(), edges.iter().map(|&(p, n)| (n, p)));
    if !fusion {
        return Fused { ops, next, prev, kept: Vec::new() };
    }
    let mut pass = Pass { layout, faith, crowded, next: &next, prev: &prev, kept: Vec::new(), gone: Vec::new() };
    for op in 0..ops.len() as u32 {
        if ops[op as usize].action == Some(Action::RecvReduceCopy) {
            pass.sum(&mut ops, op);
        }
    }
    for op in 0..ops.len() as u32 {
        if ops[op as usize].action == Some(Action::Recv) {
            pass.forward(&mut ops, op);
        }
    }
    let Pass { kept, gone, .. } = pass;
    if gone.is_empty() {
        return Fused { ops, next, prev, kept };
    }
    // What followed a send that is gone follows what came before it.
    let stays = |op: u32| ops[op as usize].action != Some(Action::Nop);
    let mut after: Vec<(u32, u32)> = edges.iter().copied().filter(|&(p, n)| stays(p) && stays(n)).collect();
    for &send in &gone {
        for &p in prev.of(send) {
            after.extend(next.of(send).iter().map(|&n| (p, n)));
        }
    }
    let next = Adjacency::new(ops.len(), after.iter().copied());
    let prev = Adjacency::new(ops.len(), after.iter().map(|&(p, n)| (n, p)));
    Fused { ops, next, prev, kept }
}

struct Pass<'a> {
    layout: &'a Layout<'a>,
    faith: Faith,
    crowded: &'a FxHashSet<u32>,
    next: &'a Adjacency,
    prev: &'a Adjacency,
    kept: Vec<Kept>,
    gone: Vec<u32>,
}

impl Pass<'_> {
    /// A receive that reduces, whose only successor is a send: without a store if a receive overwrites it next.
    fn sum(&mut self, ops: &mut [Op], recv: u32) {
        let &[send] = self.next.of(recv) else { return };
        if !alike(&ops[recv as usize], &ops[send as usize]) {
            return;
        }
        let own = ops[recv as usize].dst;
        let overwritten = match self.next.of(send) {
            &[last] if ops[last as usize].action == Some(Action::Recv) => Some(ops[last as usize].dst),
            _ => None,
        };
        let mut action = Action::RecvReduceCopySend;
        let mut needed = false;
        if let Some(by) = overwritten {
            needed = self.faith == Faith::Meant && !covers(by, own);
            action = if needed { Action::RecvReduceCopySend } else { Action::RecvReduceSend };
        }
        if self.faith == Faith::Meant && !self.sound(ops, recv, send, action) {
            return;
        }
        if needed {
            self.kept.push(Kept { recv, send, why: Why::Needed });
        }
        self.fuse(ops, recv, send, action);
    }

    /// A receive and the first send of what it brought.
    fn forward(&mut self, ops: &mut [Op], recv: u32) {
        for &send in self.next.of(recv) {
            if !alike(&ops[recv as usize], &ops[send as usize]) {
                continue;
            }
            if self.faith == Faith::Meant && !self.sound(ops, recv, send, Action::RecvCopySend) {
                continue;
            }
            return self.fuse(ops, recv, send, Action::RecvCopySend);
        }
    }

    fn sound(&mut self, ops: &[Op], recv: u32, send: u32, action: Action) -> bool {
        let why = if ops[recv as usize].channel != ops[send as usize].channel {
            Why::Channels
        } else if self.prev.of(send) != [recv] {
            Why::Newer
        } else if action.writes() && !self.layout.same_slots(ops[recv as usize].dst, ops[send as usize].dst) {
            Why::Offsets
        } else if self.crowded.contains(&recv) {
            Why::Crowded
        } else {
            return true;
        };
        self.kept.push(Kept { recv, send, why });
        false
    }

    fn fuse(&mut self, ops: &mut [Op], recv: u32, send: u32, action: Action) {
        let Op { dst, to, origin, .. } = ops[send as usize];
        let op = &mut ops[recv as usize];
        (op.action, op.dst, op.to, op.also) = (Some(action), dst, to, origin);
        if to != NONE {
            ops[to as usize].from = recv;
        }
        (ops[send as usize].action, ops[send as usize].to) = (Some(Action::Nop), NONE);
        self.gone.push(send);
    }
}

/// True where the language's own compiler looks: thread block, count, and buffer and index of both ends.
fn alike(recv: &Op, send: &Op) -> bool {
    send.action == Some(Action::Send)
        && (recv.tb, recv.dst.size) == (send.tb, send.dst.size)
        && (recv.dst.buffer, recv.dst.index) == (send.dst.buffer, send.dst.index)
}

fn covers(outer: Place, inner: Place) -> bool {
    (outer.rank, outer.buffer) == (inner.rank, inner.buffer)
        && outer.index <= inner.index
        && u64::from(inner.index) + u64::from(inner.size) <= u64::from(outer.index) + u64::from(outer.size)
}
