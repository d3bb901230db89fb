//! The threads of a block meet before an operation that needs what another one has read or written.
//!
//! Only the rank's own memory counts, and only between operations of one thread block.

use super::model::{Code, Op, Via};
use super::notes::Notes;
use crate::Faith;
use ahbm_plan::Space;

/// A piece of a rank's own memory.
#[derive(Debug, Clone, Copy)]
struct Access {
    space: Space,
    start: u32,
    end: u32,
    write: bool,
}

impl Access {
    fn meets(&self, other: &Self) -> bool {
        self.space == other.space && self.start < other.end && other.start < self.end
    }
}

/// Inserts meetings, those inside loops first.
pub(super) fn resolve(ops: Vec<Op>, faith: Faith, notes: &mut Notes<'_>) -> Vec<Op> {
    let mut out = Vec::with_capacity(ops.len() + ops.len() / 4);
    let (mut meant, mut as_is) = (Meant::default(), AsIs::default());
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for (index, mut op) in ops.into_iter().enumerate() {
        if matches!(op.code, Code::Nop | Code::Barrier) {
            meant.known.clear();
            as_is.known.clear();
            out.push(op);
            continue;
        }
        own.clear();
        theirs.clear();
        if let Some(body) = &mut op.body {
            body.ops = resolve(std::mem::take(&mut body.ops), faith, notes);
        }
        for op in std::iter::once(&op).chain(op.body()) {
            accesses(op, Faith::Meant, &mut own);
            accesses(op, Faith::AsIs, &mut theirs);
        }
        let conflicts = as_is.conflicts(&theirs, index);
        let meets = match faith {
            Faith::AsIs => conflicts,
            Faith::Meant => {
                let meets = meant.conflicts(&own);
                match (meets, conflicts) {
                    (true, false) => notes.differs(op.place, "omits a nop that this statement's data need"),
                    (false, true) => notes.differs(op.place, "has a nop that this statement does not need"),
                    _ => {}
                }
                meets
            }
        };
        if meets {
            out.push(Op::new(Code::Nop, op.place));
        }
        out.push(op);
    }
    out
}

/// What an operation does to its rank's own memory, reads first.
fn accesses(op: &Op, faith: Faith, into: &mut Vec<Access>) {
    use Code::{
        Copy, CopyPackets, Get, Put, PutPackets, PutSignal, PutSignalFlush, SwitchReduce, SwitchReduceStore,
        SwitchStore, Unpack,
    };
    let meant = faith == Faith::Meant;
    let (reads, writes) = match op.code {
        Copy => (&op.src[..], &op.dst[..]),
        CopyPackets | Put | PutPackets | PutSignal | PutSignalFlush => (&op.src[..], &[][..]),
        Unpack | Get => (&[][..], &op.dst[..]),
        code if code.reduces_packets() && !meant => (&op.src[1..], &op.dst[..1]),
        SwitchReduce | SwitchReduceStore | SwitchStore if !meant => return,
        SwitchReduce | SwitchReduceStore | SwitchStore => (&op.src[..], &op.dst[..]),
        code if code.reduces() => (&op.src[..], &op.dst[..1]),
        _ => return,
    };
    let acting = [&op.src, &op.dst].into_iter().flatten().find(|r| matches!(r.via, Via::Switch(_)));
    let acting = acting.map(|r| r.chunk.rank);
    for (refs, write) in [(reads, false), (writes, true)] {
        for r in refs {
            let own = match r.via {
                Via::Own | Via::Switch(_) => true,
                Via::Named => Some(r.chunk.rank) == acting,
                Via::Remote(_) => false,
            };
            if own {
                let (space, start) = (r.chunk.space, r.chunk.index);
                into.push(Access { space, start, end: start + r.chunk.size, write });
            }
        }
    }
}

/// Every access since the threads met.
#[derive(Default)]
struct Meant {
    known: Vec<Access>,
}

impl Meant {
    /// True when an operation with these accesses has to come after an earlier one.
    fn conflicts(&mut self, accesses: &[Access]) -> bool {
        let against = |a: &Access| self.known.iter().any(|k| (k.write || a.write) && k.meets(a));
        let found = accesses.iter().any(against);
        if found {
            self.known.clear();
        }
        self.known.extend_from_slice(accesses);
        found
    }
}

/// The memory as the language's own compiler follows it: each element has the access that touched it last, and a
/// conflict forgets everything, what the same operation did before included.
#[derive(Default)]
struct AsIs {
    /// Disjoint pieces, with the operation.
    known: Vec<(Access, usize)>,
}

impl AsIs {
    fn conflicts(&mut self, accesses: &[Access], op: usize) -> bool {
        let mut found = false;
        for &access in accesses {
            loop {
                let overlapping = self.known.iter().enumerate().filter(|(_, (known, _))| known.meets(&access));
                let Some(at) = overlapping.min_by_key(|(_, (known, _))| known.end).map(|(at, _)| at) else { break };
                let (old, by) = self.known[at];
                if by != op && (old.write || access.write) {
                    self.known.clear();
                    found = true;
                    break;
                }
                self.known.swap_remove(at);
                if old.start < access.start {
                    self.known.push((Access { end: access.start, ..old }, by));
                }
                if access.end < old.end {
                    self.known.push((Access { start: access.end, ..old }, by));
                }
            }
            self.known.push((access, op));
        }
        found
    }
}
