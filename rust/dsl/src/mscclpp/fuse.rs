//! Neighbouring operations of a thread block become one.
//!
//! An operation takes in its successor as long as the two fit. Even where they do not, a meeting of the block's threads
//! that the other one implies already is dropped.

use super::model::{Code, Op, Ref, Via};
use super::notes::Notes;
use crate::Faith;
use ahbm_formats::mscclpp::schema::Kind;

/// Fuses the operations of a thread block or of a loop's body.
pub(super) fn fuse(ops: Vec<Op>, faith: Faith, notes: &mut Notes<'_>) -> Vec<Op> {
    let mut out = Vec::with_capacity(ops.len());
    let mut current: Option<Op> = None;
    for mut next in ops {
        if let Some(body) = &mut next.body {
            body.ops = fuse(std::mem::take(&mut body.ops), faith, notes);
        }
        let taken = current.as_mut().is_some_and(|op| {
            let taken = take_in(op, &mut next, faith, notes);
            // A meeting of the block's threads that another one implies leaves no trace.
            if taken && next.code != Code::Nop {
                op.also.push(next.place);
            }
            taken
        });
        if !taken {
            out.extend(current.replace(next));
        }
    }
    out.extend(current);
    out
}

/// True when `a` has taken in `b`.
fn take_in(a: &mut Op, b: &mut Op, faith: Faith, notes: &mut Notes<'_>) -> bool {
    use Code::{Barrier, Get, Loop, Nop, Put, PutPackets, PutSignal, PutSignalFlush, ReadPutPackets};
    match (a.code, b.code) {
        (Nop, Nop) | (Barrier, Nop) => true,
        (Nop, Barrier) => replace(a, b),
        (Nop, Loop) => meets_first(b, faith, notes) && replace(a, b),
        (Nop | Barrier, code) if code.synchronises() => {
            b.meet.before = false;
            false
        }
        (Loop, Nop) => meets_last(a),
        (Loop, code) if code.synchronises() => {
            b.meet.before &= !meets_last(a);
            false
        }
        (code, _) if code.synchronises() => join_syncs(a, b, faith, notes),
        (Get, Get) | (Put, Put) | (PutPackets, PutPackets) => alike(a, b) && concatenate(a, b),
        (PutSignal, PutSignal) | (PutSignalFlush, PutSignalFlush) => {
            alike(a, b) && apart(a, b, "two signals through one channel", faith, notes) && concatenate(a, b)
        }
        (ReadPutPackets, ReadPutPackets) => {
            let fits = same(&a.src, &b.src) && a.kind == b.kind && a.part == b.part;
            fits && {
                a.dst.append(&mut b.dst);
                a.ids.append(&mut b.ids);
                true
            }
        }
        _ => join_reductions(a, b, faith, notes),
    }
}

fn replace(a: &mut Op, b: &mut Op) -> bool {
    *a = std::mem::replace(b, Op::new(Code::Nop, 0));
    true
}

/// Two signals, waits, flushes or operations on semaphores.
fn join_syncs(a: &mut Op, b: &mut Op, faith: Faith, notes: &mut Notes<'_>) -> bool {
    use Code::{Acquire, Flush, Release};
    let semaphores = matches!(a.code, Acquire | Release);
    let disjoint = || !a.ids.iter().any(|id| b.ids.contains(id));
    let fits = a.code == b.code && (semaphores || (a.kind == b.kind && (a.code == Flush || disjoint())));
    if fits && (!semaphores || apart(a, b, "a semaphore twice", faith, notes)) {
        let new = b.ids.iter().filter(|id| semaphores || !a.ids.contains(id)).copied().collect::<Vec<_>>();
        a.ids.extend(new);
        a.meet.before |= b.meet.before;
        a.meet.after |= b.meet.after;
        return true;
    }
    let met = match b.code {
        Code::Nop | Code::Barrier => true,
        Code::Loop => meets_first(b, faith, notes),
        code => code.synchronises() && b.meet.before,
    };
    a.meet.after &= !met;
    false
}

/// A reduction and what it is reduced with next, or where it is sent.
fn join_reductions(a: &mut Op, b: &mut Op, faith: Faith, notes: &mut Notes<'_>) -> bool {
    use Code::{
        CopyPackets, Put, PutPackets, ReadPutPackets, ReadReduce, ReadReduceSend, Reduce, ReduceCopyPackets,
        ReduceCopySendPackets, ReducePackets, ReduceSend, ReduceSendPackets, SwitchReduce, SwitchReduceStore,
        SwitchStore,
    };
    if a.part != b.part {
        return false;
    }
    let memory = b.kind == Kind::Memory;
    let code = match (a.code, b.code) {
        (Reduce, Reduce) | (ReducePackets, ReducePackets) | (ReadReduce, ReadReduce) => {
            let fits =
                same(&a.src[..1], &b.src[..1]) && same(&a.dst, &b.dst) && a.kind == b.kind && a.function == b.function;
            // The second reduction starts from its own operand, not from the result of the first.
            let chained = a.dst[0].chunk.same(&b.src[0].chunk);
            if fits && !chained && faith == Faith::Meant {
                notes.differs(
                    b.place,
                    "fuses two reductions into one although the second does not continue the first; they stay two",
                );
                return false;
            }
            if fits {
                a.src.extend(b.src.drain(1..));
            }
            return fits;
        }
        (Reduce | ReduceSend, Put) if memory => ReduceSend,
        (ReadReduce | ReadReduceSend, Put) if memory => ReadReduceSend,
        (ReducePackets | ReduceSendPackets, PutPackets) if memory => ReduceSendPackets,
        (ReducePackets, CopyPackets) => ReduceCopyPackets,
        (ReduceCopyPackets | ReduceCopySendPackets, PutPackets) if memory => ReduceCopySendPackets,
        (ReduceCopyPackets | ReduceCopySendPackets, ReadPutPackets) if memory => {
            if !a.dst[1].chunk.same(&b.src[0].chunk) {
                return false;
            }
            return send(a, b, ReduceCopySendPackets);
        }
        (SwitchReduce, SwitchStore) => {
            let (read, written) = (a.src[0], b.dst[0]);
            let size = read.chunk.size == written.chunk.size && read.chunk.space == written.chunk.space;
            if read.via != written.via || !size || !a.dst[0].chunk.same(&b.src[0].chunk) {
                return false;
            }
            a.code = SwitchReduceStore;
            a.dst = if faith == Faith::AsIs { vec![read] } else { vec![written] };
            if faith == Faith::Meant && read.chunk.index != written.chunk.index {
                notes.differs(b.place, "stores the sum where it was read; it is stored where this statement says");
            }
            return true;
        }
        _ => return false,
    };
    a.dst[0].chunk.same(&b.src[0].chunk) && send(a, b, code)
}

/// The result also goes where `b` puts it.
fn send(a: &mut Op, b: &mut Op, code: Code) -> bool {
    a.code = code;
    a.dst.append(&mut b.dst);
    if b.kind != Kind::None {
        a.kind = b.kind;
    }
    true
}

/// Transfers of one size, in one way.
fn alike(a: &Op, b: &Op) -> bool {
    a.src[0].chunk.size == b.src[0].chunk.size && a.kind == b.kind && a.part == b.part
}

fn concatenate(a: &mut Op, b: &mut Op) -> bool {
    a.src.append(&mut b.src);
    a.dst.append(&mut b.dst);
    a.ids.append(&mut b.ids);
    true
}

/// Whether no counter occurs in both, or it does not matter.
fn apart(a: &Op, b: &Op, what: &str, faith: Faith, notes: &mut Notes<'_>) -> bool {
    let shared = a.ids.iter().any(|id| b.ids.contains(id));
    if shared && faith == Faith::Meant {
        notes.differs(b.place, &format!("fuses {what} into one operation; they stay two"));
    }
    !shared || faith == Faith::AsIs
}

fn same(a: &[Ref], b: &[Ref]) -> bool {
    let equal = |(a, b): (&Ref, &Ref)| a.chunk.same(&b.chunk) && matches!(a.via, Via::Own) == matches!(b.via, Via::Own);
    a.len() == b.len() && a.iter().zip(b).all(equal)
}

/// True for a loop in which the threads meet first.
fn meets_first(op: &Op, faith: Faith, notes: &mut Notes<'_>) -> bool {
    let stop = |op: &Op| matches!(op.code, Code::Nop | Code::Barrier);
    let first = op.body().first().is_some_and(|first| stop(first) || first.meet.before);
    let last = !first && op.body().last().is_some_and(stop);
    if last && faith == Faith::Meant {
        notes.differs(
            op.place,
            "takes a loop that ends with a meeting of the block's threads for one that begins with it",
        );
    }
    first || (last && faith == Faith::AsIs)
}

/// True for a loop after which the threads have met.
fn meets_last(op: &Op) -> bool {
    op.body().last().is_some_and(|last| last.meet.after)
}
